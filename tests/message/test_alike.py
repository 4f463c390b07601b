"""Messages that are alike are found to be sound at once, and nothing that cannot be decoded among them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tidemark.errors import DecodeError
from tidemark.message.batches.alike import are_alike
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.checking import check_messages
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
