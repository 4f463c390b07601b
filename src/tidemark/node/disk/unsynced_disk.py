"""UnsyncedDisk: the disk of `durability = "os"`. What is written is the operating system's to keep.

It survives a crash of the process and not one of the machine. Names are still synced, which is rare.
"""

from __future__ import annotations

import os

from tidemark.storage.disk.real_disk import RealDisk, RealFile


class UnsyncedDisk(RealDisk):
    """A directory whose files are not synced."""

    def create(self, name: str) -> RealFile:
        """A new, empty file."""
        return _UnsyncedFile(self._at(name), os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, name: str, *, uncached: bool = False) -> RealFile:
        """A file that is there."""
        file = _UnsyncedFile(self._at(name), os.O_RDWR)
        if uncached:
            file.forget_cache()
        return file


class _UnsyncedFile(RealFile):
    def sync(self) -> None:
        """Leave it to the system."""
