"""Frames however the network cuts them; sizes, handshake and errors of the stream of bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.frame_strategies import batch_of, bytes_of, frames
from tidemark.errors import WireError
from tidemark.ticks import CheckpointToken
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Connect,
    Credit,
    Deliver,
    Describe,
    Frame,
    Hello,
    Ping,
    Publish,
    Topic,
    Unsubscribe,
)
from tidemark.wire.limits import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX

few = st.lists(frames, max_size=4)


def fed(parts: list[bytes]) -> list[Frame]:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    return [frame for part in parts for frame in decoder.feed(part)]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(few, st.data())
def test_any_cuts_give_the_same_frames(sent: list[Frame], data: st.DataObject) -> None:
    raw = bytes_of(*sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    edges = [0, *cuts, len(raw)]
    assert fed([raw[a:b] for a, b in pairwise(edges)]) == sent


@settings(derandomize=True, deadline=None, max_examples=25)
@given(few)
def test_byte_by_byte_gives_the_same_frames(sent: list[Frame]) -> None:
    raw = bytes_of(*sent)
    assert fed([raw[at : at + 1] for at in range(len(raw))]) == sent


def test_every_single_cut_gives_the_same_frames() -> None:
    token = CheckpointToken({"p": 3})
    sent: list[Frame] = [
        Deliver("s", "p", 0, 9, batch_of([1, 5])),
        Ack((("s", token),), 4),
        Deliver("s", "p", 9, 9),
        Publish("p", "q", 1, batch_of([0])),
    ]
    raw = bytes_of(*sent)
    for cut in range(len(raw) + 1):
        assert fed([raw[:cut], raw[cut:]]) == sent


@pytest.mark.parametrize("cut", [None, 1, 8, 20, 60, 100])
def test_a_batch_owns_aligned_and_writable_bytes(cut: int | None) -> None:
    raw = bytearray(bytes_of(Deliver("s", "p", 0, 9, batch_of([1, 5]))))
    decoder = FrameDecoder()
    got = decoder.feed(raw) if cut is None else decoder.feed(raw[:cut]) + decoder.feed(memoryview(raw)[cut:])
    raw[:] = bytes(len(raw))
    (frame,) = got
    assert isinstance(frame, Deliver)
    assert frame.batch is not None
    assert isinstance(frame.batch.data, bytearray)
    assert frame.batch.ticks.flags.aligned
    assert frame.batch == batch_of([1, 5])
    frame.batch.fill_ticks(np.array([2, 3]))


def test_the_buffer_can_be_resized_after_it_was_fed() -> None:
    buffer = bytearray(bytes_of(Ping(1), Deliver("s", "p", 0, 9, batch_of([1])))[:-1])
    decoder = FrameDecoder()
    assert decoder.feed(buffer) == [Ping(1)]
    buffer.clear()


def test_waiting_bytes_are_those_of_frames_that_are_not_whole() -> None:
    raw = bytes_of(Ping(1), Ping(2))
    decoder = FrameDecoder()
    decoder.feed(raw[:20])
    assert decoder.waiting_bytes == 4
    decoder.feed(raw[20:])
    assert decoder.waiting_bytes == 0


def large() -> Frame:
    return Deliver("s", "p", 0, 9, batch_of([1], message=bytes(HANDSHAKE_BYTES_MAX)))


def test_a_large_frame_is_refused_by_its_header_before_the_handshake() -> None:
    raw = bytes_of(large())
    for parts in ([raw], [raw[:8]], [raw[:3], raw[3:8]]):
        decoder = FrameDecoder()
        with pytest.raises(WireError, match="over the limit of 8192"):
            [decoder.feed(part) for part in parts]


def test_a_large_frame_in_one_read_with_the_handshake_waits_for_the_limit_to_be_raised() -> None:
    decoder = FrameDecoder()
    raw = bytes_of(Hello("b", 1), large(), Ping(1))
    assert decoder.feed(raw[:-3]) == [Hello("b", 1)]
    decoder.bytes_max = FRAME_BYTES_MAX
    assert decoder.feed(b"") == [large()]
    assert decoder.feed(raw[-3:]) == [Ping(1)]


def test_a_large_frame_after_the_handshake_is_refused_if_the_limit_stays() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(bytes_of(Connect("c"), large())) == [Connect("c")]
    with pytest.raises(WireError, match="over the limit"):
        decoder.feed(b"")


def test_a_broken_decoder_stays_broken() -> None:
    decoder = FrameDecoder()
    with pytest.raises(WireError, match="no frame of kind 255"):
        decoder.feed(b"\0\0\0\0\xff\x01\0\0")
    with pytest.raises(WireError, match="no frame of kind 255"):
        decoder.feed(bytes_of(Ping(1)))


def test_another_protocol_is_told_so() -> None:
    with pytest.raises(WireError, match="not a Tidemark broker or client"):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\n\r\n")


PING = bytes_of(Ping(1))
TOPIC = bytes_of(Topic("t", True, ()))
DAMAGED = {
    r"the control character \\x1b": bytes_of(Describe("abc")).replace(b"abc", b"a\x1bc"),
    r"the control character \\n": bytes_of(Unsubscribe("abc")).replace(b"abc", b"a\nc"),
    r"the control character \\u202e": bytes_of(Unsubscribe("abc")).replace(b"abc", "\u202e".encode()),
    "layout version": PING[:5] + b"\x02" + PING[6:],
    "flags": PING[:6] + b"\x01" + PING[7:],
    "bytes are left over": b"\x09" + PING[1:] + b"\0",
    "ends within a field": b"\x03" + PING[1:11],
    "bytes are missing": bytes_of(Unsubscribe("ab"))[:8] + b"\x09" + bytes_of(Unsubscribe("ab"))[9:],
    "not UTF-8": bytes_of(Describe("ab"))[:-1] + b"\xff",
    "a flag is neither": TOPIC[:11] + b"\x02" + TOPIC[12:],
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_a_damaged_frame_is_refused_with_a_reason(reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        FrameDecoder().feed(DAMAGED[reason])


def test_the_padding_before_a_batch_is_zero() -> None:
    raw = bytearray(bytes_of(Deliver("s", "p", 0, 9, batch_of([1]))))
    raw[30] = 1
    with pytest.raises(WireError, match="padding"):
        FrameDecoder().feed(raw)


def test_a_batch_needs_more_than_its_padding() -> None:
    raw = bytes_of(Deliver("s", "p", 0, 9))
    assert len(raw) == 30
    with pytest.raises(WireError, match="ends within its fields, or before its batch"):
        FrameDecoder().feed(bytes([raw[0] + 2]) + raw[1:] + b"\0\0")


def test_many_small_frames_of_one_read_come_in_order() -> None:
    sent: list[Frame] = [Credit(f"s{number}", number + 1) for number in range(2_000)]
    assert FrameDecoder().feed(bytes_of(*sent)) == sent
