"""A store as a whole: opened, closed, crashed at any step, and on a real disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.persistence.store_machine import HISTORY, NOW, Machine, append, matched, missed, read_all
from tidemark.broker.effects import (
    AppendLease,
    ChopPfs,
    CommitTables,
    LogFull,
    LogSynced,
    LoseLog,
    PfsSynced,
    ResumeLog,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Woken,
)
from tidemark.errors import DirectoryLockedError
from tidemark.persistence.store import Store, StoreDisks
from tidemark.storage.disk.memory_disk import PowerLossError, by_chance, keep_all, lose_all
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Topic


def test_what_is_not_for_the_disk_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="not for the disk"):
        Machine().do(Woken())


def test_an_orderly_close_keeps_what_was_never_synced() -> None:
    machine = Machine()
    machine.do(append(1, 10), matched(0, 50, {10: (1, [5])}), SaveTopic("t", True, ()))
    machine.store.close()
    store = machine.crash()
    assert read_all(store, 0, 50) == ([10], [])
    assert missed(store, 5, 0).ticks.tolist() == [10]
    assert [each.topic for each in machine.recovered.topics] == ["t"]


def test_a_store_that_cannot_open_both_volumes_leaves_both() -> None:
    machine = Machine()
    machine.store.close()
    machine.pfs.lock()
    with pytest.raises(DirectoryLockedError):
        machine.start()
    machine.pfs.unlock()
    machine.start()


class Story:
    """What a broker asked for, and what it was told had happened when the power went."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.appended: list[int] = []
        self.synced: list[int] = []
        self.filtered = self.filtered_synced = 0
        self.committed = 0

    def run(self) -> None:
        for number in range(1, 16):
            tick = 100 * number
            self.appended.append(tick)
            self.machine.do(append(number, tick, size=60))
            self.filtered = tick
            self.machine.do(matched(tick - 100, tick, {tick: (1 + number % 2, [5, 6][: 1 + number % 2])}))
            self.machine.do(SaveTopic(f"t{number:02}", True, ()))
            if number % 4 == 0:
                self.machine.do(LoseLog("p1", tick - 200), ChopPfs("p1", tick - 300))
            if number % 3:
                self.tell(self.machine.do(SyncLog(number), SyncPfs(number), CommitTables(number)), number)

    def tell(self, told: Iterable[object], number: int) -> None:
        assert list(told) == [LogSynced(number), PfsSynced(number), TablesCommitted(number)]
        self.synced = list(self.appended)
        self.filtered_synced = self.filtered
        self.committed = number

    def check(self) -> None:
        """What was reported is there, and beyond it a first part of what was not."""
        state = self.machine.state()
        found, damaged = read_all(self.machine.store, state.lost, max(state.last, state.lost))
        assert damaged == []
        assert state.publishers.get("ada", (0, 0))[0] == sum(tick <= state.last for tick in self.appended)
        assert found == [tick for tick in self.appended if state.lost < tick <= state.last]
        assert set(self.synced) <= {tick for tick in self.appended if tick <= state.last}
        delivered = self.machine.recovered.delivered.get("p1", 0)
        assert self.filtered_synced <= delivered <= self.filtered
        answer = missed(self.machine.store, 5, delivered - 100 if delivered else 0)
        assert answer.ticks.tolist() == ([delivered] if delivered else [])
        assert len(list(self.machine.recovered.topics)) >= self.committed


@pytest.mark.parametrize("crash", ["lose", "keep", "chance"])
def test_what_was_reported_is_there_after_a_crash_at_any_step(crash: str) -> None:
    for operation in range(1, 400):
        choose = {"lose": lose_all, "keep": keep_all, "chance": by_chance(Random(operation))}[crash]
        machine = Machine()
        story = Story(machine)
        # Both disks count: each is the one that goes off first in half of the runs.
        machine.disks[operation % 2].power_off_at = machine.disks[operation % 2].operations + operation // 2
        try:
            story.run()
        except PowerLossError:
            machine.crash(choose)
            story.check()
            assert machine.do(append(99, 6_000), SyncLog(1), SyncPfs(2)) == [LogSynced(1), PfsSynced(2)]
        else:
            assert operation == 1 or operation > 30
            if operation > 30:
                return
    pytest.fail("the story does not end")


def test_it_works_on_the_disk_of_the_operating_system(tmp_path: Path) -> None:
    def opened() -> Store:
        tables = SqliteTables(tmp_path / "tables.db")
        return Store(StoreDisks(RealDisk(tmp_path / "log"), RealDisk(tmp_path / "pfs"), tables), identity=5)

    store = opened()
    store.recover(["p1"], NOW)
    effects = (
        append(1, 10, 20),
        AppendLease("p1", 700),
        matched(0, 50, {10: (1, [5])}),
        SaveSubscription(5, "audit", HISTORY),
        SaveReleased(5, CheckpointToken({"p1": 4})),
        SaveTopic("t", False, ("[a: int]",)),
    )
    assert [store.carry_out(effect) for effect in effects] == [None] * len(effects)
    assert store.carry_out(SyncLog(1)) == LogSynced(1)
    assert store.carry_out(SyncPfs(2)) == PfsSynced(2)
    assert store.carry_out(CommitTables(3)) == TablesCommitted(3)
    store.close()
    store = opened()
    recovered = store.recover(["p1"], NOW)
    assert store.incarnation == 2
    assert (recovered.pubends["p1"].last, recovered.pubends["p1"].lease) == (20, 700)
    assert [(each.id, each.history) for each in recovered.subscriptions] == [(5, HISTORY)]
    assert list(recovered.topics) == [Topic("t", False, ("[a: int]",))]
    assert recovered.delivered == {"p1": 50}
    assert read_all(store, 0, 50) == ([10, 20], [])
    assert missed(store, 5, 0).ticks.tolist() == [10]
    assert store.alarms == ()
    store.close()


def test_a_store_on_a_full_disk_starts_reads_and_refuses_and_goes_on_when_there_is_room() -> None:
    machine = Machine()
    machine.do(append(1, 100), SyncLog(1))
    for _ in range(3):
        machine.fill()
        machine.crash(keep_all)
        assert read_all(machine.store, 0, 100) == ([100], [])
        assert machine.do(append(2, 200 + NOW), SyncLog(2)) == [LogFull(2)]
    machine.free()
    machine.do(ResumeLog(), append(2, 300 + NOW))
    assert machine.do(SyncLog(3)) == [LogSynced(3)]
    assert machine.store.alarms == ()
