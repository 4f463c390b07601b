"""Replacing a file: whenever the power fails, the old content or the new one is there, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.sync_recorder import record_syncs
from tidemark.errors import StorageError
from tidemark.storage.disk.atomic_file import replace_file, replace_path
from tidemark.storage.disk.memory_disk import MemoryDisk, PowerLossError

OLD, NEW = b"old content", [b"new ", b"and longer content"]


def content(disk: MemoryDisk, name: str = "state") -> bytes:
    file = disk.open(name)
    return file.pread(0, file.size())


@pytest.mark.parametrize("kept", [0, 1, 100], ids=["nothing", "a little", "everything"])
def test_a_power_failure_at_any_step_leaves_the_old_content_or_the_new_one(kept: int) -> None:
    for step in range(20):
        disk = MemoryDisk()
        replace_file(disk, "state", [OLD])
        disk.power_off_at = disk.operations + step
        try:
            replace_file(disk, "state", NEW)
        except PowerLossError:
            disk.crash(lambda most: min(kept, most))
            assert content(disk) in (OLD, b"".join(NEW))
        else:
            return
    raise AssertionError("it never came to its end")


def test_what_was_replaced_lasts() -> None:
    disk = MemoryDisk()
    replace_file(disk, "state", [OLD])
    replace_file(disk, "state", NEW)
    disk.crash(lambda _: 0)
    assert content(disk) == b"".join(NEW)


def test_a_draft_that_a_crash_has_left_is_not_in_the_way() -> None:
    disk = MemoryDisk()
    disk.create("draft").append([b"half of someth"])
    replace_file(disk, "state", NEW, draft="draft")
    assert (disk.list(), content(disk)) == (["state"], b"".join(NEW))


def test_a_full_disk_leaves_the_file_as_it_was() -> None:
    disk = MemoryDisk()
    replace_file(disk, "state", [OLD])
    disk.bytes_max = len(OLD) + 3
    with pytest.raises(StorageError):
        replace_file(disk, "state", NEW)
    assert content(disk) == OLD


def test_a_path_is_synced_before_it_gets_its_name_and_its_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "place"
    path.write_bytes(OLD)
    synced = record_syncs(monkeypatch)
    replace_path(path, b"new")
    assert path.read_bytes() == b"new"
    assert synced == [tmp_path / "place.new", tmp_path]
    assert sorted(tmp_path.iterdir()) == [path]
