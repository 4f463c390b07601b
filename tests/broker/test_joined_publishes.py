"""Frames of a publisher that were read as one have the same effects as each of them by itself."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import MORNING, SCHEMA, Desk, batch, told
from tidemark.broker.effects import (
    AppendEvents,
    ClientFrameReceived,
    DrainNotice,
    Effect,
    LogFull,
    RoutesChanged,
    SyncLog,
)
from tidemark.broker.publishing.publishing import parted
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import ClientFrame, Publish, Published, Refused
from tidemark.wire.limits import FRAME_BYTES_MAX


def joined(sequence: int, *batches: EventBatch) -> Publish:
    """What a decoder makes of frames with these batches."""
    whole = concatenate(list(batches))
    return Publish("p", "me", sequence, whole, tuple(each.count for each in batches))


def heard(at: Desk, *frames: Publish) -> list[Effect]:
    """The effects of frames that came in one read."""
    effects = [each for frame in frames for each in at.broker.hear(ClientFrameReceived(1, frame), 0, MORNING)]
    return effects + at.broker.settle()


def outcome(at: Desk, effects: list[Effect]) -> tuple[list[ClientFrame], list[tuple[int, list[int]]]]:
    """What the publisher was told, and the numbers and ticks of what was logged."""
    logged = [each for each in effects if isinstance(each, AppendEvents)]
    read = as_read(told(at.finish(effects), 1))
    return read, [(each.sequence, each.batch.ticks.tolist()) for each in logged]


def as_read(frames: list[ClientFrame]) -> list[ClientFrame]:
    """What a client reads of the frames that it is sent: one for each part of an answer."""
    raw = b"".join(bytes(piece) for frame in frames for piece in encode(frame))
    return [cast(ClientFrame, frame) for frame in FrameDecoder(FRAME_BYTES_MAX).feed(raw)]


def desk() -> Desk:
    """A broker that has the publisher's events 1 and 2."""
    at = Desk()
    at.declare()
    at.do(1, Publish("p", "me", 1, batch(0, 0)))
    return at


def test_each_frame_is_acknowledged_with_its_own_last_number_and_tick() -> None:
    at = desk()
    answers, logged = outcome(at, heard(at, joined(3, batch(0, 0), batch(0), batch(0, 0, 0))))
    assert logged == [(3, list(range(MORNING + 2, MORNING + 8)))]
    ends = [(4, MORNING + 3), (5, MORNING + 4), (8, MORNING + 7)]
    assert answers == [Published("p", "me", sequence, tick) for sequence, tick in ends]


def test_a_joined_frame_is_logged_without_a_copy() -> None:
    at, frame = desk(), joined(3, batch(0), batch(0))
    (append,) = [each for each in heard(at, frame) if isinstance(each, AppendEvents)]
    assert append.batch is frame.batch


def test_nothing_is_acknowledged_before_the_sync_and_all_of_it_is_refused_if_the_disk_is_full() -> None:
    at = desk()
    effects = heard(at, joined(3, batch(0), batch(0)))
    assert told(effects, 1) == []
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    refusals = told(at.give(LogFull(sync.ticket)), 1)
    assert [each.code for each in refusals if isinstance(each, Refused)] == ["full", "full"]


@pytest.mark.parametrize("first", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("is_draining", [False, True])
def test_repeated_and_missing_events_are_treated_frame_by_frame(first: int, is_draining: bool) -> None:
    outcomes = []
    for is_joined in (True, False):
        at, frame = desk(), joined(first, batch(0), batch(0, 0), batch(0))
        if is_draining:
            notice = DrainNotice("go elsewhere", ("other:1",))
            at.finish(at.give(RoutesChanged(at.broker.config.layout, drain_notice=notice)))
        frames = [frame] if is_joined else list(parted(frame))
        outcomes.append((*outcome(at, heard(at, *frames)), at.broker.counters))
    assert outcomes[0] == outcomes[1]


def damaged() -> EventBatch:
    """A batch with an event that cannot be decoded, of the topic of `batch`."""
    builder = BatchBuilder()
    builder.add(Shape("t", SCHEMA.fingerprint), b"\xff")
    return builder.build()


def test_a_frame_that_cannot_be_taken_does_not_keep_those_before_it_from_being_logged() -> None:
    outcomes = []
    for is_joined in (True, False):
        at, frame = desk(), joined(3, batch(0), damaged(), batch(0))
        frames = [frame] if is_joined else list(parted(frame))
        outcomes.append(outcome(at, heard(at, *frames)))
    assert outcomes[0] == outcomes[1]
    answers, logged = outcomes[0]
    assert logged == [(3, [MORNING + 2])]
    assert [type(each) for each in answers].count(Published) == 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.lists(st.integers(1, 3), min_size=2, max_size=4)),
        min_size=1,
        max_size=4,
    )
)
def test_joining_never_makes_a_difference(came: list[tuple[int, list[int]]]) -> None:
    results = []
    for is_joined in (True, False):
        at, seen = desk(), []
        for first, counts in came:
            frame = joined(first, *(batch(*np.zeros(count, int).tolist()) for count in counts))
            effects = heard(at, frame) if is_joined else heard(at, *parted(frame))
            seen.append(outcome(at, effects))
        results.append((seen, at.broker.counters))
    assert results[0] == results[1]
