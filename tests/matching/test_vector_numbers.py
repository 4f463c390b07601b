"""Vectorised conditions on numbers, times and truth: every edge, against the reference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from tests.matching.agreement import assert_agrees, truths
from tests.matching.selector_strategies import Event
from tidemark.matching.selectors.parser import parse
from tidemark.message.types import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TIMESTAMP,
    Dynamic,
    List,
    Path,
    Type,
    decimal,
)

NAN, INF = float("nan"), float("inf")
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


def test_null_is_unknown_and_only_is_null_can_tell() -> None:
    assert truths("x > 1", INT, [None, 1, 2]) == [None, False, True]
    assert truths("NOT x > 1", INT, [None, 1, 2]) == [None, True, False]
    assert truths("x IS NULL", INT, [None, 1]) == [True, False]
    assert truths("x IS NOT NULL", Dynamic(), [None, 1]) == [False, True]
    assert truths("x IS NULL", List(INT), [None, []]) == [True, False]
    assert truths("x > 1 OR x IS NULL", INT, [None, 1]) == [True, False]
    assert truths("NOT (x > 1 AND x IS NULL)", INT, [None, 0]) == [None, True]


def test_nan_compares_with_nothing_and_is_not_null() -> None:
    for op in ("=", "<>", "<", "<=", ">", ">="):
        assert truths(f"x {op} 1.0", DOUBLE, [NAN]) == [None]
        assert truths(f"NOT x {op} x", FLOAT, [NAN]) == [None]
        assert truths(f"x + 1 {op} 1", DOUBLE, [NAN]) == [None]
    assert truths("x IN (1, 2.5)", DOUBLE, [NAN, 1.0, 2.0]) == [None, True, False]
    assert truths("x NOT IN (1, 2.5)", DOUBLE, [NAN, 1.0, 2.0]) == [None, False, True]
    assert truths("x IS NULL", DOUBLE, [NAN]) == [False]


def test_infinities_compare_and_their_difference_is_unknown() -> None:
    assert truths("x > 1E300", DOUBLE, [INF, -INF, 1e300]) == [True, False, False]
    assert truths("x - x = 0", DOUBLE, [INF, 1.0]) == [None, True]
    assert truths("x * 1E300 > 1E308", DOUBLE, [1e300, -1e300]) == [True, False]


def test_minus_zero_is_zero() -> None:
    assert truths("x = 0", DOUBLE, [-0.0, 0.0]) == [True, True]
    assert truths("x < 0.0", DOUBLE, [-0.0]) == [False]
    assert truths("x IN (0, 1, 2, 3, 4, 5)", DOUBLE, [-0.0]) == [True]
    assert truths("1 / -x > 0", DOUBLE, [-0.0, -1.0]) == [None, True]


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x + 1 > 0", 2**63 - 1, None),
        ("x + 1 > 0", 2**63 - 2, True),
        ("x - 1 < 0", -(2**63), None),
        ("-x > 0", -(2**63), None),
        ("-x > 0", -(2**63) + 1, True),
        ("x * 2 > 0", 2**62, None),
        ("x * 2 < 0", -(2**62), True),
        ("x * -1 > 0", -(2**63), None),
        ("x * x > 0", 3_037_000_499, True),
        ("x * x > 0", 3_037_000_500, None),
        ("x * x > 0", 2**32, None),
        ("x + 1.0 > 0", 2**63 - 1, True),
    ],
)
def test_integers_that_overflow_are_null(text: str, value: int, expected: bool | None) -> None:
    assert truths(text, LONG, [value]) == [expected]


def test_division_is_in_doubles_and_by_zero_is_null() -> None:
    assert truths("x / 2 = 1.5", INT, [3, 4]) == [True, False]
    assert truths("1 / x > 0", INT, [0, 2, -2]) == [None, True, False]
    assert truths("x / x = 1", DOUBLE, [0.0, -0.0, INF, 3.0]) == [None, None, None, True]
    assert truths("x / 9007199254740993 = 1", LONG, [2**53 + 1, 2**53]) == [True, True]


def test_longs_beside_doubles_are_rounded_to_doubles() -> None:
    longs = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63)]
    assert truths("x = 9007199254740992.0", LONG, longs) == [True, True, False, False, False]
    assert truths("x <> 9007199254740992.0", LONG, longs) == [False, False, True, True, True]
    assert truths("x >= 9223372036854775808.0", LONG, longs) == [False, False, False, True, False]
    assert truths("x < 1E30", LONG, longs) == [True] * 5
    assert truths("x > 1E30", LONG, [*longs, None]) == [False] * 5 + [None]
    assert truths("x <> 0.5", LONG, [0, None]) == [True, None]
    assert truths("x IN (0.5, 1, 9007199254740992.0)", LONG, [0, 1, 2**53 + 1]) == [False, True, True]
    rows: list[Event] = [{("l",): 2**53 + 1, ("d",): 2.0**53}]
    assert_agrees(parse("l = d AND NOT l > d"), rows, {("l",): LONG, ("d",): DOUBLE})


def test_decimals_compare_exactly_with_what_is_written() -> None:
    item = decimal(38, 21)
    digits = [Decimal("0.1"), Decimal("0.100000000000000000001"), None]
    assert truths("x = 0.1", item, digits) == [True, False, None]
    assert truths("x > 0.1", item, digits) == [False, True, None]
    assert truths("x <> 0.1000000000000000000010", item, digits) == [True, False, None]
    assert truths("x < 0.1000000000000000000001", item, digits) == [True, False, None]
    assert truths("x < 1E300 AND x > -1E300 AND x > 1E-300", item, digits) == [True, True, None]
    assert truths("x >= 1E-300", item, [Decimal(0), Decimal("1E-21")]) == [False, True]
    assert truths("x <= -1E-300", item, [Decimal(0), Decimal("-1E-21")]) == [False, True]
    assert truths("x IN (0.1, 7, 8, 9, 10, 11, 1E30)", item, digits) == [True, False, None]


def test_decimals_of_128_bits_compare_in_both_halves() -> None:
    item = decimal(38, 0)
    values = [
        Decimal(10**38 - 1),
        Decimal(1 - 10**38),
        Decimal(2**64),
        Decimal(2**64 - 1),
        Decimal(-1),
        Decimal(0),
    ]
    for text in ("18446744073709551616.0", "99999999999999999999999999999999999999.0", "-1", "0", "1E38"):
        for op in ("=", "<>", "<", "<=", ">", ">="):
            truths(f"x {op} {text}", item, values)
    constants = "18446744073709551616.0, 99999999999999999999999999999999999999.0, -1, 5, 6, 7"
    assert truths(f"x IN ({constants})", item, values) == [True, False, True, False, True, False]


def test_decimals_in_doubles_are_the_nearest_double() -> None:
    types: dict[Path, Type] = {("x",): decimal(38, 21), ("d",): DOUBLE}
    values = [
        "0.1",
        "0.100000000000000000001",
        "9007199254740993",
        "1.5",
        "12345678901234567.890123456789012345678",
    ]
    rows: list[Event] = [{("x",): Decimal(value), ("d",): float(value)} for value in values]
    assert_agrees(parse("x = d"), rows, types)
    assert_agrees(parse("x + 0 = d AND -x < d"), rows, types)
    assert_agrees(parse("x > 0.1 + 0"), rows, types)
    for scale in (0, 2, 22, 23, 38):
        unscaled = (1, 3, 2**53 - 1, 2**53, 2**53 + 1, 10**17 + 1, 2**63, 2**64 + 1, 10**38 - 1)
        many: list[Event] = [{("x",): Decimal(f"{u}E-{scale}"), ("d",): u / 10**scale} for u in unscaled]
        assert_agrees(parse("x = d AND x - d = 0"), many, {("x",): decimal(38, scale), ("d",): DOUBLE})


def test_floats_of_32_bits_compare_as_doubles() -> None:
    tenth = float(np.float32(0.1))
    assert truths("x = 0.1", FLOAT, [tenth]) == [False]
    assert truths("x > 0.1", FLOAT, [tenth]) == [True]


def test_timestamps_compare_as_instants_to_the_microsecond() -> None:
    values = [NOON, NOON + timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC), None]
    assert truths("x > TIMESTAMP '2024-02-29 12:00:00Z'", TIMESTAMP, values) == [False, True, True, None]
    assert truths("x = TIMESTAMP '2024-02-29 17:30:00+05:30'", TIMESTAMP, values) == [
        True,
        False,
        False,
        None,
    ]


def test_booleans_are_conditions_and_equal_each_other() -> None:
    values = [True, False, None]
    assert truths("x", BOOLEAN, values) == values
    assert truths("NOT x", BOOLEAN, values) == [False, True, None]
    assert truths("x = FALSE", BOOLEAN, values) == [False, True, None]
    assert truths("x <> FALSE", BOOLEAN, values) == [True, False, None]
    assert truths("x", LONG, [1]) == [None]


def test_constant_conditions_need_no_columns() -> None:
    for text, expected in (("TRUE", True), ("1 = 2", False), ("1 / 0 = 1", None), ("'ab' LIKE 'a%'", True)):
        assert truths(text, INT, [1, None]) == [expected] * 2
