"""Events as rows of an archive table: whatever was published comes back byte for byte."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import events, types, values_of
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.trace_context import with_traceparent
from tidemark.message.schema import Schema
from tidemark.message.types import Tuple
from tidemark.spark.archive.layout import HEADERS, ArchiveLayout, fields_of, merge_types
from tidemark.spark.archive.rows import to_events, to_rows

TRADE = Schema.parse("[symbol: string, price: double, qty: int?, note: bytes?]")


def layout_for(*schemas: Schema) -> ArchiveLayout:
    return ArchiveLayout().extended(field for schema in schemas for field in fields_of(schema).items())


def ticked(builder: BatchBuilder, first: int = 1) -> EventBatch:
    batch = builder.build()
    batch.fill_ticks(np.arange(first, first + batch.count, dtype=np.int64))
    return batch


def facts(batch: EventBatch) -> list[tuple[Any, ...]]:
    """All that an event is, row by row."""
    return [
        (
            int(batch.ticks[row]),
            batch.shapes[int(batch.prelude("shape")[row])],
            batch.publishers[int(batch.prelude("publisher")[row])],
            int(batch.prelude("priority")[row]),
            int(batch.prelude("validity_ms")[row]),
            batch.message(row),
            batch.key(row),
        )
        for row in range(batch.count)
    ]


def through_parquet(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(io.BytesIO(file.getvalue()))


def trades(count: int) -> EventBatch:
    builder = BatchBuilder()
    for n in range(count):
        value = {"symbol": f"S{n % 7}", "price": n / 3, "qty": n if n % 2 else None, "note": None}
        builder.add(
            Shape("trades.us", TRADE.fingerprint),
            TRADE.encode(value),
            publisher=f"p{n % 3}",
            key=b"k" * (n % 3),
            priority=n % 10,
            validity_ms=n % 4 * 1000,
        )
    return ticked(builder)


def test_messages_are_not_stored_beside_the_columns_they_can_be_made_from() -> None:
    batch = trades(100)
    table = to_rows("p", batch, {TRADE.fingerprint: TRADE}, layout_for(TRADE))
    assert table.column("_raw").null_count == 100
    assert table.column("price").to_pylist()[3] == 1.0
    back = to_events(through_parquet(table), {TRADE.fingerprint: TRADE}, layout_for(TRADE))
    assert facts(back) == facts(batch)


def test_nested_messages_are_made_again_from_their_columns_too() -> None:
    schema = Schema.parse(
        "[leg: [venue: string, n: int]?, tags: *( string )*, fills: *( [price: double, ok: boolean?] )*, "
        "side: { buy: [] | sell: [] }, what: { order: [qty: int] | cancel: [] | note: string? }]"
    )
    builder = BatchBuilder()
    for n in range(50):
        value = {
            "leg": {"venue": "V", "n": n} if n % 3 else None,
            "tags": ["x" * k for k in range(n % 4)],
            "fills": [{"price": k / 2, "ok": None if k else True} for k in range(n % 3)],
            "side": "buy" if n % 2 else "sell",
            "what": [{"order": {"qty": n}}, {"cancel": {}}, {"note": None}, {"note": "n"}][n % 4],
        }
        builder.add(Shape("t", schema.fingerprint), schema.encode(value))
    batch, schemas, layout = ticked(builder), {schema.fingerprint: schema}, layout_for(schema)
    table = to_rows("p", batch, schemas, layout)
    assert table.column("_raw").null_count == 50
    assert table.column("tags").to_pylist()[3] == ["", "x", "xx"]
    assert facts(to_events(through_parquet(table), schemas, layout)) == facts(batch)


def test_only_what_another_encoder_wrote_otherwise_is_kept_whole() -> None:
    builder = BatchBuilder()
    shape = Shape("t", TRADE.fingerprint)
    good = TRADE.encode({"symbol": "A", "price": 1.0, "qty": 1, "note": b"x"})
    for message in (good, good + b"trailing", b"\xff\xff", good, b""):
        builder.add(shape, message)
    batch = ticked(builder)
    table = to_rows("p", batch, {TRADE.fingerprint: TRADE}, layout_for(TRADE))
    assert [raw is not None for raw in table.column("_raw").to_pylist()] == [False, True, True, False, True]
    assert table.column("symbol").to_pylist()[0] == table.column("symbol").to_pylist()[3] == "A"
    back = to_events(through_parquet(table), {TRADE.fingerprint: TRADE}, layout_for(TRADE))
    assert facts(back) == facts(batch)


def test_events_of_a_schema_that_nobody_knows_are_kept_whole() -> None:
    batch = trades(5)
    table = to_rows("p", batch, {}, layout_for())
    assert facts(to_events(table, {}, layout_for())) == facts(batch)


def test_a_traced_event_is_archived_under_its_publishers_own_name() -> None:
    builder = BatchBuilder()
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    for publisher in ("desk", with_traceparent("desk", traceparent), "other"):
        builder.add(Shape("t", 7), b"raw", publisher=publisher)
    layout = layout_for()
    table = through_parquet(to_rows("p", ticked(builder), {}, layout))
    assert table.column("_publisher").to_pylist() == ["desk", "desk", "other"]
    assert to_events(table, {}, layout).publishers == ("desk", "other")


def test_fields_of_one_name_and_unlike_types_have_columns_of_their_own() -> None:
    layout = ArchiveLayout().extended([("price", pa.int32()), ("Price", pa.int32()), ("price", pa.string())])
    assert layout.schema.names[len(HEADERS) :] == ["price", "Price@2", "price@3"]
    assert layout.column_of("price", pa.string()) == "price@3"
    assert layout.column_of("price", pa.int64()) is None
    assert layout.extended([("price", pa.int64())]).column_of("price", pa.int64()) == "price@4"
    assert ArchiveLayout().extended([("_tick", pa.int64()), ("a b.c@2", pa.int64())]).schema.names[-2:] == [
        "_tick@2",
        "a%20b%2Ec%402",
    ]


def test_structs_grow_in_place() -> None:
    a = pa.struct([("x", pa.int32())])
    b = pa.struct([("y", pa.list_(pa.field("element", a)))])
    layout = ArchiveLayout().extended([("s", a), ("s", b)])
    assert layout.schema.names[-1] == "s"
    assert layout.column_of("s", a) == layout.column_of("s", b) == "s"
    assert layout.extended([("s", b)]) is layout
    assert merge_types(a, pa.struct([("x", pa.int64())])) is None


ROOTS = st.lists(events(types()), min_size=1, max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[EventBatch, dict[int, Schema]]:
    roots = draw(ROOTS)
    schemas = [Schema(root) for root in roots if isinstance(root, Tuple)]
    builder = BatchBuilder()
    for _ in range(draw(st.integers(1, 6))):
        schema = draw(st.sampled_from(schemas)) if schemas else TRADE
        value = draw(values_of(schema.root)) if schemas else {"symbol": "", "price": 0.0}
        builder.add(Shape(draw(st.sampled_from(("r", "r.s"))), schema.fingerprint), schema.encode(value))
    return ticked(builder), {schema.fingerprint: schema for schema in (*schemas, TRADE)}


@settings(derandomize=True, deadline=None, max_examples=80)
@given(batches())
def test_events_of_any_schemas_come_back_byte_for_byte(case: tuple[EventBatch, dict[int, Schema]]) -> None:
    batch, schemas = case
    layout = layout_for(*schemas.values())
    table = through_parquet(to_rows("p", batch, schemas, layout))
    assert facts(to_events(table, schemas, layout)) == facts(batch)
