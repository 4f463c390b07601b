"""Nested fields as whole arrays: the same as value by value, both ways, for any schema and any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import events, types, values_of
from tidemark.errors import EncodeError, MessageError
from tidemark.message.batches.columns import Spans
from tidemark.message.batches.gather import Messages
from tidemark.message.foreign.arrow.batches import as_read
from tidemark.message.foreign.arrow.gather import NotColumnarError, field_array
from tidemark.message.foreign.arrow.scatter import encode_arrays, is_columnar
from tidemark.message.foreign.arrow.types import arrow_schema, arrow_type
from tidemark.message.foreign.arrow.values import to_arrow_value
from tidemark.message.members import members
from tidemark.message.schema import Schema
from tidemark.message.types import Tuple

ORDER = """[
    symbol: string,
    leg: [venue: string, n: int]?,
    tags: *( string )*,
    fills: *( [price: double, at: timestamp, ok: boolean, fee: decimal(9, 2)] )*,
    grid: *( *( int )* )*,
    side: { buy: [] | sell: [] },
    what: { order: [qty: int, notes: *( bytes )*] | cancel: [] | maybe: int? | absent: [] },
    steps: *( { a: int | b: [x: string] | absent: [] } )*,
    gaps: *( long? )*,
    extra: dynamic?
]"""


def order(n: int) -> dict[str, Any]:
    what = [{"order": {"qty": n, "notes": [b"x", b""]}}, {"cancel": {}}, {"maybe": None}, {"maybe": n}, None]
    return {
        "symbol": f"S{n}",
        "leg": {"venue": "V", "n": n} if n % 3 else None,
        "tags": ["a" * k for k in range(n % 4)],
        "fills": [],
        "grid": [[k] * k for k in range(n % 3)],
        "side": "buy" if n % 2 else "sell",
        "what": what[n % 5],
        "steps": [{"a": 1}, None, {"b": {"x": "é"}}][: n % 4],
        "gaps": [1, None, 3][: n % 4],
        "extra": {"n": n} if n % 2 else None,
    }


def shown(values: list[Any]) -> str:
    """Values as text, in which even NaN is equal to itself; there is more than one class for UTC."""
    return repr(values).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def laid(encoded: list[bytes]) -> Spans:
    ends = np.cumsum([len(each) for each in encoded])
    return Spans(np.frombuffer(b"".join(encoded), np.uint8), ends - [len(each) for each in encoded], ends)


def messages_of(schema: Schema, encoded: list[bytes]) -> Messages:
    spans = laid(encoded)
    return Messages(schema, spans.body, spans.starts, spans.ends)


def arrays_of(messages: Messages) -> dict[str, Any]:
    root = messages.schema.flat.root.type
    assert isinstance(root, Tuple)
    read = as_read(root)
    assert isinstance(read, Tuple)
    return {
        member.name: field_array(
            messages, member.name, member.type, arrow_schema(read).field(member.name).type
        )
        for member in members(read)
    }


def test_every_kind_of_nesting_goes_through_arrays_and_back_to_the_same_bytes() -> None:
    schema = Schema.parse(ORDER)
    assert is_columnar(schema)
    encoded = [schema.encode(order(n)) for n in range(60)]
    arrays = arrays_of(messages_of(schema, encoded))
    root = schema.flat.root.type
    for name, array in arrays.items():
        array.validate(full=True)
        assert array.to_pylist() == [
            to_arrow_value(as_read(root), schema.decode(each))[name] for each in encoded
        ], name
    assert encode_arrays(schema, arrays, len(encoded)).tolist() == encoded
    # Of a part of a table, too.
    parts = {name: array.slice(7, 20) for name, array in arrays.items()}
    assert encode_arrays(schema, parts, 20).tolist() == encoded[7:27]
    assert (
        encode_arrays(schema, {name: array.slice(0, 0) for name, array in arrays.items()}, 0).tolist() == []
    )


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.data(), events(types()))
def test_arrays_are_as_value_by_value_for_any_schema(data: st.DataObject, item: Tuple) -> None:
    schema = Schema(item)
    values = data.draw(st.lists(values_of(schema.root), min_size=1, max_size=6))
    encoded = [schema.encode(value) for value in values]
    try:
        arrays = arrays_of(messages_of(schema, encoded))
    except NotColumnarError:
        # A list of tuples without any field: its length is nowhere.
        assert not is_columnar(schema)
        return
    wanted = [to_arrow_value(as_read(item), schema.decode(each)) for each in encoded]
    for name, array in arrays.items():
        array.validate(full=True)
        assert shown(array.to_pylist()) == shown([each[name] for each in wanted])
    assert is_columnar(schema) is (schema.flat.code_width <= 4)
    # JSON does not tell all types of a dynamic value apart, nor a dynamic null from none.
    if is_columnar(schema) and "dynamic" not in schema.text:
        assert encode_arrays(schema, arrays, len(encoded)).tolist() == encoded


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data(), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_bytes_that_are_no_messages_are_an_error_and_nothing_else(
    data: st.DataObject, numbers: list[int]
) -> None:
    schema = Schema.parse(ORDER)
    encoded = [bytearray(schema.encode(order(n))) for n in numbers]
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.integers(0, len(encoded) - 1))
        if encoded[row]:
            encoded[row][data.draw(st.integers(0, len(encoded[row]) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del encoded[0][data.draw(st.integers(0, len(encoded[0]))) :]
    try:
        arrays = arrays_of(messages_of(schema, [bytes(each) for each in encoded]))
    except MessageError:
        return
    for array in arrays.values():
        array.validate(full=True)


def test_a_value_that_is_missing_is_named() -> None:
    schema = Schema.parse("[a: [b: *( [c: int] )*]]")
    kind = arrow_type(as_read(schema.root)).field("a").type
    import pyarrow as pa

    arrays = {"a": pa.array([{"b": [{"c": 1}]}, {"b": None}], kind)}
    with pytest.raises(EncodeError, match=r"a\.b: is missing in row 1"):
        encode_arrays(schema, arrays, 2)
    with pytest.raises(EncodeError, match="missing"):
        encode_arrays(schema, {}, 1)
    with pytest.raises(EncodeError, match=r"a\.b\.c"):
        encode_arrays(schema, {"a": pa.array([{"b": [{"c": None}]}], kind)}, 1)
