"""The reserve: space that is kept for what has to be written on a full disk.

On a full disk nothing can be chopped unless the chop itself can be logged, and no broker can start unless its
incarnation can be. So a file of zeros takes up space that is given up for that, and is created again as soon
as there is room; a smaller one if there is only room for that. What a crash may lose: all of the
file. It holds nothing, and a start without it creates it again.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.errors import DiskFullError
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.identity import RESERVE

RESERVE_BYTES = 256 << 10
#: A reserve smaller than this is of no use.
RESERVE_BYTES_MIN = 32 << 10


class Reserve:
    """The file `reserve`, which exists or has been given up."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._there = RESERVE in disk.list()
        self.refill()

    @property
    def is_there(self) -> bool:
        """Whether the space is kept."""
        return self._there

    def spend(self) -> bool:
        """Remove the file, so that its space is free. Returns False if it was removed before."""
        if not self._there:
            return False
        self._disk.remove(RESERVE)
        self._there = False
        return True

    def refill(self) -> None:
        """Create the file again, if it does not exist and there is room."""
        size = RESERVE_BYTES
        while not self._there and size >= RESERVE_BYTES_MIN:
            self._there = self._create(size)
            size //= 2

    def _create(self, size: int) -> bool:
        """Create the file with so many bytes. Returns whether there was room for them."""
        with suppress(DiskFullError):
            file = self._disk.create(RESERVE)
            try:
                file.append([bytes(size)])
            except DiskFullError:
                self._disk.remove(RESERVE)
                raise
            finally:
                file.close()
            return True
        return False
