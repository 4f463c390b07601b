"""Answers: how much is asked for and told at once, and in which pieces.

A nack names ticks, and ticks say nothing of bytes: a range after a long silence may be dense. So whoever
answers reads and matches NACK_BYTES_MAX for one nack, about, and then says where it stops, with knowledge of
no tick. Who asked is free to ask for the rest at once, if its way has room (`ticks.pace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.broker.streams.window import PIECE_BYTES
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import Pace, Thresholds

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
    while batch is not None and batch.count > 1 and len(batch.data) > ANSWER_FRAME_BYTES:
        rows = max(1, batch.count * ANSWER_FRAME_BYTES // len(batch.data))
        last = int(batch.ticks[rows - 1])
        yield base, last, batch.slice(0, rows)
        base, batch = last, batch.slice(rows, batch.count)
    yield base, upto, batch


def merged(batches: Sequence[EventBatch]) -> Iterator[EventBatch]:
    """Yield the same events in fewer batches: handling a batch costs the same for few events as for many."""
    gathered: list[EventBatch] = []
    size = 0
    for batch in batches:
        if size and size + len(batch.data) > PIECE_BYTES:
            yield concatenate(gathered)
            gathered, size = [], 0
        gathered.append(batch)
        size += len(batch.data)
    if gathered:
        yield concatenate(gathered)


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
