"""Record batches of event batches, and event batches of record batches."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reader import V1, V2, batch_of, reader_of
from value_strategies import records, values

from tidemark.errors import MessageError
from tidemark.message.arrow import arrow_schema
from tidemark.message.arrow_batch import as_read, from_record_batch, to_record_batch
from tidemark.message.arrow_values import to_arrow_value
from tidemark.message.schema import Schema
from tidemark.message.types import Tuple


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


def test_a_row_that_does_not_fit_is_refused_with_its_path() -> None:
    rows = pa.RecordBatch.from_pydict({"symbol": ["A", None], "price": [1.0, 2.0], "qty": [1, 2]})
    with pytest.raises(MessageError, match="symbol: is missing"):
        from_record_batch(rows, V1, "t")
