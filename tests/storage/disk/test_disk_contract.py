"""Both disks keep the contract of `storage.disk.disk`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.waiting import eventually
from tidemark.errors import DamagedError, DirectoryLockedError, DiskFailedError, DiskFullError
from tidemark.storage.disk import real_disk
from tidemark.storage.disk.disk import Disk
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError, by_chance, keep_all, lose_all
from tidemark.storage.disk.real_disk import RealDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "data") if request.param == "real" else MemoryDisk()


def test_what_is_appended_is_read_back(disk: Disk) -> None:
    file = disk.create("a")
    file.append([b"one", bytearray(b"two"), memoryview(b"-three-")[1:-1], b""])
    file.append([])
    assert file.size() == 11
    assert file.pread(3, 3) == b"two"
    assert file.pread(6, 100) == b"three"
    assert file.pread(11, 5) == b""
    file.sync()
    file.close()
    file.close()


def test_more_pieces_than_one_call_takes_are_written_in_order(disk: Disk) -> None:
    pieces = [b"%05d" % number for number in range(3_000)]
    file = disk.create("a")
    file.append(pieces)
    assert file.pread(0, file.size()) == b"".join(pieces)


def test_a_file_is_cut_and_lengthened_with_zeros(disk: Disk) -> None:
    file = disk.create("a")
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"x"])
    file.truncate(5)
    assert file.pread(0, 10) == b"abx\0\0"


def test_two_handles_of_a_file_see_the_same_bytes(disk: Disk) -> None:
    writer = disk.create("a")
    reader = disk.open("a", uncached=True)
    writer.append([b"abc"])
    assert reader.pread(0, 3) == b"abc"


def test_the_name_of_a_large_file_goes_at_once_and_its_blocks_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = os.close

    def recorded(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "close", recorded)
    disk = RealDisk(tmp_path / "data")
    file = disk.create("a")
    file.truncate(real_disk.LARGE_BYTES)
    file.close()
    before = len(closed)
    disk.remove("a")
    assert disk.list() == []
    eventually(lambda: len(closed) > before)


def test_names_are_listed_sorted_and_follow_what_is_done_to_them(disk: Disk) -> None:
    for name in ("c", "a", "b"):
        disk.create(name).append([name.encode()])
    disk.lock()
    disk.remove("a")
    disk.rename("b", "c")
    disk.sync_directory()
    assert disk.list() == ["c"]
    assert disk.open("c").pread(0, 1) == b"b"
    disk.unlock()


def test_a_locked_directory_keeps_others_out(disk: Disk, tmp_path: Path) -> None:
    other = RealDisk(tmp_path / "data") if isinstance(disk, RealDisk) else disk
    disk.lock()
    with pytest.raises(DirectoryLockedError) as refused:
        other.lock()
    assert refused.value.holder in (os.getpid(), None)
    disk.unlock()
    other.lock()
    other.unlock()


def test_a_real_lock_names_its_holder(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.lock()
    with pytest.raises(DirectoryLockedError, match=f"process {os.getpid()}"):
        RealDisk(tmp_path).lock()
    disk.unlock()


def test_a_write_that_stops_half_way_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(tmp_path).create("a")
    file.append([b"before"])
    real = os.pwritev
    calls = iter([True, False])

    def short_then_full(descriptor: int, pieces: list[memoryview], at: int) -> int:
        if next(calls):
            return real(descriptor, [pieces[0][:2]], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", short_then_full)
    with pytest.raises(DiskFullError):
        file.append([b"half of it", b"the rest"])
    assert (tmp_path / "a").read_bytes() == b"before"
    monkeypatch.setattr(os, "pwritev", lambda descriptor, pieces, at: real(descriptor, pieces[:1], at))
    file.append([b" and", b" after"])
    assert (tmp_path / "a").read_bytes() == b"before and after"


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda descriptor, pieces, at: real(descriptor, [pieces[0][:3]], at))
    RealDisk(tmp_path).create("a").append([b"0123456789", b"ab", b"cdef"])
    assert (tmp_path / "a").read_bytes() == b"0123456789abcdef"


def test_errors_of_the_system_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    disk = RealDisk(tmp_path)
    file = disk.create("a")
    with pytest.raises(DiskFailedError):
        disk.create("a")
    with pytest.raises(DiskFailedError):
        disk.open("missing")
    monkeypatch.setattr(real_disk, "_datasync", fail)
    with pytest.raises(DiskFailedError):
        file.sync()
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(DamagedError):
        file.pread(0, 1)
    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(DiskFailedError):
        file.append([b"x"])


def test_a_crash_of_the_memory_disk_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    outcomes = set()
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.create("a")
        disk.sync_directory()
        file.append([b"safe"])
        file.sync()
        file.append([b"maybe"])
        file.append([b"later"])
        disk.create("b")
        disk.crash(by_chance(Random(seed)))
        content = disk.contents()["a"]
        assert content.startswith(b"safe")
        assert b"safemaybelater".startswith(content.rstrip(b"\0"))
        outcomes.add((content, "b" in disk.list()))
    assert len(outcomes) > 15


def test_a_failed_sync_forgets_and_a_later_one_does_not_bring_it_back() -> None:
    disk = MemoryDisk()
    file = disk.create("a")
    disk.sync_directory()
    file.append([b"gone"])
    disk.syncs_to_fail = 1
    with pytest.raises(DiskFailedError):
        file.sync()
    assert file.pread(0, 4) == b"gone"
    file.append([b"kept"])
    file.sync()
    disk.crash(keep_all)
    assert disk.contents() == {"a": b"\0\0\0\0kept"}


def test_unsynced_names_vanish_and_removed_ones_come_back() -> None:
    disk = MemoryDisk()
    disk.create("old")
    disk.sync_directory()
    disk.create("new").sync()
    disk.remove("old")
    disk.crash(lose_all)
    assert disk.list() == ["old"]


def test_power_goes_off_at_the_operation_it_is_told() -> None:
    disk = MemoryDisk()
    disk.power_off_at = 3
    file = disk.create("a")
    file.append([b"x"])
    with pytest.raises(PowerLossError):
        file.sync()
    with pytest.raises(PowerLossError):
        disk.list()
    disk.crash(lose_all)
    assert disk.list() == []


def test_a_full_memory_disk_refuses_and_keeps_what_it_has() -> None:
    disk = MemoryDisk()
    disk.bytes_max = 5
    file = disk.create("a")
    file.append([b"1234"])
    with pytest.raises(DiskFullError):
        file.append([b"56"])
    assert disk.contents() == {"a": b"1234"}
    file.append([b"5"])


def test_an_unreadable_byte_fails_the_reads_that_touch_it() -> None:
    disk = MemoryDisk()
    file = disk.create("a")
    file.append([b"0123456789"])
    disk.make_unreadable("a", 4)
    with pytest.raises(DamagedError) as found:
        file.pread(2, 4)
    assert found.value.offset == 4
    assert file.pread(5, 2) == b"56"


def test_space_is_set_aside_for_small_writes_with_a_sync_each_and_nobody_sees_it(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "data")
    file, path = disk.create("a"), tmp_path / "data" / "a"
    written = b""
    for number in range(200):
        written += b"%0300d" % number
        file.append([b"%0300d" % number], as_one=True)
        file.sync()
        assert (file.size(), file.pread(0, 1 << 20)) == (len(written), written)
    assert len(written) < path.stat().st_size <= len(written) + real_disk.SET_ASIDE_BYTES
    assert path.read_bytes().rstrip(b"\0") == written.rstrip(b"\0")
    file.close()
    assert path.read_bytes() == written


def test_space_set_aside_is_given_back_before_a_write_that_needs_its_order(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "data")
    file, path = disk.create("a"), tmp_path / "data" / "a"

    def small_writes() -> None:
        for _ in range(8):
            file.append([b"x" * 100], as_one=True)
            file.sync()
        assert path.stat().st_size > file.size()

    small_writes()
    file.append([b"several things"])
    assert path.stat().st_size == file.size()
    file.sync()
    small_writes()
    file.append([b"one thing"], as_one=True)
    file.append([b"another, before a sync"], as_one=True)
    assert path.stat().st_size == file.size()


def test_a_file_system_that_cannot_set_space_aside_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = RealDisk(tmp_path / "data").create("a")
    for _ in range(20):
        file.append([b"x" * 100], as_one=True)
        file.sync()
    assert (tmp_path / "data" / "a").stat().st_size == file.size() == 2_000


def test_a_crash_may_leave_only_the_end_of_what_was_written_as_one() -> None:
    seen = set()
    for kept in range(7):
        disk = MemoryDisk()
        file = disk.create("a")
        disk.sync_directory()
        file.append([b"abc", b"def"], as_one=True)
        disk.crash(partial(_kept_of_many, kept))
        seen.add(disk.platter("a"))
    assert b"\0\0\0def" in seen
    assert b"abcd" in seen


def _kept_of_many(kept: int, count: int) -> int:
    return min(kept, count) if count > 1 else 0
