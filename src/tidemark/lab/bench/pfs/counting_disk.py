"""A disk that counts the bytes that are written to it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tidemark.message.batches.batch import Buffer
from tidemark.storage.disk.real_disk import RealDisk, RealFile


class CountingDisk(RealDisk):
    """The operating system's disk, and the bytes appended to files made here."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.bytes_written = 0

    def create(self, name: str) -> RealFile:
        """A new, empty file."""
        super().create(name).close()
        return CountedFile(self, os.path.join(self.path, name))


class CountedFile(RealFile):
    """A file whose appends are counted."""

    def __init__(self, disk: CountingDisk, path: str) -> None:
        super().__init__(path, os.O_RDWR)
        self._disk = disk

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write all the pieces at the end."""
        super().append(pieces, as_one=as_one)
        self._disk.bytes_written += sum(map(len, pieces))
