"""Events that cannot be decoded are found in whole batches exactly where decoding finds them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.type_strategies import NAMES, PLAIN, types, values_of
from tidemark.errors import DecodeError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.checking import ARRAY_ROWS_MIN, check_messages, without_damaged
from tidemark.message.schema import Schema
from tidemark.message.types import Field, Tuple, Type, optional

TRADE = Schema.parse(
    "[symbol: string, price: double, note: string?, at: timestamp, live: boolean, raw: bytes]"
)
VALUE: dict[str, Any] = {
    "symbol": "TÜRK",
    "price": 1.5,
    "note": None,
    "at": "2026-11-16T00:00:00+00:00",
    "live": True,
    "raw": b"\xff",
}


def batch_of(messages: list[tuple[Schema, bytes]]) -> EventBatch:
    builder = BatchBuilder()
    for schema, message in messages:
        builder.add(Shape("t", schema.fingerprint), message, key=b"k")
    batch = builder.build()
    batch.count_ticks(101)
    return batch


def rows_that_fail(messages: list[tuple[Schema, bytes]]) -> list[int]:
    failed = []
    for row, (schema, message) in enumerate(messages):
        try:
            schema.decode(message)
        except DecodeError:
            failed.append(row)
    return failed


def assert_found(messages: list[tuple[Schema, bytes]]) -> None:
    """What decoding each message refuses is found in a batch of them."""
    schemas = {schema.fingerprint: schema for schema, _ in messages}
    batch, failed = batch_of(messages), rows_that_fail(messages)
    kept, damaged = without_damaged(batch, schemas)
    assert damaged == [(100 + row, 101 + row) for row in failed]
    if not failed:
        assert kept is batch
        check_messages(batch, schemas)
        return
    sound = [message for row, (_, message) in enumerate(messages) if row not in failed]
    assert ([] if kept is None else [kept.message(row) for row in range(kept.count)]) == sound
    with pytest.raises(DecodeError, match=r"event \d+ of the batch"):
        check_messages(batch, schemas)


#: the types of a plain field: an atomic value, or an option of one
fields: st.SearchStrategy[Type] = st.one_of(st.sampled_from(PLAIN), st.sampled_from(PLAIN).map(optional))
plain_rows = st.dictionaries(st.sampled_from(NAMES), fields, min_size=1, max_size=5).map(
    lambda found: Tuple(tuple(Field(name, item) for name, item in found.items()))
)


@given(st.one_of(plain_rows, plain_rows, types().map(lambda item: Tuple((Field("a", item),)))), st.data())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_what_decoding_refuses_is_found_in_batches_large_and_small(item: Type, data: st.DataObject) -> None:
    schema = Schema(item)
    values = data.draw(st.lists(values_of(item), min_size=1, max_size=3))
    messages = [schema.encode(value) for value in values]
    broken: list[bytes] = []
    for message in messages:
        made = bytearray(message)
        for _ in range(data.draw(st.integers(0, 2))):
            if made:
                made[data.draw(st.integers(0, len(made) - 1))] = data.draw(
                    st.sampled_from([0, 1, 2, 0x7F, 0xFF])
                )
        cut = data.draw(st.integers(-2, 2))
        broken.append(bytes(made[:cut] if cut < 0 else made + b"x" * cut))
    assert_found([(schema, each) for each in broken])
    assert_found([(schema, each) for each in messages * ARRAY_ROWS_MIN + broken])


def text_of(schema: Schema, value: Any) -> bytes:
    return schema.encode({**value, "at": datetime.fromisoformat(value["at"])})


BAD: dict[str, Callable[[bytes], bytes]] = {
    "text that is not UTF-8": lambda good: good.replace("TÜRK".encode(), b"T\xc3\xffRK"),
    "a field that ends before it begins": lambda good: good[:10] + b"\xff\xff" + good[12:],
    "a truth value of 7": lambda good: good.replace(b"\x01", b"\x07", 1),
    "bytes behind the end": lambda good: good + b"more",
    "no bytes at all": lambda good: good[:0],
}


@pytest.mark.parametrize("count", [1, 2, 3 * ARRAY_ROWS_MIN])
@pytest.mark.parametrize("what", BAD)
def test_one_bad_event_among_many_is_named_and_left_out(what: str, count: int) -> None:
    good = text_of(TRADE, VALUE)
    other = Schema.parse("[n: int]")
    messages = [(TRADE, good)] * count + [(other, other.encode({"n": 1}))]
    at = count // 2
    messages[at] = (TRADE, BAD[what](good))
    assert rows_that_fail(messages) in ([at], [])  # some changes give another value
    assert_found(messages)


def test_the_schema_of_every_event_must_be_known() -> None:
    batch = batch_of([(TRADE, text_of(TRADE, VALUE))])
    with pytest.raises(DecodeError, match="no schema has the fingerprint"):
        check_messages(batch, {})
