"""How backups are made and put back: again, interrupted, on full disks, from damaged files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.admin.backups.local_snapshot import LocalSnapshot
from tidemark.admin.backups import copying
from tidemark.admin.backups.backup_directories import find_backup, unfinished, whole_backups
from tidemark.admin.backups.copying import Progress
from tidemark.admin.backups.make import BackupMade, copy_snapshot
from tidemark.admin.backups.manifest import MANIFEST
from tidemark.admin.backups.restore import check_backup, restore_backup
from tidemark.errors import BackupError, NotConnectedError, StorageError, UnknownFormatError
from tidemark.lab.damage.campaign import scratch
from tidemark.lab.damage.stepped_broker import BEGIN, MILLISECOND, Reader, SteppedBroker, Writer
from tidemark.node.disk.data_directory import DataDirectory


class Broker:
    """A broker with some segments, of which backups are made."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self.place = path / "backups"
        self.life = SteppedBroker(self.data, BEGIN)
        self._writer = Writer("w")
        self.life.subscribe(Reader("away", 10, holds=True))
        self.work(30)

    def work(self, batches: int = 12) -> None:
        for _ in range(batches):
            self.life.publish(self._writer, 25)
            self.life.pass_time(20 * MILLISECOND)

    def snapshot(self) -> LocalSnapshot:
        return LocalSnapshot(self.life._store, self.data, self.life.now)

    def back_up(self, keep: int | None = None) -> BackupMade:
        self.work(1)
        return copy_snapshot(self.snapshot(), self.place, keep=keep)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with scratch() as path:
        made = Broker(path)
        yield made
        made.life.kill()


def sealed(path: Path) -> list[Path]:
    """The segments of the log in a directory but the last."""
    return sorted((path / "log").glob("*.segment"))[:-1]


@pytest.mark.parametrize("name", ["../outside", "log/../../outside", "/tmp/outside", "", "log/\0"])
def test_a_broker_cannot_have_files_written_beside_the_backup(broker: Broker, name: str) -> None:
    snapshot = broker.snapshot()
    wrong = replace(snapshot.status.files[0], name=name)
    snapshot.status = replace(snapshot.status, files=(*snapshot.status.files, wrong))
    with pytest.raises(BackupError, match="names"):
        copy_snapshot(snapshot, broker.place)
    assert not snapshot.read_files
    assert not list(broker.place.parent.rglob("outside"))


