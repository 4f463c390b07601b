"""Where backups are kept: a directory for one broker, with a directory for each backup.

A backup that is being made has a name that ends in UNFINISHED, and is never taken for a whole one. Files that
did not change since the backup before are hard links to its files, where the file system has hard links: each
backup is complete by itself, and removing one takes nothing from the others.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidemark.admin.backups.manifest import MANIFEST, Manifest, read_manifest
from tidemark.errors import BackupError

UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class Backup:
    """A whole backup."""

    path: Path
    manifest: Manifest


def name_of(taken: int) -> str:
    """Return the name of a backup that was taken at a time, in microseconds. Names sort by time."""
    when = datetime.fromtimestamp(taken / 1e6, UTC)
    return when.strftime("%Y-%m-%dT%H-%M-%S.%fZ")


def whole_backups(place: Path) -> list[Backup]:
    """Return the whole backups in a directory, the oldest first; damaged and unfinished ones are left out."""
    found = []
    for path in _directories(place):
        if path.suffix != UNFINISHED and (path / MANIFEST).exists():
            try:
                found.append(Backup(path, read_manifest(path)))
            except BackupError:
                continue
    return sorted(found, key=lambda each: each.manifest.taken)


def find_backup(path: Path) -> Backup:
    """Return the backup at a path: one backup, or the newest in a directory of several.

    BackupError if there is none.
    """
    if (path / MANIFEST).exists() and path.suffix != UNFINISHED:
        return Backup(path, read_manifest(path))
    found = whole_backups(path)
    if not found:
        raise BackupError(f"{path} has no whole backup; make one with tidemark backup")
    return found[-1]


def unfinished(place: Path) -> list[Path]:
    """Return the backups that were interrupted, the oldest first."""
    return [path for path in _directories(place) if path.suffix == UNFINISHED]


def _directories(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def remove_backup(path: Path) -> None:
    """Remove a backup; from the first moment on it is not whole any more."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
