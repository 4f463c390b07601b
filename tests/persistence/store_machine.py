"""A store on a disk in memory that crashes, and the effects that a broker would give it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tidemark.broker.effects import (
    AppendEvents,
    AppendPfs,
    LogRead,
    PfsRead,
    ReadLog,
    ReadPfs,
    RecoveredPubend,
    SelectorSince,
)
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.topic_selector import TopicSelector
from tidemark.persistence.store import Store, StoreDisks, StoreSettings
from tidemark.storage.disk.memory_disk import MemoryDisk, lose_all
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.ticks import CheckpointToken

SEGMENT = 1_500
NOW = 5_000
HISTORY = (
    SelectorSince(TopicSelector("t.>", "a > 1"), CheckpointToken({"p1": 5})),
    SelectorSince(TopicSelector("t.x", ""), CheckpointToken({"p1": 9, "p2": 3})),
)


def events(*ticks: int, size: int = 8, validity_ms: int = 0) -> EventBatch:
    """A batch with these ticks; each message is its tick in decimal."""
    builder = BatchBuilder()
    for tick in ticks:
        message = str(tick).encode().ljust(size)
        builder.add(Shape("t", 1), message, publisher="ada", validity_ms=validity_ms)
    batch = builder.build()
    batch.fill_ticks(np.array(ticks, np.int64))
    return batch


def append(sequence: int, *ticks: int, size: int = 8, validity_ms: int = 0) -> AppendEvents:
    return AppendEvents("p1", "ada", sequence, events(*ticks, size=size, validity_ms=validity_ms))


def matched(base: int, upto: int, of: dict[int, tuple[int, list[int]]]) -> AppendPfs:
    """`of` is {tick: (set number, its subscribers)}."""
    ticks = np.array(sorted(of), np.int64)
    sets = np.array([of[tick][0] for tick in sorted(of)], np.uint32)
    members = {number: np.array(who, np.uint32) for number, who in of.values()}
    return AppendPfs("p1", base, upto, ticks, sets, np.full(len(ticks), 30, np.uint32), members)


def ticks_of(answer: object) -> list[int]:
    """The ticks of an answer, after a check that each message is that of its tick."""
    assert isinstance(answer, LogRead)
    found: list[int] = []
    for batch in answer.batches:
        for row, tick in enumerate(batch.ticks.tolist()):
            assert int(batch.message(row)) == tick
            found.append(tick)
    return found


def read_all(store: Store, base: int, upto: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Ticks of `(base, upto]`, and what is damaged in it, in as many answers as it takes."""
    ticks: list[int] = []
    damaged: list[tuple[int, int]] = []
    while base < upto:
        answer = store.carry_out(ReadLog("p1", base, upto))
        assert isinstance(answer, LogRead)
        assert answer.upto > base
        ticks += ticks_of(answer)
        damaged += answer.damaged
        base = answer.upto
    return ticks, damaged


def missed(store: Store, subscriber: int, base: int, limit: int = 100) -> PfsRead:
    answer = store.carry_out(ReadPfs("p1", subscriber, base, limit))
    assert isinstance(answer, PfsRead)
    return answer


def waits(machine: Machine) -> bool:
    return machine.store.is_waiting


class Machine:
    """A disk in memory, and the store of its latest life."""

    def __init__(self, os_pubends: tuple[str, ...] = ()) -> None:
        self._os_pubends = os_pubends
        self.log, self.pfs, self.tables = MemoryDisk("log"), MemoryDisk("pfs"), MemoryTables()
        self.disks = (self.log, self.pfs)
        self.witness = MemoryDisk("witness")
        self.second_witness: MemoryDisk | None = None
        self.start()

    def start(self, now: int = NOW, *, accept_damage: bool = False) -> Store:
        self.store = Store(
            StoreDisks(self.log, self.pfs, self.tables, self.witness, self.second_witness),
            StoreSettings(segment_bytes=SEGMENT, read_bytes=500, os_pubends=self._os_pubends),
            identity=77,
            accept_damage=accept_damage,
        )
        self.recovered = self.store.recover(["p1", *self._os_pubends], now)
        return self.store

    def crash(self, choose: Callable[[int], int] = lose_all) -> Store:
        self.switch_off(choose)
        return self.start()

    def switch_off(self, choose: Callable[[int], int] = lose_all) -> None:
        for disk in (*self.disks, self.witness, *filter(None, [self.second_witness])):
            disk.crash(choose)
        self.tables = self.tables.crash()

    def state(self) -> RecoveredPubend:
        return self.recovered.pubends["p1"]

    def do(self, *effects: object) -> list[object]:
        """Have the store carry out effects; returns the completions that it reported."""
        found = [self.store.carry_out(effect) for effect in effects]  # type: ignore[arg-type]  # any of them
        return [each for each in found if each is not None]

    def fill(self) -> None:
        self.tables.is_full = True
        for disk in self.disks:
            disk.fill()

    def free(self) -> None:
        self.tables.is_full = False
        for disk in self.disks:
            disk.bytes_max = None
