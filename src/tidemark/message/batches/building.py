"""Batches of many events at once, from columns of their messages, keys and preludes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import (
    KEY_BYTES_AT,
    KEY_BYTES_MAX,
    PRELUDE,
    PRELUDE_DTYPE,
    PRIORITY_DEFAULT,
    EventBatch,
    Shape,
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
