"""Copying files of backups, with a look at every byte: as it was read, and as it is on the platter.

A file is written, synced, and read again past the cache of the system; its SHA-256 has to be that of the
bytes that were sent. Segments and tables have checks of their own, which show whether the broker's own copy
is whole.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from tidemark.errors import BackupError, TidemarkError
from tidemark.storage.disk.atomic_file import FULL_ERRNOS, sync_path
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.log.identity import VOLUME, identity_of
from tidemark.storage.log.record import seed_of
from tidemark.storage.log.segments.scan import scan
from tidemark.storage.log.segments.segment import SEGMENT_HEADER_BYTES, parse_name

READ_BYTES = 1 << 20


class Progress(NamedTuple):
    """How far a copy has got."""

    #: the file that is copied now
    name: str
    file: int
    files: int
    bytes: int
    bytes_all: int


class Report(Protocol):
    """Hears how a copy goes on."""

    def __call__(self, progress: Progress, /) -> None:
        """More has been copied."""


def no_report(progress: Progress) -> None:
    """Nobody wants to know how a copy goes on."""


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read, for `open`."""
    return os.open(path, flags, 0o600)


def write_copy(path: Path, pieces: Iterable[bytes]) -> str:
    """Write a file of these pieces and read it again. Returns its SHA-256.

    BackupError if there is no room, or if the disk does not give back what was written.
    """
    digest = sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "xb", opener=for_owner) as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise no_room_or(error, path) from error
    found = digest.hexdigest()
    if digest_of(path) != found:
        raise BackupError(f"{path} reads back other bytes than were written: look at that disk")
    return found


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file as it is on the platter, as far as the system tells; BackupError."""
    digest = sha256()
    try:
        with path.open("rb") as file:
            with suppress(OSError, AttributeError):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while piece := file.read(READ_BYTES):
                digest.update(piece)
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy where there are no hard links; BackupError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.link(source, target)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise no_room_or(error, target) from error
        write_copy(target, pieces_of(source))


def pieces_of(path: Path) -> Iterable[bytes]:
    """Yield the bytes of a file; BackupError."""
    try:
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                yield piece
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}") from error


def check_room(place: Path, needed: int) -> None:
    """Raise BackupError if a directory's disk has fewer free bytes than are needed."""
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise BackupError(
            f"{place} has {free:,} bytes free and {needed:,} are needed: make room, or choose another "
            "directory"
        )


def sync_directories(path: Path) -> None:
    """Return when the names of all files below a directory are on the platter. Raises OSError."""
    for each in [path, *(inner for inner in path.rglob("*") if inner.is_dir())]:
        sync_path(each)


def no_room_or(error: OSError, path: Path) -> BackupError:
    """Return what to say of an error of the target disk."""
    if error.errno in FULL_ERRNOS:
        return BackupError(f"the disk of {path.parent} is full: make room, or choose another directory")
    return BackupError(f"{path} cannot be written: {error.strerror}")


def damage_in(path: Path, size: int) -> str | None:
    """Return what is wrong with a store's file by its own checks; None if nothing is, or it has none."""
    parsed = parse_name(path.name)
    if parsed is not None:
        return _damage_in_segment(path, parsed[0], size)
    if path.suffix == ".sqlite":
        return _damage_in_tables(path)
    return None


def _damage_in_segment(path: Path, number: int, size: int) -> str | None:
    try:
        identity = identity_of(RealDisk(path.parent))
    except TidemarkError as error:
        return f"{VOLUME} cannot be read: {error}"
    data = path.read_bytes()
    found = scan(data, SEGMENT_HEADER_BYTES, seed_of(identity, number))
    if len(data) != size:
        return f"has {len(data)} bytes instead of {size}"
    return f"is damaged at byte {found.regions[0].offset}" if found.regions else None


def _damage_in_tables(path: Path) -> str | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as tables:
            (found,) = tables.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return None if found == "ok" else str(found)
