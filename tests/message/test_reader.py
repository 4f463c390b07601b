"""Columns of whole batches, mixed in codes and versions, against decoding event by event."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message.value_strategies import records, values
from tidemark.errors import DecodeError, SchemaError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.columns import Column, Decimals, Spans
from tidemark.message.batches.reader import EventReader
from tidemark.message.codec.scalars import load_decimal, load_timestamp
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema, value_at
from tidemark.message.types import TIMESTAMP, Atomic, Kind, Tuple


def batch_of(events: list[tuple[Schema, Any]], topic: str = "t") -> EventBatch:
    builder = BatchBuilder()
    for schema, value in events:
        builder.add(Shape(topic, schema.fingerprint), schema.encode(value), publisher="p")
    batch = builder.build()
    batch.fill_ticks(np.arange(1, len(events) + 1))
    return EventBatch.parse(batch.data)


def reader_of(schema: Schema, *writers: Schema) -> EventReader:
    return EventReader(schema, {writer.fingerprint: writer for writer in (schema, *writers)})


def listed(column: Column, count: int) -> list[Any]:
    """A column as Python values, None where absent."""
    column_values = column.values
    assert isinstance(column.type, Atomic) or not isinstance(column_values, np.ndarray | Spans | Decimals)
    if isinstance(column_values, Spans):
        assert isinstance(column.type, Atomic)
        found: list[Any] = column_values.tolist()
        found = [part.decode() for part in found] if column.type.kind is Kind.STRING else found
    elif isinstance(column_values, Decimals):
        found = [load_decimal(number, column_values.scale) for number in column_values.tolist()]
    elif isinstance(column_values, np.ndarray):
        found = column_values.tolist()
        if isinstance(column.type, Atomic) and column.type.kind is Kind.TIMESTAMP:
            found = [load_timestamp(number) for number in found]
    else:
        found = list(column_values)
    valid = np.ones(count, np.bool_) if column.valid is None else column.valid
    return [value if keep else None for value, keep in zip(found, valid, strict=True)]


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.data(), records())
def test_a_column_holds_what_decoding_each_event_gives(data: st.DataObject, item: Tuple) -> None:
    schema = Schema(item)
    events = data.draw(st.lists(values(item), min_size=1, max_size=6))
    columns = reader_of(schema).columns(batch_of([(schema, value) for value in events]))
    in_lists = {leaf.path for leaf in schema.flat.leaves if leaf.depth}
    for path in schema.paths():
        if not any(path[: len(prefix)] == prefix for prefix in in_lists):
            assert listed(columns.column(path), len(events)) == [value_at(value, path) for value in events]


V1 = Schema.parse("[symbol: string, price: double, qty: int]")
V2 = Schema.parse(
    "[qty: int?, price: double, venue: {nyse: [] | lse: []}, symbol: string, fee: decimal(9, 2)]"
)


def test_versions_of_a_schema_mix_in_one_batch() -> None:
    batch = batch_of(
        [
            (V1, {"symbol": "A", "price": 1.0, "qty": 10}),
            (V2, {"qty": None, "price": 2.0, "venue": "lse", "symbol": "B", "fee": Decimal("0.25")}),
            (V1, {"symbol": "C", "price": 3.0, "qty": 30}),
            (V2, {"qty": 40, "price": 4.0, "venue": "nyse", "symbol": "D", "fee": Decimal(1)}),
        ]
    )
    columns = reader_of(V2, V1).columns(batch)

    def column(name: str) -> list[Any]:
        return listed(columns.column((name,)), 4)

    assert column("symbol") == ["A", "B", "C", "D"]
    assert column("price") == [1.0, 2.0, 3.0, 4.0]
    assert column("qty") == [10, None, 30, 40]
    assert column("venue") == [None, "lse", None, "nyse"]
    assert column("fee") == [None, Decimal("0.25"), None, Decimal("1.00")]


def test_headers_are_columns_too() -> None:
    columns = reader_of(V1).columns(
        batch_of([(V1, {"symbol": "A", "price": 1.0, "qty": 1})] * 2, "trades.us")
    )
    assert listed(columns.column(("_topic",)), 2) == ["trades.us"] * 2
    assert listed(columns.column(("_tick",)), 2) == [1, 2]
    assert listed(columns.column(("_priority",)), 2) == [4, 4]
    assert listed(columns.column(("_publisher",)), 2) == ["p", "p"]


def test_many_different_codes_in_one_batch_are_gathered_in_one_go() -> None:
    schema = Schema.parse("[" + ", ".join(f"f{n}: int?, s{n}: string?" for n in range(40)) + ", last: long]")
    events = [
        {f"f{n}": n for n in range(40) if (row >> n % 7) & 1} | {f"s{row}": str(row), "last": row}
        for row in range(40)
    ]
    columns = reader_of(schema).columns(batch_of([(schema, event) for event in events]))
    assert schema.flat.code_width > 8
    for name in ("f3", "f11", "s7", "last"):
        assert listed(columns.column((name,)), 40) == [event.get(name) for event in events]


def test_a_field_inside_a_dynamic_one_is_reached() -> None:
    schema = Schema.parse("[any: dynamic]")
    columns = reader_of(schema).columns(
        batch_of([(schema, {"any": {"x": 5}}), (schema, {"any": "text"}), (schema, {"any": {"x": None}})])
    )
    assert listed(columns.column(("any", "x")), 3) == [5, None, None]


def test_an_unknown_schema_is_said_so() -> None:
    columns = EventReader(V1, {}).columns(batch_of([(V1, {"symbol": "A", "price": 1.0, "qty": 1})]))
    with pytest.raises(DecodeError, match="no schema with the fingerprint"):
        columns.column(("price",))


@pytest.mark.parametrize("path", ["symbol", "price", "flag", "note"])
def test_no_mangled_message_yields_another_rows_bytes(path: str) -> None:
    schema = Schema.parse("[symbol: string, price: double, flag: boolean, note: string?]")
    event = {"symbol": "AAAA", "price": 1.0, "flag": True, "note": "n"}
    batch = batch_of([(schema, event)] * 3)
    reader = reader_of(schema)
    start, stop = int(batch.message_starts[1]), int(batch.message_ends[1])
    body = len(batch.data) - len(batch.body)
    for at in range(start, stop):
        mangled = bytearray(batch.data)
        mangled[body + at] ^= 0xFF
        try:
            column = reader.columns(EventBatch.parse(mangled)).column((path,))
        except DecodeError:
            continue
        if isinstance(column.values, Spans):
            assert (column.values.starts >= batch.message_starts).all()
            assert (column.values.ends <= batch.message_ends).all()


@pytest.mark.parametrize("text", [b"ab\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80"])
def test_a_string_that_is_not_utf8_is_refused_by_its_column(text: bytes) -> None:
    schema, raw = Schema.parse("[a: string, n: int]"), Schema.parse("[a: bytes, n: int]")
    builder = BatchBuilder()
    for value in (b"fine", text, "Zo\u00eb".encode()):
        builder.add(Shape("t", schema.fingerprint), raw.encode({"a": value, "n": 1}))
    columns = reader_of(schema).columns(builder.build())
    assert listed(columns.column(("n",)), 3) == [1, 1, 1]
    with pytest.raises(DecodeError, match="a: not UTF-8"):
        columns.column(("a",))


def test_a_character_cut_between_two_rows_is_not_whole() -> None:
    schema, raw = Schema.parse("[a: string]"), Schema.parse("[a: bytes]")
    builder = BatchBuilder()
    for value in (b"Zo\xc3", b"\xab"):
        builder.add(Shape("t", schema.fingerprint), raw.encode({"a": value}))
    with pytest.raises(DecodeError, match="a: not UTF-8"):
        reader_of(schema).columns(builder.build()).column(("a",))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(st.binary(max_size=20) | st.text(max_size=12).map(lambda text: text.encode(errors="replace")))
)
def test_a_string_column_is_refused_exactly_when_one_string_would_be(texts: list[bytes]) -> None:
    schema, raw = Schema.parse("[a: string]"), Schema.parse("[a: bytes]")
    builder = BatchBuilder()
    for text in texts:
        builder.add(Shape("t", schema.fingerprint), raw.encode({"a": text}))
    columns = reader_of(schema).columns(builder.build())
    try:
        wanted = [text.decode() for text in texts]
    except UnicodeDecodeError:
        with pytest.raises(DecodeError, match="a: not UTF-8"):
            columns.column(("a",))
    else:
        assert not texts or listed(columns.column(("a",)), len(texts)) == wanted


def test_an_open_topic_is_read_through_the_least_schema_of_all_its_shapes() -> None:
    registry = Registry()
    events: list[dict[str, Any]] = [{"price": 1, "name": "a"}, {"price": 1.5}, {"name": "b", "tags": ["x"]}]
    for event in events:
        topic = registry.open("loose", Schema.of(event))
    columns = topic.reader.columns(batch_of([(Schema.of(event), event) for event in events]))
    assert listed(columns.column(("price",)), 3) == [1.0, 1.5, None]
    assert listed(columns.column(("name",)), 3) == ["a", None, "b"]
    assert topic.reader.open


def test_a_field_that_was_none_once_in_an_open_topic_keeps_the_type_it_has_elsewhere() -> None:
    registry = Registry()
    events: list[dict[str, Any]] = [{"x": None, "y": {"z": None}}, {"x": 5, "y": {"z": "s"}}]
    for event in events:
        topic = registry.open("loose", Schema.of(event))
    assert topic.reader.schema.text == "[x: long?, y: [z: string?]]"
    batch = batch_of([(Schema.of(event), event) for event in events])
    columns = topic.reader.columns(batch)
    assert listed(columns.column(("x",)), 2) == [None, 5]
    assert listed(columns.column(("y", "z")), 2) == [None, "s"]
    assert [topic.reader.decode(batch, row) for row in range(2)] == events


def test_a_field_of_many_types_in_an_open_topic_is_dynamic() -> None:
    registry = Registry()
    events: list[dict[str, Any]] = [{"x": 1}, {"x": "one"}]
    for event in events:
        topic = registry.open("loose", Schema.of(event))
    columns = topic.reader.columns(batch_of([(Schema.of(event), event) for event in events]))
    assert listed(columns.column(("x",)), 2) == [1, "one"]


def test_a_declared_topic_refuses_a_version_that_would_be_misread_and_stays_as_it_was() -> None:
    registry = Registry()
    topic = registry.declare("trades", V1)
    with pytest.raises(SchemaError, match="price: was double"):
        registry.declare("trades", Schema.parse("[price: string]"))
    assert topic.versions == [V1]
    assert registry.declare("trades", V1).versions == [V1]
    with pytest.raises(SchemaError, match="is declared and stays so"):
        registry.open("trades")


def test_timestamps_are_microseconds_in_columns() -> None:
    schema = Schema.parse("[at: timestamp]")
    moment = datetime.fromisoformat("2026-11-15T20:00:00.000001+00:00")
    columns = reader_of(schema).columns(batch_of([(schema, {"at": moment})]))
    assert listed(columns.column(("at",)), 1) == [moment]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary(max_size=4) | st.text(max_size=3).map(str.encode), min_size=1, max_size=8))
def test_keys_and_times_are_columns_as_the_event_has_them(keys: list[bytes]) -> None:
    schema = Schema.parse("[n: int]")
    builder = BatchBuilder()
    for key in keys:
        builder.add(Shape("t", schema.fingerprint), schema.encode({"n": -1}), key=key)
    batch = builder.build()
    batch.count_ticks(1_000)
    columns = EventReader(schema, {schema.fingerprint: schema}).columns(batch)
    found = columns.column(("_key",))
    assert isinstance(found.values, Spans)
    assert found.valid is not None
    for key, raw, is_valid in zip(keys, found.values.tolist(), found.valid.tolist(), strict=True):
        assert is_valid == (key != b"" and key == key.decode(errors="replace").encode())
        assert raw == (key if is_valid else b"")
    times = columns.column(("_time",))
    assert times.type == TIMESTAMP
    assert list(cast(Any, times.values)) == list(range(1_000, 1_000 + len(keys)))
