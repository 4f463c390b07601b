"""BatchRun: untrusted batches that name the same topics and publishers, read together as one batch.

Reading one batch costs about as much for few rows as for many, so batches that arrive together are read as
one. Nothing is taken for granted: what a run takes is checked as each batch by itself would be, and a batch
that does not fit, or is damaged, is not taken.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from tidemark.message.batches.batch import HEADER, MAGIC, Buffer, EventBatch, even_ends

_END = Struct("<I")
_COLUMNS_BYTES = 12


class BatchRun:
    """Batches in the order in which they were taken; their buffers must not change before `batch`."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of all rows together, unless the first batch alone has more."""
        self._bytes_max = bytes_max
        #: how many rows each batch has
        self.counts: list[int] = []
        #: what all of them name
        self._dictionary = b""
        self._ends: list[bytes] = []
        self._bodies: list[memoryview] = []
        self._bytes = 0

    @property
    def names_bytes(self) -> int:
        """The bytes of the dictionary that all batches have."""
        return len(self._dictionary)

    def take(self, data: memoryview, at: int, end: int) -> bool:
        """Take the batch in data[at:end]; return False, with nothing changed, if it cannot be taken."""
        if end - at < HEADER.size:
            return False
        magic, count, names, body = HEADER.unpack_from(data, at)
        columns = at + HEADER.size + names
        rows = columns + _COLUMNS_BYTES * count
        if magic != MAGIC or not count or rows + body != end:
            return False
        # Otherwise the first row of the next batch would begin within this one.
        if _END.unpack_from(data, rows - _END.size)[0] != body:
            return False
        dictionary = data[at + HEADER.size : columns].tobytes()
        if not self.counts:
            self._dictionary = dictionary
        elif dictionary != self._dictionary or self._bytes + body > self._bytes_max:
            return False
        self.counts.append(count)
        self._ends.append(data[rows - _END.size * count : rows].tobytes())
        self._bodies.append(data[rows:end])
        self._bytes += body
        return True

    def batch(self) -> EventBatch:
        """Return one batch of all rows, with ticks 0; DecodeError if a row or the dictionary is damaged."""
        count = sum(self.counts)
        header = HEADER.pack(MAGIC, count, len(self._dictionary), self._bytes)
        return EventBatch.parse(
            bytearray().join((header, self._dictionary, bytes(8 * count), self._joined_ends(), *self._bodies))
        )

    def _joined_ends(self) -> Buffer:
        """Return the column `ends` of all rows."""
        width = len(self._bodies[0]) // self.counts[0]
        if width and all(ends == even_ends(width, len(ends) // _END.size) for ends in self._ends):
            return even_ends(width, sum(self.counts))
        bases = np.cumsum([0, *map(len, self._bodies)])[:-1].astype("<u4")
        ends = np.frombuffer(b"".join(self._ends), "<u4") + np.repeat(bases, self.counts)
        return bytes(ends.astype("<u4"))
