"""What the tests of the log share: batches, volumes, and a run that is cut off at any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError, by_chance, keep_all, lose_all
from tidemark.storage.log.identity import RESERVE
from tidemark.storage.log.volume import LogVolume

IDENTITY = 0x1234_5678_9ABC_DEF0
SMALL_SEGMENT = 1_500
#: What a power loss leaves of what was not synced; the number is that of the step at which the power went.
CRASHES: list[Callable[[int], Callable[[int], int]]] = [
    lambda _: lose_all,
    lambda _: keep_all,
    lambda seed: by_chance(Random(seed)),
    lambda seed: by_chance(Random(-seed)),
]


def open_volume(disk: MemoryDisk, segment_bytes: int = SMALL_SEGMENT) -> LogVolume:
    return LogVolume.open(disk, identity=IDENTITY, segment_bytes=segment_bytes)


def events(ticks: Sequence[int], publisher: str = "p", size: int = 8) -> EventBatch:
    """A batch with these ticks; each message is its tick in decimal."""
    builder = BatchBuilder()
    for tick in ticks:
        builder.add(Shape("t", 1), str(tick).encode().ljust(size), publisher=publisher)
    batch = builder.build()
    batch.fill_ticks(np.array(ticks, np.int64))
    return batch


def ticks_of(batches: Sequence[EventBatch]) -> list[int]:
    """All ticks, after checking that each message is that of its tick."""
    found: list[int] = []
    for batch in batches:
        for row, tick in enumerate(batch.ticks.tolist()):
            assert int(batch.message(row)) == tick
            found.append(tick)
    return found


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """Another disk with the same files, all synced."""
    copy = MemoryDisk()
    for name, content in disk.contents().items():
        if name != RESERVE:
            copy.replace(name, content)
    return copy


def run_until_power_loss(disk: MemoryDisk, operation: int, steps: Callable[[], object]) -> bool:
    """Run the steps on a disk that goes off in the course of its next `operation`-th one; whether it did."""
    disk.power_off_at = disk.operations + operation
    try:
        steps()
    except PowerLossError:
        return True
    disk.power_off_at = None
    return False
