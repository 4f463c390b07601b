"""The store: every effect of a broker on its disk, crashes at every step, full, failing and rotten disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendPfs,
    ChopPfs,
    CommitTables,
    DropSubscription,
    LogFull,
    LogRead,
    LogSynced,
    LoseLog,
    PfsRead,
    PfsSynced,
    PubendState,
    ReadLog,
    ReadPfs,
    ResumeLog,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Wish,
    Woken,
)
from tidemark.broker.host import SavedSubscription
from tidemark.errors import DirectoryLockedError, DiskFailedError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.node import storelog, storepfs, storetables
from tidemark.node.store import ALARMS_MAX, Store
from tidemark.storage.memorydisk import MemoryDisk, PowerLossError, by_chance, keep_all, lose_all
from tidemark.storage.memorytables import MemoryTables
from tidemark.storage.realdisk import RealDisk
from tidemark.storage.sqlitetables import SqliteTables
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.frames import Topic

SEGMENT = 1_500
NOW = 5_000


def events(*ticks: int, size: int = 8) -> EventBatch:
    """A batch with these ticks; each message is its tick in decimal."""
    builder = BatchBuilder()
    for tick in ticks:
        builder.add(Shape("t", 1), str(tick).encode().ljust(size), publisher="ada")
    batch = builder.build()
    batch.fill_ticks(np.array(ticks, np.int64))
    return batch


def append(sequence: int, *ticks: int, size: int = 8) -> AppendEvents:
    return AppendEvents("p1", "ada", sequence, events(*ticks, size=size))


def matched(base: int, upto: int, of: dict[int, tuple[int, list[int]]]) -> AppendPfs:
    """`of` is {tick: (set number, its subscribers)}."""
    ticks = np.array(sorted(of), np.int64)
    sets = np.array([of[tick][0] for tick in sorted(of)], np.uint32)
    members = {number: np.array(who, np.uint32) for number, who in of.values()}
    return AppendPfs("p1", base, upto, ticks, sets, members)


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


class Machine:
    """A disk in memory, and the store of its latest life."""

    def __init__(self) -> None:
        self.log, self.pfs, self.tables = MemoryDisk("log"), MemoryDisk("pfs"), MemoryTables()
        self.disks = (self.log, self.pfs)
        self.start()

    def start(self, now: int = NOW) -> Store:
        self.store = Store(
            self.log, self.pfs, self.tables, identity=77, segment_bytes=SEGMENT, read_bytes=500
        )
        self.recovered = self.store.recover(["p1"], now)
        return self.store

    def crash(self, choose: Callable[[int], int] = lose_all) -> Store:
        for disk in self.disks:
            disk.crash(choose)
        self.tables = self.tables.crash()
        return self.start()

    def state(self) -> PubendState:
        return self.recovered.pubends["p1"]

    def do(self, *effects: object) -> list[object]:
        """What was reported."""
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


# Event logs.


def test_events_are_read_back_once_a_sync_was_reported_and_after_a_crash() -> None:
    machine = Machine()
    assert machine.do(append(1, 10, 11), append(3, 20), SyncLog(7)) == [LogSynced(7)]
    assert read_all(machine.store, 0, 30) == ([10, 11, 20], [])
    store = machine.crash()
    assert read_all(store, 10, 30) == ([11, 20], [])
    assert (machine.state().last, machine.state().publishers) == (20, {"ada": (3, 20)})


def test_nothing_is_read_that_is_not_synced() -> None:
    machine = Machine()
    machine.do(append(1, 10), SyncLog(1), append(2, 20))
    answer = machine.store.carry_out(ReadLog("p1", 0, 30))
    assert isinstance(answer, LogRead)
    assert (ticks_of(answer), answer.asked) == ([10], 30)
    assert answer.upto < 20
    answer = machine.store.carry_out(ReadLog("p1", 10, 30))
    assert isinstance(answer, LogRead)
    assert (ticks_of(answer), answer.upto) == ([], 19)
    answer = machine.store.carry_out(ReadLog("p1", 25, 30))
    assert isinstance(answer, LogRead)
    assert (ticks_of(answer), answer.upto) == ([], 25)


def test_a_read_is_answered_in_parts() -> None:
    machine = Machine()
    for number in range(20):
        machine.do(append(number + 1, 10 * number + 1, size=100))
    machine.do(SyncLog(1))
    answer = machine.store.carry_out(ReadLog("p1", 0, 500))
    assert isinstance(answer, LogRead)
    assert 0 < len(answer.batches) < 6
    assert answer.upto == ticks_of(answer)[-1]
    assert read_all(machine.store, 0, 500) == ([10 * number + 1 for number in range(20)], [])


def test_leases_and_losses_are_durable_with_the_next_sync() -> None:
    machine = Machine()
    machine.do(append(1, 10), append(2, 20, 21), SyncLog(1), AppendLease("p1", 500), LoseLog("p1", 10))
    machine.crash()
    assert (machine.state().lease, machine.state().lost) == (TICK_MIN, TICK_MIN)
    machine.do(AppendLease("p1", 500), LoseLog("p1", 10), SyncLog(2))
    store = machine.crash()
    assert (machine.state().lease, machine.state().lost) == (500, 10)
    answer = store.carry_out(ReadLog("p1", 0, 30))
    assert isinstance(answer, LogRead)
    assert (ticks_of(answer), answer.lost, answer.damaged) == ([20, 21], 10, ())


def test_a_restart_tells_how_large_the_records_are_that_are_not_let_go() -> None:
    machine = Machine()
    machine.do(append(1, 10), append(2, 20, 21), append(4, 30, size=200), LoseLog("p1", 10), SyncLog(1))
    machine.crash()
    assert [tick for tick, _ in machine.state().sizes] == [21, 30]
    assert machine.state().sizes[1][1] > 200


def test_a_full_disk_forgets_the_whole_group_and_all_that_follows_until_resumed() -> None:
    machine = Machine()
    machine.do(append(1, 10), SyncLog(1))
    machine.fill()
    assert machine.do(append(2, 20), AppendLease("p1", 900), SyncLog(2)) == [LogFull(2)]
    assert machine.do(append(3, 30), AppendLease("p1", 950), SyncLog(3)) == []
    assert "publishing is refused" in machine.store.alarms[-1]
    assert read_all(machine.store, 0, 40) == ([10], [])
    machine.free()
    assert machine.do(append(3, 35), SyncLog(4)) == []
    assert machine.do(ResumeLog(), append(2, 40), SyncLog(5)) == [LogSynced(5)]
    store = machine.crash()
    assert read_all(store, 0, 50) == ([10, 40], [])
    assert (machine.state().lease, machine.state().publishers) == (TICK_MIN, {"ada": (2, 40)})


def test_what_may_go_goes_although_the_disk_is_too_full_for_what_came_with_it() -> None:
    machine = Machine()
    for number in range(1, 21):
        machine.do(append(number, 10 * number, size=200), SyncLog(number))
    used = sum(map(len, machine.log.contents().values()))
    machine.fill()
    refused = machine.do(append(21, 300, size=300_000), LoseLog("p1", 150), SyncLog(30))
    assert refused == [LogFull(30)]
    assert sum(map(len, machine.log.contents().values())) < used - 2_000
    machine.free()
    machine.crash()
    assert machine.state().lost == 150


def test_what_may_go_while_publishing_is_refused_goes_when_it_is_resumed() -> None:
    machine = Machine()
    machine.do(append(1, 10), append(2, 20), SyncLog(1))
    machine.fill()
    machine.do(append(3, 30), SyncLog(2), LoseLog("p1", 10))
    machine.free()
    assert machine.do(ResumeLog(), SyncLog(3)) == [LogSynced(3)]
    machine.crash()
    assert machine.state().lost == 10


def test_more_than_may_wait_for_a_sync_is_refused_like_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storelog, "UNSYNCED_BYTES_MAX", 1_000)
    machine = Machine()
    machine.do(append(1, 10), SyncLog(1))
    assert machine.do(append(2, 20, size=500), append(3, 30, size=500), SyncLog(2)) == [LogFull(2)]
    assert machine.do(ResumeLog(), append(2, 40), SyncLog(3)) == [LogSynced(3)]
    assert read_all(machine.store, 0, 50) == ([10, 40], [])


def test_a_failed_sync_comes_through_and_nothing_is_written_after_it() -> None:
    machine = Machine()
    machine.do(append(1, 10), SyncLog(1))
    machine.log.syncs_to_fail = 1
    with pytest.raises(DiskFailedError):
        machine.do(append(2, 20), SyncLog(2))
    with pytest.raises(DiskFailedError):
        machine.do(append(3, 30), SyncLog(3))
    assert read_all(machine.crash(), 0, 40) == ([10], [])


def rot_records(disk: MemoryDisk, needle: bytes) -> None:
    """Flip a byte wherever these bytes are."""
    for name, content in disk.contents().items():
        at = content.find(needle)
        if at >= 0:
            disk.rot(name, at)


@pytest.mark.parametrize("restart", [False, True])
def test_rot_is_reported_as_damaged_ticks_and_alarmed(restart: bool) -> None:
    machine = Machine()
    for number, tick in enumerate((1_001, 2_002, 3_003), 1):
        machine.do(append(number, tick), SyncLog(number))
    rot_records(machine.log, b"2002")
    if restart:
        machine.crash()
    assert read_all(machine.store, 0, 4_000) == ([1_001, 3_003], [(1_001, 3_002)])
    assert any("lost in segment" in text for text in machine.store.alarms)


def test_alarms_are_bounded() -> None:
    machine = Machine()
    machine.fill()
    for number in range(ALARMS_MAX + 10):
        machine.do(append(1, number + 1), SyncLog(number + 1), ResumeLog())
    assert len(machine.store.alarms) == ALARMS_MAX


# The PFS.


def missed(store: Store, subscriber: int, base: int, limit: int = 100) -> PfsRead:
    answer = store.carry_out(ReadPfs("p1", subscriber, base, limit))
    assert isinstance(answer, PfsRead)
    return answer


def waits(machine: Machine) -> bool:
    return machine.store.is_waiting


def test_what_matched_is_read_at_once_and_after_a_crash_if_it_was_synced() -> None:
    machine = Machine()
    machine.do(matched(0, 50, {10: (1, [5, 6]), 20: (2, [6])}))
    assert missed(machine.store, 6, 0).ticks.tolist() == [10, 20]
    assert machine.do(SyncPfs(3)) == [PfsSynced(3)]
    machine.do(matched(50, 90, {60: (2, [6])}))
    store = machine.crash()
    assert machine.recovered.delivered == {"p1": 50}
    answer = missed(store, 6, 0)
    assert (answer.ticks.tolist(), answer.upto, answer.unknown) == ([10, 20], 50, None)
    assert missed(store, 5, 0).ticks.tolist() == [10]


def test_a_set_keeps_its_meaning_from_effect_to_effect_and_block_to_block() -> None:
    machine = Machine()
    for at in range(0, 4_000, 10):
        number = 1 + at % 3
        machine.do(matched(at, at + 10, {at + 5: (number, list(range(1, number + 1)))}))
        if at % 500 == 0:
            machine.do(SyncPfs(at + 1))
    machine.do(SyncPfs(1))
    expected = [at + 5 for at in range(0, 4_000, 10) if at % 3 == 2]
    assert missed(machine.store, 3, 0, 10_000).ticks.tolist() == expected
    assert missed(machine.crash(), 3, 0, 10_000).ticks.tolist() == expected


def test_what_the_pfs_never_knew_is_unknown() -> None:
    machine = Machine()
    machine.do(matched(100, 200, {150: (1, [5])}), SyncPfs(1))
    answer = missed(machine.store, 5, 30)
    assert (answer.ticks.tolist(), answer.upto, answer.unknown) == ([], 30, (30, 100))
    assert missed(machine.store, 5, 300).upto == 300


def test_a_limit_ends_an_answer_at_a_tick() -> None:
    machine = Machine()
    machine.do(matched(0, 100, {tick: (1, [5]) for tick in range(10, 100, 10)}))
    answer = missed(machine.store, 5, 15, limit=3)
    assert (answer.ticks.tolist(), answer.upto) == ([20, 30, 40], 40)


def test_chopped_blocks_are_unknown_after_a_restart() -> None:
    machine = Machine()
    for at in range(0, 20_000, 10):
        machine.do(matched(at, at + 10, {at + 5: (1, [5])}), SyncPfs(at + 1))
    size = sum(map(len, machine.pfs.contents().values()))
    machine.do(ChopPfs("p1", 19_000), SyncPfs(1))
    assert sum(map(len, machine.pfs.contents().values())) < size
    answer = missed(machine.crash(), 5, 0)
    assert answer.unknown is not None
    assert answer.unknown[0] == 0
    assert missed(machine.store, 5, 19_900).ticks.tolist() == list(range(19_905, 20_000, 10))


def test_damage_in_the_pfs_is_unknown_and_alarmed() -> None:
    machine = Machine()
    for at in range(0, 300, 100):
        machine.do(matched(at, at + 100, {at + 50: (1, [5])}), SyncPfs(at + 1))
    store = machine.crash()
    disk = machine.pfs
    for name, content in disk.contents().items():
        if name.endswith("segment"):
            disk.rot(name, len(content) * 3 // 4)
    store = machine.crash()
    answer = missed(store, 5, 0)
    assert store.alarms
    assert answer.unknown is not None or answer.upto < 300


def test_a_full_disk_loses_nothing_of_the_pfs_and_is_reported_when_there_is_room() -> None:
    machine = Machine()
    machine.do(matched(0, 50, {10: (1, [5])}), SyncPfs(1))
    machine.fill()
    assert machine.do(matched(50, 90, {60: (1, [5])}), SyncPfs(2)) == []
    assert waits(machine)
    assert machine.store.retry() == []
    machine.do(matched(90, 120, {100: (1, [5])}))
    answer = missed(machine.store, 5, 50)
    assert (answer.ticks.tolist(), answer.unknown) == ([], (50, 120))
    assert [text for text in machine.store.alarms if "waiting for space" in text]
    machine.free()
    assert machine.store.retry() == [PfsSynced(2)]
    assert not waits(machine)
    assert missed(machine.crash(), 5, 0).ticks.tolist() == [10, 60, 100]


def test_a_sync_that_waits_is_reported_after_a_later_one_that_succeeds() -> None:
    machine = Machine()
    machine.fill()
    machine.do(matched(0, 50, {10: (1, [5])}), SyncPfs(1))
    machine.free()
    assert machine.do(SyncPfs(2)) == [PfsSynced(2)]
    assert machine.store.retry() == [PfsSynced(1)]
    assert missed(machine.crash(), 5, 0).ticks.tolist() == [10]


def test_a_pfs_that_waits_too_long_stops_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storepfs, "UNSYNCED_BYTES_MAX", 2_000)
    machine = Machine()
    for at in range(0, 1_000, 10):
        machine.do(matched(at, at + 10, {at + 5: (1, [5])}))
    machine.fill()
    more = [matched(at, at + 10, {at + 5: (1, [5])}) for at in range(1_000, 2_000, 10)]
    with pytest.raises(DiskFailedError, match="make room and restart"):
        machine.do(*more)


# The tables.

WISHES = (
    Wish("t.>", "a > 1", CheckpointToken({"p1": 5})),
    Wish("t.x", "", CheckpointToken({"p1": 9, "p2": 3})),
)


def saved(machine: Machine) -> dict[str, SavedSubscription]:
    return {each.name: each for each in machine.recovered.subscriptions}


def test_subscriptions_come_back_with_their_wishes_and_acknowledgements() -> None:
    machine = Machine()
    machine.do(SaveSubscription(3, "audit", WISHES), SaveSubscription(4, "other", WISHES[:1]))
    machine.do(SaveReleased(3, CheckpointToken({"p1": 7})))
    assert machine.do(CommitTables(1)) == [TablesCommitted(1)]
    machine.do(SaveReleased(3, CheckpointToken({"p1": 8})), DropSubscription(4))
    machine.crash()
    assert list(saved(machine)) == ["audit", "other"]
    assert saved(machine)["audit"].wishes == WISHES
    assert dict(saved(machine)["audit"].released) == {"p1": 7}
    machine.do(SaveSubscription(3, "audit", WISHES[1:]), DropSubscription(4), CommitTables(2))
    machine.crash()
    assert list(saved(machine)) == ["audit"]
    assert saved(machine)["audit"].wishes == WISHES[1:]
    assert dict(saved(machine)["audit"].released) == {"p1": 7}


def test_a_subscriber_that_was_dropped_keeps_its_number_from_others() -> None:
    machine = Machine()
    assert machine.recovered.next_subscriber == 1
    machine.do(SaveSubscription(3, "audit", WISHES), CommitTables(1), DropSubscription(3), CommitTables(2))
    machine.crash()
    assert machine.recovered.next_subscriber == 4


def test_topics_come_back_with_all_their_schemas() -> None:
    machine = Machine()
    machine.do(SaveTopic("t.x", False, ("[a: int]",)), SaveTopic("t.y", True, ()), CommitTables(1))
    machine.do(SaveTopic("t.x", False, ("[a: int]", "[a: int, b: int]")), CommitTables(2))
    machine.crash()
    assert list(machine.recovered.topics) == [
        Topic("t.x", False, ("[a: int]", "[a: int, b: int]")),
        Topic("t.y", True, ()),
    ]


def test_every_life_has_a_higher_number_whatever_was_committed() -> None:
    machine = Machine()
    assert machine.store.incarnation == 1
    machine.crash()
    assert machine.store.incarnation == 2
    machine.crash()
    assert machine.store.incarnation == 3


def test_tables_wait_for_room() -> None:
    machine = Machine()
    machine.fill()
    assert machine.do(SaveTopic("t", True, ()), CommitTables(4)) == []
    assert waits(machine)
    machine.do(SaveTopic("u", True, ()))
    machine.free()
    assert machine.store.retry() == [TablesCommitted(4)]
    machine.crash()
    assert [each.topic for each in machine.recovered.topics] == ["t", "u"]


def test_tables_that_wait_too_long_stop_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storetables, "UNCOMMITTED_ROWS_MAX", 5)
    machine = Machine()
    machine.fill()
    machine.do(SaveTopic("t", True, ()), CommitTables(1))
    more = [SaveTopic(f"t{number}", True, ()) for number in range(10)]
    with pytest.raises(DiskFailedError, match="make room and restart"):
        machine.do(*more)


# The whole.


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
        return Store(RealDisk(tmp_path / "log"), RealDisk(tmp_path / "pfs"), tables, identity=5)

    store = opened()
    store.recover(["p1"], NOW)
    effects = (
        append(1, 10, 20),
        AppendLease("p1", 700),
        matched(0, 50, {10: (1, [5])}),
        SaveSubscription(5, "audit", WISHES),
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
    assert [(each.id, each.wishes) for each in recovered.subscriptions] == [(5, WISHES)]
    assert list(recovered.topics) == [Topic("t", False, ("[a: int]",))]
    assert recovered.delivered == {"p1": 50}
    assert read_all(store, 0, 50) == ([10, 20], [])
    assert missed(store, 5, 0).ticks.tolist() == [10]
    assert store.alarms == ()
    store.close()
