"""What the stores of a broker know of each other: one that went back in time is told, never papered over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.persistence.store_machine import Machine, append, matched, missed, read_all
from tidemark.broker.effects import (
    CommitTables,
    LogSynced,
    SaveSubscription,
    SaveTopic,
    SelectorSince,
    Stimulus,
    SyncLog,
    SyncPfs,
)
from tidemark.errors import DamagedError
from tidemark.message.topic_selector import TopicSelector
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all, lose_all
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.ticks import CheckpointToken

LATER = 10_000_000


def subscription(number: int) -> SaveSubscription:
    since = CheckpointToken({"p1": 1})
    wanted = TopicSelector("t", "a > 1")
    return SaveSubscription(number, f"s{number}", (SelectorSince(wanted, since),), since, 0, 5)


def worked(events: int = 6) -> Machine:
    """A machine with some events, matches and commits, switched off without a clean stop."""
    machine = Machine()
    for number in range(1, events + 1):
        machine.do(append(number, number * 100), SyncLog(number))
        machine.do(matched(number * 100 - 100, number * 100, {number * 100: (1, [5])}), SyncPfs(number))
        machine.do(subscription(number), CommitTables(number))
    return machine


def segments(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list() if name.endswith("segment")]


def delete(disk: MemoryDisk, *names: str) -> None:
    for name in names:
        disk.remove(name)
    disk.sync_directory()


def copied(disk: MemoryDisk) -> dict[str, bytes]:
    return disk.contents()


def put_back(disk: MemoryDisk, copy: dict[str, bytes]) -> None:
    delete(disk, *disk.list())
    for name, content in copy.items():
        disk.replace(name, content)


def told(machine: Machine, upto: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Returns the ticks up to this one that can be read, and the ranges that are reported as lost."""
    return read_all(machine.store, 0, upto)


def test_a_start_after_a_crash_that_loses_nothing_tells_nothing() -> None:
    for choose in (lose_all, keep_all):
        machine = worked()
        machine.crash(choose)
        assert machine.store.alarms == ()
        assert told(machine, 600) == ([100, 200, 300, 400, 500, 600], [])


def test_a_torn_tail_that_was_never_acknowledged_is_still_no_damage() -> None:
    machine = worked()
    machine.do(append(7, 700))
    for cut in range(0, 40, 7):
        machine.crash(partial(min, cut))
        assert machine.store.alarms == ()


def test_rot_in_the_last_record_of_a_log_is_a_gap_and_an_alarm() -> None:
    machine = worked()
    last = segments(machine.log)[-1]
    whole = len(machine.log.platter(last))
    found = 0
    for at in range(whole - 400, whole, 3):
        machine = worked()
        machine.switch_off(keep_all)
        machine.log.rot(last, at)
        machine.start(LATER)
        ticks, damaged = told(machine, LATER)
        lost = {100, 200, 300, 400, 500, 600} - set(ticks)
        assert len(lost) <= 1
        assert all(any(base < tick <= upto for base, upto in damaged) for tick in lost)
        assert not lost or machine.store.alarms
        found += 600 in lost
    assert found


@pytest.mark.parametrize("count", [1, 2, 100])
def test_segments_that_are_gone_at_the_end_of_a_log_are_a_gap_and_an_alarm(count: int) -> None:
    machine = worked(40)
    machine.switch_off(keep_all)
    assert len(segments(machine.log)) > 3
    delete(machine.log, *segments(machine.log)[-count:])
    machine.start(LATER)
    ticks, damaged = told(machine, LATER)
    missing = [tick for tick in range(100, 4_001, 100) if tick not in ticks]
    assert missing
    assert all(any(base < tick <= upto for base, upto in damaged) for tick in missing)
    assert machine.store.alarms
    # What comes now is logged beyond the gap, and the gap stays.
    machine.do(append(41, LATER + 100), SyncLog(50))
    machine.crash(lose_all)
    ticks_again, damaged_again = told(machine, LATER + 100)
    assert ticks_again == [*ticks, LATER + 100]
    assert all(any(base < tick <= upto for base, upto in damaged_again) for tick in missing)


