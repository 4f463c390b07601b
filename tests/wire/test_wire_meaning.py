"""What later code relies on is checked when a frame is read: ranges, ticks, names and numbers."""

from __future__ import annotations

from struct import pack

import pytest

from tests.wire.frame_strategies import batch_of, bytes_of
from tidemark.errors import WireError
from tidemark.message.batches.batch import BatchBuilder
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    AckExpected,
    Ask,
    Claim,
    Credit,
    Deliver,
    Fetch,
    Fetched,
    Frame,
    Gap,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Lease,
    Line,
    Links,
    Nack,
    Offer,
    Overlay,
    Ping,
    Publish,
    Published,
    Recall,
    Recalled,
    Release,
    ReleaseRow,
    Rest,
    Subscribe,
    Subscribed,
    Unfollow,
)
from tidemark.wire.limits import FRAME_BYTES_MAX, MOVE_MAX
from tidemark.wire.moving.frames import Come, Leave


def frame_of(kind: int, payload: bytes) -> bytes:
    return pack("<IBBH", len(payload), kind, 1, 0) + payload


def name(text: str) -> bytes:
    return pack("<H", len(text)) + text.encode()


def refuses(raw: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        FrameDecoder().feed(raw)


def knowledge(base: int, upto: int, ticks: list[int], *damaged: tuple[int, int]) -> Knowledge:
    return Knowledge("p", base, upto, 0, True, 1, batch_of(ticks) if ticks else None, damaged)


SENT_WRONGLY: dict[str, tuple[Frame, str]] = {
    "knowledge of no range": (knowledge(5, 4, []), "not a range"),
    "a tick at the base": (knowledge(5, 9, [5, 6]), "ticks"),
    "a tick beyond upto": (knowledge(5, 9, [6, 10]), "ticks"),
    "a tick twice": (knowledge(5, 9, [6, 6]), "ticks"),
    "ticks backwards": (knowledge(5, 9, [6, 8, 7, 9]), "ticks"),
    "an empty damaged range": (knowledge(5, 9, [], (6, 6)), "empty"),
    "damaged before the base": (knowledge(5, 9, [], (4, 6)), "beyond"),
    "damaged after upto": (knowledge(5, 9, [], (6, 7), (8, 10)), "beyond"),
    "damaged out of order": (knowledge(5, 9, [], (7, 8), (6, 7)), "out of order"),
    "delivery of no range": (Deliver("s", "p", 2, 1), "not a range"),
    "a delivered tick outside": (Deliver("s", "p", 2, 5, batch_of([6])), "ticks"),
    "a recalled tick outside": (Recalled(1, 2, 5, batch_of([6])), "ticks"),
    "recalled of no range": (Recalled(1, 5, 2), "not a range"),
    "gone before the base": (Recalled(1, 5, 9, None, ((4, 6),)), "beyond"),
    "gone after upto": (Recalled(1, 5, 9, None, ((6, 7), (8, 10))), "beyond"),
    "gone out of order": (Recalled(1, 5, 9, None, ((7, 8), (6, 7))), "out of order"),
    "an empty nack range": (Nack("p", ((1, 1),), 1), "empty"),
    "a nack range backwards": (Nack("p", ((2, 1),), 1), "empty"),
    "overlapping nack ranges": (Nack("p", ((1, 5), (4, 6)), 1), "overlaps"),
}


@pytest.mark.parametrize("what", SENT_WRONGLY)
def test_a_frame_that_cannot_be_true_is_refused(what: str) -> None:
    frame, reason = SENT_WRONGLY[what]
    refuses(bytes_of(frame), reason)


def with_first_number(frame: Frame, number: int) -> bytes:
    raw = bytearray(bytes_of(frame))
    raw[8:16] = pack("<q", number)
    return bytes(raw)


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_a_credit_and_a_sequence_are_positive(number: int) -> None:
    refuses(with_first_number(Credit("s", 1), number), "bytes is")
    refuses(with_first_number(Publish("p", "q", 1, batch_of([0])), number), "sequence")


def test_what_is_logged_of_a_publisher_may_be_nothing_and_its_moves_count_from_1() -> None:
    for frame in (Published("p", "q", 1, 1), Leave("p", "q", 1, 1, "r"), Come("p", "q", 1, 1)):
        assert FrameDecoder().feed(with_first_number(frame, 0)) != [frame]
        refuses(with_first_number(frame, -1), "sequence|outside 0 to")
    for frame in (Leave("p", "q", 1, 0, "r"), Come("p", "q", 1, 0), Leave("p", "q", 1, MOVE_MAX + 1, "r")):
        with pytest.raises(WireError, match="outside 1 to"):
            encode(frame)


def test_the_events_of_a_publish_are_numbered_within_an_int64() -> None:
    refuses(with_first_number(Publish("p", "q", 1, batch_of([0, 0])), 2**63 - 1), "sequence")


def test_what_counts_is_not_negative() -> None:
    refuses(with_first_number(Ack(()), -1), "ticket")
    refuses(with_first_number(Subscribe("s", "t", "", True, 1), -1), "outside 0 to")
    refuses(with_first_number(Nack("p", ((1, 2),), 1), -1), "outside 0 to")
    refuses(with_first_number(Heard("p", "b", 1), -1), "outside 0 to")
    raw = bytearray(bytes_of(knowledge(0, 1, [])))
    raw[32:40] = pack("<q", -1)
    refuses(bytes(raw), "version")


def test_a_gap_has_a_range() -> None:
    refuses(with_first_number(Gap("s", "p", 1, 2), 3), "not a range")


#: base and upto of a recall, and of its lines
RECALLED_WRONGLY: dict[str, tuple[int, int, list[tuple[int, int]]]] = {
    "of nothing": (5, 5, [(5, 5)]),
    "without lines": (5, 9, []),
    "with a line before it": (5, 9, [(4, 6)]),
    "with a line beyond it": (5, 9, [(5, 10)]),
    "with lines that overlap": (5, 9, [(5, 8), (7, 9)]),
    "with an empty line": (5, 9, [(6, 6)]),
}


@pytest.mark.parametrize("what", RECALLED_WRONGLY)
def test_the_lines_of_a_recall_follow_one_another_within_it(what: str) -> None:
    base, upto, lines = RECALLED_WRONGLY[what]
    with pytest.raises(WireError, match="recall"):
        encode(Recall(1, "p", base, upto, tuple(Line(TopicSelector("t", ""), *each) for each in lines), 9))
    written = [pack("<qq", *each) + name("t") + name("") for each in lines]
    head = pack("<qqqq", 1, base, upto, 9) + name("p") + pack("<I", len(lines))
    refuses(frame_of(52, head + b"".join(written)), "recall")


def test_a_publish_has_a_batch_and_a_batch_has_events() -> None:
    refuses(frame_of(36, pack("<q", 1) + name("p") + name("q")), "no batch")
    fields, _ = encode(Deliver("s", "p", 0, 9, batch_of([1])))
    empty = bytes(BatchBuilder().build().data)
    refuses(pack("<I", len(fields) - 8 + len(empty)) + bytes(fields[4:]) + empty, "no events")


def test_a_damaged_batch_is_refused() -> None:
    raw = bytearray(bytes_of(Publish("p", "q", 1, batch_of([1]))))
    raw[raw.index(b"TMB1") + 4] = 9
    refuses(bytes(raw), "the batch is damaged")


def subscribed(*entries: tuple[str, int]) -> bytes:
    token = pack("<I", len(entries)) + b"".join(name(pubend) + pack("<q", tick) for pubend, tick in entries)
    return frame_of(39, name("s") + token + pack("<I", 0))


def test_a_token_may_be_in_any_order_but_names_a_pubend_once() -> None:
    token = CheckpointToken({"a": 2, "b": 1})
    assert FrameDecoder().feed(subscribed(("b", 1), ("a", 2))) == [Subscribed("s", token)]
    refuses(subscribed(("a", 1), ("a", 1)), "twice")
    refuses(subscribed(("", 1)), "malformed")


def test_an_ack_names_a_subscriber_once() -> None:
    entry = name("s") + pack("<I", 0)
    refuses(frame_of(42, pack("<qI", 0, 2) + entry + entry), "twice")


def test_long_names_and_selectors_are_refused_when_read() -> None:
    refuses(frame_of(35, name("n" * 256)), "a name of 256 bytes")
    subscribe = pack("<qqB", 0, 0, 1) + name("s") + name("t") + name("x" * 4_097) + b"\0"
    refuses(frame_of(38, subscribe), "4097 characters")


# Numbers have bounds of their own, long before int64 ends.

HOSTILE = (2**63 - 1, 2**63 - 2, 2**62, -(2**63) + 1, -(2**62))
#: numbers by which a frame's int64 can be found in its bytes
MARKS = tuple(range(1_000_001, 1_000_009))


def int64s(raw: bytes) -> list[int]:
    """Where the bytes of a frame hold one of MARKS."""
    return [at for at in range(8, len(raw) - 7) if int.from_bytes(raw[at : at + 8], "little") in MARKS]


MARKED: tuple[tuple[Frame, int], ...] = (
    (Hello("b", MARKS[0]), 1),
    (Knowledge("p", MARKS[0], MARKS[3], MARKS[1], True, MARKS[2], batch_of([MARKS[3]])), 5),
    (Nack("p", ((MARKS[0], MARKS[1]),), MARKS[2]), 3),
    (AckExpected("p", MARKS[0]), 1),
    (Release("p", (ReleaseRow("h", MARKS[0], MARKS[1], MARKS[2]),)), 3),
    (Heard("p", "h", MARKS[0]), 1),
    (Interest("p", MARKS[0], None), 1),
    (Unfollow("p", MARKS[0]), 1),
    (Claim("s", MARKS[0], "b", True), 1),
    (Links("b", MARKS[0], ()), 1),
    (Overlay(MARKS[0], "d"), 1),
    (Publish("p", "q", MARKS[0], batch_of([0])), 1),
    (Subscribe("s", ">", "", True, MARKS[0], CheckpointToken({"p": MARKS[1]}), MARKS[2]), 3),
    (Ack((("s", CheckpointToken({"p": MARKS[0]})),), MARKS[1]), 2),
    (Credit("s", MARKS[0]), 1),
    (Fetch(MARKS[0], "p", MARKS[1], MARKS[2], ">", "", MARKS[3]), 4),
    (Fetched(MARKS[0], "p", MARKS[1], MARKS[4], MARKS[2], batch_of([MARKS[4]]), ((MARKS[1], MARKS[3]),)), 7),
    (Recalled(MARKS[0], MARKS[1], MARKS[4], None, ((MARKS[1], MARKS[3]),)), 5),
    (Ask(MARKS[0], "topics"), 1),
    (Offer(MARKS[0]), 1),
    (Lease(MARKS[0], "a:1", "k"), 1),
    (Rest(MARKS[0]), 1),
    (Ping(MARKS[0]), 1),
)


@pytest.mark.parametrize(("frame", "count"), MARKED, ids=lambda each: type(each).__name__)
def test_every_number_of_a_frame_is_bounded_where_it_is_decoded(frame: Frame, count: int) -> None:
    raw = bytes_of(frame)
    assert FrameDecoder(FRAME_BYTES_MAX).feed(raw) == [frame]
    places = int64s(raw)
    assert len(places) == count
    for at in places:
        for number in HOSTILE:
            if number == TICK_MAX and isinstance(frame, Release | Fetch) and _is_endless(frame, at, raw):
                continue
            with pytest.raises(WireError):
                FrameDecoder(FRAME_BYTES_MAX).feed(raw[:at] + pack("<q", number) + raw[at + 8 :])


def _is_endless(frame: Frame, at: int, raw: bytes) -> bool:
    """Whether TICK_MAX means something there: a host without subscribers, or a fetch without an end."""
    ends = (frame.rows[0].released, frame.rows[0].delivered) if isinstance(frame, Release) else (frame.upto,)  # type: ignore[union-attr]
    return int.from_bytes(raw[at : at + 8], "little") in ends


def test_the_error_names_the_field_the_value_and_the_bound() -> None:
    raw = bytes_of(Subscribe("s", ">", "", True, 1, None, MARKS[0]))
    (at,) = int64s(raw)
    with pytest.raises(WireError, match=rf"Subscribe .* stamp: .*{2**63 - 1} is outside 0 to {2**61 - 1}"):
        FrameDecoder(FRAME_BYTES_MAX).feed(raw[:at] + pack("<q", 2**63 - 1) + raw[at + 8 :])


def test_what_clocks_and_counters_give_always_fits() -> None:
    """In the year 3000, and after a broker has started a million times and said four billion things."""
    wall = 1_030 * 366 * 86_400 * 1_000_000
    counter = (1_000_000 << 32) + 2**32 - 1
    for frame in (
        Hello("b", 1_000_000),
        Knowledge("p", TICK_MIN, wall, TICK_MIN, True, counter, batch_of([wall])),
        Nack("p", ((TICK_MIN, wall),), counter),
        Release("p", (ReleaseRow("h", counter, TICK_MAX, TICK_MAX),)),
        Claim("s", wall, "b", True),
        Subscribe("s", ">", "", True, 1, CheckpointToken({"p": wall, "q": TICK_MIN}), wall),
        Publish("p", "q", 10**15, batch_of([0])),
        Fetch(1, "p", TICK_MIN, TICK_MAX, ">", "", 8 << 20),
    ):
        assert FrameDecoder(FRAME_BYTES_MAX).feed(bytes_of(frame)) == [frame]
