"""Do the columns make events of the topic? Everything that is wrong is told at once, before anything runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.batches.batch import EVENT_BYTES_MAX
from tidemark.message.schema import Schema
from tidemark.spark.sink.row_encoder import PUBLISH_BYTES, RowEncoder, check_fit

TRADE = "[symbol: string, price: double, qty: long?, at: timestamp?, legs: *([venue: string, n: int?])*]"
LEGS = pa.list_(pa.struct([pa.field("venue", pa.string()), pa.field("n", pa.int32())]))
COLUMNS: dict[str, pa.DataType] = {"symbol": pa.string(), "price": pa.float64(), "legs": LEGS}


def check(columns: dict[str, pa.DataType], schema: str = TRADE, key: str | None = None) -> None:
    check_fit(pa.schema(list(columns.items())), Schema.parse(schema), "trades", key)


def test_columns_fit_when_optional_ones_are_left_out_and_numbers_are_narrower() -> None:
    check(COLUMNS)
    check({**COLUMNS, "price": pa.float32(), "qty": pa.int16(), "at": pa.timestamp("us", "UTC")})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({**COLUMNS, "prize": pa.int32()}, "prize: 'trades' has no such field"),
        ({**COLUMNS, "_tick": pa.int64()}, "_tick: is given when an event is published, so drop"),
        ({"symbol": pa.string(), "legs": LEGS}, "price: 'trades' needs it"),
        ({**COLUMNS, "price": pa.string()}, "price: Arrow's string is not double"),
        ({**COLUMNS, "at": pa.timestamp("us")}, "at: .*has no type here"),
        ({**COLUMNS, "legs": pa.string()}, "legs: Arrow's string is not"),
        ({**COLUMNS, "legs": pa.list_(pa.struct([("venue", pa.int32())]))}, "legs.venue: Arrow's int32"),
        ({**COLUMNS, "legs": pa.list_(pa.struct([("n", pa.int32())]))}, "legs.venue: is needed"),
        (
            {**COLUMNS, "legs": pa.list_(pa.struct([("venue", pa.string()), ("x", pa.int32())]))},
            "legs.x: there",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named_with_its_path(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        check(columns)
    assert "\n" not in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SchemaError, match=r"x: .*; price: .*; legs: "):
        check({"symbol": pa.string(), "x": pa.int32()})


def test_a_key_is_text_or_bytes_and_need_not_be_a_field() -> None:
    check({**COLUMNS, "k": pa.binary()}, key="k")
    check(COLUMNS, key="symbol")
    with pytest.raises(SchemaError, match="price: a key is a string or binary, not double"):
        check(COLUMNS, key="price")
    with pytest.raises(SchemaError, match="k: is to be the key"):
        check(COLUMNS, key="k")


def test_a_variant_is_a_struct_of_its_cases() -> None:
    schema = "[what: { a: int | b: string }]"
    cases = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])
    check({"what": cases}, schema)
    with pytest.raises(SchemaError, match="what: "):
        check({"what": pa.struct([pa.field("a", pa.int32())])}, schema)


def test_rows_become_batches_of_a_size_to_publish_with_their_keys() -> None:
    schema = Schema.parse("[n: int, text: string]")
    count = 5_000
    table = {"n": range(count), "text": ["x" * 1_000] * count, "k": [None, *["key"] * (count - 1)]}
    records = pa.RecordBatch.from_pydict({name: list(values) for name, values in table.items()})
    batches = list(RowEncoder(schema, "t", "k", "me").encoded([records]))
    assert [schema.decode(each.message(row))["n"] for each in batches for row in range(each.count)] == list(
        range(count)
    )
    assert (batches[0].key(0), batches[0].key(1)) == (b"", b"key")
    assert batches[0].publishers == ("me",)
    assert all(len(each.data) <= PUBLISH_BYTES for each in batches)


def test_a_row_that_is_no_event_fails_in_its_task() -> None:
    schema = Schema.parse("[n: int, text: string]")
    null = pa.RecordBatch.from_pydict({"n": [1, None], "text": ["a", "b"]})
    with pytest.raises(EncodeError, match="n: is missing in row 1"):
        list(RowEncoder(schema, "t", None, "").encoded([null]))
    large = pa.RecordBatch.from_pydict({"n": [2**40], "text": ["a"]})
    with pytest.raises(EncodeError, match="n"):
        list(RowEncoder(schema, "t", None, "").encoded([large]))
    long = pa.RecordBatch.from_pydict({"n": [1], "text": ["a" * EVENT_BYTES_MAX]})
    with pytest.raises(DecodeError, match="limit"):
        list(RowEncoder(schema, "t", None, "").encoded([long]))
