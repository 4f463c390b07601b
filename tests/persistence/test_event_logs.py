"""The event logs of a store: what is synced is there, what a full or failed disk does, and rot."""

from __future__ import annotations

import pytest

from tests.persistence.store_machine import Machine, append, events, read_all, ticks_of
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    ExpireLog,
    LogExpired,
    LogFull,
    LogRead,
    LogSynced,
    LoseLog,
    ReadLog,
    ResumeLog,
    SyncLog,
)
from tidemark.errors import DiskFailedError
from tidemark.persistence import event_logs
from tidemark.storage.disk.memory_disk import MemoryDisk
from tidemark.ticks import TICK_MIN


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
    monkeypatch.setattr(event_logs, "UNSYNCED_BYTES_MAX", 1_000)
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


def test_the_alarm_about_a_full_disk_stands_once_and_goes_away_with_its_cause() -> None:
    machine = Machine()
    machine.fill()
    for number in range(10):
        machine.do(append(1, number + 1), SyncLog(number + 1), ResumeLog())
    (alarm,) = machine.store.alarms
    assert "publishing is refused" in alarm
    machine.free()
    machine.do(append(1, 11), SyncLog(11))
    assert not machine.store.alarms


def test_what_has_expired_goes_although_the_disk_is_too_full_for_what_came_with_it() -> None:
    machine = Machine()
    for number in range(1, 21):
        machine.do(append(number, 10 * number, size=200, validity_ms=1), SyncLog(number))
    used = sum(map(len, machine.log.contents().values()))
    machine.fill()
    asked = [ExpireLog("p1", 75 + 1_000, 500)] * 8
    answers = machine.do(*asked, append(21, 300, size=300_000), SyncLog(30))
    assert answers[-2:] == [LogExpired("p1", 70, 80 + 1_000), LogFull(30)]
    assert sum(map(len, machine.log.contents().values())) < used - 1_000
    # While publishing is refused nothing is written, and the broker asks again.
    assert machine.do(ExpireLog("p1", 2_000, 500)) == [LogExpired("p1", TICK_MIN, 2_000)]
    machine.free()
    store = machine.crash()
    assert read_all(store, 0, 300) == ([10 * number for number in range(8, 21)], [])
    assert machine.state().lost == TICK_MIN


def test_nothing_expires_that_is_not_synced() -> None:
    machine = Machine()
    machine.do(append(1, 10, validity_ms=1), SyncLog(1), append(2, 20, validity_ms=1))
    assert machine.do(ExpireLog("p1", 9_000, 50)) == [LogExpired("p1", 10, 1_010)]


def test_events_of_a_pubend_that_is_not_synced_are_handed_over_and_others_are_synced() -> None:
    machine = Machine(os_pubends=("p2",))

    def events_of_p2(sequence: int, tick: int) -> AppendEvents:
        return AppendEvents("p2", "ada", sequence, events(tick))

    def found(pubend: str) -> list[int]:
        return ticks_of(machine.store.carry_out(ReadLog(pubend, 0, 900)))

    assert machine.do(events_of_p2(1, 10), SyncLog(1)) == [LogSynced(1)]
    assert found("p2") == [10]
    machine.crash()
    assert found("p2") == []  # the power failed before the next sync
    synced = machine.do(events_of_p2(1, 20), SyncLog(1), append(1, 30), SyncLog(2))
    assert synced == [LogSynced(1), LogSynced(2)]
    machine.crash()
    assert (found("p1"), found("p2")) == ([30], [20])
    machine.do(events_of_p2(2, 40), SyncLog(1), AppendLease("p2", 50), SyncLog(2))
    machine.crash()
    assert found("p2") == [20, 40]
