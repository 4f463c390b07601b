"""Promotion: which integers satisfy a comparison with a double when they are made doubles first.

Java's promotion rounds a long to the nearest double, so beyond 2**53 many integers equal one double and
`n < 9007199254740993.0` is not a comparison of exact values. Rounding keeps the order, so the integers that
satisfy a comparison with a constant are still one run, and a binary search that rounds in the same way finds
its ends exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tidemark.matching.selectors.tree import CompareOp

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def integer_bounds(op: CompareOp, c: float, low: int, high: int) -> tuple[int, int] | None:
    """The integers v of [low, high] with `float(v) op c`, as inclusive bounds; None when there are none.

    `<>` is not one run: ask for `=` and take what is left. NaN satisfies nothing.
    """
    assert op != "<>"
    assert low <= high
    if math.isnan(c):
        return None
    if op in (">", ">="):
        first, last = _first(low, high, lambda v: _above(v, c, op == ">=")), high
    elif op in ("<", "<="):
        first, last = low, _first(low, high, lambda v: _above(v, c, op == "<")) - 1
    else:
        first = _first(low, high, lambda v: _above(v, c, True))
        last = _first(low, high, lambda v: _above(v, c, False)) - 1
    return (first, last) if first <= last else None


def _above(v: int, c: float, or_equal: bool) -> bool:
    return float(v) > c or (or_equal and float(v) == c)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first integer of [low, high] for which the monotone `holds` is true; high + 1 if there is none."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