def test_a_backup_and_what_is_restored_of_it_are_for_their_owner_only(broker: Broker, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Path(broker.back_up().backup)
        restore_backup(broker.place, tmp_path / "restored")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o077 == 0
    for path in (*made.rglob("*"), *(tmp_path / "restored").rglob("*")):
        # The manifest has no secret in it.
        assert path.name == MANIFEST or path.stat().st_mode & 0o077 == 0, path


def test_a_second_backup_copies_what_is_new_and_each_is_whole_by_itself(broker: Broker) -> None:
    first = broker.back_up()
    assert first.reused_files == 0
    broker.work()
    snapshot = broker.snapshot()
    second = copy_snapshot(snapshot, broker.place)
    assert second.reused_files >= len(sealed(Path(first.backup)))
    assert not {f"log/{path.name}" for path in sealed(Path(first.backup))} & set(snapshot.read_files)
    assert second.reused_bytes + os.path.getsize(Path(second.backup) / "tables/tables.sqlite") < second.bytes
    assert [each.path for each in whole_backups(broker.place)] == [Path(first.backup), Path(second.backup)]
    third = broker.back_up(keep=1)
    assert third.removed == tuple(Path(each.backup).name for each in (first, second))
    assert check_backup(broker.place).backup == third.backup


def test_a_file_that_rots_at_the_broker_stays_whole_in_later_backups(broker: Broker) -> None:
    first = broker.back_up()
    segment = sealed(Path(first.backup))[0].name
    data = bytearray((broker.data / "log" / segment).read_bytes())
    data[len(data) // 2] ^= 1
    (broker.data / "log" / segment).write_bytes(data)
    assert broker.back_up().damage == ()
    elsewhere = copy_snapshot(broker.snapshot(), broker.place.with_name("elsewhere"))
    assert [each.split()[0] for each in elsewhere.damage] == [f"log/{segment}"]
    assert find_backup(Path(elsewhere.backup)).manifest.damage == elsewhere.damage


def test_a_backup_that_is_cut_off_is_no_backup_and_the_next_one_goes_on_with_its_files(
    broker: Broker,
) -> None:
    def cut_off() -> None:
        if len(snapshot.read_files) == 5:
            raise NotConnectedError("the broker was lost")

    snapshot = broker.snapshot()
    snapshot.before_read = cut_off
    with pytest.raises(NotConnectedError):
        copy_snapshot(snapshot, broker.place)
    assert whole_backups(broker.place) == []
    assert len(unfinished(broker.place)) == 1
    with pytest.raises(BackupError, match="no whole backup"):
        find_backup(broker.place)
    with pytest.raises(BackupError, match="no whole backup"):
        restore_backup(unfinished(broker.place)[0], broker.data.with_name("other"))
    # A file of it that was altered since is not used.
    harmed = sealed(unfinished(broker.place)[0])[0]
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"?")
    made = broker.back_up()
    assert made.reused_files > 0
    assert check_backup(broker.place).files == made.files
    assert unfinished(broker.place) == []


def test_a_full_disk_leaves_the_earlier_backups_and_gives_back_its_room(broker: Broker) -> None:
    first = broker.back_up()
    written = os.fsync
    calls = 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(descriptor)

    broker.work()
    with (
        patch("tidemark.admin.backups.copying.os.fsync", fsync),
        pytest.raises(BackupError, match="is full: make room"),
    ):
        broker.back_up()
    assert [each.path for each in whole_backups(broker.place)] == [Path(first.backup)]
    assert unfinished(broker.place) == []
    with pytest.raises(BackupError, match="are needed: make room"):
        copying.check_room(broker.place, 1 << 60)


def test_a_disk_that_gives_back_other_bytes_is_noticed(broker: Broker) -> None:
    with patch.object(copying, "digest_of", lambda _: "?"), pytest.raises(BackupError, match="reads back"):
        broker.back_up()
    assert whole_backups(broker.place) == []


def test_backups_of_two_brokers_do_not_share_a_directory(broker: Broker) -> None:
    broker.back_up()
    snapshot = broker.snapshot()
    snapshot.status = type(snapshot.status).from_json({**snapshot.status.to_json(), "broker": "other"})
    with pytest.raises(BackupError, match="of the broker 'b1', and this is 'other'"):
        copy_snapshot(snapshot, broker.place)


def test_progress_is_told_and_ends_with_everything(broker: Broker) -> None:
    told: list[Progress] = []
    made = copy_snapshot(broker.snapshot(), broker.place, report=told.append)
    assert told[-1] == Progress("", made.files, made.files, made.bytes, made.bytes)
    assert [each.bytes for each in told] == sorted(each.bytes for each in told)


@pytest.mark.parametrize("harm", ["altered", "shorter", "gone", "manifest"])
def test_a_backup_that_was_harmed_is_not_restored(harm: str, broker: Broker, tmp_path: Path) -> None:
    made = Path(broker.back_up().backup)
    harmed = made / MANIFEST if harm == "manifest" else sealed(made)[0]
    data = harmed.read_bytes()
    if harm == "gone":
        harmed.unlink()
    else:
        harmed.write_bytes(data[:-1] if harm == "shorter" else data.replace(b"1", b"2", 1))
    with pytest.raises(BackupError, match=r"damaged|cannot be read"):
        restore_backup(made, tmp_path / "data")
    with pytest.raises(BackupError, match=r"damaged|cannot be read"):
        check_backup(made)
    assert [each.name for each in (tmp_path / "data").glob("*")] in ([], ["lock"])


def test_a_restoration_that_is_interrupted_cannot_be_started_and_can_be_done_again(
    broker: Broker, tmp_path: Path
) -> None:
    broker.back_up()
    data = tmp_path / "data"
    copied = 0

    def killed(_: Progress) -> None:
        nonlocal copied
        copied += 1
        if copied == 4:
            os._exit(7)

    child = os.fork()
    if not child:
        restore_backup(broker.place, data, report=killed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(UnknownFormatError, match="restore the backup again"):
        DataDirectory(data)
    restore_backup(broker.place, data)
    restored = DataDirectory(data)
    assert restored.restoration() is not None
    restored.close()
    life = SteppedBroker(data, broker.life.now)
    life.kill()


def test_a_backup_goes_only_into_an_empty_directory(broker: Broker, tmp_path: Path) -> None:
    broker.back_up()
    (tmp_path / "mine").write_text("important")
    with pytest.raises(StorageError, match="'mine'"):
        restore_backup(broker.place, tmp_path)
    restore_backup(broker.place, tmp_path / "data")
    with pytest.raises(StorageError, match="an empty directory"):
        restore_backup(broker.place, tmp_path / "data")
    assert (tmp_path / "mine").read_text() == "important"
