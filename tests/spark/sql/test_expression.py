"""Selectors as Spark SQL: Spark chooses the events that the matcher chooses, or the selector is refused."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.spark.event_frames import frame_of, settings, truths
from tests.spark.selector_samples import FIELDS, TYPES, Samples, SimpleFields
from tidemark.errors import TranslationError
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import NESTING_LEVELS_MAX, parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import And, Compare, FieldRef, Literal, Node
from tidemark.message.foreign.arrow.types import arrow_schema
from tidemark.message.foreign.arrow.values import to_arrow_value
from tidemark.message.schema import Schema, value_at
from tidemark.message.types import STRING, Dynamic, List, Path, Reference, Type, decimal
from tidemark.spark.columns import EventColumns
from tidemark.spark.sql.expression import plain_conjuncts, to_spark_sql
from tidemark.spark.sql.text import column_text

#: Two sessions that differ in all that could matter.
SETTINGS = {
    "as Spark comes": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.session.timeZone": "UTC",
    },
    "as different as can be": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.session.timeZone": "America/New_York",
    },
}


@pytest.mark.parametrize(
    ("selector", "sql"),
    [
        ("i = 5", "CAST(`i` AS BIGINT) = 5L"),
        ("l <> -9223372036854775808", "`l` <> -9223372036854775808L"),
        ('"in".k < 1.5', "CAST(`in`.`k` AS DOUBLE) < 1.5D"),
        ("d >= 5", "nanvl(`d`, CAST(NULL AS DOUBLE)) >= CAST(5L AS DOUBLE)"),
        ("f = 1e-7", "nanvl(CAST(`f` AS DOUBLE), CAST(NULL AS DOUBLE)) = 1e-07D"),
        ("-l > i * 2", "try_subtract(0L, `l`) > try_multiply(CAST(`i` AS BIGINT), 2L)"),
        (
            "l / 2 > 1",
            "nanvl(try_divide(CAST(`l` AS DOUBLE), CAST(2L AS DOUBLE)), CAST(NULL AS DOUBLE))"
            " > CAST(1L AS DOUBLE)",
        ),
        ("n = 1.50", "`n` = CAST('1.50' AS DECIMAL(9, 2))"),
        ("n < 0.001", "`n` <= CAST('0.00' AS DECIMAL(9, 2))"),
        ("0.001 < n", "`n` > CAST('0.00' AS DECIMAL(9, 2))"),
        ("n >= -0.001", "`n` > CAST('-0.01' AS DECIMAL(9, 2))"),
        ("n = 0.001", "`n` <> `n`"),
        ("n < 1e300", "`n` = `n`"),
        ("n > m", "CAST(`n` AS DECIMAL(38, 9)) > CAST(`m` AS DECIMAL(38, 9))"),
        ("n > l", "CAST(`n` AS DECIMAL(21, 2)) > CAST(`l` AS DECIMAL(21, 2))"),
        ("n + 1 > d", "nanvl(try_add(CAST(`n` AS DOUBLE), CAST(1L AS DOUBLE)), CAST(NULL AS DOUBLE))"
         " > nanvl(`d`, CAST(NULL AS DOUBLE))"),
        ("s = 'plain'", "`s` = 'plain'"),
        ("s = 'it''s'", "`s` = CAST(X'69742773' AS STRING)"),
        ("s = '${x}'", "`s` = CAST(X'247b787d' AS STRING)"),
        ("s LIKE 'a!%\\%' ESCAPE '\\'", "`s` LIKE 'a!!%!%' ESCAPE '!'"),
        ("s NOT LIKE '_%'", "NOT (`s` LIKE '_%' ESCAPE '!')"),
        ("y = X'00ff'", "`y` = X'00ff'"),
        ("t < TIMESTAMP '1970-01-01 00:00:01Z'", "`t` < timestamp_micros(1000000L)"),
        ("b AND NOT c", "(`b` AND NOT (`c`))"),
        ("b = TRUE OR FALSE", "(`b` = true OR false)"),
        ("l BETWEEN 1 AND 2", "(`l` >= 1L AND `l` <= 2L)"),
        ("l NOT IN (1, 2, 2.5)", "NOT ((`l` IN (1L, 2L) OR CAST(`l` AS DOUBLE) IN (2.5D)))"),
        ("n IN (1, 0.001, 2)",
         "(`n` IN (CAST('1.00' AS DECIMAL(9, 2)), CAST('2.00' AS DECIMAL(9, 2))) OR `n` <> `n`)"),
        ("s IS NOT NULL AND _topic = 'a'", "(`s` IS NOT NULL AND `_topic` = 'a')"),
    ],
)  # fmt: skip
def test_a_selector_reads_as_spark_sql(selector: str, sql: str) -> None:
    assert to_spark_sql(Selector.parse(selector, FIELDS).tree, FIELDS) == sql


def test_columns_can_be_named_by_the_caller() -> None:
    sql = to_spark_sql(parse("i = 5 AND i IS NULL"), FIELDS, column=lambda path: f"event.{path[0]}")
    assert sql == "(CAST(event.i AS BIGINT) = 5L AND event.i IS NULL)"


def test_backticks_in_names_are_doubled() -> None:
    assert to_spark_sql(parse('"odd `name`".u IS NULL'), FIELDS) == "`odd ``name```.`u` IS NULL"


@pytest.mark.parametrize(
    ("item", "selector"),
    [
        (None, "x = 5"),
        (None, "x IS NULL"),
        (Dynamic(), "x = 5"),
        (Dynamic(), "x IS NULL"),
        (Reference("Node"), "x = 5"),
        (List(STRING), "x = 'a'"),
    ],
)
def test_a_field_of_no_known_atomic_type_is_refused_by_its_path(item: Type | None, selector: str) -> None:
    fields = SimpleFields({("x",): item})
    with pytest.raises(TranslationError, match=r"^x: "):
        to_spark_sql(parse(selector), fields)


def test_a_name_that_spark_would_substitute_is_refused() -> None:
    with pytest.raises(TranslationError, match="variable"):
        to_spark_sql(parse('"${x}" IS NULL'), SimpleFields({("${x}",): STRING}))


def test_decimals_that_spark_cannot_hold_side_by_side_are_refused() -> None:
    fields = SimpleFields({("x",): decimal(38, 20), ("y",): decimal(38, 0), ("l",): TYPES["l",]})
    for selector in ("x < y", "x = l", "y BETWEEN 1 AND x"):
        with pytest.raises(TranslationError, match="Spark has 38"):
            to_spark_sql(parse(selector), fields)


@pytest.mark.parametrize("selector", ["s = 5", "b < c", "s + 1 = 2", "b = 's'", "i", "i LIKE 'a'", "y = 'a'"])
def test_what_the_checker_would_refuse_is_no_sql_either(selector: str) -> None:
    with pytest.raises(TranslationError):
        to_spark_sql(parse(selector), FIELDS)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(TranslationError, match="Unicode"):
        to_spark_sql(Compare("=", FieldRef(("s",)), Literal("\ud800")), FIELDS)


def test_more_than_one_percent_sign_becomes_an_expression_that_never_tries_twice() -> None:
    sql = to_spark_sql(parse("s LIKE 'a%b_%.%c'"), FIELDS)
    regex = bytes.fromhex(sql.removeprefix("`s` RLIKE CAST(X'").removesuffix("' AS STRING)")).decode()
    assert regex == r"(?s)\Aa(?>.*?b.)(?>.*?\x{2e}).*c\z"


def translated(trees: list[Node]) -> list[tuple[Node, str]]:
    """Those that have a translation; in these samples only decimals too wide for Spark have none."""
    found = []
    for tree in trees:
        with suppress(TranslationError):
            found.append((tree, to_spark_sql(tree, FIELDS)))
    return found


def assert_same(spark: Any, pairs: list[tuple[Node, str]], events: list[dict[Path, Any]]) -> None:
    answers = truths(frame_of(spark, events, TYPES), [sql for _, sql in pairs])
    for (tree, sql), answer in zip(pairs, answers, strict=True):
        for event, theirs in zip(events, answer, strict=True):
            assert theirs is evaluate(tree, event.get), f"{render(tree)}\n{sql}\n{event}"


@pytest.mark.spark
@pytest.mark.parametrize("count", [30, pytest.param(120, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SETTINGS)
def test_spark_agrees_with_the_reference_on_random_selectors_and_events(
    spark: Any, name: str, count: int
) -> None:
    samples = Samples(Random(f"sql {name}"))
    trees = [samples.leaf() for _ in range(2 * count)] + [samples.tree() for _ in range(count)]
    with settings(spark, SETTINGS[name]):
        pairs = translated(trees)
        assert len(pairs) > 2.75 * count
        assert_same(spark, pairs, samples.events(300))


@pytest.mark.spark
def test_spark_takes_the_deepest_and_the_longest_selectors(spark: Any) -> None:
    deepest = parse("NOT (" * (NESTING_LEVELS_MAX // 2) + "b OR l > 5" + ")" * (NESTING_LEVELS_MAX // 2))
    negated = parse("- (" * (NESTING_LEVELS_MAX // 2) + "l" + ")" * (NESTING_LEVELS_MAX // 2) + " = l")
    longest = And(tuple(parse(f"s <> '{number}'") for number in range(49)))
    pairs = [(tree, to_spark_sql(tree, FIELDS)) for tree in (deepest, negated, longest)]
    assert_same(spark, pairs, Samples(Random("deep")).events(100))


@pytest.mark.spark
def test_fields_inside_variants_options_and_tuples_are_found_in_their_columns(spark: Any) -> None:
    import pyarrow as pa

    schema = Schema.parse(
        "[o: int?, in: [a: string, b: double?]?, colour: {red: [] | green: []}, many: *( int )*,"
        " choice: {x: int | y: int? | z: [w: int?] | none: []}, {p: int? | q: [r: int]}]"
    )
    rest = {"colour": "red", "many": [1], "choice": {"none": {}}}
    base = rest | {"q": {"r": 1}}
    events: list[dict[str, Any]] = [
        base | {"o": 1, "in": {"a": "x", "b": float("nan")}},
        base | {"choice": {"x": 5}, "colour": "green", "many": []},
        base | {"choice": {"y": 5}, "in": {"a": "x"}},
        base | {"choice": {"y": None}},
        base | {"choice": {"z": {"w": None}}},
        base | {"choice": {"z": {"w": 5}}},
        rest | {"p": None},
        rest | {"p": 5},
    ]
    rows = [to_arrow_value(schema.root, event) for event in events]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, arrow_schema(schema.root))).coalesce(1)
    paths = [path for path in schema.paths() if path[:-1] != ("colour",)]
    texts = [f"{render(FieldRef(path))} IS NULL" for path in paths]
    texts += ["choice.x = 5", "choice.y = 5", "choice.y <> 4", "choice.z.w = 5", "p = 5", "q.r < 2", "o = 1"]
    texts += ['"in".b <> 1', "\"in\".a = 'x'", "colour = 'red'"]
    trees = [Selector.parse(text, schema).tree for text in texts]
    column = EventColumns(schema.root).text
    answers = truths(frame, [to_spark_sql(tree, schema, column=column) for tree in trees])
    for text, tree, answer in zip(texts, trees, answers, strict=True):
        ours = [evaluate(tree, partial(value_at, event)) for event in events]
        assert answer == ours, text


def test_comparisons_of_doubles_are_said_again_without_what_hides_them_from_parquet() -> None:
    tree = Selector.parse("d >= 5 AND 2.5 > f AND i = 3 AND d BETWEEN 1 AND 9 AND d <> 7", FIELDS).tree
    plain = plain_conjuncts(tree, FIELDS, column=column_text)
    assert plain == ["`d` >= 5.0D", "`d` >= 1.0D", "`d` <= 9.0D"]
    assert plain_conjuncts(parse("d > 1 OR d < 0"), FIELDS, column=column_text) == []
    assert plain_conjuncts(parse("NOT d > 1"), FIELDS, column=column_text) == []