@pytest.mark.parametrize("events", [6, 40])
def test_a_last_segment_that_is_cut_anywhere_is_a_gap_and_an_alarm(events: int) -> None:
    whole = len(worked(events).log.platter(segments(worked(events).log)[-1]))
    for size in (0, 1, 10, 31, 32, 33, whole // 2):
        machine = worked(events)
        machine.switch_off(keep_all)
        last = segments(machine.log)[-1]
        machine.log.replace(last, machine.log.contents()[last][:size])
        machine.start(LATER)
        ticks, damaged = told(machine, LATER)
        missing = [tick for tick in range(100, events * 100 + 1, 100) if tick not in ticks]
        assert missing, size
        assert all(any(base < tick <= upto for base, upto in damaged) for tick in missing), size
        assert machine.store.alarms, size


@pytest.mark.parametrize("choose", [lose_all, keep_all])
def test_an_older_copy_of_the_log_is_a_gap_and_an_alarm(choose: Callable[[int], int]) -> None:
    machine = worked()
    machine.switch_off(lose_all)
    copy = copied(machine.log)
    machine.start()
    for number in range(7, 13):
        machine.do(append(number, number * 100), SyncLog(number), subscription(number), CommitTables(number))
    machine.switch_off(choose)
    put_back(machine.log, copy)
    machine.start(LATER)
    ticks, damaged = told(machine, LATER)
    assert ticks == [100, 200, 300, 400, 500, 600]
    missing = range(700, 1_201 if choose is keep_all else 1_101, 100)
    assert all(any(base < tick <= upto for base, upto in damaged) for tick in missing)
    assert machine.store.alarms


def test_an_older_copy_of_the_pfs_is_unknown_beyond_its_end_and_an_alarm() -> None:
    machine = worked(3)
    machine.switch_off(lose_all)
    copy = copied(machine.pfs)
    machine.start()
    for number in (4, 5):
        machine.do(matched(number * 100 - 100, number * 100, {number * 100: (1, [5])}), SyncPfs(number))
    machine.switch_off(keep_all)
    put_back(machine.pfs, copy)
    machine.start()
    assert missed(machine.store, 5, 0).ticks.tolist() == [100, 200, 300]
    assert machine.recovered.delivered == {"p1": 300}
    assert machine.store.alarms


@pytest.mark.parametrize("choose", [lose_all, keep_all])
def test_tables_that_are_gone_or_older_are_refused(choose: Callable[[int], int]) -> None:
    for copy in (MemoryTables(), worked(3).tables.crash()):
        machine = worked()
        machine.switch_off(choose)
        machine.tables = copy
        before = [machine.log.contents(), machine.pfs.contents()]
        with pytest.raises(DamagedError, match="accept_damage=tables"):
            machine.start()
        assert [machine.log.contents(), machine.pfs.contents()] == before
        # Refused, the volumes are closed: the next start is told the same.
        with pytest.raises(DamagedError, match="accept_damage=tables"):
            machine.start()


@pytest.mark.parametrize("store", ["log", "pfs"])
def test_log_and_pfs_know_the_age_of_the_tables_each_by_itself(store: str) -> None:
    machine = worked()
    machine.switch_off(lose_all)
    machine.tables = MemoryTables()
    machine.witness = MemoryDisk("witness")
    other = machine.pfs if store == "log" else machine.log
    delete(other, *segments(other))
    with pytest.raises(DamagedError, match="accept_damage=tables"):
        machine.start()


def test_tables_that_are_gone_are_accepted_by_an_explicit_choice_and_no_number_comes_back() -> None:
    machine = worked()
    incarnation = machine.store.incarnation
    machine.switch_off(keep_all)
    machine.tables = MemoryTables()
    machine.start(LATER, accept_damage=True)
    assert machine.store.incarnation > incarnation
    assert machine.recovered.next_subscriber > 6
    assert machine.recovered.doubtful_above == machine.recovered.next_subscriber - 1
    assert machine.recovered.hosts == {}
    assert any("accepted" in text for text in machine.store.alarms)
    # From then on the tables are whole again.
    above = machine.recovered.doubtful_above
    machine.crash(keep_all)
    assert machine.store.alarms == ()
    assert machine.recovered.doubtful_above == above


def test_an_older_or_missing_witness_does_no_harm() -> None:
    machine = worked(3)
    machine.switch_off(keep_all)
    copy = copied(machine.witness)
    machine.start()
    for number in (4, 5):
        machine.do(append(number, number * 100), SyncLog(number), subscription(number), CommitTables(number))
    for contents in (copy, {}):
        machine.switch_off(keep_all)
        put_back(machine.witness, contents)
        machine.start()
        assert machine.store.alarms == ()
        assert told(machine, 500) == ([100, 200, 300, 400, 500], [])


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_second_witness_knows_that_all_other_files_are_older_or_gone(is_deleted: bool) -> None:
    machine = worked()
    machine.switch_off(lose_all)
    everything = (machine.log, machine.pfs, machine.witness)
    copies = [{} if is_deleted else copied(disk) for disk in everything]
    tables = MemoryTables() if is_deleted else machine.tables.copy()
    machine.second_witness = MemoryDisk("second")
    machine.start()
    for number in range(7, 13):
        machine.do(append(number, number * 100), SyncLog(number), subscription(number), CommitTables(number))
    machine.switch_off(keep_all)
    for disk, copy in zip(everything, copies, strict=True):
        put_back(disk, copy)
    machine.tables = tables
    with pytest.raises(DamagedError, match="accept_damage=tables"):
        machine.start(LATER)
    machine.start(LATER, accept_damage=True)
    ticks, damaged = told(machine, LATER)
    missing = [tick for tick in range(100, 1_201, 100) if tick not in ticks]
    assert set(missing) >= set(range(700, 1_201, 100))
    assert all(any(base < tick <= upto for base, upto in damaged) for tick in missing)
    assert machine.store.alarms


def test_the_witness_costs_no_sync_beside_those_of_the_stores() -> None:
    machine = Machine()
    before = machine.witness.operations
    for number in range(1, 11):
        machine.do(append(number, number * 100), SyncLog(number))
    # One write for each sync; the first one also creates the file.
    assert machine.witness.operations - before == 10 + 2
    machine.do(SaveTopic("t", True, ()), CommitTables(1))
    assert machine.witness.operations - before == 10 + 2 + 2


def test_a_sync_of_the_log_is_reported_before_the_witness_is_told_of_it() -> None:
    machine = Machine()
    machine.do(append(1, 100), SyncLog(1), append(2, 200))
    reported: list[tuple[Stimulus, int]] = []
    before = machine.witness.operations
    answer = machine.store.carry_out(
        SyncLog(2), lambda stimulus: reported.append((stimulus, machine.witness.operations))
    )
    assert answer is None
    assert reported == [(LogSynced(2), before)]
    assert machine.witness.operations == before + 1
