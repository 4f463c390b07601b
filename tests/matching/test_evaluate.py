"""What selectors mean, one event at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.matching.selectors.evaluate import evaluate, value_of
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.tree import Compare, CompareOp, FieldRef, Not
from tidemark.message.types import Path

NAN, INF = float("nan"), float("inf")
TRUTHS = (True, None, False)


def truth(text: str, **event: Any) -> bool | None:
    return evaluate(parse(text), lambda path: event.get(".".join(path)))


def value(text: str, **event: Any) -> Any:
    return value_of(parse(text), lambda path: event.get(".".join(path)))


@pytest.mark.parametrize(("a", "b"), list(product(TRUTHS, TRUTHS)))
def test_and_or_and_not_follow_the_three_valued_tables(a: bool | None, b: bool | None) -> None:
    truths = (False, None, True)
    rank = {truth: index for index, truth in enumerate(truths)}
    assert truth("a AND b", a=a, b=b) is truths[min(rank[a], rank[b])]
    assert truth("a OR b", a=a, b=b) is truths[max(rank[a], rank[b])]
    assert truth("NOT a", a=a) is truths[2 - rank[a]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("seven IS NULL", False),
        ("nan IS NULL", False),
        ("items IS NOT NULL", True),
        ("TRUE", True),
        ("FALSE OR flag", True),
        ("flag = TRUE", True),
        ("flag <> TRUE", False),
        ("seven", None),
        ("missing", None),
        ("items", None),
        ("missing = missing", None),
        ("missing <> 1", None),
        ("NOT missing = 1", None),
        ("missing LIKE '%'", None),
        ("missing NOT LIKE '%'", None),
        ("missing IN (1)", None),
        ("missing NOT IN (1)", None),
        ("missing BETWEEN 1 AND 2", None),
        ("seven BETWEEN missing AND 3", False),
        ("seven BETWEEN missing AND 9", None),
        ("seven NOT BETWEEN missing AND 3", True),
        ("seven BETWEEN 7 AND 7", True),
        ("seven NOT BETWEEN 8 AND 9", True),
        ("seven BETWEEN 9 AND 5", False),
        ("seven IN (1, 7.0)", True),
        ("seven IN (1, 'x')", None),
        ("seven IN ('x', 7)", True),
        ("seven NOT IN (1, 2)", True),
        ("seven NOT IN (1, 7)", False),
        ("name = 'ACME'", True),
        ("name < 'ACNE'", True),
        ("name > 'Z'", False),
        ("name LIKE 'A%E'", True),
        ("name NOT LIKE 'A%E'", False),
        ("name LIKE 'A!%' ESCAPE '!'", False),
        ("seven LIKE '7'", None),
        ("name = 7", None),
        ("name = X'41'", None),
        ("data = X'00ff'", True),
        ("data < X'01'", True),
        ("flag = 1", None),
        ("flag < TRUE", None),
        ("flag IN (TRUE, FALSE)", True),
        ("items = items", None),
        ("at = TIMESTAMP '2024-01-01 01:00:00+01:00'", True),
        ("at > TIMESTAMP '2023-12-31'", True),
        ("at = '2024-01-01'", None),
        ("half = 0.5", True),
        ("nan = nan", None),
        ("nan <> 1", None),
        ("nan NOT IN (1, 2)", None),
        ("NOT nan BETWEEN 1 AND 2", None),
        ("infinite > 1E308", True),
        ("infinite = infinite", True),
        ("infinite - infinite = 0", None),
        ("1E308 * 10 > 1E308", True),
        ("_topic = 'trades'", True),
    ],
)
def test_conditions(text: str, expected: bool | None) -> None:
    event = {
        "seven": 7,
        "half": 0.5,
        "flag": True,
        "name": "ACME",
        "data": b"\x00\xff",
        "items": [1, 2],
        "nan": NAN,
        "infinite": INF,
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "_topic": "trades",
    }
    assert truth(text, **event) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seven + 1", 8),
        ("seven * -2", -14),
        ("seven / 2", 3.5),
        ("seven / 7", 1.0),
        ("seven - 0.5", 6.5),
        ("-seven", -7),
        ("-half", -0.5),
        ("-(5)", -5),
        ("seven / 0", None),
        ("half / 0.0", None),
        ("0 / 0", None),
        ("most + 1", None),
        ("most * 2", None),
        ("-least", None),
        ("least - 1", None),
        ("most + 1.0", 2.0**63),
        ("most + 1 - 1", None),
        ("most / 1", 2.0**63),
        ("dime + 1", 1.1),
        ("-dime", -0.1),
        ("flag + 1", None),
        ("name + 1", None),
        ("-name", None),
        ("missing + 1", None),
    ],
)
def test_arithmetic(text: str, expected: int | float | None) -> None:
    event = {"most": 2**63 - 1, "least": -(2**63), "dime": Decimal("0.1"), "flag": True, "name": "x"}
    result = value(text, seven=7, half=0.5, **event)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Longs and doubles meet as doubles.
        ("big = 9007199254740992.", True),
        ("big = 9007199254740992", False),
        ("big = double", True),
        # A decimal meets digits as written, and other exact numbers, exactly.
        ("dime = 0.1", True),
        ("0.1 = dime", True),
        ("dime = 0.10000000000000000001", False),
        ("dime < 0.10000000000000000001", True),
        ("dime IN (0.2, 1E-1)", True),
        ("dime BETWEEN .1 AND 0.1", True),
        ("huge = 123456789012345678901234567890.5", True),
        ("huge > 123456789012345678901234567890.", True),
        ("whole = big", True),
        ("whole = 9007199254740993", True),
        ("dime = dime2", True),
        # With a double field, or once anything was calculated, it is a double.
        ("dime = tenth", True),
        ("whole = double", True),
        ("dime + 0 = 0.1", True),
        ("dime = 0.05 + 0.05", True),
        # A double field meets a literal as a double.
        ("tenth = 0.10000000000000000001", True),
        ("tenth = 0.1", True),
    ],
)
def test_numbers_of_different_types_promote(text: str, expected: bool) -> None:
    event = {
        "big": 2**53 + 1,
        "double": 2.0**53,
        "tenth": 0.1,
        "dime": Decimal("0.1"),
        "dime2": Decimal("0.100"),
        "huge": Decimal("123456789012345678901234567890.5"),
        "whole": Decimal(2**53 + 1),
    }
    assert truth(text, **event) is expected


def test_datetimes_compare_as_instants_also_where_a_clock_was_turned_back() -> None:
    twice = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert truth("at = TIMESTAMP '2024-10-27 00:30:00Z'", at=twice) is True
    assert truth("at = TIMESTAMP '2024-10-27 01:30:00Z'", at=twice.replace(fold=1)) is True
    east = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert truth("at < TIMESTAMP '2024-01-01 07:00:00.000001'", at=east) is True


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.sampled_from((0, 1, 0.0, -0.0, 1.0, Decimal(0), Decimal("0.1"), 0.1, 2**53, 2**53 + 1, 2.0**53)),
    st.decimals(-100, 100, places=2),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.integers(), max_size=1),
)
OPPOSITES: list[tuple[CompareOp, CompareOp, CompareOp]] = [
    ("=", "<>", "="),
    ("<>", "=", "<>"),
    ("<", ">=", ">"),
    ("<=", ">", ">="),
    (">", "<=", "<"),
    (">=", "<", "<="),
]


@given(VALUES, VALUES)
@settings(derandomize=True, deadline=None, max_examples=400)
def test_every_comparison_is_the_negation_of_its_opposite_and_the_mirror_of_its_mirror(
    a: Any, b: Any
) -> None:
    left, right = FieldRef(("a",)), FieldRef(("b",))
    event: dict[Path, Any] = {left.path: a, right.path: b}
    for op, opposite, mirror in OPPOSITES:
        result = evaluate(Compare(op, left, right), event.get)
        assert evaluate(Not(Compare(opposite, left, right)), event.get) is result
        assert evaluate(Compare(mirror, right, left), event.get) is result


def test_a_condition_has_no_value_and_a_calculation_no_truth() -> None:
    with pytest.raises(AssertionError):
        truth("(a = 1) = TRUE")
    with pytest.raises(AssertionError):
        truth("a + 1", a=1)
