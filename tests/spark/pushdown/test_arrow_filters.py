"""Arrow's filter objects, checked against Arrow itself on tables of events."""

from __future__ import annotations

import operator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow.parquet import filters_to_expression

from tests.spark.event_frames import table_of
from tests.spark.selector_samples import FIELDS, TYPES, Samples, SimpleFields
from tidemark.errors import TranslationError
from tidemark.matching.selectors.check import check
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.render import render
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.schema import Schema
from tidemark.message.types import STRING, Dynamic
from tidemark.spark.pushdown.filters import from_arrow_expression

field = pc.field
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)

TAKEN = [
    (field("i") > 5, "i > 5"),
    (field("i") == 2**40, "i = 1099511627776"),
    (field("l") >= -5, "l >= -5"),
    (field("in", "k") != 3, '"in".k <> 3'),
    (~(field("i") <= 5), "i > 5"),
    (field("d") > 1, "d > 1.0"),
    (field("f") < 0.1, "f < 0.1"),
    (field("f") < pa.scalar(0.1, pa.float32()), "f < 0.10000000149011612"),
    (field("d") == -0.0, "d = -0.0"),
    (field("m") == Decimal("-1.5"), "m = -1.5"),
    (field("s") == "a%b", "s = 'a%b'"),
    (field("y") < b"\x00\xff", "y < X'00ff'"),
    (field("t") > NOON, "t > TIMESTAMP '2024-02-29 12:00:00Z'"),
    (field("b"), "b = TRUE"),
    (~field("b"), "b <> TRUE"),
    (field("b") == False, "b = FALSE"),  # noqa: E712, an expression
    (field("i").is_null(), "i IS NULL"),
    (~field("i").is_null(), "i IS NOT NULL"),
    (field("d").is_valid(), "d IS NOT NULL"),
    (field("i") == pa.scalar(None, pa.int32()), "FALSE"),
    (field("i").isin([1, 2]), "i IN (1, 2)"),
    (~field("i").isin([1, 2]), "i IS NULL OR i NOT IN (1, 2)"),
    (field("d").isin([1.5]), "d IN (1.5)"),
    (field("i").isin([]), "FALSE"),
    (pc.starts_with(field("s"), "a_"), "s LIKE 'a\\_%' ESCAPE '\\'"),
    (pc.ends_with(field("s"), "b"), "s LIKE '%b'"),
    (~pc.match_substring(field("s"), "b"), "s NOT LIKE '%b%'"),
    ((field("i") > 5) & (field("j") < 3) & field("b"), "i > 5 AND j < 3 AND b = TRUE"),
    (~((field("i") > 5) & (field("j") < 3)), "i <= 5 OR j >= 3"),
    ((field("i") > 5) & ((field("j") < 3) | field("b")), "i > 5 AND (j < 3 OR b = TRUE)"),
    (pc.scalar(True), "TRUE"),
    (~pc.scalar(True), "FALSE"),
    ([("i", ">", 5), ("s", "in", {"a"})], "i > 5 AND s IN ('a')"),
    ([[("i", "=", 5)], [("j", "!=", 3), ("s", "==", "a")]], "i = 5 OR j <> 3 AND s = 'a'"),
    ([("i", "not in", [1])], "i IS NULL OR i NOT IN (1)"),
    ([(("in", "k"), "<=", 1)], '"in".k <= 1'),
    ([("t", "<", NOON), ("f", ">", 0.1)], "t < TIMESTAMP '2024-02-29 12:00:00Z' AND f > 0.1"),
    ([("s", "in", {"b", "a"})], "s IN ('a', 'b')"),
]

REFUSED = [
    pytest.param(field("nothing") > 5, id="no such field"),
    pytest.param(field("i") > field("j"), id="two columns"),
    pytest.param(field("i") + 1 > 5, id="arithmetic"),
    pytest.param(field("i") > 5.5, id="a double for an integer"),
    pytest.param(field("d") != 1.5, id="NaN is unequal to Arrow"),
    pytest.param(~(field("d") > 1.5), id="NaN is not greater to Arrow"),
    pytest.param(~field("d").isin([1.5]), id="NaN is not in the list to Arrow"),
    pytest.param(field("d") == float("nan"), id="NaN cannot be written"),
    pytest.param(field("d").isin([0.0, 1.5]), id="a list tells -0.0 from 0.0"),
    pytest.param(field("f").isin([0.1]), id="a list is rounded to 32 bits"),
    pytest.param(field("f").isin([1e300]), id="a list beyond 32 bits"),
    pytest.param(field("i").isin([1, None]), id="a list with NULL"),
    pytest.param(~field("i").isin([]), id="nothing to be in"),
    pytest.param(field("t") > pa.scalar(datetime(2024, 2, 29)), id="no zone, no instant"),
    pytest.param(field("d").is_nan(), id="a function that selectors have not"),
    pytest.param(pc.starts_with(field("s"), "a", ignore_case=True), id="an option that selectors have not"),
    pytest.param(pc.match_like(field("s"), "a%"), id="a function that Substrait has not"),
    pytest.param(field("i").isin(list(range(300))), id="longer than a selector may be"),
    pytest.param([("i", "like", 5)], id="an operator that Arrow has not"),
    pytest.param([("i", ">")], id="not a filter"),
    pytest.param([], id="no filter"),
    pytest.param([[]], id="no filter inside"),
    pytest.param([("i", "in", 5)], id="not a list"),
    pytest.param([("d", "in", [1])], id="integers in a list for doubles"),
    pytest.param(5, id="nothing of Arrow's"),
]


