"""Constraints as ranges of keys: how constants are placed in the key space.

Every field has one or more key columns of 64-bit unsigned keys (`keys` makes them from a batch), and every
constraint is a range of keys in some of them. So a clause becomes boxes, and an event is a point. Keys keep
the order of the field's values. Key 0 is "no value": NULL, or NaN.

| kind                 | parts     | key                                                                  |
|----------------------|-----------|----------------------------------------------------------------------|
| int, long, timestamp | 0         | the integer with its sign flipped; the two least 64-bit ones share 1  |
| float, double        | 0         | the bits, made to ascend; -0.0 is 0.0                                 |
| decimal              | 0         | the unscaled integer like a long; what is beyond 64 bits is clamped   |
| boolean              | 0         | 1 for false, 2 for true                                               |
| string, bytes        | w         | word w: bytes from 7w, 7 of them or zeros, then 1 + how many (up to 8) |
| any                  | NULLNESS  | 1 for absent, 2 for present                                           |

The last byte of a word tells "ab" from "ab\\0" and whether more bytes follow. So a constant of up to 7 bytes
is compared exactly in one word, and a longer prefix or equality in as many words as it needs.

Where keys are not precise enough (long bounds, integers at the very end, long lists), the ranges are a
superset and `exact` is False: then the index checks the selector once more as a condition.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from tidemark.matching.forms.clauses import Absent, Constraint, Interval, Present, Value
from tidemark.matching.forms.constraints import as_interval, ordered
from tidemark.matching.vectors.decimals import unscaled_bounds
from tidemark.matching.vectors.promotion import INT64_MAX, INT64_MIN
from tidemark.message.types import Atomic, Kind, Type

LOWEST = 1
HIGHEST = 2**64 - 1
NULLNESS = -1
ABSENT_KEY, PRESENT_KEY = 1, 2

WORD_BYTES = 7
#: A constant of more words is compared in this many, and then once more as a condition.
WORDS_MAX = 8
#: A longer list of values becomes the range from its least to its greatest value, and a condition.
ALTERNATIVES_MAX = 32

_SIGN = 2**63
#: Endings of a string that follows directly after the string without its last byte; the empty string, too.
_AFTER_NO_GAP = (b"\0", b"")
_DOUBLE = struct.Struct(">d")
_BITS = struct.Struct(">Q")


class Range(NamedTuple):
    """Keys low to high, both included, of one part of a field."""

    part: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """A constraint holds exactly where all ranges of some alternative do.

    If not `exact`, the ranges of an alternative may also hold where the constraint does not.
    """

    alternatives: tuple[tuple[Range, ...], ...]
    exact: bool = True


def ranges_of(constraint: Constraint, item: Type) -> Ranges:
    """The ranges of a constraint on a field of this type, which is atomic unless it is Present or Absent."""
    if isinstance(constraint, Present | Absent):
        key = PRESENT_KEY if isinstance(constraint, Present) else ABSENT_KEY
        return Ranges(((Range(NULLNESS, key, key),),))
    assert isinstance(item, Atomic)
    if isinstance(constraint, Interval):
        return _interval(constraint, item)
    if len(constraint.values) > ALTERNATIVES_MAX:
        return Ranges(_interval(as_interval(constraint), item).alternatives, exact=False)
    found = [_interval(Interval(value, value), item) for value in ordered(constraint.values)]
    alternatives = [ranges for each in found for ranges in each.alternatives]
    return Ranges(tuple(alternatives), all(each.exact for each in found))


def _interval(constraint: Interval, item: Atomic) -> Ranges:
    match item.kind:
        case Kind.STRING | Kind.BYTES:
            return _words(constraint)
        case Kind.FLOAT | Kind.DOUBLE:
            return _doubles(constraint)
        case Kind.BOOLEAN:
            return _one(1 + bool(constraint.low), 1 + bool(constraint.high))
        case Kind.DECIMAL:
            return _integers(*_unscaled(constraint, item.scale), beyond=True)
        case _:
            return _integers(*_closed(constraint), beyond=False)


def _one(low: int, high: int, exact: bool = True) -> Ranges:
    return Ranges(((Range(0, low, high),),) if low <= high else (), exact)


def _closed(constraint: Interval) -> tuple[int | None, int | None]:
    low, high = constraint.low, constraint.high
    assert low is None or isinstance(low, int)
    assert high is None or isinstance(high, int)
    return (
        None if low is None else low + constraint.low_open,
        None if high is None else high - constraint.high_open,
    )


def _unscaled(constraint: Interval, scale: int) -> tuple[int | None, int | None]:
    """The closed bounds in units of the type's last digit; (1, 0) when no value lies between."""
    low, high = constraint.low, constraint.high
    assert low is None or isinstance(low, Decimal)
    assert high is None or isinstance(high, Decimal)
    above = None if low is None else unscaled_bounds(">" if constraint.low_open else ">=", low, scale)
    below = None if high is None else unscaled_bounds("<" if constraint.high_open else "<=", high, scale)
    if (low is not None and above is None) or (high is not None and below is None):
        return 1, 0
    return above and above[0], below and below[1]


