"""Messages that are alike are found to be sound at once, and nothing that cannot be decoded among them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from tidemark.errors import DecodeError
from tidemark.message.batches.alike import are_alike, even_column
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.checking import check_messages
from tidemark.message.batches.columns import Spans
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema

TRADE = Schema.parse(
    "[symbol: string, price: double, note: string?, at: timestamp, live: boolean, raw: bytes, left: int?]"
)
LISTS = Schema.parse("[n: int, tags: *( string )*]")


def trade(**fields: Any) -> bytes:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    value = {"symbol": "ABC", "price": 1.5, "note": None, "at": at, "live": True, "raw": b"12", "left": 7}
    return TRADE.encode({**value, **fields})


def batch_of(schema: Schema, messages: list[bytes]) -> EventBatch:
    builder = BatchBuilder()
    for message in messages:
        builder.add(Shape("t", schema.fingerprint), message, key=b"key")
    return builder.build()


def alike(schema: Schema, messages: list[bytes]) -> bool:
    batch = batch_of(schema, messages)
    assert batch.common is not None
    return are_alike(batch, batch.common, schema)


def test_messages_with_other_values_in_the_same_places_are_alike() -> None:
    others = [trade(), trade(symbol="XYZ", price=2.5, live=False, raw=b"\xff\x00", left=-1)]
    assert alike(TRADE, others)
    assert alike(TRADE, others[:1])
    check_messages(batch_of(TRADE, others), {TRADE.fingerprint: TRADE})


@pytest.mark.parametrize(
    "other",
    [
        trade(symbol="ABCD", raw=b"1"),  # a field ends elsewhere
        trade(symbol="Ü1", raw=b"12"),  # text that has to be looked at
        trade(left=None, raw=b"123456"),  # another case, of the same size
    ],
    ids=["another extent", "not ASCII", "another case"],
)
def test_messages_with_fields_in_other_places_are_not_alike_and_still_sound(other: bytes) -> None:
    messages = [trade(), other, trade()]
    assert len(other) == len(messages[0])
    assert not alike(TRADE, messages)
    check_messages(batch_of(TRADE, messages), {TRADE.fingerprint: TRADE})


def test_no_changed_byte_of_any_message_is_missed() -> None:
    good = trade()
    schemas = {TRADE.fingerprint: TRADE}
    refused = 0
    for row in range(2):
        for at in range(len(good)):
            for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
                messages = [good, good]
                messages[row] = good[:at] + bytes([value]) + good[at + 1 :]
                try:
                    TRADE.decode(messages[row])
                except DecodeError:
                    refused += 1
                    assert not alike(TRADE, messages)
                    with pytest.raises(DecodeError, match=f"event {row} of the batch"):
                        check_messages(batch_of(TRADE, messages), schemas)
                else:
                    check_messages(batch_of(TRADE, messages), schemas)
    assert refused > 50


def test_messages_with_lists_are_looked_at_one_by_one() -> None:
    message = LISTS.encode({"n": 1, "tags": ["a", "b"]})
    assert not alike(LISTS, [message, message])
    check_messages(batch_of(LISTS, [message, message]), {LISTS.fingerprint: LISTS})


@pytest.mark.parametrize("reader", [TRADE, Schema.parse("[price: double, left: double?, at: timestamp]")])
def test_numbers_of_messages_of_one_size_are_read_as_if_they_were_gathered_one_by_one(reader: Schema) -> None:
    cases = [
        [trade(price=n / 2, left=n) for n in range(-2, 3)],
        [trade(left=None, price=n) for n in range(3)],
        [trade(), trade(left=None, raw=b"123456"), trade(left=1)],  # two cases, of the same size
        [trade()[:9], trade()[:9]],  # shorter than its header
        [b"\x00" * 60, b"\xff" * 60],  # of no case
    ]
    for messages in cases:
        events = EventReader(reader, {each.fingerprint: each for each in (TRADE, reader)})
        for path in ("price", "left", "at", "symbol"):
            even, gathered = batch_of(TRADE, messages), batch_of(TRADE, messages)
            assert even.common is not None
            gathered.common = None
            assert column(events, even, path) == column(events, gathered, path), (messages, path)


def column(events: EventReader, batch: EventBatch, path: str) -> object:
    """The type, the dtype and the values of a column; None if it cannot be read."""
    try:
        found = events.columns(batch).column((path,))
    except DecodeError:
        return None
    values, valid = found.values, found.valid
    dtype = values.dtype if isinstance(values, np.ndarray) else None
    valid = np.ones(batch.count, np.bool_) if valid is None else valid
    return found.type, dtype, [value_at(values, row) if valid[row] else None for row in range(batch.count)]


def value_at(values: object, row: int) -> object:
    if isinstance(values, Spans):
        return values.body[values.starts[row] : values.ends[row]].tobytes()
    return values[row]  # type: ignore[index]  # an array


def test_a_number_of_messages_of_one_size_is_not_gathered() -> None:
    batch = batch_of(TRADE, [trade(), trade()])
    assert batch.common is not None
    found = even_column(batch, batch.common, TRADE, ("price",))
    assert found is not None
    assert np.asarray(found.values).tolist() == [1.5, 1.5]
    assert even_column(batch, batch.common, TRADE, ("symbol",)) is None
    assert even_column(batch, batch.common, TRADE, ("live",)) is None
    assert even_column(batch, batch.common, TRADE, ("nothing",)) is None
