"""The least and greatest value of each column of a file, by which readers pass over files.

Bounds go into Delta's log as JSON, so they are of the types that it has for them. They are never tighter than
the values: a column with a NaN, which readers order in different ways, or with long strings has none.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Columns of a file with bounds, from the first on; as many as Delta's own default.
COLUMNS_MAX = 32
STRING_CHARS_MAX = 64


class Bounds:
    """Of all tables that were added."""

    def __init__(self, schema: pa.Schema) -> None:
        fitting = [field for field in schema if _has_bounds(field.type)]
        self._columns = {field.name: field.type for field in fitting[:COLUMNS_MAX]}
        self._found: dict[str, tuple[Any, Any] | None] = {}
        # In the log a struct has counts for its fields only; one for itself would void all that is said.
        self.nulls: dict[str, int] = {field.name: 0 for field in schema if not pa.types.is_nested(field.type)}

    def add(self, table: pa.Table) -> None:
        """More rows."""
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
        """column -> least and greatest, as JSON has them."""
        said = {
            name: _to_json(self._columns[name], *found)
            for name, found in self._found.items()
            if found is not None
        }
        return {name: found for name, found in said.items() if found is not None}


def _bounds(column: pa.ChunkedArray, item: pa.DataType) -> tuple[Any, Any] | None:
    if pa.types.is_timestamp(item):
        # As numbers: not every instant is a Python datetime.
        column = column.cast(pa.int64())
    elif pa.types.is_floating(item) and not pc.all(pc.is_finite(column)).as_py():
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    is_long = isinstance(low, str) and max(len(low), len(high)) > STRING_CHARS_MAX
    return None if is_long else (low, high)


def _to_json(item: pa.DataType, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Both as JSON; None where it cannot say them."""
    if not pa.types.is_timestamp(item):
        return low, high
    # Readers of the log may know milliseconds only.
    return (_instant(low // 1000), _instant(-(-high // 1000))) if _sayable(low) and _sayable(high) else None


def _has_bounds(item: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_integer(item) or kinds.is_string(item) or kinds.is_floating(item) or kinds.is_timestamp(item)
    )


def _sayable(microseconds: int) -> bool:
    return abs(microseconds) < _INSTANT_MAX


def _instant(milliseconds: int) -> str:
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds") + "Z"


_EPOCH = datetime(1970, 1, 1)
#: the year 9999 is further; so is the year 1 in the other direction
_INSTANT_MAX = 60_000_000_000 * 1_000_000
