"""Record batches of event batches, and event batches of record batches."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message.test_reader import V1, V2, batch_of, reader_of
from tests.message.value_strategies import records, values
from tests.type_strategies import atomics
from tidemark.errors import MessageError
from tidemark.message.batches.scatter import is_flat_record
from tidemark.message.foreign.arrow.batches import as_read, from_record_batch, to_record_batch
from tidemark.message.foreign.arrow.types import arrow_schema
from tidemark.message.foreign.arrow.values import to_arrow_value
from tidemark.message.schema import Schema
from tidemark.message.types import Atomic, Field, Tuple, optional


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.data(), records())
def test_a_record_batch_holds_the_events_and_makes_them_again(data: st.DataObject, item: Tuple) -> None:
    schema = Schema(item)
    events = data.draw(st.lists(values(item), min_size=1, max_size=5))
    batch = batch_of([(schema, value) for value in events])
    records_ = to_record_batch(reader_of(schema).columns(batch), headers=())
    records_.validate(full=True)
    assert records_.to_pylist() == [to_arrow_value(as_read(item), value) for value in events]
    plain = pa.RecordBatch.from_pylist([to_arrow_value(item, value) for value in events], arrow_schema(item))
    again = from_record_batch(plain, schema, "t", publisher="p")
    assert [schema.decode(again.message(row)) for row in range(len(events))] == events


def test_versions_mixed_in_a_batch_become_one_table_with_nulls() -> None:
    events: list[tuple[Schema, Any]] = [
        (V1, {"symbol": "A", "price": 1.0, "qty": 10}),
        (V2, {"qty": None, "price": 2.0, "venue": "lse", "symbol": "Zoë", "fee": Decimal("-0.25")}),
    ]
    found = to_record_batch(reader_of(V2, V1).columns(batch_of(events)), ["symbol", "qty", "venue", "fee"])
    assert found.to_pydict() == {
        "symbol": ["A", "Zoë"],
        "qty": [10, None],
        "venue": [None, "lse"],
        "fee": [None, Decimal("-0.25")],
        "_topic": ["t", "t"],
        "_tick": [1, 2],
        "_priority": [4, 4],
        "_publisher": ["p", "p"],
    }
    assert found.schema.field("fee").type == pa.decimal128(9, 2)
    assert found.schema.field("_tick").type == pa.int64()


def test_timestamps_and_narrow_numbers_keep_their_arrow_types() -> None:
    schema = Schema.parse("[at: timestamp, i: int, f: float, b: boolean]")
    moment = datetime(2026, 11, 15, 20, 0, 0, 1, tzinfo=UTC)
    found = to_record_batch(
        reader_of(schema).columns(batch_of([(schema, {"at": moment, "i": -1, "f": 0.5, "b": True})])),
        headers=(),
    )
    assert [str(field.type) for field in found.schema] == ["timestamp[us, tz=UTC]", "int32", "float", "bool"]
    assert found.to_pylist() == [{"at": moment, "i": -1, "f": 0.5, "b": True}]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.data(), st.lists(st.tuples(atomics, st.booleans()), min_size=1, max_size=6))
def test_flat_records_are_encoded_in_columns_to_the_very_bytes_of_the_codec(
    data: st.DataObject, kinds: list[tuple[Atomic, bool]]
) -> None:
    fields = [Field(f"f{at}", optional(kind) if maybe else kind) for at, (kind, maybe) in enumerate(kinds)]
    schema = Schema(Tuple(tuple(fields)))
    assert is_flat_record(schema)
    events = data.draw(st.lists(values(schema.root), max_size=5))
    rows = pa.RecordBatch.from_pylist(events, arrow_schema(schema.root))
    batch = from_record_batch(
        rows, schema, "t", keys=pa.array([b"k" * at for at in range(len(events))], pa.binary())
    )
    assert [batch.message(row) for row in range(len(events))] == [schema.encode(event) for event in events]
    assert [batch.key(row) for row in range(len(events))] == [b"k" * at for at in range(len(events))]
    sliced = from_record_batch(rows.slice(1), schema, "t")
    assert [sliced.message(row) for row in range(sliced.count)] == [
        schema.encode(event) for event in events[1:]
    ]


def test_a_column_that_would_lose_something_is_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"symbol": ["A"], "price": [1.0], "qty": [2**40]})
    with pytest.raises(MessageError, match="qty: Arrow's int64 does not fit"):
        from_record_batch(rows, V1, "t")


def test_a_column_of_an_unlike_type_is_refused_even_where_arrow_would_cast_it() -> None:
    rows = pa.RecordBatch.from_pydict({"symbol": [5], "price": [1.0], "qty": [1]})
    with pytest.raises(MessageError, match="symbol: Arrow's int64 is not string"):
        from_record_batch(rows, V1, "t")


def test_a_row_that_does_not_fit_is_refused_with_its_path() -> None:
    rows = pa.RecordBatch.from_pydict({"symbol": ["A", None], "price": [1.0, 2.0], "qty": [1, 2]})
    with pytest.raises(MessageError, match="symbol: is missing in row 1"):
        from_record_batch(rows, V1, "t")
