"""The disk as storage sees it: one directory of append-only files.

What a crash may lose: bytes that were written, wholly or in part, until the file is synced; the name of a new
file, until the directory is synced. A removed name may come back until then. `RealDisk` is the operating
system's disk and `MemoryDisk` the simulator's; both keep the contracts below. Every call may block, so it
belongs on a disk thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.message.batches.batch import Buffer


class File(Protocol):
    """An open file. It has one writer at a time."""

    @property
    def path(self) -> str:
        """The file's path, for error messages."""

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write the pieces one after the other at the end of the file, all of them or none.

        Raises DiskFullError if there is no space; the file is as long as it was then. Raises DiskFailedError
        if it is unknown what was written. A crash may leave any prefix of the bytes, followed by zeros. With
        `as_one` the caller says that a part of the bytes is worth no more than none of them: then a crash may
        leave zeros in place of any of the bytes.
        """

    def pread(self, offset: int, length: int) -> bytes:
        """Returns the bytes at `offset`, fewer than `length` only where the file ends.

        Raises DamagedError.
        """

    def size(self) -> int:
        """Returns how many bytes are in the file, synced or not."""

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros. Needs a sync like any other write."""

    def sync(self) -> None:
        """Return when all bytes are on the platter. Raises DiskFailedError.

        After DiskFailedError the bytes that were not synced may be gone although they still read well, and a
        second sync that succeeds proves nothing, because the operating system has forgotten the bytes. Never
        retry.
        """

    def close(self) -> None:
        """Close the file without a sync. Closing it twice is allowed."""


class Disk(Protocol):
    """One directory. Names are plain file names, never taken from users."""

    @property
    def path(self) -> str:
        """The directory's path, for error messages."""

    def list(self) -> list[str]:
        """Returns the names of all regular files, sorted, without the lock file."""

    def create(self, name: str) -> File:
        """Create an empty file. Its name is durable after `sync_directory`, its bytes after `File.sync`."""

    def open(self, name: str, *, uncached: bool = False) -> File:
        """Open a file that exists.

        With `uncached`, what is read comes from the platter as far as the system allows, and not from a cache
        in which a failed sync may have left bytes that never got to the platter.
        """

    def remove(self, name: str) -> None:
        """Remove a file. Until `sync_directory` it may come back, with its bytes."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing a file that has the new name; needs `sync_directory`."""

    def sync_directory(self) -> None:
        """Return when all creations, removals and renamings are on the platter. Raises DiskFailedError."""

    def lock(self) -> None:
        """Keep out every other process and every other `Disk` of this directory, until this process ends.

        Raises DirectoryLockedError if one of them has the lock.
        """

    def unlock(self) -> None:
        """Give the lock up."""
