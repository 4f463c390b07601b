"""A field of many events at once, as arrays.

A `Column` is what a whole batch has to say about one field. `valid[row]` is False where the field is absent
(NULL); `valid` is None when every row has it. Values at invalid rows are arbitrary and must not be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidemark.message.types import Path, Type

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Spans:
    """Strings or bytes where they lie: row r is body[starts[r]:ends[r]]. Invalid rows are empty spans."""

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
        """first `width` bytes of each row, zero-padded -> matrix[row, width]."""
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
    """What the matcher sees of a batch. Paths of one name that start with `_` are headers."""

    @property
    def count(self) -> int:
        """Number of rows."""

    def column(self, path: Path) -> Column:
        """The field at `path`; an all-invalid column when the events have no such field."""


class FieldTypes(Protocol):
    """What is known of a topic's fields when a selector is checked and indexed."""

    @property
    def open(self) -> bool:
        """True when events may have fields not known yet: those are NULL, not an error."""

    def type_of(self, path: Path) -> Type | None:
        """The type at `path` with options unwrapped, or None when there is no such field."""

    def paths(self) -> Sequence[Path]:
        """Every path that can be named, for suggestions."""
