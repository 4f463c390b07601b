"""Key columns: a batch of events as points of the key space (`ranges` defines the keys).

`Keys` knows which columns the boxes in the index use, and makes only those. Column EVERY_ROW has the same key
in every row: a box without constraints has its range there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.matching.index.arrays import Index, Words
from tidemark.matching.index.ranges import (
    ABSENT_KEY,
    HIGHEST,
    LOWEST,
    NULLNESS,
    PRESENT_KEY,
    WORD_BYTES,
)
from tidemark.matching.vectors.promotion import INT64_MAX, INT64_MIN
from tidemark.matching.vectors.rowwise import present
from tidemark.message.batches.columns import Column, ColumnSource, Decimals, Doubles, Ints, Spans
from tidemark.message.types import DOUBLE, FLOAT, INT, LONG, Atomic, Kind, Path, Type

EVERY_ROW = 0
#: A column is 16 bits of a box's range.
COLUMNS_MAX = 1 << 16

_SIGN = np.uint64(2**63)
_MINUS_INFINITY = np.uint64(0x000FFFFFFFFFFFFF)
_INFINITIES_APART = np.uint64(0xFFF0000000000000 - 0x000FFFFFFFFFFFFF)
_MINUS_ZERO = np.uint64(2**63 - 1)
_WORD_VIEW_BYTES = 8
#: _WORD_MASKS[n]: the bytes that belong to a word when n bytes are left from its start on
_WORD_MASKS = np.array([HIGHEST - (HIGHEST >> 8 * min(n, WORD_BYTES)) for n in range(9)], np.uint64)
#: (type of the column, declared type): different types whose values have the same keys
_SAME_KEYS = {(INT, LONG), (FLOAT, DOUBLE), (DOUBLE, FLOAT)}


@dataclass(slots=True)
class _Field:
    """A field in use, with its declared type."""

    type: Type
    #: number of rules that read the field
    readers: int = 0
    #: part of the field -> key column
    columns: dict[int, int] = field(default_factory=dict)


class Keys:
    """The fields and key columns in use, with the numbers of their uses."""

    def __init__(self) -> None:
        self._fields: dict[Path, _Field] = {}
        #: column -> its field and part; None for EVERY_ROW and for columns that are not in use
        self._places: list[tuple[Path, int] | None] = [None]
        self._uses: list[int] = [1]
        self._unused: list[int] = []

    def watch(self, path: Path, item: Type) -> None:
        """Note that a rule reads the field and relies on its type, even if its boxes use no key of it."""
        held = self._fields.setdefault(path, _Field(item))
        assert held.type == item, "the types of fields have changed: retype first"
        held.readers += 1

    def unwatch(self, path: Path) -> None:
        """Undo `watch`, after the rule's columns have been released."""
        held = self._fields[path]
        held.readers -= 1
        if held.readers == 0:
            assert not held.columns
            del self._fields[path]

    def declared(self, path: Path) -> Type:
        """The type that was declared for a field that is watched."""
        return self._fields[path].type

    def acquire(self, path: Path, part: int) -> int:
        """The column of a part of a watched field, which the caller must `release` as often as acquired."""
        columns = self._fields[path].columns
        column = columns.get(part)
        if column is None:
            column = columns[part] = self._create((path, part))
        self._uses[column] += 1
        return column

    def release(self, column: int) -> None:
        """End one use; after the last one the column may be given to another part."""
        self._uses[column] -= 1
        place = self._places[column]
        if self._uses[column] or place is None:
            return
        path, part = place
        del self._fields[path].columns[part]
        self._places[column] = None
        self._unused.append(column)

    def path(self, column: int) -> Path:
        """The field that a column is a part of."""
        place = self._places[column]
        assert place is not None
        return place[0]

    def read(self, columns: ColumnSource) -> Words | None:
        """keys[column, row] of a batch; None when a field is not of its declared type."""
        keys = np.zeros((len(self._places), columns.count), np.uint64)
        keys[EVERY_ROW] = LOWEST
        for path, held in self._fields.items():
            if not held.columns and not isinstance(held.type, Atomic):
                continue  # only conditions read the field
            column = columns.column(path)
            is_as_declared = _has_same_keys(column.type, held.type)
            if not is_as_declared and not _is_all_null(column):
                return None
            for part, target in held.columns.items():
                if part == NULLNESS:
                    _nullness(column, keys[target])
                elif is_as_declared:
                    _value(column, part, keys[target])
        return keys

    def _create(self, place: tuple[Path, int]) -> int:
        if self._unused:
            column = self._unused.pop()
            self._places[column] = place
            return column
        self._places.append(place)
        self._uses.append(0)
        assert len(self._places) <= COLUMNS_MAX
        return len(self._places) - 1


