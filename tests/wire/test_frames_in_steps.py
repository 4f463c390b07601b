"""Long frames are read in steps, which say together what they say when they are read in one piece."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.frame_strategies import bytes_of
from tidemark.errors import WireError
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_FIRST, TICK_LAST, CheckpointToken
from tidemark.wire.acknowledging import ack_layout
from tidemark.wire.acknowledging.ack_layout import STEP_ITEMS
from tidemark.wire.acknowledging.token_reader import TokenReader
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.fields import read_token, write_token
from tidemark.wire.frames import (
    Ack,
    Claim,
    Credit,
    Frame,
    Interest,
    LinkGrade,
    Links,
    Nack,
    Ping,
    Release,
    ReleaseRow,
    Subscribe,
    Together,
    Topic,
    Ways,
)
from tidemark.wire.layouts import STEPS_BYTES_MIN
from tidemark.wire.limits import FRAME_BYTES_MAX

LONG = tuple((f"subscriber {at}", CheckpointToken({"p": at, "q": -at})) for at in range(4_000))
CREDITS = tuple(Credit(f"subscriber {at}", 1 + at) for at in range(3_000))

pubends = st.text("pqr", min_size=1, max_size=3)
ticks = st.integers(TICK_FIRST, TICK_LAST)


def steps_of(raw: bytes, cuts: tuple[int, ...] = ()) -> list[list[Frame]]:
    """What each call of `feed` returns, with the bytes cut at these places."""
    decoder = FrameDecoder(FRAME_BYTES_MAX, divides=True)
    found: list[list[Frame]] = []
    for begin, end in pairwise((0, *cuts, len(raw))):
        found.append(decoder.feed(raw[begin:end]))
    while decoder.has_more:
        found.append(decoder.feed(b""))
    assert not decoder.waiting_bytes
    return found


def read_all(decoder: FrameDecoder, raw: bytes) -> list[Frame]:
    """The frames of these bytes."""
    found = decoder.feed(raw)
    while decoder.has_more:
        found += decoder.feed(b"")
    return found


def acks_of(raw: bytes, cuts: tuple[int, ...] = ()) -> list[Ack]:
    found = [frame for step in steps_of(raw, cuts) for frame in step]
    assert all(isinstance(frame, Ack) for frame in found)
    return found  # type: ignore[return-value]  # all of them are


def items_in(ack: Ack) -> int:
    return len(ack.tokens) + sum(len(token) for _, token in ack.tokens) + len(ack.credits)


def test_without_a_ticket_each_step_is_an_acknowledgement_to_handle() -> None:
    raw = bytes_of(Ack(LONG, 0, CREDITS))
    found = acks_of(raw)
    assert tuple(each for ack in found for each in ack.tokens) == LONG
    assert tuple(each for ack in found for each in ack.credits) == CREDITS
    assert all(ack.ticket == 0 for ack in found)
    assert max(map(items_in, found)) <= 2 * STEP_ITEMS + 3
    assert len(steps_of(raw)) >= (3 * len(LONG) + len(CREDITS)) // STEP_ITEMS


def test_with_a_ticket_it_is_whole_and_comes_with_the_last_step() -> None:
    sent = Ack(LONG, 5, CREDITS)
    *before, last = steps_of(bytes_of(sent))
    assert last == [sent]
    assert len(before) > (3 * len(LONG) + len(CREDITS)) // STEP_ITEMS - 3
    assert not any(before)


def test_one_that_is_not_long_is_read_at_once() -> None:
    sent = Ack(LONG[:100])
    assert len(bytes_of(sent)) < STEPS_BYTES_MIN
    assert steps_of(bytes_of(sent)) == [[sent]]


def test_frames_before_and_after_it_keep_their_order() -> None:
    raw = bytes_of(Ping(1), Ack(LONG, 5), Ping(2), Ack(LONG, 6), Ping(3))
    found = [frame for step in steps_of(raw) for frame in step]
    assert found == [Ping(1), Ack(LONG, 5), Ping(2), Ack(LONG, 6), Ping(3)]


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30, 40_000, 70_000, 100_000])
def test_any_cut_gives_the_same(cut: int) -> None:
    sent: list[Frame] = [Ping(1), Ack(LONG, 5), Ping(2)]
    raw = bytes_of(*sent)
    for cuts in ((cut,), (cut, cut + 1), (cut, len(raw) - cut), (len(raw) - 3,)):
        assert [frame for step in steps_of(raw, tuple(sorted(cuts))) for frame in step] == sent


def test_what_comes_while_it_is_read_waits() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX, divides=True)
    raw = bytes_of(Ack(LONG, 5))
    assert decoder.feed(raw) == []
    assert decoder.waiting_bytes == len(raw)
    assert decoder.feed(bytes_of(Ping(1))) == []
    assert read_all(decoder, b"") == [Ack(LONG, 5), Ping(1)]


def test_it_counts_once_with_all_its_bytes() -> None:
    raw = bytes_of(Ack(LONG))
    decoder = FrameDecoder(FRAME_BYTES_MAX, divides=True)
    decoder.tally = {Ack: [0, 0]}
    read_all(decoder, raw)
    assert decoder.tally == {Ack: [1, len(raw)]}


@pytest.mark.parametrize("ticket", [0, 7])
@pytest.mark.parametrize("damage", ["twice", "cut", "text", "left over", "too many"])
def test_what_is_damaged_is_refused_as_in_one_piece(
    ticket: int, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = LONG
    with monkeypatch.context() as patch:
        if damage == "twice":
            patch.setattr(ack_layout, "_check_none_twice", lambda *_: None)
            tokens = (*LONG, LONG[0])
        if damage == "too many":
            patch.setattr(ack_layout, "ACK_ITEMS_MAX", 1 << 30)
            tokens = tuple((f"s{at}", CheckpointToken()) for at in range(40_000))
        raw = bytearray(bytes_of(Ack(tokens, ticket)))
    if damage == "cut":
        raw[-26] += 1
    if damage == "text":
        raw[raw.rindex(b"subscriber")] = 0xFF
    if damage == "left over":
        raw += b"x"
        raw[:4] = (len(raw) - 8).to_bytes(4, "little")
    with pytest.raises(WireError) as whole:
        FrameDecoder(FRAME_BYTES_MAX).feed(raw)
    decoder = FrameDecoder(FRAME_BYTES_MAX, divides=True)
    with pytest.raises(WireError) as in_steps:
        read_all(decoder, bytes(raw))
    assert str(in_steps.value) == str(whole.value)
    with pytest.raises(WireError):
        decoder.feed(b"")


FROM_BROKERS: tuple[tuple[Frame, int], ...] = (
    (Release("p", tuple(ReleaseRow(f"host {at}", 1, at, at) for at in range(4_096))), 16),
    (Links("me", 1, tuple(f"broker {at}" for at in range(4_096))), 16),
    (Ways(tuple(f"p{at}" for at in range(4_096)), tuple(LinkGrade(f"b{at}", 1) for at in range(4_096))), 32),
    (Interest("p", 1, tuple(TopicSelector(f"t.{at}", "n = 1") for at in range(1_024))), 4),
    (Nack("p", tuple((2 * at, 2 * at + 1) for at in range(4_096)), 1), 1),
    (Together(tuple(Claim(f"s{at}", 1, "b", settled=True) for at in range(4_096))), 32),
    (Together(tuple(Claim(f"s{at}" * 30, 1, "b", settled=True) for at in range(129))), 1),
    (Topic("t", True, tuple(f"[field_{at}: int]" for at in range(4_096))), 16),
    (Subscribe("s", "t", "", True, 1, CheckpointToken({f"p{at}": 1 for at in range(4_096)})), 1),
)


@pytest.mark.parametrize(
    ("sent", "steps"), FROM_BROKERS, ids=lambda each: getattr(type(each), "__name__", "")
)
def test_what_is_long_of_a_broker_is_read_in_steps_too(sent: Frame, steps: int) -> None:
    raw = bytes_of(Ping(1), sent, sent, Ping(2))
    ping, *found = steps_of(raw)
    assert ping == [Ping(1)]
    assert [frame for step in found for frame in step] == [sent, sent, Ping(2)]
    assert len(found) == 2 * (steps + 1) + 1
    assert steps_of(raw, (9, 200, len(raw) - 9))[-1] == [Ping(2)]


def test_a_few_frames_together_are_read_at_once() -> None:
    few = Together(tuple(Claim(f"s{at}" * 30, 1, "b", settled=True) for at in range(128)))
    assert len(bytes_of(few)) > STEPS_BYTES_MIN
    assert steps_of(bytes_of(Ping(1), few, Ping(2))) == [[Ping(1), few, Ping(2)]]


@pytest.mark.parametrize(
    ("sent", "_steps"), FROM_BROKERS, ids=lambda each: getattr(type(each), "__name__", "")
)
def test_what_is_long_and_damaged_is_refused_as_in_one_piece(sent: Frame, _steps: int) -> None:
    raw = bytes_of(sent)
    for at in (len(raw) - 5, len(raw) // 2, 30):
        for byte in (0, 0xFF):
            damaged = bytearray(raw)
            damaged[at] = byte
            outcomes = [
                outcome(FrameDecoder(FRAME_BYTES_MAX, divides=divides), damaged) for divides in (False, True)
            ]
            assert outcomes[0] == outcomes[1]


def outcome(decoder: FrameDecoder, raw: bytearray) -> object:
    """The frames of these bytes, or what is wrong with them."""
    try:
        return read_all(decoder, bytes(raw))
    except WireError as error:
        return str(error)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(st.dictionaries(pubends, ticks, max_size=4), max_size=12))
def test_tokens_of_the_same_pubends_are_read_as_each_by_itself(given_ticks: list[dict[str, int]]) -> None:
    tokens = [CheckpointToken(each) for each in given_ticks]
    # Each comes twice, so that what was learnt of it is used.
    raw = b"".join(write_token(token) * 2 for token in tokens)
    reader, at = TokenReader(), 0
    for token in [each for each in tokens for _ in range(2)]:
        expected, stop = read_token(raw, at, len(raw))
        found, at = reader.read(raw, at, len(raw))
        assert (found, at) == (expected, stop)
        assert found == token
        assert list(found.items()) == list(token.items())
    assert at == len(raw)


@pytest.mark.parametrize("tick", [TICK_LAST + 1, TICK_FIRST - 1])
def test_a_tick_that_is_none_is_refused_after_tokens_of_the_same_pubends(tick: int) -> None:
    good = write_token(CheckpointToken({"p": 5}))
    raw = good + good[:-8] + tick.to_bytes(8, "little", signed=True)
    reader = TokenReader()
    _, at = reader.read(raw, 0, len(raw))
    with pytest.raises(WireError, match="is not a tick"):
        reader.read(raw, at, len(raw))


def test_pubends_in_another_order_are_read_in_theirs() -> None:
    good = write_token(CheckpointToken({"p": 5, "q": 6}))
    head, p, q = good[:4], good[4:15], good[15:]
    raw = (head + q + p) * 2
    reader, at = TokenReader(), 0
    for _ in range(2):
        found, at = reader.read(raw, at, len(raw))
        assert list(found.items()) == [("p", 5), ("q", 6)]
