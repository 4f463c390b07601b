"""Arrow types and values: exact nullability, and every value comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import dynamic_values, events, plain_types, same, tuples, types, values_of
from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.evolve import UnknownCase
from tidemark.message.foreign.arrow.types import (
    arrow_schema,
    arrow_type,
    from_arrow_schema,
    from_arrow_value,
    to_arrow_value,
)
from tidemark.message.foreign.json.text import from_json_text, to_json_text
from tidemark.message.foreign.references import write_out
from tidemark.message.parse import parse, parse_type
from tidemark.message.text import type_text
from tidemark.message.types import Type

quickly = settings(derandomize=True, deadline=None, max_examples=150)

UTC_MICROS = pa.timestamp("us", tz="UTC")


def columns(text: str) -> list[tuple[str, Any, bool]]:
    return [(field.name, field.type, field.nullable) for field in arrow_schema(parse_type(text))]


def struct(*fields: tuple[str, Any, bool]) -> pa.DataType:
    return pa.struct([pa.field(name, item, nullable=nullable) for name, item, nullable in fields])


def list_of(item: Any, *, nullable: bool) -> pa.DataType:
    return pa.list_(pa.field("element", item, nullable=nullable))


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ("timestamp", UTC_MICROS),
        ("dynamic", pa.string()),
        ("{red: [] | green: []}", pa.string()),
        ("string?", pa.string()),
        ("[]", pa.bool_()),
        ("*(int?)*", list_of(pa.int32(), nullable=True)),
        ("*(*(int)*)*", list_of(list_of(pa.int32(), nullable=False), nullable=False)),
        (
            "[a: int, b: [c: int?]?]",
            struct(("a", pa.int32(), False), ("b", struct(("c", pa.int32(), True)), True)),
        ),
        ("{a: int | b: []}", struct(("a", pa.int32(), True), ("b", pa.bool_(), True))),
        ("{absent: [] | a: int}", struct(("a", pa.int32(), True))),
        (
            "{a: int? | b: int}",
            struct(("a", struct(("value", pa.int32(), True)), True), ("b", pa.int32(), True)),
        ),
        ("{int | string}", struct(("_0", pa.int32(), True), ("_1", pa.string(), True))),
    ],
)
def test_a_type_has_its_arrow_type(text: str, item: Any) -> None:
    assert arrow_type(parse_type(text)) == item


def test_the_columns_of_a_tuple_are_the_keys_of_its_dict() -> None:
    assert columns("[a: int, [b: string?], {c: long | d: double}, int, e: {absent: [] | f: int}]") == [
        ("a", pa.int32(), False),
        ("b", pa.string(), True),
        ("c", pa.int64(), True),
        ("d", pa.float64(), True),
        ("_3", pa.int32(), False),
        ("e", struct(("f", pa.int32(), True)), True),
    ]


def test_the_columns_of_other_roots_are_cases_or_one_column() -> None:
    assert columns("{a: int | b: [c: string]}") == [
        ("a", pa.int32(), True),
        ("b", struct(("c", pa.string(), False)), True),
    ]
    assert columns("{red: [] | green: []}") == [("_0", pa.string(), False)]
    assert columns("long?") == [("_0", pa.int64(), True)]


def test_a_reference_is_written_out_until_it_recurs() -> None:
    parsed = parse("Tree: [at: Point, kids: *(Tree)*]; Point: [x: int]")
    whole = write_out(parsed.root, parsed.definitions)
    assert type_text(whole) == "[at: [x: int], kids: *(dynamic)*]"
    assert arrow_type(parse_type("Anything")) == pa.string()


@pytest.mark.parametrize(
    ("text", "value", "held"),
    [
        ("{a: int | b: int}", {"a": 1}, {"a": 1, "b": None}),
        ("{absent: [] | a: int}", None, None),
        ("{a: int? | b: int?}", {"b": None}, {"a": None, "b": {"value": None}}),
        ("{a: [] | b: int}", {"a": {}}, {"a": True, "b": None}),
        ("[x: int, {a: int | b: []}]", {"x": 1, "b": {}}, {"x": 1, "a": None, "b": True}),
        ("[x: int?]", {"x": None}, {"x": None}),
        ("{red: [] | green: []}?", "red", "red"),
        ("dynamic", None, "null"),
        ("dynamic?", None, None),
        ("dynamic", {"n": 1, "b": b"\x01"}, '{"n":1,"b":{"$bytes":"AQ=="}}'),
        ("*({a: int | b: string})*", [{"b": "x"}], [{"a": None, "b": "x"}]),
    ],
)
def test_a_value_is_held_so_that_it_can_be_told_back(text: str, value: Any, held: Any) -> None:
    item = parse_type(text)
    assert to_arrow_value(item, value) == held
    assert from_arrow_value(item, held) == value


def test_a_case_of_a_newer_writer_sets_no_child() -> None:
    assert to_arrow_value(parse_type("{a: int | b: int}"), UnknownCase("c")) == {"a": None, "b": None}
    assert to_arrow_value(parse_type("{red: [] | green: []}"), UnknownCase("blue")) == "blue"


@pytest.mark.parametrize(
    ("text", "value", "path", "reason"),
    [
        ("[a: [b: int]]", {"a": {"b": None}}, "a.b", "is missing"),
        ("[a: *({x: int})*]", {"a": [{"x": 1}, {"y": 1}]}, "a[1]", "choose one case"),
        ("[a: {x: int | y: int}]", {"a": {"x": 1, "y": 2}}, "a", "choose one case"),
        ("[a: dynamic]", {"a": object()}, "a", "object is no message value"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_at_its_path(
    text: str, value: Any, path: str, reason: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        to_arrow_value(parse_type(text), value)
    assert caught.value.path == path
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "held", "path", "reason"),
    [
        ("[a: int]", {"a": None}, "a", "is missing"),
        ("[v: {a: int | b: int}]", {"v": {"a": None, "b": None}}, "v", "found none"),
        ("[v: {a: int | b: int}]", {"v": {"a": 1, "b": 2}}, "v", "found a, b"),
        ("[d: dynamic]", {"d": "{"}, "d", "not the JSON of a value"),
        ("[d: dynamic]", {"d": '{"$what":1}'}, "d", "'$what' is no kind of value"),
        ("[d: dynamic]", {"d": '{"$bytes":1}'}, "d", "not the JSON of a value"),
        ("[d: dynamic]", {"d": '{"$decimal":"x"}'}, "d", "not the JSON of a value"),
        ("[d: dynamic]", {"d": "[" * 100_000}, "d", "not the JSON of a value"),
        ("[d: dynamic]", {"d": "[" * 20 + "]" * 20}, "d", "nested deeper than 16"),
    ],
)
def test_what_arrow_should_not_hold_is_an_error_at_its_path(
    text: str, held: Any, path: str, reason: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        from_arrow_value(parse_type(text), held)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_timestamps_come_back_in_utc_and_decimals_unchanged() -> None:
    item = parse_type("[at: timestamp, d: decimal(20, 5)]")
    east = timezone(timedelta(hours=9))
    value = {"at": datetime(2024, 1, 1, 9, tzinfo=east), "d": Decimal("-12.5")}
    (held,) = pa.array([to_arrow_value(item, value)], arrow_type(item)).to_pylist()
    found = from_arrow_value(item, held)
    assert found == value
    assert found["at"].tzinfo is UTC


@quickly
@given(st.data())
def test_every_value_survives_arrow(data: st.DataObject) -> None:
    item = data.draw(events(types()) | types())
    value = data.draw(values_of(item))
    array = pa.array([to_arrow_value(item, value)], arrow_type(item))
    array.validate(full=True)
    (held,) = array.to_pylist()
    assert same(from_arrow_value(item, held), value)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.data())
def test_every_tuple_survives_parquet(data: st.DataObject) -> None:
    item = data.draw(events(types()))
    values = data.draw(st.lists(values_of(item), min_size=1, max_size=3))
    table = pa.Table.from_pylist([to_arrow_value(item, value) for value in values], arrow_schema(item))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    back = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert back.schema.equals(arrow_schema(item))
    assert same([from_arrow_value(item, row) for row in back.to_pylist()], values)


@quickly
@given(dynamic_values)
def test_every_value_survives_its_json_text(value: Any) -> None:
    text = to_json_text(value)
    found = from_json_text(text)
    assert same(found, value)
    assert "\n" not in text


@quickly
@given(tuples(plain_types(), least=1))
def test_a_plain_type_survives_its_arrow_schema(item: Type) -> None:
    assert from_arrow_schema(arrow_schema(item)) == item


def test_ordinary_arrow_schemas_have_a_type() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int8(), nullable=False),
            pa.field("b", pa.uint32()),
            pa.field("c", pa.large_string()),
            pa.field("d", pa.dictionary(pa.int32(), pa.string())),
            pa.field("e", pa.large_list(pa.float16())),
            pa.field("f", pa.timestamp("ms", tz="Europe/Berlin"), nullable=False),
            pa.field("g", pa.binary(4), nullable=False),
            pa.field("h", pa.struct([pa.field("x", pa.decimal256(20, 3))]), nullable=False),
        ]
    )
    assert type_text(from_arrow_schema(schema)) == (
        "[a: int, b: long?, c: string?, d: string?, e: *(float?)*?, f: timestamp, g: bytes, "
        "h: [x: decimal(20, 3)?]]"
    )


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (pa.uint64(), "x"),
        (pa.date32(), "x"),
        (pa.timestamp("us"), "x"),
        (pa.timestamp("ns", tz="UTC"), "x"),
        (pa.decimal256(50, 3), "x"),
        (pa.map_(pa.string(), pa.int64()), "x"),
        (pa.null(), "x"),
        (pa.list_(pa.struct([pa.field("y", pa.duration("s"))])), "x.y"),
    ],
)
def test_an_arrow_type_that_would_lose_is_refused_by_its_column(item: Any, path: str) -> None:
    with pytest.raises(SchemaError, match=f"^{path}: Arrow's .* has no type here"):
        from_arrow_schema(pa.schema([("x", item)]))


def test_columns_need_names_of_their_own() -> None:
    with pytest.raises(SchemaError, match="two columns have this name"):
        from_arrow_schema(pa.schema([("x", pa.int32()), ("x", pa.int32())]))
    with pytest.raises(SchemaError, match="a name has 1 to 255 bytes"):
        from_arrow_schema(pa.schema([("", pa.int32())]))
