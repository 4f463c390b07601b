"""Columns over Python dicts in memory: what a matcher sees of a batch, without a codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from tidemark.message.batches.columns import Column, Decimals, Spans
from tidemark.message.types import Atomic, Dynamic, Kind, Path, Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DictColumns:
    """A batch of rows, each a dict by path (`{("a", "b"): 1}`) or nested by name (`{"a": {"b": 1}}`).

    A field that `types` does not name is a dynamic column. None, or no such key, is NULL.
    """

    def __init__(self, rows: Sequence[Mapping[Any, Any]], types: Mapping[Path, Type]) -> None:
        self.rows = rows
        self.types = types

    @property
    def count(self) -> int:
        return len(self.rows)

    def column(self, path: Path) -> Column:
        return column_of([value_at(row, path) for row in self.rows], self.types.get(path, Dynamic()))


def value_at(row: Mapping[Any, Any], path: Path) -> Any:
    """The field at `path` of one row, None when absent. Also a reference evaluator's lookup."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def lookup_in(row: Mapping[Any, Any]) -> Callable[[Path], Any]:
    return lambda path: value_at(row, path)


def column_of(values: Sequence[Any], field_type: Type) -> Column:
    """A column of Python values of one type; None is NULL."""
    mask = np.array([value is not None for value in values], bool)
    valid = None if mask.all() else mask
    if not isinstance(field_type, Atomic):
        return Column(field_type, list(values), valid)
    kind = field_type.kind
    if kind is Kind.BOOLEAN:
        return Column(field_type, np.array([bool(value) for value in values], bool), valid)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        numbers = [0.0 if value is None else value for value in values]  # `or` would lose -0.0
        return Column(field_type, np.array(numbers, np.float64), valid)
    if kind is Kind.DECIMAL:
        return Column(field_type, _decimals(values, field_type.scale), valid)
    if kind in (Kind.STRING, Kind.BYTES):
        return Column(field_type, _spans(values), valid)
    return Column(field_type, np.array([_integer(value) for value in values], np.int64), valid)


def _integer(value: Any) -> int:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return int(value or 0)


def _decimals(values: Sequence[Any], scale: int) -> Decimals:
    unscaled = [_unscaled(value, scale) for value in values]
    low = np.array([number & (2**64 - 1) for number in unscaled], np.uint64)
    return Decimals(low, np.array([number >> 64 for number in unscaled], np.int64), scale)


def _unscaled(value: Decimal | int | None, scale: int) -> int:
    sign, digits, exponent = Decimal(value or 0).as_tuple()
    assert isinstance(exponent, int)
    assert -exponent <= scale, "more digits after the point than the type allows"
    magnitude = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -magnitude if sign else magnitude


def _spans(values: Sequence[Any]) -> Spans:
    parts = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = ends - np.array([len(part) for part in parts], np.int64)
    return Spans(np.frombuffer(b"".join(parts), np.uint8), starts, ends)
