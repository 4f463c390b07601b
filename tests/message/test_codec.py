"""Values to bytes and back; single fields; updates in place; and bytes that are not messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message.value_strategies import types, values
from tidemark.errors import DecodeError, EncodeError, SchemaError
from tidemark.message.schema import Schema, Typed, value_at
from tidemark.message.types import Type

EVERYTHING = """
everything: [
  flag: boolean, small: int, big: long, single: float, wide: double, money: decimal(10, 2), name: string,
  blob: bytes, when: timestamp, maybe: int?, note: string?, colour: { red: [] | green: [] },
  choice: { absent: [] | left: [x: int, y: string] | right: long }, any: dynamic,
  rows: *([key: string, value: { i: int | s: string }])*, grid: *(*(double)*)*, tree: node?,
  { [] | extra: [deep: [deeper: string]] }
]
node: [label: string, children: *(node)*]
"""

SAMPLE: dict[str, Any] = {
    "flag": True,
    "small": -5,
    "big": 2**62,
    "single": 0.5,
    "wide": 1e300,
    "money": Decimal("-12345678.90"),
    "name": "Zoë",
    "blob": b"\x00\xff",
    "when": datetime(2026, 11, 15, 20, 0, 0, 123456, tzinfo=UTC),
    "maybe": None,
    "note": "hello",
    "colour": "green",
    "choice": {"left": {"x": 7, "y": "z"}},
    "any": {"deep": [1, 2, 3], "text": "t"},
    "rows": [{"key": "a", "value": {"i": 1}}, {"key": "b", "value": {"s": "two"}}],
    "grid": [[1.0, 2.0], [], [3.0]],
    "tree": {"label": "r", "children": [{"label": "c", "children": []}]},
    "extra": {"deep": {"deeper": "here"}},
}


@pytest.fixture(scope="module")
def everything() -> Schema:
    return Schema.parse(EVERYTHING)


@st.composite
def typed_values(draw: Callable[[Any], Any]) -> tuple[Type, Any]:
    item = draw(types())
    return item, draw(values(item))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(typed_values())
def test_what_is_encoded_decodes_to_the_same_value(typed: tuple[Type, Any]) -> None:
    item, value = typed
    schema = Schema(item)
    assert schema.decode(schema.encode(value)) == value


@settings(derandomize=True, deadline=None, max_examples=100)
@given(typed_values())
def test_an_accessor_reads_what_decoding_the_whole_would_give(typed: tuple[Type, Any]) -> None:
    item, value = typed
    schema = Schema(item)
    message = schema.encode(value)
    inside_list = {leaf.path for leaf in schema.flat.leaves if leaf.depth}
    outside = [
        path for path in schema.paths() if not any(path[: len(prefix)] == prefix for prefix in inside_list)
    ]
    for path in outside:
        assert schema.accessor(path)(message) == value_at(value, path)
    assert schema.accessors(outside)(message) == tuple(value_at(value, path) for path in outside)


def test_one_schema_with_everything_in_it_goes_there_and_back(everything: Schema) -> None:
    message = everything.encode(SAMPLE)
    assert everything.decode(message) == SAMPLE
    assert everything.accessor("extra.deep.deeper")(message) == "here"
    assert everything.accessor("choice.left.x")(message) == 7
    assert everything.accessor("choice.right")(message) is None
    assert everything.accessor("rows.key")(message) == ["a", "b"]
    assert everything.accessor("colour")(message) == "green"
    assert everything.accessor("money")(message) == Decimal("-12345678.90")


def test_every_truncation_is_a_decode_error(everything: Schema) -> None:
    message = everything.encode(SAMPLE)
    for length in range(len(message)):
        with pytest.raises(DecodeError):
            everything.decode(message[:length])


def test_every_flipped_byte_decodes_or_is_a_decode_error(everything: Schema) -> None:
    message = everything.encode(SAMPLE)
    accessors = [everything.accessor(path) for path in everything.paths()]
    accessors.append(everything.accessors(everything.paths()))
    accessors.append(everything.accessors(["small", "name", "choice.left.x", "money", "note"]))
    for at in range(len(message)):
        for flip in (0x01, 0x80, 0xFF):
            mangled = bytearray(message)
            mangled[at] ^= flip
            for read in (everything.decode, *accessors):
                with suppress(DecodeError):
                    read(bytes(mangled))


def test_random_bytes_decode_or_are_a_decode_error(everything: Schema) -> None:
    source = random.Random(7)
    accessors = [everything.accessor(path) for path in everything.paths()]
    for _ in range(2_000):
        data = source.randbytes(source.randrange(200))
        for read in (everything.decode, *accessors):
            with suppress(DecodeError):
                read(data)


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_built() -> None:
    schema = Schema.parse("[rows: *(string)*]")
    message = bytearray(schema.encode({"rows": ["a"]}))
    message[8:12] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(DecodeError, match="rows: a list claims 4294967295 items in 9 bytes"):
        schema.decode(bytes(message))


def test_lists_of_one_item_type_must_agree_in_length() -> None:
    schema = Schema.parse("[rows: *([a: int, b: int])*]")
    ragged = Schema.parse("[a: *(int)*, b: *(int)*]").encode({"a": [1, 2], "b": [3]})
    with pytest.raises(DecodeError, match="rows: the lists of its fields differ in length"):
        schema.decode(ragged)


def test_dynamic_values_nest_only_so_deep() -> None:
    schema = Schema.parse("[any: dynamic]")
    value: Any = 1
    for _ in range(30):
        value = Typed(Schema.parse("dynamic"), value)
    with pytest.raises(EncodeError, match="nested deeper than 16"):
        schema.encode({"any": value})


def test_recursive_values_nest_only_so_deep() -> None:
    schema = Schema.parse("node: [next: node?]")
    value: Any = {"next": None}
    for _ in range(40):
        value = {"next": value}
    with pytest.raises(EncodeError, match="nested deeper than 16"):
        schema.encode(value)


def test_a_field_of_fixed_width_changes_in_place(everything: Schema) -> None:
    message = bytearray(everything.encode(SAMPLE))
    everything.update(message, "small", 99)
    everything.update(message, "money", Decimal("1.50"))
    everything.update(message, "choice.left.x", -1)
    changed = SAMPLE | {"small": 99, "money": Decimal("1.50"), "choice": {"left": {"x": -1, "y": "z"}}}
    assert everything.decode(bytes(message)) == changed


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("name", "x", "only a field of fixed width"),
        ("maybe", 5, "this message does not have the field"),
        ("small", 2**40, "does not fit int"),
    ],
)
def test_an_update_that_cannot_be_made_is_refused(
    everything: Schema, path: str, value: Any, reason: str
) -> None:
    message = bytearray(everything.encode(SAMPLE))
    with pytest.raises(EncodeError, match=reason):
        everything.update(message, path, value)
    assert everything.decode(bytes(message)) == SAMPLE


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"small": 2**31}, "small", "does not fit int"),
        ({"small": True}, "small", "is not int"),
        ({"small": 1.0}, "small", "is not int"),
        ({"small": None}, "small", "is missing"),
        ({"wide": "x"}, "wide", "is not a number"),
        ({"single": 1e39}, "single", "does not fit float"),
        ({"flag": 1}, "flag", "is not boolean"),
        ({"name": b"x"}, "name", "is not string"),
        ({"name": "\ud800"}, "name", "lone surrogate"),
        ({"blob": "x"}, "blob", "is not bytes"),
        ({"money": Decimal("0.001")}, "money", "more than 2 digits after the point"),
        ({"money": Decimal("123456789")}, "money", "more than 8 digits before the point"),
        ({"money": Decimal("NaN")}, "money", "not a number"),
        ({"money": 1.5}, "money", "is not decimal"),
        ({"when": datetime(2026, 1, 1)}, "when", "time zone"),
        ({"colour": "blue"}, "colour", "'blue' is none of its cases red, green"),
        ({"choice": {"left": {"x": 1, "y": "z"}, "right": 1}}, "choice", "choose one case"),
        ({"choice": {"left": {"x": "1", "y": "z"}}}, "choice.left.x", "is not int"),
        ({"rows": [{"key": "a", "value": {"i": 1}}, {"key": 5, "value": {"i": 1}}]}, "rows.key", "item 1"),
        ({"rows": 5}, "rows", "int is not a list"),
        ({"grid": [["x"]]}, "grid", "item 0: item 0"),
        ({"smal": 5}, "", "there is no field 'smal': did you mean 'small'"),
        ({"extra": {"deep": {}}}, "extra.deep.deeper", "is missing"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    everything: Schema, change: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(EncodeError) as caught:
        everything.encode(SAMPLE | change)
    assert caught.value.path == path
    assert reason in caught.value.reason


@dataclass
class Trade:
    symbol: str
    price: float
    qty: int
    note: str | None = None


def test_dataclasses_are_schemas_and_values() -> None:
    schema = Schema.of(Trade)
    message = schema.encode(Trade("ACME", 10.5, 3))
    assert schema.decode(message) == {"symbol": "ACME", "price": 10.5, "qty": 3, "note": None}


def test_a_sample_dict_is_a_schema() -> None:
    schema = Schema.of({"symbol": "ACME", "price": 10.5, "tags": ["a"]})
    assert schema.text == "[symbol: string, price: double, tags: *(string)*]"


def test_the_fingerprint_follows_the_text() -> None:
    one, same, other = Schema.parse("[ a : int ]"), Schema.parse("[a: int]"), Schema.parse("[a: long]")
    assert one == same
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_path_that_is_not_there_is_refused(everything: Schema) -> None:
    with pytest.raises(SchemaError, match="no such field"):
        everything.accessor("nowhere")