def _has_same_keys(held: Type, declared: Type) -> bool:
    """Do a column of type `held` and one of type `declared` have the same keys?

    A field that was not declared atomic has keys for NULL only, so a column of any type will do.
    """
    if held == declared or not isinstance(declared, Atomic) or (held, declared) in _SAME_KEYS:
        return True
    if not isinstance(held, Atomic) or not held.kind is declared.kind is Kind.DECIMAL:
        return False
    return held.scale == declared.scale


def _is_all_null(column: Column) -> bool:
    return column.valid is not None and not column.valid.any()


def _nullness(column: Column, keys: Words) -> None:
    known = present(column)
    keys[:] = PRESENT_KEY
    if known is not None:
        keys[~known] = ABSENT_KEY


def _value(column: Column, part: int, keys: Words) -> None:
    """Write keys[row] of a part of the column's values; 0 where the field has no value."""
    values = column.values
    if isinstance(values, Spans):
        _words(values, part, keys)
    elif isinstance(values, Decimals):
        _decimals(values, keys)
    elif isinstance(values, np.ndarray):
        _numbers(values, keys)
    else:
        assert _is_all_null(column)
    if column.valid is not None:
        keys *= column.valid


def _numbers(values: NDArray[Any], keys: Words) -> None:
    match values.dtype.kind:
        case "f":
            _doubles(values, keys)
        case "b":
            np.add(values, LOWEST, out=keys, casting="unsafe")
        case _:
            _integers(values, keys)


def _integers(values: Ints, keys: Words) -> None:
    np.maximum(values, INT64_MIN + 1, out=keys.view(np.int64))
    keys ^= _SIGN


def _doubles(values: Doubles, keys: Words) -> None:
    """Works on the bits, so that no NaN raises a floating-point warning."""
    bits = values.view(np.int64)
    np.right_shift(bits, 63, out=keys.view(np.int64))
    keys |= _SIGN
    keys ^= values.view(np.uint64)
    keys += keys == _MINUS_ZERO
    keys *= (keys - _MINUS_INFINITY) <= _INFINITIES_APART


def _decimals(values: Decimals, keys: Words) -> None:
    short = values.low.view(np.int64)
    is_short = values.high == short >> 63
    clamped = np.where(is_short, short, np.where(values.high < 0, INT64_MIN, INT64_MAX))
    _integers(clamped, keys)


def _words(values: Spans, word: int, keys: Words) -> None:
    """Each word is read as the 8 bytes at its offset; bytes that do not belong to it are masked out."""
    body = values.body
    if len(body) < _WORD_VIEW_BYTES:
        body = np.concatenate((body, np.zeros(_WORD_VIEW_BYTES, np.uint8)))
    words = np.ndarray((len(body) - 7,), ">u8", body, strides=(1,))
    wanted = values.starts + word * WORD_BYTES
    # Near the end of the body the 8 bytes are read earlier and shifted into place.
    read = np.minimum(wanted, len(words) - 1)
    keys[:] = words[read]
    keys <<= np.minimum((wanted - read) << 3, 63).view(np.uint64)
    left: Index = np.minimum(np.maximum(values.ends - wanted, 0), 8)
    keys &= _WORD_MASKS.take(left)
    keys |= (left + 1).view(np.uint64)
