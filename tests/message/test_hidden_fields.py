"""Batches without the fields that a rule hides: what is left reads as if the fields had never been there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.message.value_strategies import records, values
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.hidden_fields import HiddenFields, without_fields
from tidemark.message.schema import Schema
from tidemark.message.types import INT, STRING, Field, Tuple, Variant

TRADE = Schema.parse("[symbol: string, price: double, counterparty: string?, note: string]")


def _batch(schema: Schema, *values: Any) -> EventBatch:
    builder = BatchBuilder()
    for at, value in enumerate(values):
        shape = Shape("t", schema.fingerprint)
        builder.add(shape, schema.encode(value), publisher="p", key=b"k%d" % at, priority=7, validity_ms=9)
    batch = builder.build()
    batch.count_ticks(100)
    return batch


def _stripped(schema: Schema, names: set[str], *values: Any) -> tuple[EventBatch, Schema]:
    fields = HiddenFields(schema, names)
    found = without_fields(_batch(schema, *values), {0: fields} if fields.is_needed else {})
    assert found is not None
    return EventBatch.parse(bytes(found.data)), fields.schema


def test_a_hidden_field_is_left_out_and_all_else_stays() -> None:
    values = [
        {"symbol": "A", "price": 1.5, "counterparty": "secret", "note": "x"},
        {"symbol": "BB", "price": 2.5, "counterparty": None, "note": "yy"},
    ]
    found, schema = _stripped(TRADE, {"counterparty"}, *values)
    assert schema.text == Schema.parse("[symbol: string, price: double, note: string]").text
    assert [schema.decode(found.message(row)) for row in range(2)] == [
        {"symbol": "A", "price": 1.5, "note": "x"},
        {"symbol": "BB", "price": 2.5, "note": "yy"},
    ]
    assert b"secret" not in bytes(found.data)
    assert found.shapes == (Shape("t", schema.fingerprint),)
    assert [found.key(row) for row in range(2)] == [b"k0", b"k1"]
    assert found.ticks.tolist() == [100, 101]
    assert found.prelude("priority").tolist() == [7, 7]
    assert found.prelude("validity_ms").tolist() == [9, 9]
    # Whether it was there cannot be told from the bytes either.
    assert len(found.message(0)) == len(schema.encode({"symbol": "A", "price": 1.5, "note": "x"}))


def test_a_schema_without_the_field_stays_as_it_is() -> None:
    fields = HiddenFields(TRADE, {"salary"})
    assert not fields.is_needed
    assert fields.schema is TRADE


@pytest.mark.parametrize(
    ("text", "hidden", "left"),
    [
        ("[a: int, b: int]", {"a", "b"}, "[]"),
        ("[a: int, string, b: int]", {"a"}, "[[], string, b: int]"),
        ("[a: int, string, b: int]", {"b"}, "[a: int, string]"),
        ("[a: int, [b: int, c: int]]", {"b"}, "[a: int, [c: int]]"),
        ("[a: int, { b: int | c: int }]", {"b"}, "[a: int, { c: int | [] }]"),
        ("[a: int, { [] | b: int }]", {"b"}, "[a: int]"),
        ("[a: int, o: { b: int | c: int }]", {"b"}, "[a: int, o: { b: int | c: int }]"),
    ],
)
def test_what_is_left_of_a_schema(text: str, hidden: set[str], left: str) -> None:
    assert HiddenFields(Schema.parse(text), hidden).schema.text == Schema.parse(left).text


def test_a_named_schema_that_only_a_hidden_field_used_is_gone_too() -> None:
    schema = Schema.parse("trade: [id: int, buyer: party, seller: party]; party: [name: string]")
    assert "party" in HiddenFields(schema, {"buyer"}).schema.text
    assert HiddenFields(schema, {"buyer", "seller"}).schema.text == "[id: int]"


def test_a_schema_that_contains_itself_is_stripped_at_the_top() -> None:
    schema = Schema.parse("order: [id: int, owner: string, parts: *(order)*]")
    value = {"id": 1, "owner": "o", "parts": [{"id": 2, "owner": "p", "parts": []}]}
    found, left = _stripped(schema, {"owner"}, value)
    assert left.decode(found.message(0)) == {"id": 1, "parts": [{"id": 2, "owner": "p", "parts": []}]}


def test_two_versions_that_differ_in_a_hidden_field_become_one() -> None:
    older = Schema.parse("[symbol: string]")
    newer = Schema.parse("[symbol: string, counterparty: string]")
    builder = BatchBuilder()
    builder.add(Shape("t", older.fingerprint), older.encode({"symbol": "A"}))
    builder.add(Shape("t", newer.fingerprint), newer.encode({"symbol": "B", "counterparty": "x"}))
    found = without_fields(builder.build(), {1: HiddenFields(newer, {"counterparty"})})
    assert found is not None
    read = EventBatch.parse(bytes(found.data))
    assert read.shapes == (Shape("t", older.fingerprint),)
    assert [older.decode(read.message(row))["symbol"] for row in range(2)] == ["A", "B"]


def test_a_damaged_event_is_left_out() -> None:
    good = TRADE.encode({"symbol": "A", "price": 1.5, "counterparty": "x", "note": "n"})
    builder = BatchBuilder()
    for message in (good, good[:3], good):
        builder.add(Shape("t", TRADE.fingerprint), message)
    batch = builder.build()
    batch.count_ticks(1)
    fields = {0: HiddenFields(TRADE, {"counterparty"})}
    found = without_fields(batch, fields)
    assert found is not None
    assert found.ticks.tolist() == [1, 3]
    assert without_fields(batch.slice(1, 2), fields) is None


def test_more_optional_fields_than_a_number_has_bits() -> None:
    schema = Schema.parse("[" + ", ".join(f"f{at}: int?" for at in range(80)) + "]")
    values = [{f"f{at}": at for at in range(0, 80, step)} for step in (2, 3, 7)]
    found, left = _stripped(schema, {"f0", "f42"}, *values)
    for row, value in enumerate(values):
        expected = {f"f{at}": value.get(f"f{at}") for at in range(80) if at not in (0, 42)}
        assert left.decode(found.message(row)) == expected


def _spliced(inner: Tuple) -> Tuple:
    """A record whose fields are in an unnamed tuple and an unnamed variant."""
    choice = Variant((Field("second", STRING), Field("third", INT)))
    return Tuple((Field("first", INT), Field("", inner), Field("", choice), Field("last", STRING)))


@given(st.data())
def test_of_any_schema_what_is_left_reads_as_the_rest_of_the_value(data: st.DataObject) -> None:
    item = data.draw(records() | records().map(_spliced))
    drawn = data.draw(st.lists(values(item), min_size=1, max_size=3))
    schema = Schema(item)
    names = [name for name in dict.fromkeys(path[0] for path in schema.paths()) if not name.startswith("_")]
    hidden = set(data.draw(st.lists(st.sampled_from(names or ["none"]), unique=True)))
    found, left = _stripped(schema, hidden, *drawn)
    for row, value in enumerate(drawn):
        whole = schema.decode(schema.encode(value))
        expected = {name: each for name, each in whole.items() if name not in hidden}
        got = left.decode(found.message(row))
        assert {name: each for name, each in got.items() if name in expected} == expected
        assert not set(got) & hidden
        assert np.array_equal(found.ticks, np.arange(100, 100 + len(drawn)))
