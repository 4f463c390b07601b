"""UnsyncedDisk: the disk of `storage.durability = "os"`, whose files are written and never synced.

What was written survives a crash of the process, because the operating system holds it, but not a crash of
the machine. File names are still synced: that is rare, and keeps the directory whole.
"""

from __future__ import annotations

import os

from tidemark.storage.disk.real_disk import RealDisk, RealFile


class UnsyncedDisk(RealDisk):
    """A directory whose files are not synced."""

    def create(self, name: str) -> RealFile:
        """Create an empty file that is never synced; errors as `RealDisk.create`."""
        return _UnsyncedFile(self._at(name), os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, name: str, *, uncached: bool = False) -> RealFile:
        """Open a file that is there, never to be synced; errors as `RealDisk.open`."""
        file = _UnsyncedFile(self._at(name), os.O_RDWR)
        if uncached:
            file.forget_cache()
        return file


class _UnsyncedFile(RealFile):
    def sync(self) -> None:
        """Do nothing: the operating system writes the bytes when it likes."""
