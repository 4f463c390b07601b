"""The compact form of a batch, in which a log keeps it: what its events have in common is said once.

Ticks of which each is one more than the one before are left out, since whoever keeps the batch knows the last
of them, and rows that all have the same size need no ends. The preludes of rows stay where they are: leaving
them out too would cost a copy of all messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import HEADER, Buffer, EventBatch, even_ends, parsed_names
from tidemark.message.codec.lazy import lazy_property


class CompactBatch(NamedTuple):
    """The compact form of a batch whose last tick is known."""

    #: header and dictionary, then the rows, which are views of the batch's own bytes
    parts: list[Buffer]
    #: the bytes of each row, if all have the same size; else 0
    row_bytes: int


class RestoredBatch(EventBatch):
    """A batch that was read in its compact form, and whose rows stay where they were read.

    Its `data` is made when somebody asks for it. Most rows are only copied into other batches, and memory
    that was never used before costs more than ten times what copying does.
    """

    def __init__(self, compact: memoryview, head: int, last: int, row_bytes: int) -> None:
        """`compact` begins with `head` bytes of header and dictionary."""
        _, count, self.names_bytes, body = HEADER.unpack_from(compact)
        self._compact = compact
        self.count = count
        self.shapes, self.publishers = parsed_names(self.dictionary)
        self.verdict = None
        self.ticks = np.arange(last - count + 1, last + 1, dtype="<i8")
        if row_bytes:
            self.row_bytes = row_bytes
        self.ends = np.frombuffer(even_ends(row_bytes, count) if row_bytes else compact[head:], "<u4", count)
        self.body = np.frombuffer(compact, np.uint8, body, len(compact) - body)

    @lazy_property
    def data(self) -> Buffer:
        """The whole batch in a buffer of its own, which the arrays are not views of."""
        head = self._compact[: HEADER.size + self.names_bytes]
        return bytearray().join((head, self.ticks.tobytes(), self.ends.tobytes(), self.body.data))

    @property
    def dictionary(self) -> bytes:
        """The bytes that name shapes and publishers."""
        return bytes(self._compact[HEADER.size : HEADER.size + self.names_bytes])


def compacted(batch: EventBatch) -> CompactBatch | None:
    """Return the compact form of a batch; None if its ticks do not count up one by one."""
    if not _counts_up(batch):
        return None
    data, head = memoryview(batch.data), HEADER.size + batch.names_bytes
    left_out = 12 if batch.row_bytes else 8
    return CompactBatch([data[:head], data[head + left_out * batch.count :]], batch.row_bytes)


def restored(data: Buffer, last: int, row_bytes: int) -> EventBatch:
    """Return the batch whose compact form is in `data`, and whose last tick is `last`.

    The bytes must have been checked when the batch was made, and by a checksum since; DecodeError if their
    parts do not add up.
    """
    if len(data) < HEADER.size:
        raise DecodeError("not an event batch")
    _, count, names, body = HEADER.unpack_from(data)
    head = HEADER.size + names
    ends_bytes = 0 if row_bytes else 4 * count
    if not count or len(data) != head + ends_bytes + body or (row_bytes and row_bytes * count != body):
        raise DecodeError("the parts of the batch do not add up to its size")
    return RestoredBatch(memoryview(data), head, last, row_bytes)


def _counts_up(batch: EventBatch) -> bool:
    """Return whether each tick is one more than the one before."""
    if batch.count == 1:
        return True
    first, last = (int(batch.ticks[0]), int(batch.ticks[-1])) if batch.count else (0, 0)
    if batch.count != last - first + 1:
        return False
    return batch.ticks.tobytes() == np.arange(first, last + 1, dtype="<i8").tobytes()
