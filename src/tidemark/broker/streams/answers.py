"""Answers: how much is asked for and told at once, and in which pieces.

A nack names ticks, and ticks say nothing of bytes: a range after a long silence may be dense. So whoever
answers reads and matches NACK_BYTES_MAX for one nack, about, and then says where it stops, with knowledge of
no tick. Who asked is free to ask for the rest at once, if its way has room (`ticks.pace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.broker.streams.window import PIECE_BYTES, SHARED_PIECE_BYTES
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import Pace, Thresholds

#: Events in order, in batches that nobody has made one.
Batches = Sequence[EventBatch]

#: Bytes of events that are read and matched for one nack of a neighbour, about.
NACK_BYTES_MAX = 2 << 20
#: Ranges of one nack that are answered, and those of one neighbour that are remembered while the answer is
#: awaited. Brokers ask for a quarter of the first at once; those that ask for more are to ask again.
RANGES_MAX = 256
WANTED_RANGES_MAX = 1_024
#: Ticks that are under way to this broker, in answers to its nacks, at the least and at first.
UNDER_WAY_TICKS_MIN = 16
UNDER_WAY_TICKS = 400_000
#: Bytes of an answer to a neighbour that go in one frame, about: live events wait for a frame that has begun.
ANSWER_FRAME_BYTES = 64 << 10


def frames_of(base: int, upto: int, batch: EventBatch | None) -> Iterator[tuple[int, int, EventBatch | None]]:
    """Yield what the frames of an answer have: parts of `(base, upto]` of about ANSWER_FRAME_BYTES."""
    while batch is not None and batch.count > 1 and batch.size > ANSWER_FRAME_BYTES:
        rows = max(1, batch.count * ANSWER_FRAME_BYTES // batch.size)
        last = int(batch.ticks[rows - 1])
        yield base, last, batch.slice(0, rows)
        base, batch = last, batch.slice(rows, batch.count)
    yield base, upto, batch


class Answered:
    """The events of an answer, in order; they are one batch as soon as somebody wants one."""

    def __init__(self, batches: Batches = ()) -> None:
        self.batches = batches

    @property
    def batch(self) -> EventBatch | None:
        """All events in one batch; None if there are none."""
        if len(self.batches) > 1:
            self.batches = (concatenate(self.batches),)
        return self.batches[0] if self.batches else None


def grouped(batches: Batches, *, are_shared: bool) -> Iterator[Batches]:
    """Yield the batches in groups: handling a group costs the same for few events as for many.

    `are_shared`: they are for subscribers here alone, who share what is taken out of a group.
    """
    bytes_max = SHARED_PIECE_BYTES if are_shared else PIECE_BYTES
    group: list[EventBatch] = []
    size = 0
    for batch in batches:
        if size and size + batch.size > bytes_max:
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch.size
    if group:
        yield group


def pace_of(thresholds: Thresholds) -> Pace:
    """A pace, in ticks, whose patience begins with the thresholds'."""
    most = thresholds.chop_ticks_max * thresholds.outstanding_ranges_max
    return Pace(
        min(UNDER_WAY_TICKS_MIN, most),
        min(UNDER_WAY_TICKS, most),
        most,
        patience_us=thresholds.nrt_us,
        patience_us_max=thresholds.nrt_us_max,
        backoff=thresholds.backoff,
    )
