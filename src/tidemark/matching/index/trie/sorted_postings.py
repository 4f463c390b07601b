"""Postings in ascending order of a level, which can be read up to a given level.

A list is a region of a pool, as in `postings`, with the level of each item beside it. Adding and removing an
item moves the items behind it.
"""

from __future__ import annotations

import numpy as np

from tidemark.matching.index.arrays import Index, Words
from tidemark.matching.index.postings import Postings

#: Lists up to this length are taken whole: checking what is in them is cheaper than searching.
WHOLE_LENGTH_MAX = 16


class SortedPostings(Postings):
    """Lists of uint32, each ascending by level; the level is the first number beside an item."""

    def __init__(self, *beside: type[np.uint64]) -> None:
        super().__init__(np.uint64, *beside)

    @property
    def levels(self) -> Words:
        """The level of each item of the pool."""
        return self.beside[0]

    def insert(self, which: int, level: int, item: int, *beside: int) -> None:
        """Add an item to the list, at the place of its level."""
        length = self._make_room(which)
        start = int(self.start[which])
        at = start + int(self.levels[start : start + length - 1].searchsorted(np.uint64(level)))
        self._copy(at, at + 1, start + length - 1 - at)
        self._put(at, item, (level, *beside))

    def withdraw(self, which: int, level: int, item: int) -> int:
        """Remove an item that was inserted with this level. Returns the list's new length."""
        start, length = int(self.start[which]), int(self.count[which])
        end = start + length
        at = start + int(self.levels[start:end].searchsorted(np.uint64(level)))
        at += int(np.flatnonzero(self.items[at:end] == item)[0])
        self._copy(at + 1, at, end - at - 1)
        self.count[which] = length - 1
        return length - 1

    def reached(self, lists: Index, asked: Words) -> Index:
        """lists[n], asked[n] -> how many of the list's first items have a level of at most asked[n].

        It may be too many for short lists (WHOLE_LENGTH_MAX).
        """
        counts = self.count.take(lists)
        longest = int(counts.max(initial=0))
        if longest <= WHOLE_LENGTH_MAX:
            return counts
        starts = self.start.take(lists)
        found = np.zeros(len(lists), np.int64)
        step = 1 << longest.bit_length()
        while step := step >> 1:
            tried = found + step
            inside = tried <= counts
            # A step beyond the end reads the level of another list; `inside` rejects the result.
            level = self.levels.take(starts + tried - 1, mode="clip")
            np.copyto(found, tried, where=inside & (level <= asked))
        return found
