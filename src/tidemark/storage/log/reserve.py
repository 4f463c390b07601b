"""The reserve: space that is kept for records that chop others.

On a full disk nothing can be chopped unless the chop itself can be logged. So a file of zeros takes up space
that is given up for that, and is created again as soon as there is room. What a crash may lose: all of the
file. It holds nothing, and a start without it creates it again.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import DiskFullError
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.identity import RESERVE

RESERVE_BYTES = 256 << 10


class Reserve:
    """The file `reserve`, which exists or has been given up."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._there = RESERVE in disk.list()
        self.refill()

    def spend(self) -> bool:
        """Remove the file, so that its space is free. Returns False if it was removed before."""
        if not self._there:
            return False
        self._disk.remove(RESERVE)
        self._there = False
        return True

    def refill(self) -> None:
        """Create the file again, if it does not exist and there is room."""
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
