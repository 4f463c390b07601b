"""Comparisons over whole columns: with a constant, with several, with another column.

A constant is brought into the column's own domain once, when the condition is compiled, so that comparing a
column of numbers is one array operation. The conversion is exact: a column of longs is compared with a double
by the run of integers that satisfy the comparison (`matching.vectors.promotion`), a decimal by unscaled
integers. A comparison of unlike types is true for no row and false for no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from tidemark.matching.selectors.tree import MIRRORED, OPERATORS, CompareOp
from tidemark.matching.vectors import decimals, strings
from tidemark.matching.vectors.decimals import UnscaledSet
from tidemark.matching.vectors.operands import (
    NUMBERS,
    Constant,
    Domain,
    Operand,
    Series,
    exactly,
    promoted,
)
from tidemark.matching.vectors.predicates import NEVER, Cost, Inputs, Predicate, both
from tidemark.matching.vectors.promotion import INT64_MAX, INT64_MIN, integer_bounds
from tidemark.matching.vectors.strings import ByteSet
from tidemark.message.batches.columns import Bools
from tidemark.message.codec.scalars import microseconds

#: values (as `Column` has them) -> holds[row], arbitrary where NULL
Mask = Callable[[Any], Bools]
#: values of two columns -> holds[row], arbitrary where NULL
PairMask = Callable[[Any, Any], Bools]


_COSTS = {Domain.STRING: Cost.GATHER, Domain.BYTES: Cost.GATHER, Domain.DECIMAL: Cost.GATHER}


def compare(op: CompareOp, left: Operand, right: Operand) -> Predicate:
    """The predicate `left op right`; at most one of them is a constant."""
    if left is None or right is None:
        return NEVER
    if isinstance(right, Constant):
        assert isinstance(left, Series)
        return holding(left, _constant_mask(op, left, right))
    if isinstance(left, Constant):
        return holding(right, _constant_mask(MIRRORED[op], right, left))
    if left.domain is not right.domain and left.domain in NUMBERS and right.domain in NUMBERS:
        alike = promoted if Domain.DOUBLE in (left.domain, right.domain) else exactly
        left, right = alike(left), alike(right)
    return _holding_pair(left, right, _pair_mask(op, left.domain, right.domain))


def among(series: Series, constants: Sequence[Constant], negated: bool) -> Predicate:
    """The predicate `series [NOT] IN (constants)`."""
    alike = [constant for constant in constants if _constant_mask("=", series, constant) is not None]
    if negated and len(alike) < len(constants):
        return NEVER
    holds = _member_mask(series, alike)
    if not negated:
        return holding(series, holds)
    if series.domain is Domain.DOUBLE:
        return holding(series, lambda values: ~holds(values) & (values == values))
    return holding(series, lambda values: ~holds(values))


def holding(series: Series, mask: Mask | None) -> Predicate:
    """The predicate that the mask holds and the series is not NULL; a mask of None never holds."""
    if mask is None:
        return NEVER
    read = series.read

    def run(inputs: Inputs) -> Bools:
        values, valid = read(inputs)
        result = mask(values)
        if valid is not None:
            result &= valid
        return result

    return Predicate(run, _COSTS.get(series.domain, Cost.ARRAY))


def _holding_pair(left: Series, right: Series, mask: PairMask | None) -> Predicate:
    if mask is None:
        return NEVER

    def run(inputs: Inputs) -> Bools:
        (a, a_valid), (b, b_valid) = left.read(inputs), right.read(inputs)
        result = mask(a, b)
        valid = both(a_valid, b_valid)
        if valid is not None:
            result &= valid
        return result

    return Predicate(run, max(_COSTS.get(side.domain, Cost.ARRAY) for side in (left, right)))


def _constant_mask(op: CompareOp, series: Series, constant: Constant) -> Mask | None:
    """The mask of `values op constant`; None when the two are of unlike types."""
    value: Any = constant.value
    match series.domain, constant.domain:
        case Domain.LONG, Domain.LONG:
            return _long_mask(op, value)
        case Domain.LONG, Domain.DOUBLE:
            return _run_mask(op, integer_bounds("=" if op == "<>" else op, value, INT64_MIN, INT64_MAX))
        case Domain.TIMESTAMP, Domain.TIMESTAMP:
            return _long_mask(op, microseconds(value))
        case Domain.DOUBLE, Domain.LONG | Domain.DOUBLE:
            return _double_mask(op, float(value))
        case Domain.DECIMAL, Domain.LONG | Domain.DOUBLE:
            return _decimal_mask(op, series.scale, constant)
        case Domain.STRING, Domain.STRING:
            return _bytes_mask(op, strings.encode(value))
        case Domain.BYTES, Domain.BYTES:
            return _bytes_mask(op, value)
        case Domain.BOOLEAN, Domain.BOOLEAN if op in ("=", "<>"):
            return (lambda values: values.copy()) if value == (op == "=") else np.logical_not
        case _:
            return None


def _member_mask(series: Series, constants: Sequence[Constant]) -> Mask:
    """The mask that a value is one of the constants, which are all of a like type."""
    values: list[Any] = [constant.value for constant in constants]
    match series.domain:
        case Domain.STRING:
            return ByteSet(map(strings.encode, values)).holds
        case Domain.BYTES:
            return ByteSet(values).holds
        case Domain.TIMESTAMP:
            return _sorted_mask(np.array([microseconds(value) for value in values], np.int64))
        case Domain.DOUBLE:
            return _sorted_mask(np.array(values, np.float64))
        case Domain.LONG if all(isinstance(value, int) for value in values):
            return _sorted_mask(np.array(values, np.int64))
        case Domain.DECIMAL:
            bounds = [decimals.unscaled_bounds("=", _exact(each), series.scale) for each in constants]
            return UnscaledSet(run[0] for run in bounds if run is not None).holds
        case _:
            masks = [_constant_mask("=", series, constant) for constant in constants]
            return _any_mask([mask for mask in masks if mask is not None])


def _any_mask(masks: Sequence[Mask]) -> Mask:
    def holds(values: Any) -> Bools:
        result = np.zeros(len(values), np.bool_)
        for mask in masks:
            result |= mask(values)
        return result

    return holds


def _sorted_mask(constants: Any) -> Mask:
    ordered = np.unique(constants)
    if not len(ordered):
        return _nothing
    if len(ordered) == 1:
        return lambda values: values == ordered
    return lambda values: ordered.take(ordered.searchsorted(values), mode="clip") == values


def _long_mask(op: CompareOp, constant: int) -> Mask:
    assert INT64_MIN <= constant <= INT64_MAX
    compared, scalar = OPERATORS[op], np.int64(constant)
    return lambda values: compared(values, scalar)


def _run_mask(op: CompareOp, run: tuple[int, int] | None) -> Mask:
    """The mask that a value is in the run; for `<>`, whose run is that of `=`, that it is outside."""
    if run is None:
        return _everything if op == "<>" else _nothing
    low, high = np.int64(run[0]), np.int64(run[1])
    if op == "<>":
        return lambda values: (values < low) | (values > high)
    if run[0] == INT64_MIN:
        return lambda values: values <= high
    if run[1] == INT64_MAX:
        return lambda values: values >= low
    return lambda values: (values >= low) & (values <= high)


def _double_mask(op: CompareOp, constant: float) -> Mask:
    compared, scalar = OPERATORS[op], np.float64(constant)
    if op == "<>":  # numpy's != is true of NaN
        return lambda values: (values < scalar) | (values > scalar)
    return lambda values: compared(values, scalar)


def _decimal_mask(op: CompareOp, scale: int, constant: Constant) -> Mask:
    if not _is_exact(constant):
        in_doubles = _double_mask(op, float(constant.value))  # type: ignore[arg-type]  # a double
        return lambda values: in_doubles(decimals.to_doubles(values))
    run = decimals.unscaled_bounds("=" if op == "<>" else op, _exact(constant), scale)
    if run is None:
        return _everything if op == "<>" else _nothing
    low, high = run
    if op == "<>":
        return lambda values: ~decimals.within(values, low, high)
    return lambda values: decimals.within(values, low, high)


def _is_exact(constant: Constant) -> bool:
    """Is the constant exact beside a decimal? A literal means its digits; a computed double is a double."""
    return isinstance(constant.value, int) or constant.text != ""


def _exact(constant: Constant) -> Decimal:
    return Decimal(constant.value) if isinstance(constant.value, int) else Decimal(constant.text)


def _bytes_mask(op: CompareOp, constant: bytes) -> Mask:
    compared = OPERATORS[op]
    match op:
        case "=":
            return lambda values: strings.equal(values, constant)
        case "<>":
            return lambda values: ~strings.equal(values, constant)
        case _:
            return lambda values: compared(strings.order(values, constant), 0)


def _pair_mask(op: CompareOp, left: Domain, right: Domain) -> PairMask | None:
    """The mask of `left op right` for two columns; None when they are of unlike types."""
    compared = OPERATORS[op]
    match left:
        case _ if left is not right:
            return None
        case Domain.BOOLEAN:
            return compared if op in ("=", "<>") else None
        case Domain.DOUBLE if op == "<>":
            return lambda a, b: (a < b) | (a > b)
        case Domain.LONG | Domain.DOUBLE | Domain.TIMESTAMP:
            return compared
        case Domain.DECIMAL:
            return lambda a, b: compared(decimals.order(a, b), 0)
        case Domain.STRING | Domain.BYTES if op in ("=", "<>"):
            return lambda a, b: strings.equal_rows(a, b) == (op == "=")
        case Domain.STRING | Domain.BYTES:
            return lambda a, b: compared(strings.order_rows(a, b), 0)


def _nothing(values: Any) -> Bools:
    return np.zeros(len(values), np.bool_)


def _everything(values: Any) -> Bools:
    return np.ones(len(values), np.bool_)
