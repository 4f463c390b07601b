"""Decimals of a whole batch: exact comparison, and the nearest double.

A decimal is a 128-bit integer and a scale (`Decimals`). It is compared with a constant, and with decimals of
the same scale, as two halves. Where 64-bit arrays are not exact (other scales, values beyond 2**53 as
doubles), the rows concerned, and only those, are computed as Python integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

import numpy as np

from tidemark.matching.selectors.tree import CompareOp
from tidemark.matching.vectors.arithmetic import Signs, signs
from tidemark.matching.vectors.promotion import INT64_MAX, INT64_MIN
from tidemark.message.batches.columns import Bools, Decimals, Doubles, Ints

INT128_MIN, INT128_MAX = -(2**127), 2**127 - 1

_LOW_MASK = 2**64 - 1
#: Integers up to the first, and powers of ten up to the second, are exact as doubles, so that their quotient
#: is rounded only once.
_DOUBLE_INTEGER_MAX = 2**53
_DOUBLE_SCALE_MAX = 22


def from_longs(values: Ints) -> Decimals:
    """Integers as decimals without digits after the point."""
    return Decimals(values.view(np.uint64), values >> 63, 0)


def unscaled_bounds(op: CompareOp, constant: Decimal, scale: int) -> tuple[int, int] | None:
    """The bounds, included, of the unscaled integers u with `u / 10**scale op constant`; None if none."""
    assert op != "<>"
    scaled = Fraction(constant) * 10**scale
    floor, ceiling = math.floor(scaled), math.ceil(scaled)
    match op:
        case "=":
            low, high = ceiling, floor
        case "<":
            low, high = INT128_MIN, ceiling - 1
        case "<=":
            low, high = INT128_MIN, floor
        case ">":
            low, high = floor + 1, INT128_MAX
        case ">=":
            low, high = ceiling, INT128_MAX
    low, high = max(low, INT128_MIN), min(high, INT128_MAX)
    return (low, high) if low <= high else None


def within(decimals: Decimals, low: int, high: int) -> Bools:
    """low <= unscaled[row] <= high -> within[row]."""
    result = np.ones(len(decimals), np.bool_)
    if low > INT128_MIN:
        result &= ~_below(decimals, low)
    if high < INT128_MAX:
        result &= _below(decimals, high + 1)
    return result


class UnscaledSet:
    """A set of unscaled constants; the few that need more than 64 bits are compared one by one."""

    def __init__(self, constants: Iterable[int]) -> None:
        ordered = sorted(set(constants))
        short = [constant for constant in ordered if INT64_MIN <= constant <= INT64_MAX]
        self._short = np.array(short, np.int64)
        self._long = [constant for constant in ordered if not INT64_MIN <= constant <= INT64_MAX]

    def holds(self, decimals: Decimals) -> Bools:
        """unscaled[row] is one of the constants -> held[row]."""
        held = np.zeros(len(decimals), np.bool_)
        if len(self._short):
            values = decimals.low.view(np.int64)
            held |= self._short.take(self._short.searchsorted(values), mode="clip") == values
            held &= _is_short(decimals)
        for constant in self._long:
            held |= within(decimals, constant, constant)
        return held


def order(left: Decimals, right: Decimals) -> Signs:
    """left[row] <=> right[row] -> sign[row]."""
    if left.scale == right.scale:
        return _order_halves(left, right)
    if left.scale > right.scale:
        return -order(right, left)
    factor: int = 10 ** (right.scale - left.scale)
    reach = INT64_MAX // factor
    mine, other = left.low.view(np.int64), right.low.view(np.int64)
    fits = _is_short(left) & _is_short(right) & (mine <= reach) & (mine >= -reach)
    result = signs(np.where(fits, mine, 0) * min(factor, INT64_MAX), other)
    rows = np.flatnonzero(~fits)
    if len(rows):
        pairs = zip(_take(left, rows).tolist(), _take(right, rows).tolist(), strict=True)
        result[rows] = [(a * factor > b) - (a * factor < b) for a, b in pairs]
    return result


def to_doubles(decimals: Decimals) -> Doubles:
    """The double nearest to each decimal -> double[row]."""
    short = decimals.low.view(np.int64)
    divisor: int = 10**decimals.scale
    doubles: Doubles = short.astype(np.float64) / float(divisor)
    exact = _is_short(decimals) & (short <= _DOUBLE_INTEGER_MAX) & (short >= -_DOUBLE_INTEGER_MAX)
    if decimals.scale > _DOUBLE_SCALE_MAX:
        exact &= short == 0
    rows = np.flatnonzero(~exact)
    if len(rows):
        # Python divides integers of any size with a single rounding.
        doubles[rows] = [unscaled / divisor for unscaled in _take(decimals, rows).tolist()]
    return doubles


def exact_values(decimals: Decimals) -> list[Decimal]:
    """Each row as a Decimal, exactly, whatever the precision of the decimal context."""
    return [Decimal(f"{unscaled}E-{decimals.scale}") for unscaled in decimals.tolist()]


def _below(decimals: Decimals, bound: int) -> Bools:
    high, low = np.int64(bound >> 64), np.uint64(bound & _LOW_MASK)
    below: Bools = (decimals.high == high) & (decimals.low < low)
    below |= decimals.high < high
    return below


def _order_halves(left: Decimals, right: Decimals) -> Signs:
    high = signs(left.high, right.high)
    return np.where(high == 0, signs(left.low, right.low), high)


def _is_short(decimals: Decimals) -> Bools:
    """short[row]: the value fits in the low half, as a signed number."""
    short: Bools = decimals.high == decimals.low.view(np.int64) >> 63
    return short


def _take(decimals: Decimals, rows: Ints) -> Decimals:
    return Decimals(decimals.low[rows], decimals.high[rows], decimals.scale)