@pytest.mark.parametrize(("expression", "text"), TAKEN, ids=[str(each[1]) for each in TAKEN])
def test_an_expression_with_an_exact_equal_becomes_a_selector(expression: Any, text: str) -> None:
    tree = from_arrow_expression(expression, FIELDS)
    assert render(tree) == text
    check(tree, FIELDS, text)


@pytest.mark.parametrize("expression", REFUSED)
def test_an_expression_without_an_exact_equal_is_refused(expression: Any) -> None:
    with pytest.raises(TranslationError):
        from_arrow_expression(expression, FIELDS)


def test_a_schema_gives_the_fields() -> None:
    schema = Schema.parse("[a: int?, in: [b: string], colour: {red: [] | green: []}, any: dynamic]")
    expression = field("in").is_valid() & (field("in", "b") > "a") & (field("colour") == "red")
    tree = from_arrow_expression(expression, schema)
    assert render(tree) == "\"in\" IS NOT NULL AND \"in\".b > 'a' AND colour = 'red'"
    with pytest.raises(TranslationError, match="any"):
        from_arrow_expression(field("any") == "a", schema)
    with pytest.raises(TranslationError):
        from_arrow_expression(field("z") == "a", SimpleFields({("z",): Dynamic()}))


def test_a_deep_expression_is_refused_before_arrow_runs_out_of_memory() -> None:
    deep = field("b")
    for _ in range(250):
        deep = ~deep
    with pytest.raises(TranslationError, match="lists of tuples"):
        from_arrow_expression(deep, FIELDS)


def test_a_long_list_is_not_a_deep_one() -> None:
    tree = from_arrow_expression([("i", ">", number) for number in range(40)], FIELDS)
    assert render(tree).count(" AND ") == 39


COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
TEXT_TESTS = (pc.starts_with, pc.ends_with, pc.match_substring)


def random_expression(samples: Samples, depth: int = 2) -> Any:
    random = samples.random
    shape = random.randrange(8)
    if depth and shape == 0:
        return ~random_expression(samples, depth - 1)
    if depth and shape < 4:
        operands = random_expression(samples, depth - 1), random_expression(samples, depth - 1)
        return operator.and_(*operands) if shape < 3 else operator.or_(*operands)
    path = random.choice(list(TYPES))
    item, column = TYPES[path], field(*path)
    if shape == 4:
        return column.is_null() if random.randrange(2) else column.is_valid()
    if shape == 5:
        pool = [samples.value(item) for _ in range(random.choice((0, 1, 4)))]
        return column.isin(pa.array(pool, arrow_type(item)))
    if shape == 6 and item == STRING:
        return random.choice(TEXT_TESTS)(column, samples.value(item))
    return random.choice(COMPARISONS)(column, pa.scalar(samples.value(item), arrow_type(item)))


def random_lists(samples: Samples) -> list[list[tuple[Any, str, Any]]]:
    return [[random_tuple(samples) for _ in range(samples.random.randint(1, 2))] for _ in range(2)]


def random_tuple(samples: Samples) -> tuple[Any, str, Any]:
    path = samples.random.choice(list(TYPES))
    op = samples.random.choice(("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"))
    values = [samples.value(TYPES[path]) for _ in range(3)]
    return path, op, values if "in" in op else values[0]


@pytest.mark.parametrize("make", [random_expression, random_lists])
def test_a_translated_condition_keeps_exactly_the_rows_that_arrow_keeps(make: Any) -> None:
    samples = Samples(Random(f"arrow {make.__name__}"))
    events = samples.events(150)
    table = table_of(events, TYPES).append_column("row", pa.array(range(len(events))))
    taken = 0
    for _ in range(600):
        condition = make(samples)
        try:
            tree = from_arrow_expression(condition, FIELDS)
        except TranslationError:
            continue
        ours = [row for row, event in enumerate(events) if evaluate(tree, event.get)]
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # what Arrow would not compare itself
            theirs = table.filter(filters_to_expression(condition))["row"].to_pylist()
            assert ours == theirs, f"{condition}\n{render(tree)}"
            taken += 1
    assert taken > 100