def _integers(low: int | None, high: int | None, beyond: bool) -> Ranges:
    """The ranges of closed bounds; `beyond`: values of more than 64 bits exist, clamped to the last keys."""
    if low is None or (low <= INT64_MIN and not beyond):
        low_key, low_exact = LOWEST, True
    else:
        low_key, low_exact = _integer_key(low), INT64_MIN + 1 < low <= INT64_MAX
    if high is None or (high >= INT64_MAX and not beyond):
        high_key, high_exact = HIGHEST, True
    else:
        high_key, high_exact = _integer_key(high), INT64_MIN < high < INT64_MAX
    if (low is not None and high is not None and low > high) or (not beyond and _is_outside(low, high)):
        return Ranges(())
    return _one(low_key, high_key, low_exact and high_exact)


def _is_outside(low: int | None, high: int | None) -> bool:
    return (low is not None and low > INT64_MAX) or (high is not None and high < INT64_MIN)


def _integer_key(value: int) -> int:
    return min(max(value, INT64_MIN + 1), INT64_MAX) + _SIGN


def _doubles(constraint: Interval) -> Ranges:
    low, high = constraint.low, constraint.high
    assert low is None or isinstance(low, float)
    assert high is None or isinstance(high, float)
    return _one(
        LOWEST if low is None else _double_key(low) + constraint.low_open,
        HIGHEST if high is None else _double_key(high) - constraint.high_open,
    )


def _double_key(value: float) -> int:
    (bits,) = _BITS.unpack(_DOUBLE.pack(value + 0.0))
    assert isinstance(bits, int)
    return HIGHEST - bits if bits & _SIGN else bits + _SIGN


def _words(constraint: Interval) -> Ranges:
    """The ranges of strings or bytes: one key in each word that the bounds share, a range in the next."""
    low, high = _encoded(constraint.low), _encoded(constraint.high)
    shared: list[Range] = []
    word = 0
    while (
        low is not None and high is not None and _has_more(low, word) and _key(low, word) == _key(high, word)
    ):
        shared.append(Range(word, _key(low, word), _key(low, word)))
        word += 1
        if word == WORDS_MAX:
            return Ranges((tuple(shared),), exact=False)
    if low is not None and low == high:
        return Ranges(((*shared, Range(word, _key(low, word), _key(low, word))),))
    low_key = LOWEST if low is None else _low_key(low, word, constraint.low_open)
    high_key = HIGHEST if high is None else _high_key(high, word, constraint.high_open)
    if low_key > high_key:
        return Ranges(())
    exact = not any(bound is not None and _has_more(bound, word) for bound in (low, high))
    return Ranges(((*shared, Range(word, low_key, high_key)),), exact)


def _encoded(value: Value | None) -> bytes | None:
    assert value is None or isinstance(value, str | bytes)
    # No event has a lone surrogate, but a constant may; its place in the order is clear.
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _has_more(data: bytes, word: int) -> bool:
    """Does the data go on after this word?"""
    return len(data) > WORD_BYTES * (word + 1)


def _key(data: bytes, word: int) -> int:
    chunk = data[WORD_BYTES * word : WORD_BYTES * word + WORD_BYTES + 1]
    return int.from_bytes(chunk[:WORD_BYTES].ljust(WORD_BYTES, b"\0")) << 8 | 1 + len(chunk)


# Between the longest string that starts with "a" and the string "b" there are keys that no string has. Ranges
# are widened into such gaps, so that the range of a prefix fills its cell of the grid.


def _low_key(data: bytes, word: int, is_open: bool) -> int:
    key = _key(data, word)
    if is_open and not _has_more(data, word):
        return key + 1
    return key if data[-1:] in _AFTER_NO_GAP else key >> 8 << 8


def _high_key(data: bytes, word: int, is_open: bool) -> int:
    key = _key(data, word)
    if not is_open or _has_more(data, word):
        return key
    return key - 1 if data[-1:] in _AFTER_NO_GAP else (key >> 8 << 8) - 1
