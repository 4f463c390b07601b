"""What is synced while it is being written, and what becomes of a sync that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Event

import pytest

from tests.waiting import PATIENCE_SECONDS
from tidemark.errors import DiskFailedError
from tidemark.spark.locations import folder_at
from tidemark.spark.stores import synced_stream

PIECE = bytes(range(250)) * 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced_stream, "SYNCED_BYTES", 100 * len(PIECE))


class Disk:
    """Counts syncs of data; each waits until it may go on, and the first `failing` of them fail."""

    def __init__(self, failing: int = 0) -> None:
        self.sizes: list[int] = []
        self.begun = Event()
        self.may_go_on = Event()
        self.ended = 0
        self._failing = failing

    def fdatasync(self, file: int) -> None:
        self.sizes.append(os.fstat(file).st_size)
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        self.ended += 1
        if len(self.sizes) <= self._failing:
            raise OSError(errno.EIO, "Input/output error")


def test_bytes_are_synced_while_more_are_written_one_sync_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    file = folder_at(tmp_path).create("a")
    for _ in range(99):
        file.stream.write(PIECE)
    assert not disk.begun.is_set()
    file.stream.write(PIECE)
    assert disk.begun.wait(PATIENCE_SECONDS)
    # The disk is at it, and the writer goes on.
    for _ in range(300):
        file.stream.write(PIECE)
    assert len(disk.sizes) == 1
    disk.may_go_on.set()
    assert file.close() == 400 * len(PIECE)
    assert (tmp_path / "a").read_bytes() == 400 * PIECE
    assert 90 * len(PIECE) < disk.sizes[0] <= 400 * len(PIECE)


def test_a_sync_that_fails_in_between_fails_the_close_although_later_ones_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(failing=1)
    disk.may_go_on.set()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    file = folder_at(tmp_path).create("a")
    for _ in range(1_000):
        file.stream.write(PIECE)
    assert disk.begun.wait(PATIENCE_SECONDS)
    with pytest.raises(DiskFailedError, match="Input/output error"):
        file.close()
    # What was written is not lost by that: the caller decides, and removes it.
    file.stream.flush()
    assert (tmp_path / "a").read_bytes() == 1_000 * PIECE
    file.discard()
    assert not (tmp_path / "a").exists()


def test_a_file_that_is_discarded_waits_for_its_sync_since_its_number_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(failing=1)
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    file = folder_at(tmp_path).create("a")
    for _ in range(100):
        file.stream.write(PIECE)
    assert disk.begun.wait(PATIENCE_SECONDS)
    disk.may_go_on.set()
    file.discard()
    assert disk.ended == 1
    assert not (tmp_path / "a").exists()
    assert file.stream.closed


def test_files_that_are_small_or_need_not_be_durable_have_no_sync_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    folder = folder_at(tmp_path)
    for name, durable, pieces in (("small", True, 99), ("spool", False, 500)):
        file = folder.create(name, durable=durable)
        for _ in range(pieces):
            file.stream.write(PIECE)
        assert file.close() == pieces * len(PIECE)
    assert disk.sizes == []
    with pytest.raises(DiskFailedError, match="exists"):
        folder.create("small")
