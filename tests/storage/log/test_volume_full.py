"""The log volume on a full disk: refuses as a whole, reads on, and recovers when space returns."""

from __future__ import annotations

from functools import partial

import pytest

from tests.storage.log_steps import open_volume
from tidemark.errors import DiskFullError
from tidemark.storage.disk.memory_disk import MemoryDisk, lose_all
from tidemark.storage.log.reserve import RESERVE_BYTES
from tidemark.storage.log.volume import LogVolume

SEGMENT = 1_000


def used(disk: MemoryDisk) -> int:
    return sum(map(len, disk.contents().values()))


def test_a_full_disk_takes_the_whole_group_back_and_welcomes_it_later() -> None:
    for room in range(0, 1_600, 40):
        disk = MemoryDisk()
        volume = open_volume(disk, SEGMENT)
        for number in range(10):
            volume.append("a", [bytes(50)], mark=number)
            volume.sync()
        disk.bytes_max = used(disk) + room
        written, undone = fill_up(volume)
        assert undone == [0, written]
        assert volume.bounds("a") == (1, written)
        assert len(volume.read_range("a", 1, written)) == written
        volume.append("b", [bytes(2_000)])
        with pytest.raises(DiskFullError):
            volume.sync()
        disk.bytes_max = None
        assert volume.append("a", [b"welcome"], mark=99) == written + 1
        volume.sync()
        disk.crash(lose_all)
        volume = open_volume(disk, SEGMENT)
        assert volume.damage == ()
        assert volume.bounds("a") == (1, written + 1)
        assert volume.bounds("b") == (1, written - 10)


def fill_up(volume: LogVolume) -> tuple[int, list[int]]:
    """Append until the disk is full; how many records `a` has then, and which appends were undone."""
    undone: list[int] = []
    written = 10
    while True:
        volume.append("a", [bytes(60)], mark=written, undo=partial(undone.append, written))
        volume.append("b", [b"new stream"], undo=partial(undone.append, 0))
        try:
            volume.sync()
        except DiskFullError:
            return written, undone
        written += 1


def test_release_makes_space_on_a_disk_that_is_full_to_the_last_byte() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 20_000)
    for _ in range(20):
        volume.append("a", [bytes(5_000)])
        volume.sync()
    disk.bytes_max = used(disk)
    volume.append("a", [bytes(5_000)])
    with pytest.raises(DiskFullError):
        volume.sync()
    volume.chop("a", 20)
    volume.sync()
    assert used(disk) < 40_000 + RESERVE_BYTES
    assert "reserve" in disk.list()
    volume.append("a", [bytes(5_000)])
    volume.sync()


def test_chops_are_taken_back_with_the_group_they_are_in() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, 1 << 20)
    volume.append("a", [b"one"])
    volume.sync()
    volume.append("a", [bytes(300_000)])
    volume.chop("a", 1)
    disk.bytes_max = used(disk)
    with pytest.raises(DiskFullError):
        volume.sync()
    assert volume.bounds("a") == (1, 1)
    assert volume.read("a", 1) == b"one"


def test_a_volume_opens_and_reads_on_a_full_disk() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, SEGMENT)
    for _ in range(10):
        volume.append("a", [bytes(50)])
        volume.sync()
    disk.remove("reserve")
    disk.crash(lose_all)
    disk.bytes_max = used(disk)
    volume = open_volume(disk, SEGMENT)
    assert len(volume.read_range("a", 1, 10)) == 10
    volume.close()


def test_what_waits_can_be_taken_back_although_the_disk_has_room() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, SEGMENT)
    volume.append("a", [b"one"])
    volume.sync()
    undone: list[int] = []
    volume.append("a", [b"two"], undo=partial(undone.append, 2))
    volume.chop("a", 1)
    volume.discard()
    volume.sync()
    assert (undone, volume.bounds("a")) == ([2], (1, 1))
    assert volume.append("a", [b"three"]) == 2
