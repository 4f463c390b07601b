"""The records of the cache on disk: soft state that a full, failed or damaged disk may take at any time."""

from __future__ import annotations

from tests.persistence.store_machine import events
from tidemark.broker.effects import CacheRead, CacheWritten, ChopCache, ReadCache, WriteCache
from tidemark.persistence.alarm import Alarms
from tidemark.persistence.cache_store import CacheStore
from tidemark.storage.disk.memory_disk import MemoryDisk

SEGMENT = 1_500


def opened(disk: MemoryDisk, alarms: Alarms | None = None) -> CacheStore:
    return CacheStore(disk, 99, SEGMENT, alarms or Alarms(), is_on=True)


def write(number: int, *ticks: int, size: int = 8) -> WriteCache:
    return WriteCache(number, "p1", ticks[0] - 1, ticks[-1], events(*ticks, size=size))


def read(number: int) -> ReadCache:
    return ReadCache(number, "p1", 0, 100, 5)


def found(store: CacheStore, number: int) -> list[int] | None:
    """The ticks of an entry; None if it is not there."""
    answer = store.read(read(number))
    assert answer.asked == read(number)
    return answer.batch.ticks.tolist() if answer.is_found and answer.batch is not None else None


def test_what_is_written_is_read_back() -> None:
    store = opened(MemoryDisk())
    assert store.write(write(1, 10, 20)) == CacheWritten(1)
    store.write(WriteCache(2, "p1", 20, 30, None))
    assert found(store, 1) == [10, 20]
    assert store.read(read(2)) == CacheRead(read(2), is_found=True)
    assert store.read(read(3)) == CacheRead(read(3), is_found=False)


def test_what_is_chopped_is_gone_and_its_place_is_given_back() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(1, 21):
        store.write(write(number, 10 * number, size=500))
    before = len(disk.list())
    store.chop(ChopCache(15))
    store.write(write(21, 500))
    assert len(disk.list()) < before
    assert [number for number in range(1, 22) if found(store, number)] == list(range(16, 22))


def test_a_new_life_begins_with_nothing_whatever_the_last_one_left() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.write(write(1, 10))
    store.close()
    for name in disk.list():
        disk.rot(name, 0, 0xFF)
    assert found(opened(disk), 1) is None
    disk.unlock()
    CacheStore(disk, 99, SEGMENT, Alarms(), is_on=False)
    assert disk.list() == []


def test_a_damaged_entry_is_not_there() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.write(write(1, 10))
    store.write(write(2, 20))
    name = next(name for name in disk.list() if name.endswith(".segment"))
    disk.rot(name, bytes(disk.platter(name)).index(b"10      "), 1)
    assert (found(store, 1), found(store, 2)) == (None, [20])


def test_on_a_full_disk_nothing_is_cached_and_a_failed_one_turns_the_cache_off() -> None:
    disk, alarms = MemoryDisk(), Alarms()
    store = opened(disk, alarms)
    store.write(write(1, 10))
    disk.fill()
    store.write(write(2, 20, size=300_000))
    disk.bytes_max = None
    store.write(write(3, 30))
    assert [found(store, number) for number in (1, 2, 3)] == [[10], None, [30]]
    disk.syncs_to_fail = 1
    assert store.write(write(4, 40)) == CacheWritten(4)
    assert "history is not cached on disk" in alarms.texts[0]
    assert [found(store, number) for number in (1, 4)] == [None, None]
    assert store.write(write(5, 50)) == CacheWritten(5)
    store.chop(ChopCache(3))
