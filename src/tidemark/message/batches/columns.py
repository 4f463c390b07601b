"""One field of many events as arrays.

A `Column` has the values of one field in all rows of a batch. `valid[row]` is False where the field is absent
(NULL); `valid` is None when every row has it. Values at invalid rows are arbitrary and must not be read.

The arrays of a column may be views of the batch's buffer, and several readers may hold the same column:
nobody changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidemark.message.types import Kind, Path, Type

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]

#: How messages store the values of each kind of fixed width, but for decimals.
STORED_DTYPES: dict[Kind, str] = {
    Kind.BOOLEAN: "u1",
    Kind.INT: "<i4",
    Kind.LONG: "<i8",
    Kind.FLOAT: "<f4",
    Kind.DOUBLE: "<f8",
    Kind.TIMESTAMP: "<i8",
}


@dataclass(frozen=True, slots=True)
class Spans:
    """Strings or bytes in the buffer that they lie in: row r is body[starts[r]:ends[r]], empty if invalid.

    `body` is usually the body of a batch, shared and not copied.
    """

    body: Bytes
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Ints:
        """lengths[row] in bytes."""
        return self.ends - self.starts

    def padded(self, width: int) -> Bytes:
        """The first `width` bytes of each row, zero-padded: matrix[row, width]."""
        if width == 0 or len(self.body) == 0:
            return np.zeros((len(self), width), np.uint8)
        offsets = np.arange(width)
        index = self.starts[:, None] + offsets
        matrix = self.body.take(index, mode="clip")
        matrix[offsets >= self.lengths[:, None]] = 0
        return matrix

    def tolist(self) -> list[bytes]:
        """Each row as bytes."""
        data = self.body.tobytes()
        return [data[s:e] for s, e in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Decimals:
    """128-bit unscaled integers as low (unsigned) and high (signed) halves; value = unscaled / 10**scale."""

    low: NDArray[np.uint64]
    high: Ints
    scale: int

    def __len__(self) -> int:
        return len(self.low)

    def tolist(self) -> list[int]:
        """Each row's unscaled integer."""
        pairs = zip(self.high.tolist(), self.low.tolist(), strict=True)
        return [(high << 64) | low for high, low in pairs]


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a batch.

    | type of the field             | values                                       |
    |-------------------------------|----------------------------------------------|
    | boolean                       | bool array                                   |
    | int, long, timestamp          | int64 array (timestamps: microseconds, UTC)  |
    | float, double                 | float64 array                                |
    | decimal                       | Decimals                                     |
    | string, bytes                 | Spans (strings are UTF-8, already validated) |
    | list, tuple, variant, dynamic | list of Python values, None where absent     |
    """

    type: Type
    values: Bools | Ints | Doubles | Decimals | Spans | Sequence[Any]
    valid: Bools | None = None


class ColumnSource(Protocol):
    """The columns of a batch, as the matcher asks for them.

    Paths of one name that starts with `_` are headers.
    """

    @property
    def count(self) -> int:
        """Number of rows."""

    def column(self, path: Path) -> Column:
        """The field at `path`; an all-invalid column when the events have no such field."""


class FieldTypes(Protocol):
    """The types of a topic's fields, as far as they are known when a selector is checked and indexed."""

    @property
    def open(self) -> bool:
        """True when events may have fields that are not known yet; such a field is NULL, not an error."""

    def type_of(self, path: Path) -> Type | None:
        """The type at `path` without options, or None when there is no such field."""

    def paths(self) -> Sequence[Path]:
        """Every path that can be named, for suggestions."""
