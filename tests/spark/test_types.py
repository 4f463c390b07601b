"""Spark types are exactly those that Spark itself gives for our Arrow types, and the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from tests.type_strategies import events, types
from tidemark.message.foreign.arrow.types import arrow_schema, from_arrow_value, to_arrow_value
from tidemark.message.foreign.json.text import from_json_text, to_json_text
from tidemark.message.parse import parse_type
from tidemark.message.types import Type
from tidemark.spark.types import spark_schema, spark_type

EVERYTHING = parse_type(
    "[b: boolean, i: int, l: long, f: float, d: double, m: decimal(20, 4), s: string?, y: bytes, "
    "t: timestamp, n: [x: int, y: *(string?)*], v: {absent: [] | p: long | q: [z: double] | r: []}, "
    "color: {red: [] | green: []}, j: dynamic]"
)


def test_options_are_nullable_and_nothing_else_is() -> None:
    assert spark_type(parse_type("*(string?)*")) == ArrayType(StringType(), containsNull=True)
    assert spark_type(parse_type("[a: int, b: int?]")) == (
        StructType().add("a", IntegerType(), nullable=False).add("b", IntegerType(), nullable=True)
    )


@settings(derandomize=True, deadline=None, max_examples=150)
@given(events(types()))
def test_spark_s_own_conversions_agree_with_ours(item: Type) -> None:
    assert to_arrow_schema(spark_schema(item), timezone="UTC").equals(arrow_schema(item), check_metadata=True)
    assert from_arrow_schema(arrow_schema(item)) == spark_schema(item)


def row(**changes: Any) -> dict[str, Any]:
    return {
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 1e300,
        "m": Decimal("12.3400"),
        "s": None,
        "y": b"\x00\xff",
        "t": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),
        "n": {"x": 1, "y": ["a", None]},
        "v": None,
        "color": "red",
        "j": {"any": [1, None, Decimal("1.0")]},
        **changes,
    }


@pytest.mark.spark
def test_events_of_every_type_go_through_spark_unchanged(spark: Any) -> None:
    values = [
        row(),
        row(s="é\n", v={"p": 5}, color="green"),
        row(v={"q": {"z": 0.25}}, j=None),
        row(v={"r": {}}),
    ]
    table = pa.Table.from_pylist(
        [to_arrow_value(EVERYTHING, each) for each in values], arrow_schema(EVERYTHING)
    )
    frame = spark.createDataFrame(table, schema=spark_schema(EVERYTHING))
    assert frame.schema == spark_schema(EVERYTHING)
    assert frame.where("v.q.z = 0.25 AND n.x = 1 AND color = 'red'").count() == 1

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert batch.schema.equals(arrow_schema(EVERYTHING))
            found = [to_json_text(from_arrow_value(EVERYTHING, each)) for each in batch.to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(found)], ["text"])

    # Not DataFrame.toArrow: it refuses a struct that is null and has a field that never is.
    texts = [each.text for each in frame.mapInArrow(decoded, "text string").collect()]
    assert [from_json_text(text) for text in texts] == values
