"""Conditions that Spark pushes down as selectors; those that Spark has to check itself come back to it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tests.spark.selector_samples import FIELDS, SimpleFields
from tidemark.matching.selectors.check import check
from tidemark.matching.selectors.render import render
from tidemark.message.types import DOUBLE, STRING, Dynamic, List, Path, Tuple
from tidemark.spark.pushdown.filters import from_spark_filters

NAN, INFINITY = float("nan"), float("inf")
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)

TAKEN = [
    (EqualTo(("i",), 5), "i = 5"),
    (EqualTo(("in", "k"), -5), '"in".k = -5'),
    (EqualTo(("i",), None), "FALSE"),
    (Not(EqualTo(("i",), None)), "FALSE"),
    (Not(EqualTo(("i",), 5)), "i <> 5"),
    (Not(Not(LessThan(("i",), 5))), "i < 5"),
    (Not(LessThan(("i",), 5)), "i >= 5"),
    (Not(GreaterThanOrEqual(("l",), 2**63 - 1)), "l < 9223372036854775807"),
    (EqualNullSafe(("i",), 5), "i = 5"),
    (EqualNullSafe(("i",), None), "i IS NULL"),
    (Not(EqualNullSafe(("i",), None)), "i IS NOT NULL"),
    (Not(EqualNullSafe(("i",), 5)), "i IS NULL OR i <> 5"),
    (IsNull(("d",)), "d IS NULL"),
    (IsNotNull(("d",)), "d IS NOT NULL"),
    (Not(IsNull(("d",))), "d IS NOT NULL"),
    (In(("i",), (1, 2)), "i IN (1, 2)"),
    (In(("i",), [1, None]), "i IN (1)"),
    (In(("i",), ()), "FALSE"),
    (In(("i",), (None,)), "FALSE"),
    (Not(In(("i",), (1, 2))), "i NOT IN (1, 2)"),
    (Not(In(("i",), (1, None))), "FALSE"),
    (EqualTo(("d",), 1.5), "d = 1.5"),
    (EqualTo(("d",), 5), "d = 5.0"),
    (LessThan(("d",), 1e-7), "d < 1e-07"),
    (LessThanOrEqual(("f",), 1e16), "f <= 1e+16"),
    (Not(GreaterThan(("d",), 1.5)), "d <= 1.5"),
    (Not(GreaterThanOrEqual(("d",), 1.5)), "d < 1.5"),
    (In(("d",), (1.5, 2.0, None)), "d IN (1.5, 2.0)"),
    (EqualTo(("m",), Decimal("1.500000000")), "m = 1.5"),
    (EqualTo(("m",), Decimal("5.000000000")), "m = 5"),
    (LessThan(("p",), Decimal(10**20)), "p < 100000000000000000000."),
    (GreaterThan(("n",), Decimal("-0.01")), "n > -0.01"),
    (EqualTo(("b",), True), "b = TRUE"),
    (Not(EqualTo(("b",), True)), "b <> TRUE"),
    (GreaterThan(("s",), "it's"), "s > 'it''s'"),
    (EqualTo(("y",), bytearray(b"\x00\xff")), "y = X'00ff'"),
    (EqualTo(("t",), NOON), "t = TIMESTAMP '2024-02-29 12:00:00Z'"),
    (
        LessThan(("t",), NOON.astimezone(timezone(timedelta(hours=5)))),
        "t < TIMESTAMP '2024-02-29 12:00:00Z'",
    ),
    (StringStartsWith(("s",), "ab"), "s LIKE 'ab%'"),
    (StringEndsWith(("s",), "a\\b"), "s LIKE '%a\\b'"),
    (StringContains(("s",), "50%_\\"), "s LIKE '%50\\%\\_\\\\%' ESCAPE '\\'"),
    (Not(StringContains(("s",), "")), "s NOT LIKE '%%'"),
    (EqualTo(("_topic",), "trades"), "_topic = 'trades'"),
]

LEFT_TO_SPARK = [
    pytest.param(EqualTo(("nothing",), 5), id="no such field"),
    pytest.param(GreaterThan(("d",), 1.5), id="NaN is greater to Spark"),
    pytest.param(Not(LessThan(("d",), 1.5)), id="NaN is not less to Spark"),
    pytest.param(Not(EqualTo(("f",), 1.5)), id="NaN is not equal to Spark"),
    pytest.param(Not(In(("d",), (1.5,))), id="NaN is not in the list to Spark"),
    pytest.param(Not(EqualNullSafe(("d",), 1.5)), id="nor is it null-safely equal"),
    pytest.param(EqualTo(("d",), NAN), id="NaN equals itself to Spark"),
    pytest.param(In(("d",), (1.5, NAN)), id="also in a list"),
    pytest.param(LessThan(("d",), INFINITY), id="infinity cannot be written"),
    pytest.param(EqualTo(("d",), 2**53 + 1), id="no such double"),
    pytest.param(EqualTo(("i",), 1.5), id="a double for an integer"),
    pytest.param(EqualTo(("i",), True), id="a boolean for an integer"),
    pytest.param(EqualTo(("d",), True), id="a boolean for a double"),
    pytest.param(EqualTo(("l",), 2**63), id="beyond 64 bits"),
    pytest.param(GreaterThan(("b",), False), id="booleans have no order"),
    pytest.param(EqualTo(("m",), 1.5), id="a double for a decimal"),
    pytest.param(EqualTo(("m",), Decimal("NaN")), id="not a decimal"),
    pytest.param(EqualTo(("m",), Decimal("1E+999999999")), id="not a decimal of Spark's"),
    pytest.param(
        EqualTo(("m",), Decimal("123456789012345678901234567.1")), id="28 digits may be rounded ones"
    ),
    pytest.param(In(("m",), (Decimal("123456789012345678901234567.1"),)), id="also in a list"),
    pytest.param(EqualTo(("t",), datetime(2024, 2, 29, 12)), id="no zone, no instant"),
    pytest.param(EqualTo(("t",), date(2024, 2, 29)), id="a date"),
    pytest.param(
        LessThan(("t",), datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))), id="year 0 in UTC"
    ),
    pytest.param(EqualTo(("s",), b"a"), id="bytes for a string"),
    pytest.param(EqualTo(("s",), "\ud800"), id="half a character"),
    pytest.param(StringStartsWith(("y",), "a"), id="bytes do not start with text"),
    pytest.param(Not(In(("i",), ())), id="settings decide about NULL NOT IN ()"),
    pytest.param(In(("i",), tuple(range(300))), id="longer than a selector may be"),
    pytest.param(object(), id="not a filter"),
]


@pytest.mark.parametrize(("condition", "text"), TAKEN, ids=repr)
def test_a_filter_with_an_exact_equal_becomes_a_selector(condition: Any, text: str) -> None:
    tree, left = from_spark_filters([condition], FIELDS)
    assert left == []
    assert tree is not None
    assert render(tree) == text
    check(tree, FIELDS, text)


@pytest.mark.parametrize("condition", LEFT_TO_SPARK)
def test_a_filter_without_an_exact_equal_is_left_to_spark(condition: Any) -> None:
    assert from_spark_filters([condition], FIELDS) == (None, [condition])


def test_fields_that_are_not_one_value_can_only_be_tested_for_null() -> None:
    fields = SimpleFields({("z",): Dynamic(), ("q",): List(DOUBLE), ("in",): Tuple(()), ("in", "s"): STRING})
    asked = [IsNull(("q",)), IsNotNull(("in",)), IsNull(("z",)), EqualTo(("q",), []), EqualTo(("z",), "a")]
    tree, left = from_spark_filters(asked, fields)
    assert tree is not None
    assert render(tree) == 'q IS NULL AND "in" IS NOT NULL'
    assert left == asked[2:]


def test_what_is_taken_is_one_conjunction_and_the_rest_comes_back_as_the_same_objects() -> None:
    asked = [
        IsNotNull(("d",)),
        GreaterThan(("d",), 5.0),
        GreaterThan(("i",), 5),
        Not(EqualNullSafe(("j",), 1)),
    ]
    tree, left = from_spark_filters(asked, FIELDS)
    assert tree is not None
    assert render(tree) == "d IS NOT NULL AND i > 5 AND (j IS NULL OR j <> 1)"
    assert len(left) == 1
    assert left[0] is asked[1]


def test_filters_are_taken_as_long_as_the_selector_stays_within_its_limits() -> None:
    asked = [In(("i",), tuple(range(80))), In(("j",), tuple(range(80))), EqualTo(("s",), "a")]
    tree, left = from_spark_filters(asked, FIELDS)
    assert left == asked[1:2]
    assert tree is not None
    assert render(tree).endswith("AND s = 'a'")


def test_columns_are_mapped_to_the_fields_they_hold() -> None:
    fields: dict[Path, Path | None] = {("column",): ("i",), ("other",): None}
    asked = [EqualTo(("column",), 5), EqualTo(("other",), 5)]
    tree, left = from_spark_filters(asked, FIELDS, field=lambda column: fields[column])
    assert tree is not None
    assert render(tree) == "i = 5"
    assert left == asked[1:]
