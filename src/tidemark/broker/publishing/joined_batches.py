"""Batches of one pubend that have come, or have become durable, together: joined into fewer."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.message.batches.batch import EventBatch, concatenate

#: Events that have come, or have become durable, together are one batch of about so many bytes at most.
MERGED_BYTES_MAX = 512 << 10

#: a publisher, its number of the last event of a batch, and the batch with its ticks
Gathered = tuple[str, int, EventBatch]
#: `(base, upto]` and all its events
Fresh = tuple[int, int, EventBatch]


def in_a_row(gathered: list[Gathered]) -> Iterator[tuple[str, int, list[EventBatch]]]:
    """Yield batches of one publisher whose ticks go on without a gap, and the number of the last event.

    What is logged as one batch costs one record, whatever number of frames it came in.
    """
    publisher, last, batches, size, tick = gathered[0][0], 0, list[EventBatch](), 0, 0
    for name, number, batch in gathered:
        size += len(batch.data)
        goes_on = name == publisher and int(batch.ticks[0]) == tick + 1
        if batches and (not goes_on or size > MERGED_BYTES_MAX):
            yield publisher, last, batches
            batches, size = [], len(batch.data)
        batches.append(batch)
        publisher, last, tick = name, number, int(batch.ticks[-1])
    yield publisher, last, batches


def merged(fresh: list[Fresh]) -> Iterator[Fresh]:
    """Yield the same events in fewer batches: passing a batch on costs the same for few events as for many.

    Each piece of `fresh` begins where the one before it ends.
    """
    gathered: list[EventBatch] = []
    size, base, upto = 0, fresh[0][0], fresh[0][0]
    for _, end, batch in fresh:
        if gathered and size + len(batch.data) > MERGED_BYTES_MAX:
            yield base, upto, concatenate(gathered)
            gathered, size, base = [], 0, upto
        gathered.append(batch)
        size, upto = size + len(batch.data), end
    yield base, upto, concatenate(gathered)
