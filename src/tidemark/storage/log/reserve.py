"""The reserve: space kept back for the records that let go of others.

On a full disk nothing can be released unless the release itself can be logged. So a file of zeros lies ready
to be given up for that; it is made again as soon as there is room.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import DiskFullError
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.identity import RESERVE

RESERVE_BYTES = 256 << 10


class Reserve:
    """The file, which is there or has been spent."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._there = RESERVE in disk.list()
        self.refill()

    def spend(self) -> bool:
        """Make its space free; False when that has been done before."""
        if not self._there:
            return False
        self._disk.remove(RESERVE)
        self._there = False
        return True

    def refill(self) -> None:
        """Take the space again, if it is not taken and there is any."""
        if self._there:
            return
        with suppress(DiskFullError):
            file = self._disk.create(RESERVE)
            try:
                file.append([bytes(RESERVE_BYTES)])
                self._there = True
            except DiskFullError:
                self._disk.remove(RESERVE)
            finally:
                file.close()
