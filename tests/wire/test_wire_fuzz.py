"""Whatever the bytes are: frames or WireError, and never memory for what was only claimed."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.frame_strategies import KINDS, bytes_of, frames
from tidemark.errors import WireError
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Frame
from tidemark.wire.limits import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX

CLAIM_BYTES_MAX = 256 << 10


def survives(raw: bytes) -> list[Frame]:
    """The frames, if they are frames: then they are frames again when sent."""
    with suppress(WireError):
        got = FrameDecoder(FRAME_BYTES_MAX).feed(raw)
        assert FrameDecoder(FRAME_BYTES_MAX).feed(bytes_of(*got)) == got
        return got
    return []


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=80))
def test_random_bytes_do_no_harm(raw: bytes) -> None:
    survives(raw)


@settings(derandomize=True, deadline=None, max_examples=600)
@given(st.integers(0, 64), st.binary(max_size=80))
def test_random_payloads_do_no_harm(kind: int, payload: bytes) -> None:
    survives(pack("<IBBH", len(payload), kind, 1, 0) + payload)


@settings(derandomize=True, deadline=None, max_examples=600)
@given(frames, st.data())
def test_changed_bytes_do_no_harm(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(bytes_of(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(raw))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(frames, st.data())
def test_a_frame_that_was_shortened_is_refused(frame: Frame, data: st.DataObject) -> None:
    raw = bytes_of(frame)
    size = data.draw(st.integers(0, len(raw) - 9))
    shorter = pack("<I", size) + raw[4 : 8 + size]
    with suppress(WireError):
        # A frame with a batch is whole without it, if it ends right there.
        (got,) = FrameDecoder(FRAME_BYTES_MAX).feed(shorter)
        assert getattr(frame, "batch", None) is not None
        assert getattr(got, "batch", None) is None


@settings(derandomize=True, deadline=None, max_examples=150)
@given(frames, frames)
def test_a_frame_never_reads_into_the_next(frame: Frame, other: Frame) -> None:
    raw, after = bytes_of(frame), bytes_of(other)
    size = len(raw) - 8
    if size == 0:
        return
    shorter = pack("<I", size - 1) + raw[4:-1] + after
    with pytest.raises(WireError):
        FrameDecoder(FRAME_BYTES_MAX).feed(shorter)


@pytest.mark.parametrize("number", [0xFFFF_FFFF, 0x7FFF_FFFF, 65_536, 4_096])
def test_a_claimed_count_or_length_allocates_nothing(number: int) -> None:
    raw = bytes_of_every_kind()

    def peak_of_all() -> int:
        tracemalloc.start()
        try:
            for frame in raw:
                for at in range(8, len(frame) - 3):
                    survives(frame[:at] + pack("<I", number) + frame[at + 4 :])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Threads that other tests have left may allocate meanwhile; what a frame causes, it causes each time.
    assert any(peak_of_all() < CLAIM_BYTES_MAX for _ in range(3))


def test_a_claimed_frame_size_allocates_nothing() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    tracemalloc.start()
    try:
        decoder.feed(pack("<IBBH", FRAME_BYTES_MAX - 8, 40, 1, 0))
        for _ in range(100):
            decoder.feed(b"\0")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.waiting_bytes == 108
    assert peak < HANDSHAKE_BYTES_MAX


def bytes_of_every_kind() -> list[bytes]:
    from tests.wire.test_wire_golden import GOLDEN

    assert {type(frame) for frame, _ in GOLDEN} == set(KINDS)
    return [bytes_of(frame) for frame, _ in GOLDEN]
