"""A run of batches: it has the rows of all of them, and takes none that would be refused by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import HEADER, BatchBuilder, EventBatch, Shape, concatenate
from tidemark.message.batches.run import BatchRun

sizes = st.lists(st.integers(0, 40), min_size=1, max_size=5)


def built(messages: list[int], topic: str = "t") -> EventBatch:
    """A batch with a message of each of these sizes."""
    builder = BatchBuilder()
    for number, size in enumerate(messages):
        builder.add(Shape(topic, 7), bytes([number]) * size, publisher="p", key=b"k" * (number % 2))
    return builder.build()


def taken(batches: list[bytes], bytes_max: int = 1 << 20) -> BatchRun:
    run = BatchRun(bytes_max)
    for data in batches:
        assert run.take(memoryview(b"before" + data + b"after"), 6, 6 + len(data))
    return run


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(sizes, min_size=1, max_size=5))
def test_a_run_is_what_its_batches_are_together(many: list[list[int]]) -> None:
    batches = [built(each) for each in many]
    run = taken([bytes(batch.data) for batch in batches])
    assert run.counts == [len(each) for each in many]
    assert run.batch() == concatenate(batches)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(sizes, min_size=2, max_size=3), st.data())
def test_a_run_has_no_batch_that_is_damaged(many: list[list[int]], data: st.DataObject) -> None:
    batches = [bytearray(built(each).data) for each in many]
    victim = data.draw(st.sampled_from(batches))
    at = data.draw(st.integers(0, len(victim) - 1))
    victim[at] ^= data.draw(st.integers(1, 255))
    singly: list[EventBatch | None] = []
    for each in batches:
        try:
            singly.append(EventBatch.parse(bytearray(each)))
        except DecodeError:
            singly.append(None)
    run = BatchRun(1 << 20)
    for raw, by_itself in zip(batches, singly, strict=True):
        if not run.take(memoryview(raw), 0, len(raw)):
            assert by_itself is None or run.counts  # a sound one stays out only for what it names
            return
    try:
        whole = run.batch()
    except DecodeError:
        assert None in singly
        return
    assert None not in singly
    for batch in singly:
        assert batch is not None
        batch.fill_ticks(np.zeros(batch.count, np.int64))
    assert whole == concatenate([batch for batch in singly if batch is not None])


def test_a_run_ends_before_other_names_and_before_too_many_bytes() -> None:
    first, other = bytes(built([5]).data), bytes(built([5], "other").data)
    run = taken([first])
    assert not run.take(memoryview(other), 0, len(other))
    small = BatchRun(len(built([5]).body))
    assert small.take(memoryview(first), 0, len(first))
    assert not small.take(memoryview(first), 0, len(first))
    assert small.batch().count == run.batch().count == 1


@pytest.mark.parametrize("last", [0, 4, 1 << 31])
def test_a_run_takes_no_batch_whose_rows_end_elsewhere_than_its_body(last: int) -> None:
    raw = bytearray(built([5, 5]).data)
    _, count, names, _ = HEADER.unpack_from(raw)
    at = HEADER.size + names + 12 * count - 4
    raw[at : at + 4] = last.to_bytes(4, "little")
    assert not BatchRun(1 << 20).take(memoryview(raw), 0, len(raw))


def test_a_run_of_batches_without_bytes_is_damaged() -> None:
    raw = HEADER.pack(b"TMB1", 1, 0, 0) + bytes(12)
    with pytest.raises(DecodeError):
        taken([raw, raw]).batch()
