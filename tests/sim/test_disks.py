"""The disk thread of a simulated machine: order, time, and everything that can happen to a disk."""

from __future__ import annotations

from random import Random

import numpy as np

from tidemark.broker.effects import (
    AppendEvents,
    AppendPfs,
    CommitTables,
    Effect,
    LogFull,
    LogRead,
    LogSynced,
    PfsSynced,
    ReadLog,
    SaveTopic,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
)
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.sim.world.disk_thread import SYNC_US_MAX, SimDiskThread
from tidemark.sim.world.engine import Engine


def events(tick: int) -> EventBatch:
    builder = BatchBuilder()
    builder.add(Shape("t", 1), str(tick).encode(), publisher="ada")
    batch = builder.build()
    batch.fill_ticks(np.array([tick], np.int64))
    return batch


class Machine:
    """A disk thread, and what it did and told."""

    def __init__(self, seed: int = 1) -> None:
        self.engine = Engine(0)
        self.done: list[Effect] = []
        self.told: list[Stimulus] = []
        self.failures = 0
        self.disk = SimDiskThread(
            self.engine,
            Random(seed),
            "b",
            lambda effect, _: self.done.append(effect),
            self.told.append,
            self._failed,
        )
        self.disk.start(["p1"], 0)

    def _failed(self) -> None:
        self.failures += 1
        self.disk.crash()

    def append(self, sequence: int) -> None:
        self.disk.put(AppendEvents("p1", "ada", sequence, events(100 * sequence)))

    def found(self) -> list[int]:
        """Ticks in the log."""
        answer = self.disk.read(ReadLog("p1", 0, 100_000))
        return [tick for batch in answer.batches for tick in batch.ticks.tolist()]

    def run(self, duration: int = 10 * SYNC_US_MAX) -> None:
        self.engine.run(self.engine.now + duration)


def test_a_sync_covers_what_was_put_before_it_and_nothing_else() -> None:
    for seed in range(50):
        machine = Machine(seed)
        machine.append(1)
        machine.disk.put(SyncLog(1))
        machine.append(2)
        assert machine.told == []
        while not machine.told:
            machine.run(100)
        assert machine.told == [LogSynced(1)]
        machine.disk.crash()
        machine.disk.start(["p1"], 0)
        assert machine.found() == [100]


def test_effects_are_carried_out_in_order_however_long_each_takes() -> None:
    machine = Machine()
    machine.append(1)
    for effect in (SyncLog(1), SaveTopic("t", True, ()), CommitTables(2), ReadLog("p1", 0, 200), SyncPfs(3)):
        machine.disk.put(effect)
    machine.run()
    assert [type(each) for each in machine.told] == [LogSynced, TablesCommitted, LogRead, PfsSynced]
    assert len(machine.done) == 6


def test_a_crash_in_a_sync_keeps_all_or_nothing_of_a_batch_and_both_happen() -> None:
    outcomes = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.append(1)
        machine.disk.put(SyncLog(1))
        machine.run()
        machine.append(2)
        machine.disk.put(SyncLog(2))
        machine.run(1)
        machine.disk.crash()
        machine.disk.start(["p1"], 0)
        outcomes.add(tuple(machine.found()))
    assert outcomes == {(100,), (100, 200)}


def test_a_stalled_disk_reports_nothing_before_it_goes_on() -> None:
    machine = Machine()
    machine.append(1)
    machine.disk.put(SyncLog(1))
    machine.disk.stall(500_000)
    machine.run(499_999)
    assert machine.told == []
    machine.run(2)
    assert machine.told == [LogSynced(1)]


def test_a_failed_sync_stops_the_machine() -> None:
    machine = Machine()
    machine.disk.fail_next_sync()
    machine.append(1)
    machine.disk.put(SyncLog(1))
    machine.append(2)
    machine.run()
    assert (machine.failures, machine.told) == (1, [])
    machine.disk.start(["p1"], 0)
    machine.append(3)
    machine.disk.put(SyncLog(1))
    machine.run()
    assert machine.told == [LogSynced(1)]


def test_what_a_full_disk_made_wait_is_reported_when_there_is_room() -> None:
    machine = Machine()
    machine.disk.fill()
    machine.append(1)
    ticks, sets = np.array([100], np.int64), np.array([1], np.uint32)
    machine.disk.put(AppendPfs("p1", 0, 100, ticks, sets, sets, {1: np.array([5], np.uint32)}))
    for effect in (SyncLog(1), SyncPfs(2), SaveTopic("t", True, ()), CommitTables(3)):
        machine.disk.put(effect)
    machine.run(1_000_000)
    assert machine.told == [LogFull(1)]
    machine.disk.free()
    machine.run(1_000_000)
    assert machine.told == [LogFull(1), PfsSynced(2), TablesCommitted(3)]


def test_a_life_begins_on_a_full_disk_too_with_the_room_that_is_kept_for_its_number() -> None:
    machine = Machine()
    for incarnation in (2, 3):
        machine.disk.fill()
        machine.disk.crash()
        assert machine.disk.start(["p1"], 0)[1] == incarnation


def test_rot_hits_a_synced_record_and_is_reported_at_the_latest_after_a_restart() -> None:
    machine = Machine()
    assert not machine.disk.rot(Random(1))
    for number in range(1, 30):
        machine.append(number)
        machine.disk.put(SyncLog(number))
        machine.run()
    chance = Random(2)
    while machine.disk.read(ReadLog("p1", 0, 100_000)).damaged == ():
        assert machine.disk.rot(chance)
    machine.disk.crash()
    machine.disk.start(["p1"], 0)
    answer = machine.disk.read(ReadLog("p1", 0, 100_000))
    damaged = {
        tick for tick in range(100, 3_000, 100) for base, upto in answer.damaged if base < tick <= upto
    }
    assert damaged
    assert sorted({*machine.found(), *damaged}) == list(range(100, 3_000, 100))
