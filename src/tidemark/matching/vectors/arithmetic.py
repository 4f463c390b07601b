"""Arithmetic over whole columns by the selectors' rules: a 64-bit overflow is NULL.

Functions on integers return the results and which of them fit. Values at rows that are NULL are arbitrary, so
nothing may warn or fail because of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.matching.selectors.tree import ArithmeticOp
from tidemark.message.batches.columns import Bools, Doubles, Ints

#: -1, 0 or 1 for each row: how two values compare
Signs = NDArray[np.int8]


def signs(left: Any, right: Any) -> Signs:
    """left[row] <=> right[row] -> sign[row], for arrays of one type without NaN."""
    above: Signs = (left > right).astype(np.int8)
    above -= left < right
    return above


def calculate_longs(op: ArithmeticOp, a: Ints, b: Ints) -> tuple[Ints, Bools]:
    """a[row] op b[row] -> result[row], and fits[row]: the true result fits in 64 bits."""
    match op:
        case "+":
            total = a + b
            return total, ((a ^ total) & (b ^ total)) >= 0
        case "-":
            difference = a - b
            return difference, ((a ^ b) & (a ^ difference)) >= 0
        case "*":
            return _multiply(a, b)
        case "/":
            raise AssertionError("integers are divided as doubles")


def calculate_doubles(op: ArithmeticOp, a: Doubles, b: Doubles) -> Doubles:
    """a[row] op b[row] -> result[row]; NaN for a division by zero, since it compares as NULL does."""
    with np.errstate(all="ignore"):
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return np.where(b == 0, np.nan, a / b)


def _multiply(a: Ints, b: Ints) -> tuple[Ints, Bools]:
    # The wrapped product differs from the true one by a multiple of 2**64, the product of the doubles by
    # a few units in 2**53: when the two are further apart than 2**63 it is because of the wrapping.
    product: Ints = a * b
    nearby = a.astype(np.float64) * b.astype(np.float64)
    return product, np.abs(product.astype(np.float64) - nearby) < 2.0**63
