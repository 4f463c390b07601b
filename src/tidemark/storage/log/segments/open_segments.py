"""The segments of a volume: how many live records each has, and open files to read them.

A segment is dead when its last record is chopped. A dead segment is removed, unless damage was found in it
since the volume was opened: then its file is renamed, and kept for the administrator.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from tidemark.storage.disk.disk import Disk, File
from tidemark.storage.log.record import seed_of
from tidemark.storage.log.rows import Words
from tidemark.storage.log.segments.segment import quarantine_name, segment_name

FILES_OPEN_MAX = 64


class Segments:
    """Counts of live records, and the files that were used last. Shared by the volume and its writer."""

    def __init__(self, disk: Disk, identity: int) -> None:
        self._disk = disk
        self._identity = identity
        #: Segment -> how many of its records are not chopped, without those of the catalogue. Recovery fills
        #: it, the writer adds segments, the volume counts.
        self.live: dict[int, int] = {}
        #: segments with bytes that cannot be read; recovery and the volume add to it
        self.damaged: set[int] = set()
        #: the files used last, at most FILES_OPEN_MAX
        self._files: OrderedDict[int, File] = OrderedDict()

    def file(self, number: int) -> File:
        """Returns the segment's file, opened for reading. It stays open until others are used more."""
        file = self._files.pop(number, None) or self._disk.open(segment_name(number))
        self._files[number] = file
        if len(self._files) > FILES_OPEN_MAX:
            self._files.popitem(last=False)[1].close()
        return file

    def seed(self, number: int) -> int:
        """Returns the value from which the checks of the segment's records start."""
        return seed_of(self._identity, number)

    def let_go(self, numbers: Words) -> None:
        """Count one live record less for each time that a segment is listed."""
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            self.live[int(number)] -= int(count)
            assert self.live[int(number)] >= 0

    def dead(self, tail: int) -> list[int]:
        """Returns the segments without live records, never the last one, `tail`."""
        return [number for number, count in self.live.items() if count == 0 and number != tail]

    def retire(self, number: int) -> None:
        """Remove the file of a dead segment, or rename it if it is damaged. Raises DiskFailedError."""
        self.close(number)
        if number in self.damaged:
            self._disk.rename(segment_name(number), quarantine_name(number))
        else:
            self._disk.remove(segment_name(number))
        del self.live[number]

    def close(self, number: int) -> None:
        """Close the segment's file, if it is open."""
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        """Close every file."""
        for number in list(self._files):
            self.close(number)
