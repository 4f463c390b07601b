"""Spark's filters on a real Spark: what they mean to it, and in what form it hands them over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
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
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.event_frames import frame_of, settings
from tests.spark.selector_samples import FIELDS, TYPES, Samples
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import HEADERS
from tidemark.message.schema import Schema
from tidemark.message.text import type_text
from tidemark.message.types import STRING, Atomic, Field, Path, Tuple, optional
from tidemark.spark.pushdown.filters import from_spark_filters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def random_filter(samples: Samples) -> Any:
    """A filter as Spark makes them: its value is of the type of its column."""
    random = samples.random
    path = random.choice(list(TYPES))
    item = TYPES[path]
    kinds: list[Any] = [EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    made: Any
    match random.randrange(5):
        case 0:
            made = random.choice((IsNull, IsNotNull))(path)
        case 1:
            pool = [samples.value(item) for _ in range(random.choice((1, 3, 12)))]
            made = In(path, pool + [None] * random.randrange(2))
        case 2 if item == STRING:
            kind = random.choice((StringStartsWith, StringEndsWith, StringContains))
            made = kind(path, samples.value(item))
        case _:
            made = random.choice(kinds)(path, samples.value(item))
    return Not(made) if random.randrange(3) == 0 else made


def as_column(condition: Any) -> Any:
    """The filter as Spark's own condition."""
    from pyspark.sql import functions as f

    from tidemark.spark.types import spark_type

    if isinstance(condition, Not):
        return ~as_column(condition.child)
    column = f.col(".".join("`" + name.replace("`", "``") + "`" for name in condition.attribute))

    def literal(value: Any) -> Any:
        if isinstance(value, datetime):  # by way of Java, what is before 1582 would change its calendar
            value = f.timestamp_micros(f.lit((value - EPOCH) // timedelta(microseconds=1)))
        return f.lit(value).cast(spark_type(TYPES[condition.attribute]))

    match condition:
        case IsNull():
            return column.isNull()
        case IsNotNull():
            return column.isNotNull()
        case In():
            return column.isin([literal(value) for value in condition.value])
        case StringStartsWith():
            return column.startswith(literal(condition.value))
        case StringEndsWith():
            return column.endswith(literal(condition.value))
        case StringContains():
            return column.contains(literal(condition.value))
        case EqualNullSafe():
            return column.eqNullSafe(literal(condition.value))
        case EqualTo():
            return column == literal(condition.value)
        case LessThan():
            return column < literal(condition.value)
        case LessThanOrEqual():
            return column <= literal(condition.value)
        case GreaterThan():
            return column > literal(condition.value)
        case _:
            return column >= literal(condition.value)


@pytest.mark.spark
def test_a_taken_filter_keeps_exactly_the_rows_that_spark_keeps(spark: Any) -> None:
    samples = Samples(Random("filters"))
    events = samples.events(200)
    frame = frame_of(spark, events, TYPES)
    pairs = []
    for _ in range(180):
        condition = random_filter(samples)
        tree, _left = from_spark_filters([condition], FIELDS)
        pairs += [(condition, tree)] if tree is not None else []
    assert len(pairs) > 130
    for first in range(0, len(pairs), 60):
        some = pairs[first : first + 60]
        rows = frame.select(*(as_column(condition).alias(f"x{at}") for at, (condition, _) in enumerate(some)))
        for event, row in zip(events, rows.collect(), strict=True):
            for (condition, tree), theirs in zip(some, row, strict=True):
                ours = evaluate(tree, event.get)
                assert (ours is True) == (theirs is True), f"{condition}\n{render(tree)}\n{event}"


def recording_source(events: list[dict[Path, Any]], natural: str, columns: StructType) -> Any:
    """A data source of `events` (fields of one name) that takes the filters it can and says which."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):  # type: ignore[misc]  # mypy does not read pyspark
        tree: Any = None

        def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802, Spark's name
            self.tree, left = from_spark_filters(filters, Schema.parse(natural))
            return left

        def read(self, partition: Any) -> Any:  # noqa: ARG002
            text = render(self.tree) if self.tree is not None else ""
            for event in events:
                if self.tree is None or evaluate(self.tree, event.get):
                    yield (*event.values(), text)

    class Source(DataSource):  # type: ignore[misc]  # mypy does not read pyspark
        @classmethod
        def name(cls) -> str:
            return "recording"

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: Any) -> Any:  # noqa: ARG002
            return Reader()

    return Source


#: Conditions on Spark's side, and the selector of those that are taken.
CLAUSES = [
    (
        "i IN (0, 1, 2, 5, NULL) AND NOT (j <=> 5) AND s LIKE 'a%' AND NOT s LIKE '%b'",
        "s IS NOT NULL AND i IN (0, 1, 2, 5) AND (j IS NULL OR j <> 5) AND s LIKE 'a%' AND s NOT LIKE '%b'",
    ),
    (
        "d > 0.5D AND d < 100D AND f <= 0.1F AND NOT c AND y >= X'61'",
        "d IS NOT NULL AND f IS NOT NULL AND c IS NOT NULL AND y IS NOT NULL AND d < 100.0"
        " AND f <= 0.10000000149011612 AND c <> TRUE AND y >= X'61'",
    ),
    (
        "m >= 2.5 AND n < 9.999 AND p < 12345678901234567890123456789 AND (b OR c)"
        " AND t > timestamp_micros(1709208000000000)",
        "m IS NOT NULL AND n IS NOT NULL AND p IS NOT NULL AND t IS NOT NULL AND m >= 2.5 AND n < 10"
        " AND t > TIMESTAMP '2024-02-29 12:00:00Z'",
    ),
]


@pytest.mark.spark
def test_the_filters_that_spark_really_pushes_are_understood(spark: Any) -> None:
    types: dict[Path, Atomic] = {
        path: item for path, item in TYPES.items() if len(path) == 1 and path[0] not in HEADERS
    }
    natural = type_text(Tuple(tuple(Field(path[0], optional(item)) for path, item in types.items())))
    events = Samples(Random("pushed")).events(400, types)
    plain = frame_of(spark, events, types)
    columns = StructType([*plain.schema.fields, StructField("selector", StringType())])
    spark.dataSource.register(recording_source(events, natural, columns))
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        for clause, text in CLAUSES:
            kept = spark.read.format("recording").load().where(clause).select("selector").collect()
            assert {row.selector for row in kept} == {text}, clause
            assert len(kept) == plain.where(clause).count() > 0
