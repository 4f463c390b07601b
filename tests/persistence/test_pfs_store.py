"""The PFS of a store: what matched whom, what it never knew, and a disk that is full."""

from __future__ import annotations

import pytest

from tests.persistence.store_machine import Machine, matched, missed, waits
from tidemark.broker.effects import (
    ChopPfs,
    PfsSynced,
    SyncPfs,
)
from tidemark.errors import DiskFailedError
from tidemark.persistence import pfs_store


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
            disk.rot(name, len(content) - 12)
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
    monkeypatch.setattr(pfs_store, "UNSYNCED_BYTES_MAX", 2_000)
    machine = Machine()
    for at in range(0, 1_000, 10):
        machine.do(matched(at, at + 10, {at + 5: (1, [5])}))
    machine.fill()
    more = [matched(at, at + 10, {at + 5: (1, [5])}) for at in range(1_000, 2_000, 10)]
    with pytest.raises(DiskFailedError, match="make room and restart"):
        machine.do(*more)
