"""Messages that are alike are found to be sound at once, and nothing that cannot be decoded among them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import DecodeError
from tidemark.message.batches.alike import are_alike, even_column
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.batches.checking import check_messages
from tidemark.message.batches.columns import Spans
from tidemark.message.batches.gather import Messages
from tidemark.message.batches.reader import EventReader
from tidemark.message.foreign.arrow.batches import to_record_batch
from tidemark.message.schema import Schema

TRADE = Schema.parse(
    "[symbol: string, price: double, note: string?, at: timestamp, live: boolean, raw: bytes, left: int?]"
)
WIDE = Context(prec=60)
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


EVERY_KIND = Schema.parse(
    "[b: boolean, i: int, l: long, f: float, d: double, t: timestamp, m: decimal(30, 4), s: string, "
    "r: bytes, os: string?, oi: int?, kind: {bid: [] | ask: []}]"
)
#: What a reader of another version asks for: wider types, fields that no event has, others left out.
OTHER_VERSION = Schema.parse("[i: long, f: double, m: decimal(32, 6), r: bytes, s: string, none: int?]")
_TEXTS = st.text(st.characters(codec="ascii"), min_size=3, max_size=3) | st.sampled_from(["äb", "€"])


@st.composite
def rows_of_one_size(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events whose messages have one size: mostly the same fields at the same places, sometimes not."""
    has_text, has_number = draw(st.booleans()), draw(st.booleans())
    row = st.fixed_dictionaries(
        {
            "b": st.booleans(),
            "i": st.integers(-(2**31), 2**31 - 1),
            "l": st.integers(-(2**63), 2**63 - 1),
            "f": st.floats(width=32),
            "d": st.floats(),
            "t": st.datetimes(timezones=st.just(UTC)),
            "m": st.integers(-(10**30) + 1, 10**30 - 1).map(lambda units: Decimal(units).scaleb(-4, WIDE)),
            "s": _TEXTS,
            "r": st.binary(min_size=2, max_size=2),
            "os": _TEXTS if has_text else st.none(),
            "oi": st.integers(-5, 5) if has_number else st.none(),
            "kind": st.sampled_from(["bid", "ask"]) if draw(st.booleans()) else st.just("bid"),
        }
    )
    rows = draw(st.lists(row, min_size=2, max_size=6))
    return [each for each in rows if len(EVERY_KIND.encode(each)) == len(EVERY_KIND.encode(rows[0]))]


@given(rows_of_one_size(), st.sampled_from([EVERY_KIND, OTHER_VERSION]))
def test_columns_of_sound_messages_of_one_size_have_what_each_message_decodes_to(
    rows: list[dict[str, Any]], schema: Schema
) -> None:
    reader = EventReader(schema, {each.fingerprint: each for each in (EVERY_KIND, schema)})
    batch = batch_of(EVERY_KIND, [EVERY_KIND.encode(each) for each in rows])
    columns = reader.columns(batch)
    columns.looks_sound()
    found = to_record_batch(columns, headers=()).to_pylist()
    decoded = [reader.decode(batch, row) for row in range(batch.count)]
    expected = pa.Table.from_pylist(decoded, schema=to_record_batch(columns, headers=()).schema).to_pylist()
    assert repr(found) == repr(expected)  # NaN is not equal to itself


def test_columns_of_messages_that_are_alike_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = EventReader(TRADE, {TRADE.fingerprint: TRADE}).columns(batch_of(TRADE, [trade(), trade()]))
    assert columns.looks_sound()
    monkeypatch.setattr(Messages, "__init__", None)
    for path in ("symbol", "price", "at", "live", "raw", "left"):
        assert columns.column((path,)).valid is None
