"""Integers promoted to doubles: the run that satisfies a comparison with a constant."""

from __future__ import annotations

import math
import operator
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.matching.selectors.tree import CompareOp
from tidemark.matching.vectors.promotion import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, integer_bounds

OPERATORS: dict[Any, Any] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

longs = st.one_of(
    st.integers(INT64_MIN, INT64_MAX),
    st.sampled_from([INT64_MIN, INT64_MAX, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 0, -1]),
)
constants = st.one_of(st.floats(allow_nan=False), longs.map(float), longs.map(lambda v: v / 2))


def test_every_operator_but_unequal_is_checked() -> None:
    assert set(OPERATORS) == set(get_args(CompareOp)) - {"<>"}


@pytest.mark.parametrize("op", OPERATORS)
@given(c=st.floats(-12, 12), low=st.integers(-9, 9), size=st.integers(0, 12))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_bounds_are_what_trying_every_integer_gives(op: Any, c: float, low: int, size: int) -> None:
    satisfied = [v for v in range(low, low + size + 1) if OPERATORS[op](float(v), c)]
    expected = (satisfied[0], satisfied[-1]) if satisfied else None
    assert integer_bounds(op, c, low, low + size) == expected


@pytest.mark.parametrize("op", OPERATORS)
@given(c=constants, near=st.integers(-3, 3), probe=longs)
@example(c=2.0**53, near=0, probe=2**53 + 1)
@example(c=2.0**63, near=0, probe=INT64_MAX)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_every_long_is_inside_exactly_when_its_promotion_compares(
    op: Any, c: float, near: int, probe: int
) -> None:
    bounds = integer_bounds(op, c, INT64_MIN, INT64_MAX)
    ends = bounds or (probe, probe)
    around = int(min(max(c, INT64_MIN), INT64_MAX - 1024))
    for v in (probe, ends[0] + near, ends[1] + near, around + near):
        if INT64_MIN <= v <= INT64_MAX:
            assert OPERATORS[op](float(v), c) == (bounds is not None and bounds[0] <= v <= bounds[1])


def test_beyond_two_to_the_53_a_whole_run_of_longs_equals_one_double() -> None:
    assert integer_bounds("=", 2.0**53, INT64_MIN, INT64_MAX) == (2**53, 2**53 + 1)
    assert integer_bounds(">", 2.0**53, INT64_MIN, INT64_MAX) == (2**53 + 2, INT64_MAX)
    assert integer_bounds("<", 2.0**63, INT64_MIN, INT64_MAX) == (INT64_MIN, 2**63 - 513)
    assert integer_bounds("=", 2.0**63, INT64_MIN, INT64_MAX) == (2**63 - 512, INT64_MAX)


def test_infinities_and_fractions_and_nan() -> None:
    assert integer_bounds("<", math.inf, INT32_MIN, INT32_MAX) == (INT32_MIN, INT32_MAX)
    assert integer_bounds(">", math.inf, INT32_MIN, INT32_MAX) is None
    assert integer_bounds(">=", -math.inf, INT32_MIN, INT32_MAX) == (INT32_MIN, INT32_MAX)
    assert integer_bounds("=", 10.5, INT32_MIN, INT32_MAX) is None
    assert integer_bounds("<", 10.5, INT32_MIN, INT32_MAX) == (INT32_MIN, 10)
    assert integer_bounds(">", -10.5, INT32_MIN, INT32_MAX) == (-10, INT32_MAX)
    assert integer_bounds("<=", math.nan, INT32_MIN, INT32_MAX) is None
    assert integer_bounds("=", -0.0, INT32_MIN, INT32_MAX) == (0, 0)
