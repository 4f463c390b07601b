"""Event batches: built, cut, joined, and refused when damaged."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import PRELUDE, BatchBuilder, EventBatch, Prelude, Shape, concatenate
from tidemark.message.batches.building import are_even, take_across
from tidemark.message.batches.compact import compacted, restored

Row = tuple[int, str, str, bytes, bytes, int, int]  # tick, topic, publisher, message, key, priority, validity

rows = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(["a", "a.b", "trades.equity.us"]),
        st.sampled_from(["", "p1", "Zoë"]),
        st.binary(max_size=20),
        st.sampled_from([b"", b"k", b"a longer key"]),
        st.integers(0, 9),
        st.integers(0, 2**32 - 1),
    ),
    max_size=12,
)


def batch_of(events: list[Row]) -> EventBatch:
    builder = BatchBuilder()
    for _, topic, publisher, message, key, priority, validity in events:
        shape = Shape(topic, len(topic))
        builder.add(shape, message, publisher=publisher, key=key, priority=priority, validity_ms=validity)
    batch = builder.build()
    batch.fill_ticks(np.array([event[0] for event in events], np.int64))
    return batch


def rows_of(batch: EventBatch) -> list[Row]:
    return [
        (
            int(batch.ticks[row]),
            batch.shapes[batch.prelude("shape")[row]].topic,
            batch.publishers[batch.prelude("publisher")[row]],
            batch.message(row),
            batch.key(row),
            int(batch.prelude("priority")[row]),
            int(batch.prelude("validity_ms")[row]),
        )
        for row in range(batch.count)
    ]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(rows)
def test_what_was_added_is_read_back_from_the_bytes(events: list[Row]) -> None:
    assert rows_of(EventBatch.parse(batch_of(events).data)) == events


@settings(derandomize=True, deadline=None, max_examples=150)
@given(rows, st.data())
def test_take_keeps_exactly_the_rows_asked_for(events: list[Row], data: st.DataObject) -> None:
    batch = batch_of(events)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events))), np.bool_)
    taken = batch.take(mask)
    assert rows_of(EventBatch.parse(taken.data)) == [
        event for event, keep in zip(events, mask, strict=True) if keep
    ]
    order = np.array(data.draw(st.permutations(range(len(events)))), np.int64)
    assert rows_of(batch.take(order)) == [events[at] for at in order]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(rows, max_size=4))
def test_concatenation_keeps_all_rows_in_order_and_unites_the_names(parts: list[list[Row]]) -> None:
    whole = concatenate([batch_of(part) for part in parts])
    assert rows_of(EventBatch.parse(whole.data)) == [event for part in parts for event in part]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(rows, st.integers(1, 400))
def test_split_makes_parts_that_fit_and_lose_nothing(events: list[Row], bytes_max: int) -> None:
    parts = batch_of(events).split(bytes_max)
    assert [row for part in parts for row in rows_of(part)] == events
    assert all(len(part.data) <= bytes_max or part.count <= 1 for part in parts)


def test_rows_of_one_width_are_taken_in_one_gather() -> None:
    events: list[Row] = [(tick, "a", "p", bytes([tick]) * 7, b"", 4, 0) for tick in range(50)]
    batch = batch_of(events)
    assert rows_of(batch.take(np.array([3, 9, 10, 49]))) == [events[at] for at in (3, 9, 10, 49)]


def alike(count: int, validity: int = 0) -> list[Row]:
    return [(100 + at, "a", "p", bytes([at]) * 7, b"key", 4, validity) for at in range(count)]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.data())
def test_rows_of_several_even_batches_are_taken_as_from_all_of_them_joined(
    counts: list[int], data: st.DataObject
) -> None:
    batches = [batch_of(alike(count)) for count in counts]
    for at, each in enumerate(batches):
        each.count_ticks(100 * at)
    assert are_even(batches)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, sum(counts) - 1)))), np.int64)
    taken, expected = take_across(batches, rows), concatenate(batches).take(rows)
    assert bytes(taken.data) == bytes(expected.data)
    assert taken.common == expected.common
    assert bytes(EventBatch.parse(taken.data).data) == bytes(expected.data)


def test_batches_of_other_sizes_or_names_are_not_even() -> None:
    longer: list[Row] = [(1, "a", "p", b"longer than the others", b"", 4, 0)]
    elsewhere: list[Row] = [(1, "b", "p", bytes(7), b"key", 4, 0)]
    assert are_even([batch_of(alike(3)), batch_of(alike(2))])
    for other in (longer, elsewhere, alike(2) + longer):
        assert not are_even([batch_of(alike(3)), batch_of(other)])
        assert not are_even([batch_of(other), batch_of(alike(3))])


def test_rows_of_one_size_with_one_prelude_have_that_in_common() -> None:
    batch = EventBatch.parse(batch_of(alike(5, validity=9)).data)
    assert batch.row_bytes == 12 + 7 + 3
    assert batch.common == Prelude(0, 0, 4, 0, 3, 9)
    for part in (batch.take(np.array([1, 3])), batch.slice(2, 5), concatenate([batch, batch])):
        assert (part.row_bytes, part.common) == (22, batch.common)
        again = EventBatch.parse(part.data)
        assert (again.row_bytes, again.common) == (22, batch.common)
    assert batch.lengths(np.array([0, 4])).tolist() == [22, 22]


@pytest.mark.parametrize(
    "change",
    [
        {3: b"another size"},
        {1: "a.b"},
        {2: "q"},
        {4: b"ke", 3: b"eight by"},
        {5: 5},
        {6: 1},
    ],
)
def test_rows_that_differ_in_anything_but_message_and_key_have_nothing_in_common(
    change: dict[int, object],
) -> None:
    events = alike(3)
    other = list(events[1])
    for field, value in change.items():
        other[field] = value
    events[1] = tuple(other)  # type: ignore[assignment]  # of the same types
    batch = EventBatch.parse(batch_of(events).data)
    assert batch.common is None
    assert concatenate([batch_of(alike(3)), batch]).common is None
    assert rows_of(concatenate([batch_of(alike(3)), batch])) == alike(3) + events


def test_batches_whose_rows_differ_in_size_from_each_other_have_nothing_in_common() -> None:
    shorter: list[Row] = [(1, "a", "p", b"m", b"key", 4, 0)] * 2
    whole = concatenate([batch_of(alike(3)), batch_of(shorter)])
    assert (whole.row_bytes, whole.common) == (0, None)
    assert rows_of(EventBatch.parse(whole.data)) == alike(3) + shorter


@pytest.mark.parametrize("prelude", [(1, 0, 4, 0, 3, 0), (0, 1, 4, 0, 3, 0), (0, 0, 10, 0, 3, 0)])
def test_a_prelude_that_all_rows_have_is_checked_as_any_other(prelude: tuple[int, ...]) -> None:
    batch = batch_of(alike(3))
    for row in range(3):
        batch.body[row * 22 : row * 22 + 12] = np.frombuffer(PRELUDE.pack(*prelude), np.uint8)
    with pytest.raises(DecodeError, match="a row"):
        EventBatch.parse(batch.data)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(rows.filter(len), st.integers(-(2**62), 2**62))
def test_a_batch_comes_back_from_its_compact_form(events: list[Row], first: int) -> None:
    uneven = [(0, "a", "p", b"m" * at, b"", 4, 0) for at in range(len(events))]
    for batch in (batch_of(events), batch_of(alike(len(events))), batch_of(uneven)):
        batch.count_ticks(first)
        last = first + batch.count - 1
        compact = compacted(batch)
        assert compact is not None
        data = b"".join(compact.parts)
        assert restored(data, last, compact.row_bytes) == batch
        for end in range(0, len(data), 7):
            with pytest.raises(DecodeError):
                restored(data[:end], last, compact.row_bytes)
        with pytest.raises(DecodeError):
            restored(data, last, compact.row_bytes + 1)


def test_a_batch_of_one_event_has_the_bytes_that_it_has_beside_others() -> None:
    one: Row = (0, "trades.equity.us", "Zoë", b"message", b"key", 7, 250)
    for other in (one, (0, "trades.equity.us", "Zoë", b"", b"", 4, 0)):
        alone = batch_of([one])
        assert alone == batch_of([one, other]).slice(0, 1)
        assert rows_of(EventBatch.parse(alone.data)) == [one]
        alone.count_ticks(9)  # as its pubend does
        assert alone.ticks.tolist() == [9]


def test_rows_that_were_read_in_the_compact_form_stay_where_they_were_read() -> None:
    for batch in (batch_of(alike(9)), batch_of([(0, "a", "p", b"m" * at, b"k", 4, 0) for at in range(9)])):
        batch.count_ticks(100)
        compact = compacted(batch)
        assert compact is not None
        data = b"".join(compact.parts)
        found = restored(data, 108, compact.row_bytes)
        assert np.shares_memory(found.body, np.frombuffer(data, np.uint8))
        assert rows_of(found) == rows_of(batch)
        assert (found.size, found.held_bytes, found.dictionary) == (
            batch.size,
            batch.held_bytes,
            batch.dictionary,
        )
        assert found.take(np.array([1, 5])) == batch.take(np.array([1, 5]))
        assert concatenate([found, found]) == concatenate([batch, batch])
        assert "data" not in vars(found)  # nobody has asked for it
        assert found.data == batch.data
    assert found.size == len(found.data)


def test_rows_of_one_size_take_nothing_but_their_bytes_in_the_compact_form() -> None:
    batch = batch_of(alike(100))
    compact = compacted(batch)
    assert compact is not None
    assert compact.row_bytes == 22
    assert sum(map(len, compact.parts)) == len(batch.data) - 12 * 100


def test_ticks_that_leave_one_out_have_no_compact_form() -> None:
    batch = batch_of(alike(3))
    for ticks in ([1, 2, 4], [1, 1, 3]):
        batch.fill_ticks(np.array(ticks))
        assert compacted(batch) is None
    assert compacted(batch_of([])) is None


def test_a_few_rows_of_many_names_do_not_carry_all_of_them() -> None:
    events: list[Row] = [
        (tick, "a", f"{tick} {'x' * 200}", b"m" * (tick % 7), b"", 4, 0) for tick in range(90)
    ]
    batch = batch_of(events)
    few = EventBatch.parse(batch.take(np.array([80, 3, 80])).data)
    assert rows_of(few) == [events[at] for at in (80, 3, 80)]
    assert few.names_bytes < 600 < batch.names_bytes
    assert rows_of(EventBatch.parse(batch.slice(5, 7).data)) == events[5:7]
    assert batch.take(np.zeros(90, np.bool_)).count == 0


@settings(derandomize=True, deadline=None, max_examples=100)
@given(rows.filter(len), st.data())
def test_a_batch_can_do_without_the_names_that_its_rows_do_not_use(
    events: list[Row], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(events) - 1), min_size=1, unique=True).map(sorted))
    taken = batch_of(events).take(np.array(chosen))
    named = EventBatch.parse(taken.with_used_names().data)
    assert rows_of(named) == [events[at] for at in chosen]
    assert {shape.topic for shape in named.shapes} == {events[at][1] for at in chosen}
    assert set(named.publishers) == {events[at][2] for at in chosen}
    assert named.with_used_names() is named


def test_ticks_are_filled_into_the_very_bytes() -> None:
    batch = batch_of([(0, "a", "p", b"m", b"", 4, 0)])
    batch.fill_ticks(np.array([7], np.int64))
    assert EventBatch.parse(bytes(batch.data)).ticks.tolist() == [7]


def test_every_truncation_and_every_flipped_byte_is_refused_or_read() -> None:
    data = bytes(batch_of([(5, "t", "p", b"hello", b"key", 4, 9), (6, "u", "q", b"", b"", 0, 0)]).data)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            EventBatch.parse(data[:length])
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            mangled = bytearray(data)
            mangled[at] ^= flip
            with suppress(DecodeError):
                rows_of(EventBatch.parse(mangled))


def test_random_bytes_are_refused() -> None:
    source = random.Random(3)
    for _ in range(500):
        with pytest.raises(DecodeError):
            EventBatch.parse(b"TMB1" + source.randbytes(source.randrange(120)))


def test_a_huge_count_is_refused_before_anything_is_built() -> None:
    with pytest.raises(DecodeError, match="do not add up"):
        EventBatch.parse(b"TMB1" + (2**32 - 1).to_bytes(4, "little") + bytes(8))
