"""Publish frames that arrive together are read as one, which says the same as each of them by itself."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.frame_strategies import batch_of, bytes_of
from tidemark.broker.publishing.publishing import parted
from tidemark.errors import WireError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.wire.codec import encode
from tidemark.wire.decoder import CUT_JOINED_BYTES_MAX, FrameDecoder
from tidemark.wire.frames import Deliver, Frame, Ping, Publish, Published
from tidemark.wire.limits import FRAME_BYTES_MAX, JOINED_BYTES_MAX, JOINED_MAX, SEQUENCE_MAX


def publish(
    sequence: int, *sizes: int, publisher: str = "me", pubend: str = "p", topic: str = "t"
) -> Publish:
    builder = BatchBuilder()
    for number, size in enumerate(sizes):
        builder.add(Shape(topic, 7), bytes([65 + number]) * size, publisher=publisher)
    return Publish(pubend, publisher, sequence, builder.build())


def read(raw: bytes, *, joins: bool = True) -> list[Frame]:
    return FrameDecoder(FRAME_BYTES_MAX, joins=joins).feed(raw)


def singly(frames: list[Frame]) -> list[Frame]:
    return [each for frame in frames for each in (parted(frame) if isinstance(frame, Publish) else [frame])]


def test_frames_of_one_publisher_that_go_on_are_one_frame_with_the_events_of_all() -> None:
    sent = [publish(1, 5, 5), publish(3, 5, 5, 5), publish(6, 5)]
    (frame,) = read(bytes_of(*sent))
    assert isinstance(frame, Publish)
    assert (frame.sequence, frame.batch.count, frame.parts) == (1, 6, (2, 3, 1))
    assert list(parted(frame)) == sent


def test_events_of_different_sizes_are_joined_too() -> None:
    sent = [publish(1, 5, 9), publish(3, 1), publish(4, 0, 30)]
    (frame,) = read(bytes_of(*sent))
    assert list(parted(frame)) == sent  # type: ignore[arg-type]  # a Publish


def test_what_does_not_go_on_is_a_frame_of_its_own() -> None:
    for other in (
        publish(2, 5),
        publish(9, 5),
        publish(3, 5, publisher="you"),
        publish(3, 5, pubend="q"),
        publish(3, 5, topic="u"),
        Ping(3),
    ):
        sent: list[Frame] = [publish(1, 5, 5), other]
        assert read(bytes_of(*sent)) == sent


def test_a_frame_alone_has_no_parts_and_neither_has_one_that_arrives_in_parts() -> None:
    raw = bytes_of(publish(1, 5), publish(2, 5))
    assert read(bytes_of(publish(1, 5))) == [publish(1, 5)]
    decoder = FrameDecoder(FRAME_BYTES_MAX, joins=True)
    frames = [frame for at in range(0, len(raw), 7) for frame in decoder.feed(raw[at : at + 7])]
    assert frames == [publish(1, 5), publish(2, 5)]


@pytest.mark.parametrize("first", [1, 7, 8, 9, 40, CUT_JOINED_BYTES_MAX, CUT_JOINED_BYTES_MAX + 1])
def test_a_frame_whose_first_bytes_came_before_is_joined_with_what_follows_it(first: int) -> None:
    size = CUT_JOINED_BYTES_MAX // 2 if first > 40 else 5
    sent = [publish(1, size, size, size), publish(4, size), publish(5, size)]
    raw = bytes_of(*sent)
    decoder = FrameDecoder(FRAME_BYTES_MAX, joins=True)
    assert decoder.feed(raw[:first]) == []
    frames = decoder.feed(raw[first:])
    assert singly(frames) == sent
    is_joined = 8 <= first <= CUT_JOINED_BYTES_MAX  # less is not a header, and more would cost a copy of much
    assert len(frames) == (1 if is_joined else 2)
    assert decoder.waiting_bytes == 0


def test_only_an_owner_that_asks_for_it_gets_joined_frames() -> None:
    sent: list[Frame] = [publish(1, 5), publish(2, 5)]
    assert read(bytes_of(*sent), joins=False) == sent


def test_a_joined_frame_is_bounded_in_frames_and_in_bytes() -> None:
    frames = read(bytes_of(*(publish(at + 1, 5) for at in range(2 * JOINED_MAX + 1))))
    assert [len(frame.parts) for frame in frames if isinstance(frame, Publish)] == [JOINED_MAX, JOINED_MAX, 0]
    large = JOINED_BYTES_MAX // 3
    frames = read(bytes_of(*(publish(at + 1, large) for at in range(4))))
    assert [len(frame.parts) for frame in frames if isinstance(frame, Publish)] == [2, 2]


def test_a_number_without_successor_is_refused_in_a_joined_frame_too() -> None:
    raw = bytearray(bytes_of(publish(1, 5), publish(2, 5)))
    size = len(raw) // 2
    for at, number in ((8, SEQUENCE_MAX - 1), (size + 8, SEQUENCE_MAX)):
        raw[at : at + 8] = number.to_bytes(8, "little")
    with pytest.raises(WireError, match="sequence"):
        read(bytes(raw))


def with_ticks_zero(frames: list[Frame]) -> list[Frame]:
    """A publisher's ticks count for nothing: those of a joined frame are 0."""
    for frame in frames:
        if isinstance(frame, Publish) and isinstance(frame.batch, EventBatch):
            frame.batch.fill_ticks(np.zeros(frame.batch.count, np.int64))
    return frames


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=2, max_size=4), st.data())
def test_whatever_the_bytes_are_joining_changes_nothing(many: list[list[int]], data: st.DataObject) -> None:
    sent, sequence = [], 1
    for sizes in many:
        sent.append(publish(sequence, *sizes))
        sequence += len(sizes)
    raw = bytearray(bytes_of(*sent))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    expected, joined = (_outcome(bytes(raw), joins=joins) for joins in (False, True))
    assert joined == expected


def _outcome(raw: bytes, *, joins: bool) -> list[Frame] | str:
    """The frames, one by one, or why there are none."""
    try:
        return with_ticks_zero(singly(read(raw, joins=joins)))
    except WireError as error:
        return str(error)


def test_other_frames_with_batches_are_never_joined() -> None:
    sent: list[Frame] = [Deliver("s", "p", 0, 5, batch_of([3])), Deliver("s", "p", 5, 9, batch_of([7]))]
    assert read(bytes_of(*sent)) == sent


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=70), st.integers(1, 1 << 40))
def test_an_answer_with_parts_has_the_bytes_of_an_answer_to_each(parts: list[int], first: int) -> None:
    ends = list(accumulate(parts))
    last = first + ends[-1] - 1
    together = Published("p", "me", last, 7_000_000 + ends[-1], tuple(parts))
    alone = [Published("p", "me", first + end - 1, 7_000_000 + end) for end in ends]
    assert encode(together) == [b"".join(bytes(piece) for each in alone for piece in encode(each))]


def test_an_answer_with_more_events_than_there_are_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="sequence"):
        encode(Published("p", "me", 10, 100, (8, 3)))
