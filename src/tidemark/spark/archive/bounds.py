"""The least and greatest value of each column of a file, by which readers skip files.

Bounds go into Delta's log as JSON, so they have types that JSON has. Bounds are never tighter than the
values: a column with a NaN, which readers order in different ways, or with long strings has none.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Only so many columns of a file, the first, have bounds; Delta's own default.
COLUMNS_MAX = 32
STRING_CHARS_MAX = 64


class Bounds:
    """The bounds and null counts of all rows that were added."""

    def __init__(self, schema: pa.Schema) -> None:
        fitting = [field for field in schema if _has_bounds(field.type)]
        self._columns = {field.name: field.type for field in fitting[:COLUMNS_MAX]}
        self._found: dict[str, tuple[Any, Any] | None] = {}
        # In Delta's log only the fields of a struct have counts; a count of the struct would void all
        # statistics.
        self.nulls: dict[str, int] = {field.name: 0 for field in schema if not pa.types.is_nested(field.type)}

    def add(self, table: pa.Table) -> None:
        """Take more rows into account."""
        for name in self.nulls:
            self.nulls[name] += table.column(name).null_count
        for name, item in self._columns.items():
            column = table.column(name)
            if column.null_count == len(column) or (name in self._found and self._found[name] is None):
                continue
            here = _bounds(column, item)
            before = self._found.get(name)
            if here is None or before is None:
                self._found[name] = here
            else:
                self._found[name] = (min(before[0], here[0]), max(before[1], here[1]))

    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """column -> its least and greatest value, as JSON has them."""
        found = {
            name: _to_json(self._columns[name], *bounds)
            for name, bounds in self._found.items()
            if bounds is not None
        }
        return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(column: pa.ChunkedArray, item: pa.DataType) -> tuple[Any, Any] | None:
    if pa.types.is_timestamp(item):
        # Compared as numbers: not every instant is a Python datetime.
        column = column.cast(pa.int64())
    elif pa.types.is_floating(item) and not pc.all(pc.is_finite(column)).as_py():
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    is_long = isinstance(low, str) and max(len(low), len(high)) > STRING_CHARS_MAX
    return None if is_long else (low, high)


def _to_json(item: pa.DataType, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Both bounds as JSON; None if JSON cannot express them."""
    if not pa.types.is_timestamp(item):
        return low, high
    if not _is_in_calendar(low) or not _is_in_calendar(high):
        return None
    # Some readers of the log know milliseconds only, so the bounds are widened to whole ones.
    return _instant(low // 1000), _instant(-(-high // 1000))


def _has_bounds(item: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_integer(item) or kinds.is_string(item) or kinds.is_floating(item) or kinds.is_timestamp(item)
    )


def _is_in_calendar(microseconds: int) -> bool:
    return abs(microseconds) < _INSTANT_MAX


def _instant(milliseconds: int) -> str:
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds") + "Z"


_EPOCH = datetime(1970, 1, 1)
#: Microseconds from 1970 to some 1,900 years later: within the years 1 to 9999 in both directions.
_INSTANT_MAX = 60_000_000_000 * 1_000_000
