"""The disk as storage sees it: one directory of append-only files.

What is written may vanish, wholly or in part, until it is synced; a file's name may vanish, and a removed
name come back, until the directory is synced. `RealDisk` is the operating system's, `MemoryDisk` the
simulator's; both keep the contracts below. Every call blocks: it belongs on a disk thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.message.batches.batch import Buffer


class File(Protocol):
    """An open file. One writer at a time."""

    @property
    def path(self) -> str:
        """Where it is, for error messages."""

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write the pieces end to end at the end of the file, all of them or none.

        DiskFullError: there is no space, and the file is as long as it was. DiskFailedError: nobody
        knows what was written. A crash may leave any prefix of the bytes, followed by zeros. `as_one`: a
        part of them is worth as little as none, so that zeros may be left in place of any of them.
        """

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`: fewer than `length` only where the file ends. DamagedError if unreadable."""

    def size(self) -> int:
        """Bytes in the file, synced or not."""

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros. Needs a sync like any other write."""

    def sync(self) -> None:
        """Return when all bytes are on the platter.

        After DiskFailedError the un-synced bytes may be gone although they still read well, and a second
        sync that succeeds proves nothing (the operating system has forgotten them): never retry.
        """

    def close(self) -> None:
        """Let go of it; syncs nothing. Closing twice is fine."""


class Disk(Protocol):
    """One directory. Names are plain file names, never taken from users."""

    @property
    def path(self) -> str:
        """Where it is, for error messages."""

    def list(self) -> list[str]:
        """Names of all regular files, sorted; the lock file is not among them."""

    def create(self, name: str) -> File:
        """A new, empty file. Its name is durable after `sync_directory`, its bytes after `File.sync`."""

    def open(self, name: str, *, uncached: bool = False) -> File:
        """A file that is there.

        `uncached`: what is read comes from the platter, not from a cache in which a failed sync may have
        left bytes that never got there; as far as the system allows.
        """

    def remove(self, name: str) -> None:
        """Take the name away; until `sync_directory` it may come back, with the file's bytes."""

    def rename(self, old: str, new: str) -> None:
        """Give the file another name, in one step, replacing what had it; needs `sync_directory`."""

    def sync_directory(self) -> None:
        """Return when all creations, removals and renamings are on the platter."""

    def lock(self) -> None:
        """Keep every other process out, and every other `Disk` of this directory; the lock dies with us.

        DirectoryLockedError if one of them is in.
        """

    def unlock(self) -> None:
        """Let others in."""
