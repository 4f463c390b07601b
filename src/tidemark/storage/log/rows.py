"""Where the records are: one row for each record, in columns that grow.

The same table serves a stream (its records in all segments) and a segment (its records of all streams):
`homes` is the segment of each record in the first case and the stream in the second. A row takes 28 bytes,
and at most an eighth of that is kept in reserve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.message.batches.columns import Bools, Ints

Words = NDArray[np.uint32]

_TYPES = ("<i8", "<i8", "<u4", "<u4", "<u4")
ROW_BYTES = sum(np.dtype(kind).itemsize for kind in _TYPES)
_GROWTH = 8


class RecordRows(NamedTuple):
    """Columns of one length; indexes increase, marks never decrease within a stream."""

    indexes: NDArray[Any]
    marks: NDArray[Any]
    homes: NDArray[Any]
    offsets: NDArray[Any]
    lengths: NDArray[Any]

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.indexes)

    def select(self, chosen: slice | Bools | Ints) -> RecordRows:
        """Returns the chosen rows."""
        return RecordRows(*(column[chosen] for column in self))

    def copy(self) -> RecordRows:
        """Returns rows that do not change when their table does."""
        return RecordRows(*(column.copy() for column in self))

    def tobytes(self) -> bytes:
        """Returns the columns one after the other, as a footer has them."""
        return b"".join(column.tobytes() for column in self)

    @classmethod
    def frombytes(cls, data: memoryview) -> RecordRows:
        """Returns the rows that `tobytes` wrote."""
        count, at = len(data) // ROW_BYTES, 0
        columns: list[NDArray[Any]] = []
        for kind in _TYPES:
            columns.append(np.frombuffer(data, kind, count, at))
            at += columns[-1].nbytes
        return cls(*columns)


NO_ROWS = RecordRows(*(np.zeros(0, kind) for kind in _TYPES))


class RowTable:
    """Rows that are added at the end and dropped from the start."""

    def __init__(self, rows: RecordRows = NO_ROWS) -> None:
        self._columns: list[NDArray[Any]] = [column.copy() for column in rows]
        #: the rows in use are columns[first:last]
        self._first = 0
        self._last = rows.size

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def rows(self) -> RecordRows:
        """A view of all rows, valid until the table changes."""
        return RecordRows(*(column[self._first : self._last] for column in self._columns))

    @property
    def last_mark(self) -> int | None:
        """The mark of the last row; None if there are no rows."""
        return int(self._columns[1][self._last - 1]) if self._last > self._first else None

    @property
    def first_home(self) -> int | None:
        """The home of the first row; None if there are no rows."""
        return int(self._columns[2][self._first]) if self._last > self._first else None

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the columns take."""
        return sum(column.nbytes for column in self._columns)

    def add(self, index: int, mark: int, home: int, offset: int, length: int) -> None:
        """Add a row at the end."""
        if self._last == len(self._columns[0]):
            self._make_room(1)
        at, (indexes, marks, homes, offsets, lengths) = self._last, self._columns
        indexes[at], marks[at], homes[at], offsets[at], lengths[at] = index, mark, home, offset, length
        self._last += 1

    def extend(self, rows: RecordRows) -> None:
        """Add rows at the end."""
        if self._last + rows.size > len(self._columns[0]):
            self._make_room(rows.size)
        for column, values in zip(self._columns, rows, strict=True):
            column[self._last : self._last + rows.size] = values
        self._last += rows.size

    def drop_first(self, count: int) -> None:
        """Drop the first `count` rows."""
        assert 0 <= count <= len(self)
        self._first += count
        if self._first > len(self._columns[0]) // _GROWTH:
            self._make_room(0)

    def remove(self, position: int) -> None:
        """Drop the row at this position."""
        keep = np.arange(len(self)) != position
        self._columns = list(self.rows.select(keep))
        self._first, self._last = 0, len(self._columns[0])

    def _make_room(self, more: int) -> None:
        room = len(self) + more
        room += room // _GROWTH + _GROWTH
        kept, self._last, self._first = self.rows, len(self), 0
        self._columns = [_with_room(column, room) for column in kept]


def _with_room(column: NDArray[Any], room: int) -> NDArray[Any]:
    grown = np.empty(room, column.dtype)
    grown[: len(column)] = column
    return grown
