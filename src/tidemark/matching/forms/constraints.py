"""Constraints as sets of values of one field: which values they admit, how two intersect, contain and span.

Constants are in the field's own domain (see `matching.forms.clauses`), so plain operators compare them.
Constants of different Python types come only from fields that are typed differently in two schemas; of such a
pair neither contains the other, and the hull is Present.

Every result is in canonical form: an interval holds more than one value and has at least one bound, and a
list never has both booleans.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemark.matching.forms.clauses import Absent, Constraint, Interval, OneOf, Present, Value

_BOTH = frozenset((False, True))


def one_of(values: frozenset[Value]) -> Constraint | None:
    """The constraint that the field is one of `values`; None when there are none."""
    if not values:
        return None
    # True == 1, so the two numbers 0 and 1 look like both truth values.
    if values == _BOTH and all(isinstance(value, bool) for value in values):
        return Present()
    return OneOf(values)


def interval(
    low: Value | None, high: Value | None, low_open: bool = False, high_open: bool = False
) -> Constraint | None:
    """The constraint that the field lies between `low` and `high`; None when no value does."""
    if low is None and high is None:
        return Present()
    if low is None or high is None:
        return Interval(low, high, low_open and low is not None, high_open and high is not None)
    if low == high:
        return None if low_open or high_open else OneOf(frozenset((low,)))
    return Interval(low, high, low_open, high_open) if _less(low, high) else None


def admits(constraint: Constraint, value: Any) -> bool:
    """Does a field with this value (in its domain; None is NULL) satisfy the constraint?"""
    match constraint:
        case Absent():
            return value is None
        case Present():
            return value is not None
        case OneOf(values):
            return value in values
        case Interval():
            # NaN is in no interval: at least one end has a bound, and no comparison with NaN is true.
            return value is not None and _above_low(constraint, value) and _below_high(constraint, value)


def intersect(a: Constraint, b: Constraint) -> Constraint | None:
    """The constraint of the values that satisfy both, which are of one domain; None when none can."""
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if a == b else None
    if isinstance(a, Present):
        return b
    if isinstance(b, Present):
        return a
    if isinstance(a, OneOf):
        return one_of(frozenset(value for value in a.values if admits(b, value)))
    if isinstance(b, OneOf):
        return intersect(b, a)
    low, low_open = (b.low, b.low_open) if _starts_before(a, b) else (a.low, a.low_open)
    high, high_open = (b.high, b.high_open) if _ends_after(a, b) else (a.high, a.high_open)
    return interval(low, high, low_open, high_open)


def contains(a: Constraint, b: Constraint) -> bool:
    """Does every value that satisfies `b` satisfy `a`?

    False also means "not known": the width of the field's type is not taken into account.
    """
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a == b
    if isinstance(a, Present):
        return True
    if isinstance(b, Present) or not _alike(a, b):
        return False
    if isinstance(a, OneOf):
        return b.values <= a.values if isinstance(b, OneOf) else _lists_all(a, b)
    if isinstance(b, OneOf):
        return all(admits(a, value) for value in b.values)
    return _starts_before(a, b) and _ends_after(a, b)


def hull(a: Constraint, b: Constraint) -> Constraint | None:
    """The least constraint that admits every value that `a` or `b` admits; None when NULL is among others."""
    if isinstance(a, Absent) or isinstance(b, Absent):
        return a if a == b else None
    if isinstance(a, Present) or isinstance(b, Present) or not _alike(a, b):
        return Present()
    if isinstance(a, OneOf) and isinstance(b, OneOf):
        return one_of(a.values | b.values)
    return span(a, b)


def span(a: OneOf | Interval, b: OneOf | Interval) -> Constraint:
    """The interval from the least to the greatest value of both, which are of one domain."""
    a, b = as_interval(a), as_interval(b)
    low, low_open = (a.low, a.low_open) if _starts_before(a, b) else (b.low, b.low_open)
    high, high_open = (a.high, a.high_open) if _ends_after(a, b) else (b.high, b.high_open)
    spanned = interval(low, high, low_open, high_open)
    assert spanned is not None
    return spanned


def as_interval(constraint: OneOf | Interval) -> Interval:
    """The interval from the least to the greatest value; for a single value it is not canonical."""
    if isinstance(constraint, Interval):
        return constraint
    values = ordered(constraint.values)
    return Interval(values[0], values[-1])


def ordered(values: Iterable[Value]) -> list[Value]:
    """Constants of one domain, ascending."""
    comparable: list[Any] = list(values)
    return sorted(comparable)


def order_key(constraint: Constraint) -> tuple[Any, ...]:
    """A key that sorts constraints on one field by their start, then their end, then their values."""
    if isinstance(constraint, Present | Absent):
        return (isinstance(constraint, Absent), (0,), (1,))
    ends = as_interval(constraint)
    low = (0,) if ends.low is None else (1, ends.low, ends.low_open)
    high = (1,) if ends.high is None else (0, ends.high, not ends.high_open)
    held = ordered(constraint.values) if isinstance(constraint, OneOf) else []
    return (False, low, high, isinstance(constraint, Interval), held)


def _above_low(bounds: Interval, value: Any) -> bool:
    if bounds.low is None:
        return True
    return bool(value > bounds.low if bounds.low_open else value >= bounds.low)


def _below_high(bounds: Interval, value: Any) -> bool:
    if bounds.high is None:
        return True
    return bool(value < bounds.high if bounds.high_open else value <= bounds.high)


def _starts_before(a: Interval, b: Interval) -> bool:
    """Does `a` start where `b` does or earlier?"""
    if a.low is None or b.low is None:
        return a.low is None
    return _less(a.low, b.low) or (a.low == b.low and (b.low_open or not a.low_open))


def _ends_after(a: Interval, b: Interval) -> bool:
    """Does `a` end where `b` does or later?"""
    if a.high is None or b.high is None:
        return a.high is None
    return _less(b.high, a.high) or (a.high == b.high and (b.high_open or not a.high_open))


def _lists_all(a: OneOf, b: Interval) -> bool:
    """Is every value of the interval listed? Only integers can be counted; their intervals are closed."""
    if type(b.low) is not int or type(b.high) is not int or b.high - b.low >= len(a.values):
        return False
    return a.values.issuperset(range(b.low, b.high + 1))


def _alike(a: OneOf | Interval, b: OneOf | Interval) -> bool:
    """Are the constants of one domain?"""
    return type(_constant(a)) is type(_constant(b))


def _constant(constraint: OneOf | Interval) -> Value | None:
    """Any constant of the constraint."""
    if isinstance(constraint, OneOf):
        return next(iter(constraint.values))
    return constraint.high if constraint.low is None else constraint.low


def _less(a: Any, b: Any) -> bool:
    return bool(a < b)
