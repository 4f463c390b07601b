"""The spool: rows of several batches come back as they were, whatever the batches have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.spark.deep import spool
from tidemark.spark.deep.spool import SliceReader, SliceWriter
from tidemark.spark.locations import folder_at

ROWS = 6


def batch_of(number: int, *, is_even: bool, is_alike: bool, publisher: str = "publisher") -> EventBatch:
    """Six events; batches that are not alike have publishers and topics of their own."""
    builder = BatchBuilder()
    for row in range(ROWS):
        tick = number * ROWS + row
        shape = Shape("topic" if is_alike else f"topic{number}", 7)
        message = f"{tick:04}".encode() * (1 if is_even else 1 + row % 3)
        builder.add(shape, message, publisher=publisher if is_alike else f"{publisher}{number}", key=b"key")
    batch = builder.build()
    batch.fill_ticks(np.arange(number * ROWS, (number + 1) * ROWS))
    return batch


def events_of(batch: EventBatch) -> list[tuple[int, str, str, bytes, bytes]]:
    """Tick, topic, publisher, message and key of each event."""
    shapes, publishers = batch.prelude("shape").tolist(), batch.prelude("publisher").tolist()
    return [
        (
            int(batch.ticks[row]),
            batch.shapes[shapes[row]].topic,
            batch.publishers[publishers[row]],
            batch.message(row),
            batch.key(row),
        )
        for row in range(batch.count)
    ]


@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("is_alike", [True, False])
@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 20])
def test_rows_of_several_batches_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_even: bool, is_alike: bool, part_bytes: int
) -> None:
    monkeypatch.setattr(spool, "PART_BYTES", part_bytes)
    batches = [batch_of(number, is_even=is_even, is_alike=is_alike) for number in range(3)]
    writer = SliceWriter(folder_at(tmp_path), "slice")
    # Line 4 wants the even ticks (set 0), line 9 all of the last two batches (sets 0 and 1).
    writer.add(batches[0], np.arange(0, ROWS, 2), np.zeros(3, np.uint32))
    for batch in batches[1:]:
        writer.add(batch, np.arange(ROWS), (batch.ticks % 2).astype(np.uint32))
    size = writer.close(np.array([4, 9, 9], np.uint32), np.array([0, 0, 1], np.uint32))
    reader = SliceReader(folder_at(tmp_path), "slice")
    assert (reader.bytes, writer.kept, set(reader.lines)) == (size, 15, {4, 9})
    every = [event for batch in batches for event in events_of(batch)]

    def found(line: int, base: int, upto: int) -> list[tuple[int, str, str, bytes, bytes]]:
        rows = reader.rows(line, base, upto)
        parts = [EventBatch.parse(reader.batch(some).data) for some in reader.parts(rows)]
        assert len(parts) <= (len(rows) if part_bytes == 1 else 9)
        return [event for part in parts for event in events_of(part)]

    assert found(4, -1, 17) == [event for event in every if event[0] % 2 == 0]
    assert found(9, 5, 17) == every[ROWS:]
    assert found(9, 7, 12) == every[8:13]
    assert found(4, 20, 30) == []
    assert found(5, -1, 17) == []


def test_a_few_events_do_not_carry_a_large_dictionary_along(tmp_path: Path) -> None:
    builder = BatchBuilder()
    for row in range(1_000):
        builder.add(Shape("topic", 7), b"message", publisher=f"publisher{row}")
    batch = builder.build()
    batch.fill_ticks(np.arange(1_000))
    writer = SliceWriter(folder_at(tmp_path), "slice")
    writer.add(batch, np.arange(1_000), (batch.ticks // 10).astype(np.uint32))
    writer.close(np.arange(100, dtype=np.uint32), np.arange(100, dtype=np.uint32))
    reader = SliceReader(folder_at(tmp_path), "slice")
    found = reader.batch(reader.rows(50, -1, 1_000))
    assert found.publishers == tuple(f"publisher{row}" for row in range(500, 510))
