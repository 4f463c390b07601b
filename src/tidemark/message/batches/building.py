"""Batches of many events at once: from columns of messages, keys and preludes, or from rows of batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import (
    HEADER,
    KEY_BYTES_AT,
    KEY_BYTES_MAX,
    MAGIC,
    PRELUDE,
    PRELUDE_DTYPE,
    PRIORITY_DEFAULT,
    EventBatch,
    Shape,
    even_ends,
    sliding,
    unwritten,
)
from tidemark.message.batches.columns import Bytes, Ints, Spans
from tidemark.message.batches.spans import copy_spans, put_rows


class BatchSpace:
    """A batch of events of one shape, with ticks 0, into which the messages are written where they stay."""

    def __init__(self, shape: Shape, *, publisher: str = "", keys: Spans | None = None) -> None:
        """EncodeError if a key is too long."""
        if keys is not None and len(keys) and keys.lengths.max() > KEY_BYTES_MAX:
            raise EncodeError(f"a key has at most {KEY_BYTES_MAX} bytes")
        self._shape = shape
        self._publisher = publisher
        self._keys = keys
        self._made: EventBatch | None = None

    def make(self, lengths: Ints) -> tuple[Bytes, Ints]:
        """Make room for messages of these lengths: a body, and where each message has to start in it."""
        keys = self._keys
        key_lengths = keys.lengths if keys is not None else np.zeros(len(lengths), np.int64)
        rows = PRELUDE.size + lengths + key_lengths
        ends = np.cumsum(rows)
        starts = ends - rows
        ticks = np.zeros(len(lengths), np.int64)
        batch = self._made = unwritten((self._shape,), (self._publisher,), ticks, ends.astype("<u4"))
        prelude = np.frombuffer(PRELUDE.pack(0, 0, PRIORITY_DEFAULT, 0, 0, 0), np.uint8)
        put_rows(batch.body, starts, np.broadcast_to(prelude, (len(lengths), PRELUDE.size)))
        if keys is not None:
            sliding(batch.body, "<u2")[starts + KEY_BYTES_AT] = key_lengths
            copy_spans(batch.body, ends - key_lengths, keys)
        return batch.body, starts + PRELUDE.size

    @property
    def batch(self) -> EventBatch:
        """The batch, when all messages are written."""
        assert self._made is not None
        return self._made


def from_messages(
    shape: Shape, messages: Spans, *, publisher: str = "", keys: Spans | None = None
) -> EventBatch:
    """A batch of messages of one shape with ticks 0; EncodeError if a key is too long."""
    space = BatchSpace(shape, publisher=publisher, keys=keys)
    copy_spans(*space.make(messages.lengths), messages)
    return space.batch


def from_rows(
    shapes: tuple[Shape, ...],
    publishers: tuple[str, ...],
    messages: Spans,
    keys: Spans,
    *,
    shape: NDArray[np.integer],
    publisher: NDArray[np.integer],
    priority: NDArray[np.integer],
    validity_ms: NDArray[np.integer],
    ticks: Ints,
) -> EventBatch:
    """A batch of events whose parts were kept in columns, as the archive keeps them.

    shape[row] and publisher[row] are indices into `shapes` and `publishers`.
    """
    count, key_lengths = len(messages), keys.lengths
    if count and key_lengths.max() > KEY_BYTES_MAX:
        raise EncodeError(f"a key has at most {KEY_BYTES_MAX} bytes")
    rows = np.zeros(count, PRELUDE_DTYPE)
    rows["shape"], rows["publisher"], rows["priority"] = shape, publisher, priority
    rows["validity_ms"], rows["key_bytes"] = validity_ms, key_lengths
    lengths = PRELUDE.size + messages.lengths + key_lengths
    ends = np.cumsum(lengths)
    starts = ends - lengths
    batch = unwritten(shapes, publishers, ticks, ends.astype("<u4"))
    put_rows(batch.body, starts, rows.view(np.uint8).reshape(count, PRELUDE.size))
    copy_spans(batch.body, starts + PRELUDE.size, messages)
    copy_spans(batch.body, ends - key_lengths, keys)
    return batch


def are_even(batches: Sequence[EventBatch]) -> bool:
    """Whether all rows have one size, and the batches have the same shapes and publishers."""
    first = batches[0]
    return bool(first.row_bytes) and all(
        each.row_bytes == first.row_bytes
        and each.shapes == first.shapes
        and each.publishers == first.publishers
        for each in batches
    )


def take_across(batches: Sequence[EventBatch], rows: Ints) -> EventBatch:
    """A new batch of these rows, in ascending order, of the rows of all batches, which `are_even`.

    Rows are copied once, into the new buffer: memory that nobody has used yet costs far more than copying.
    """
    first, width, count = batches[0], batches[0].row_bytes, len(rows)
    names = first.dictionary
    data = bytearray(HEADER.size + len(names) + (12 + width) * count)
    data[: HEADER.size + len(names)] = HEADER.pack(MAGIC, count, len(names), width * count) + names
    made = EventBatch(data, first.shapes, first.publishers)
    made.ends[:] = np.frombuffer(even_ends(width, count), made.ends.dtype)
    body = made.body.reshape(count, width)
    at = base = 0
    for batch in batches:
        stop = int(rows.searchsorted(base + batch.count))
        if at < stop:
            chosen = rows[at:stop] - base
            # Rows are in bounds, so nothing is clipped; without `mode` numpy would copy to a buffer first.
            batch.ticks.take(chosen, out=made.ticks[at:stop], mode="clip")
            batch.body.reshape(batch.count, width).take(chosen, 0, out=body[at:stop], mode="clip")
        at, base = stop, base + batch.count
    assert at == count
    if count and all(batch.common is not None and batch.common == first.common for batch in batches):
        made.row_bytes, made.common = width, first.common
    return made
