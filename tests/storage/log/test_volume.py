"""The log volume on a healthy disk."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.log_steps import IDENTITY, SMALL_SEGMENT, open_volume
from tidemark.errors import DamagedError, DirectoryLockedError, UnknownFormatError
from tidemark.storage.disk.memory_disk import MemoryDisk, keep_all, lose_all
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.log import volume as volume_module
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.rows import RowTable
from tidemark.storage.log.volume import LogVolume


def test_records_of_many_streams_are_read_by_index() -> None:
    volume = open_volume(MemoryDisk())
    for number in range(50):
        assert volume.append("a", [b"a", b"%d" % number], mark=number) == number + 1
        volume.append("b", [b"b%d" % number] * 3)
        volume.sync()
    assert volume.read("a", 7) == b"a6"
    assert volume.read_range("b", 49, 50) == [b"b48" * 3, b"b49" * 3]
    assert volume.bounds("a") == (1, 50)
    assert volume.streams == ["a", "b"]
    assert volume.damage == ()


def test_records_that_wait_are_read_too() -> None:
    volume = open_volume(MemoryDisk())
    volume.append("a", [b"written"], mark=1)
    volume.sync()
    volume.append("a", [b"wai", b"ting"], mark=2)
    volume.append("b", [b"other"])
    volume.append("a", [b"too"], mark=5)
    assert volume.read_range("a", 1, 3) == [b"written", b"waiting", b"too"]
    assert volume.read_range("a", 3, 3) == [b"too"]
    assert [volume.after_mark("a", mark) for mark in (0, 1, 2, 5)] == [1, 2, 3, 4]
    assert [volume.mark_upto("a", index) for index in (1, 2, 3)] == [1, 2, 5]


def test_one_flush_is_one_write_and_one_sync_one_sync() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes=1 << 20)
    volume.append("a", [b"first"])
    volume.sync()
    before = disk.operations
    for _ in range(100):
        volume.append("a", [b"x"])
    volume.sync()
    volume.sync()
    assert disk.operations == before + 2


def test_a_reading_is_limited_in_bytes_and_records_but_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = open_volume(MemoryDisk())
    for _ in range(10):
        volume.append("a", [bytes(100)])
    volume.sync()
    reading = volume.read_some("a", 2, 10, bytes_max=350)
    assert ([record.index for record in reading.records], reading.last) == ([2, 3, 4], 4)
    monkeypatch.setattr(volume_module, "READ_RECORDS", 2)
    assert volume.read_some("a", 2, 10).last == 3
    assert volume.read_some("a", 2, 10, bytes_max=None).last == 10
    assert volume.read_some("a", 2, 10, bytes_max=1).last == 2


def test_chopped_records_are_gone_and_so_are_their_segments() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    for _ in range(60):
        volume.append("a", [bytes(100)], mark=3)
        volume.sync()
    segments = len(disk.list())
    volume.chop("a", 55)
    volume.sync()
    assert len(disk.list()) < segments / 2
    assert volume.bounds("a") == (56, 60)
    assert volume.chopped_mark("a") == 3
    volume.chop("a", 10)
    volume.sync()
    assert volume.bounds("a") == (56, 60)


@pytest.mark.parametrize("is_kept", [keep_all, lose_all])
def test_nobody_waits_until_the_removal_of_segments_is_on_the_platter(is_kept: Callable[[int], int]) -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    for _ in range(60):
        volume.append("a", [bytes(100)], mark=3)
        volume.sync()
    volume.chop("a", 55)
    segments, before = len(disk.list()), disk.operations
    volume.sync()
    removed = segments - len(disk.list())
    assert disk.operations == before + 2 + removed, "a write, a sync, the removals, and no sync after them"
    disk.crash(is_kept)  # the segments may be back
    volume = open_volume(disk)
    assert (volume.bounds("a"), volume.damage) == ((56, 60), ())
    volume.append("a", [b"next"], mark=4)
    volume.sync()
    assert len([name for name in disk.list() if name.endswith("segment")]) < 6


def test_a_segment_in_the_middle_goes_while_an_older_one_is_still_needed() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    volume.append("idle", [b"needed"])
    for _ in range(60):
        volume.append("busy", [bytes(100)])
        volume.sync()
    volume.chop("busy", 60)
    volume.sync()
    volume.close()
    assert len([name for name in disk.list() if name.endswith("segment")]) == 2
    assert open_volume(disk).read("idle", 1) == b"needed"


def test_a_stream_that_was_chopped_to_nothing_goes_on_counting_after_a_restart() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    for number in range(30):
        volume.append("a", [bytes(100)], mark=number)
        volume.sync()
    volume.chop("a", 30)
    volume.sync()
    for _ in range(30):
        volume.append("b", [bytes(100)])
        volume.sync()
    volume.close()
    volume = open_volume(disk)
    assert (volume.bounds("a"), volume.last_mark("a"), volume.damage) == ((31, 30), 29, ())
    assert volume.append("a", [b"next"], mark=29) == 31


def test_a_record_larger_than_a_segment_has_one_to_itself() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    for size in (10, 5 * SMALL_SEGMENT, 10, 3 * SMALL_SEGMENT):
        volume.append("a", [bytes(size)])
        volume.sync()
    volume.close()
    volume = open_volume(disk)
    assert [len(volume.read("a", index)) for index in (1, 2, 3, 4)] == [10, 7500, 10, 4500]


def test_only_the_last_segment_is_read_through_at_recovery() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    for _ in range(60):
        volume.append("a", [bytes(100)])
        volume.sync()
    volume.close()
    first = next(name for name in disk.list() if name.endswith("segment"))
    disk.make_unreadable(first, 500)
    volume = open_volume(disk)
    assert volume.damage == ()
    assert volume.bounds("a") == (1, 60)


def test_memory_is_at_most_32_bytes_a_record() -> None:
    table = RowTable()
    for number in range(20_000):
        table.add(number, number, 1, number, 5)
    assert table.nbytes <= 32 * len(table)
    table.drop_first(19_000)
    assert table.nbytes <= 40 * len(table)
    assert table.rows.indexes.tolist() == list(range(19_000, 20_000))


def test_a_volume_works_on_a_real_disk(tmp_path: Path) -> None:
    for life in range(3):
        volume = LogVolume.open(RealDisk(tmp_path), identity=life, segment_bytes=SMALL_SEGMENT)
        for _ in range(20):
            volume.append("a", [b"%d" % life, bytearray(99)], mark=life)
            volume.sync()
        volume.chop("a", 15)
        volume.close()
    volume = LogVolume.open(RealDisk(tmp_path), identity=9)
    assert volume.bounds("a") == (16, 60)
    assert [payload[:1] for payload in volume.read_range("a", 20, 21)] == [b"0", b"1"]
    volume.close()


def test_a_directory_in_use_is_refused() -> None:
    disk = MemoryDisk()
    open_volume(disk)
    with pytest.raises(DirectoryLockedError):
        open_volume(disk)


def test_a_foreign_file_is_refused_and_left_alone() -> None:
    disk = MemoryDisk()
    disk.replace("thesis.doc", b"years of work")
    with pytest.raises(UnknownFormatError, match=r"thesis\.doc"):
        open_volume(disk)
    assert disk.contents() == {"thesis.doc": b"years of work"}


def test_a_newer_version_is_refused_and_left_alone() -> None:
    check = crc32c(struct.pack("<8sIQ", b"TMVOLUME", 2, IDENTITY))
    newer = struct.pack("<8sIIQ", b"TMVOLUME", 2, check, IDENTITY)
    for content in (newer, b"something else"):
        disk = MemoryDisk()
        disk.replace("volume", content)
        with pytest.raises(UnknownFormatError):
            open_volume(disk)
        assert disk.contents() == {"volume": content}


def test_a_volume_file_is_read_with_one_copy_rotten_and_refused_with_both() -> None:
    disk = MemoryDisk()
    open_volume(disk).close()
    disk.rot("volume", 20)
    open_volume(disk).close()
    disk.rot("volume", 4096 + 8)
    with pytest.raises(DamagedError):
        open_volume(disk)


def test_a_segment_of_another_volume_or_number_is_refused() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    for each, identity in ((disk, IDENTITY), (other, IDENTITY + 1)):
        volume = LogVolume.open(each, identity=identity, segment_bytes=SMALL_SEGMENT)
        for _ in range(30):
            volume.append("a", [bytes(100)])
            volume.sync()
        volume.close()
    mine, foreign = disk.contents()["0000000002.segment"], other.contents()["0000000002.segment"]
    for misplaced in (foreign, disk.contents()["0000000001.segment"]):
        disk.replace("0000000002.segment", misplaced)
        with pytest.raises(UnknownFormatError, match="move it back"):
            open_volume(disk)
    disk.replace("0000000002.segment", mine)
    assert open_volume(disk).damage == ()


def test_segments_without_the_volume_file_are_refused() -> None:
    disk = MemoryDisk()
    volume = open_volume(disk)
    volume.append("a", [b"x"])
    volume.close()
    disk.remove("volume")
    disk.sync_directory()
    with pytest.raises(DamagedError, match="put it back"):
        open_volume(disk)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(600, 4_000))
def test_any_sequence_of_calls_agrees_with_lists(seed: int, segment_bytes: int) -> None:
    random = Random(seed)
    disk = MemoryDisk()
    volume = open_volume(disk, segment_bytes)
    model: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    chopped = dict.fromkeys(model, 0)
    for _ in range(60):
        name = random.choice("abc")
        match random.randrange(8):
            case 0:
                volume.sync()
                chopped[name] = random.randint(chopped[name], len(model[name]))
                volume.chop(name, chopped[name])
            case 1:
                volume.sync()
            case 2:
                volume.flush()
            case 3:
                volume.close()
                disk.crash(keep_all)
                volume = open_volume(disk, segment_bytes)
            case _:
                model[name].append(random.randbytes(random.randrange(200)))
                assert volume.append(name, [model[name][-1]]) == len(model[name])
        first, last = chopped[name] + 1, len(model[name])
        assert volume.bounds(name)[1] == last
        if first <= last:
            low = random.randint(first, last)
            high = random.randint(low, last)
            assert volume.read_range(name, low, high) == model[name][low - 1 : high]
    assert volume.damage == ()
