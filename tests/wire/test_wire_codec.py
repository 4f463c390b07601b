"""Every frame comes back as it was sent, and what is over the limits never leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.wire.frame_strategies import KINDS, OF_KIND, batch_of, bytes_of, naming, words
from tidemark.errors import WireError
from tidemark.matching.selectors import parser
from tidemark.message.batches.batch import BATCH_BYTES_MAX, BatchBuilder
from tidemark.message.parse import SCHEMA_TEXT_CHARS_MAX
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken
from tidemark.wire import limits
from tidemark.wire.acknowledging import ack_layout
from tidemark.wire.codec import encode, size_of
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Answer,
    Ask,
    Connect,
    Credit,
    Deliver,
    Describe,
    Frame,
    Gap,
    Hello,
    Interest,
    Knowledge,
    Links,
    Nack,
    Overlay,
    Ping,
    Publish,
    Published,
    Release,
    ReleaseRow,
    Subscribe,
    Together,
    Topic,
    Welcome,
)
from tidemark.wire.layouts import HEADER


def test_every_frame_has_a_strategy() -> None:
    assert set(OF_KIND) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_frame_comes_back_as_it_was_sent(kind: type[Any]) -> None:
    @settings(derandomize=True, deadline=None, max_examples=40)
    @given(OF_KIND[kind])
    def comes_back(frame: Frame) -> None:
        assert FrameDecoder(limits.FRAME_BYTES_MAX).feed(bytes_of(frame)) == [frame]

    comes_back()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(words, words)
def test_a_batch_is_sent_from_its_own_buffer_at_a_multiple_of_8(name: str, pubend: str) -> None:
    batch = batch_of([5, 6])
    fields, tail = encode(Deliver(name, pubend, 0, 9, batch))
    assert tail is batch.data
    assert len(fields) % 8 == 0
    assert size_of([fields, tail]) == len(fields) + len(tail)


def test_a_batch_that_was_read_can_be_written_to() -> None:
    (frame,) = FrameDecoder().feed(bytes_of(Publish("b", "p", 1, batch_of([0, 0]))))
    assert isinstance(frame, Publish)
    assert isinstance(frame.batch.data, bytearray)
    frame.batch.fill_ticks(batch_of([8, 9]).ticks)
    assert frame.batch == batch_of([8, 9])


LONG_NAMES = [f"{at:02}" * 125 for at in range(16)]
OVER: dict[str, Frame] = {
    "name": Describe("n" * 256),
    "name in UTF-8": Describe("é" * 128),
    "half a surrogate": Describe("\ud800"),
    "name of two lines": Describe("one\ntwo"),
    "name that turns the writing": Describe("one\u202etwo"),
    "selector": Subscribe("s", "t", "x" * 4_097, True, 0),
    "schema": Topic("t", False, ("x" * (limits.SCHEMA_BYTES_MAX + 1),)),
    "schemas": Topic("t", False, ("",) * (limits.SCHEMAS_MAX + 1)),
    "payload": Answer(1, "x" * (limits.JSON_BYTES_MAX + 1)),
    "ranges": Nack("p", tuple((at, at + 1) for at in range(limits.RANGES_MAX + 1)), 1),
    "wanted": Interest("p", 1, (TopicSelector("t", ""),) * (limits.WANTED_MAX + 1)),
    "handshake": Welcome("b", 1, 1, ("p" * 200,) * 50),
    "int64": Ping(2**63),
    "int64 among names": Deliver("s", "p", 0, 2**63),
    "version": Connect("c", 1, 65_536),
    "incarnation": Hello("b", -1),
    "release sequence": Release("p", (ReleaseRow("b", -1, 0, 0),)),
    "rows": Release("p", (ReleaseRow("b", 1, 0, 0),) * (limits.ROWS_MAX + 1)),
    "neighbours": Links("b", 1, ("n",) * (limits.NEIGHBOURS_MAX + 1)),
    "topology": Overlay(1, "d", "x" * (limits.OVERLAY_BYTES_MAX + 1)),
    "no credit": Credit("s", 0),
    "no sequence": Published("p", "q", -1, 0),
    "no gap": Gap("s", "p", 2, 1),
    "no event": Publish("p", "q", 1, BatchBuilder().build()),
    "last sequence": Publish("p", "q", 2**63 - 1, batch_of([1])),
    "published at once": Publish("p", "q", 1, batch_of(list(range(1, 6)), message=b"m" * (1 << 20))),
    "named at once": Publish("p", "q", 1, naming(limits.PUBLISH_NAMES_BYTES_MAX // 200)),
    "ticket": Ack((), -1),
    "acknowledged at once": Ack(
        tuple((f"{at}", CheckpointToken(dict.fromkeys(LONG_NAMES, 1))) for at in range(1_200))
    ),
    "pubends of a token": Subscribe(
        "s", "t", "", True, 0, CheckpointToken({f"p{at}": 1 for at in range(limits.TOKEN_PUBENDS_MAX + 1)})
    ),
    "arguments": Ask(1, "topics", "x" * (limits.ARGUMENTS_BYTES_MAX + 1)),
    "long arguments": Ask(1, "propose", "x" * ((6 << 20) + 1)),
    "said together": Together((Interest("p", 1, (TopicSelector("t", "x" * 4_096),) * 100),) * 2),
    "named twice": Ack((("s", CheckpointToken()),) * 2),
    "batch": Deliver("s", "p", 0, 99, batch_of(list(range(1, 18)), message=b"m" * (1 << 20))),
}


@pytest.mark.parametrize("what", OVER)
def test_what_is_over_a_limit_never_leaves(what: str) -> None:
    with pytest.raises(WireError, match=f"this {type(OVER[what]).__name__} cannot be sent"):
        encode(OVER[what])


def test_the_largest_frame_fits_its_limit() -> None:
    damaged = tuple((at, at + 1) for at in range(limits.RANGES_MAX))
    frame = Knowledge("p" * 255, 0, 9_999, 0, True, 1, batch_of([1]), damaged)
    fields, _ = encode(frame)
    assert len(fields) + BATCH_BYTES_MAX <= limits.FRAME_BYTES_MAX
    assert FrameDecoder(limits.FRAME_BYTES_MAX).feed(bytes_of(frame)) == [frame]


def test_limits_are_not_below_those_of_what_is_sent() -> None:
    assert limits.SELECTOR_CHARACTERS_MAX == parser.SELECTOR_CHARACTERS_MAX
    assert limits.SCHEMA_BYTES_MAX >= 4 * SCHEMA_TEXT_CHARS_MAX


def test_a_publish_that_is_too_large_is_refused_by_its_header() -> None:
    _, key, flags = HEADER.unpack_from(bytes_of(Publish("p", "q", 1, batch_of([1]))))
    with pytest.raises(WireError, match=r"a frame Publish of 5\d+ bytes is over the limit of 4\d+"):
        FrameDecoder(limits.FRAME_BYTES_MAX).feed(HEADER.pack(5 << 20, key, flags))
    decoder = FrameDecoder(limits.FRAME_BYTES_MAX)
    for byte in HEADER.pack(5 << 20, key, flags)[:-1]:
        assert decoder.feed(bytes((byte,))) == []
    with pytest.raises(WireError, match="is over the limit of 4"):
        decoder.feed(bytes(1))


def test_a_batch_that_names_too_much_is_refused_before_the_names_are_read() -> None:
    few = naming(3)
    raw = bytearray(bytes_of(Publish("p", "q", 1, few)))
    at = raw.index(b"TMB1")
    raw[at + 8 : at + 12] = (limits.PUBLISH_NAMES_BYTES_MAX + 8).to_bytes(4, "little")
    with pytest.raises(WireError, match="that one batch names are over the limit of 262144"):
        FrameDecoder(limits.FRAME_BYTES_MAX).feed(raw)


@pytest.mark.parametrize("kind", [Ack, Together])
def test_a_frame_that_is_too_large_for_its_kind_is_refused_by_its_header(kind: type[Any]) -> None:
    """Nothing of it is decoded: what decoding costs is bounded by the header."""
    small = Ack(()) if kind is Ack else Together((Nack("p", ((1, 2),), 1),) * 2)
    _, key, flags = HEADER.unpack_from(bytes_of(small))
    with pytest.raises(WireError, match=f"a frame {kind.__name__} of .* bytes is over the limit"):
        FrameDecoder(limits.FRAME_BYTES_MAX).feed(HEADER.pack(limits.ACK_BYTES_MAX + 1, key, flags))


def test_what_clients_of_earlier_versions_acknowledge_at_once_is_understood() -> None:
    token = CheckpointToken({"orders": 1 << 40})
    frame = Ack(
        tuple((f"subscription{at:06}", token) for at in range(10_000)),
        0,
        tuple(Credit(f"subscription{at:06}", 1) for at in range(10_000)),
    )
    assert FrameDecoder(limits.FRAME_BYTES_MAX).feed(bytes_of(frame)) == [frame]


def test_an_acknowledgement_of_too_many_things_is_not_read_to_its_end() -> None:
    token = CheckpointToken({f"p{at}": 1 for at in range(16)})
    frame = Ack(tuple((f"s{at}", token) for at in range(2_000)))
    with pytest.raises(WireError, match="at most 32768"):
        bytes_of(frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ack_layout, "ACK_ITEMS_MAX", 1 << 30)
        too_many = bytes_of(frame)
        granted = bytes_of(Ack((), 0, tuple(Credit(f"s{at}", 1) for at in range(40_000))))
    for said in (too_many, granted):
        with pytest.raises(WireError, match="at most 32768"):
            FrameDecoder(limits.FRAME_BYTES_MAX).feed(said)


@pytest.mark.parametrize("what", ["propose", "propose_access", "seek", "archived", "let_go"])
def test_questions_that_bring_a_document_or_a_token_may_be_long(what: str) -> None:
    frame = Ask(1, what, "x" * (1 << 20))
    assert FrameDecoder(limits.FRAME_BYTES_MAX).feed(bytes_of(frame)) == [frame]
