"""Putting a backup back: a data directory of a broker that was lost.

Every file is checked as it is read and as it is on the platter. The directory becomes a data directory with
the last step only, so one that was interrupted cannot be started. Its first start makes it a later life of
the broker: `src/tidemark/persistence/restoration.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tidemark.admin.backups.backup_directories import Backup, find_backup
from tidemark.admin.backups.copying import (
    Progress,
    Report,
    check_room,
    digest_of,
    no_report,
    no_room_or,
    pieces_of,
    sync_directories,
    write_copy,
)
from tidemark.errors import BackupError
from tidemark.node.disk.data_directory import PARTS, RestoredDirectory
from tidemark.persistence.restoration import Restoration
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.wire.json_objects import JsonObject

TABLES = "tables/tables.sqlite"
#: How far the clock of the lost machine may have been ahead of this one's, and of its own ticks, by default.
AHEAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BackupRestored(JsonObject):
    """What became of restoring, or of checking, a backup."""

    backup: str
    broker: str
    #: microseconds since 1970
    taken: int
    #: None if the backup was only checked
    data_dir: str | None
    files: int
    bytes: int
    seconds: float
    #: what was damaged at the broker when the backup was made
    damage: tuple[str, ...]


def check_backup(path: Path, report: Report | None = None) -> BackupRestored:
    """Read every file of a backup, or of the newest in a directory; BackupError if one is not as it was."""
    began, backup, report = time.monotonic(), find_backup(path), report or no_report
    done, files = 0, backup.manifest.files
    for at, each in enumerate(files, 1):
        report(Progress(each.name, at, len(files), done, backup.manifest.bytes))
        _compare(backup, each.name, digest_of(backup.path / each.name), each.sha256)
        done += each.bytes
    return _restored(backup, None, began)


def restore_backup(
    path: Path, data_dir: Path, *, ahead: float = AHEAD_SECONDS, report: Report | None = None
) -> BackupRestored:
    """Make a data directory of a backup, or of the newest in a directory of several.

    `ahead` is in seconds. BackupError or StorageError if that did not succeed; the directory is empty then.
    """
    began, backup, report = time.monotonic(), find_backup(path), report or no_report
    directory = RestoredDirectory(data_dir)
    try:
        _copy(backup, data_dir, report)
        # The broker would refuse damaged tables at its start, which is late to hear of it.
        SqliteTables(data_dir / TABLES).close()
        sync_directories(data_dir)
        manifest = backup.manifest
        directory.finish(Restoration(manifest.taken, manifest.generation, manifest.segment, int(ahead * 1e6)))
    except OSError as error:
        directory.clear()
        raise no_room_or(error, data_dir) from error
    except BaseException:
        directory.clear()
        raise
    finally:
        directory.close()
    return _restored(backup, data_dir, began)


def _copy(backup: Backup, data_dir: Path, report: Report) -> None:
    files = backup.manifest.files
    check_room(data_dir, backup.manifest.bytes)
    for part in PARTS:
        (data_dir / part).mkdir(mode=0o700)
    done = 0
    for at, each in enumerate(files, 1):
        report(Progress(each.name, at, len(files), done, backup.manifest.bytes))
        found = write_copy(data_dir / each.name, pieces_of(backup.path / each.name))
        _compare(backup, each.name, found, each.sha256)
        done += each.bytes


def _compare(backup: Backup, name: str, found: str, expected: str) -> None:
    if found != expected:
        raise BackupError(f"{backup.path / name} is damaged; use another backup")


def _restored(backup: Backup, data_dir: Path | None, began: float) -> BackupRestored:
    manifest = backup.manifest
    return BackupRestored(
        backup=str(backup.path),
        broker=manifest.broker,
        taken=manifest.taken,
        data_dir=None if data_dir is None else str(data_dir),
        files=len(manifest.files),
        bytes=manifest.bytes,
        seconds=round(time.monotonic() - began, 3),
        damage=manifest.damage,
    )
