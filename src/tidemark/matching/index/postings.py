"""Many growing lists of small numbers in one array.

A list is a region of the pool, a power of two long; when it is full the list moves to a region of twice the
size. Regions given back are used again. So adding and removing costs the same however many lists there are,
and the lists of a whole batch are read with one gather (`arrays.spread`).

The arrays are public so that many lists can be read at once. They are replaced when they grow: a reader takes
them from the Postings each time and keeps none across a change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemark.matching.index.arrays import Ids, Index, Words, grown


class Postings:
    """Lists of uint32 by number. Removing an item does not keep the order of its list."""

    def __init__(self, *beside: type[np.uint64]) -> None:
        #: The pool: list n is items[start[n] : start[n] + count[n]].
        self.items: Ids = np.zeros(16, np.uint32)
        #: further numbers for each item, in arrays as long as the pool
        self.beside: list[Words] = [np.zeros(16, dtype) for dtype in beside]
        self.start: Index = np.zeros(16, np.int64)
        self.count: Index = np.zeros(16, np.int64)
        #: list -> capacity of its region; 0 when it has none
        self._room: Ids = np.zeros(16, np.uint32)
        self._lists = 0
        self._unused: list[int] = []
        self._pool_size = 0
        #: capacity -> starts of the regions of that size that were given back
        self._free: dict[int, list[int]] = {}

    def create(self) -> int:
        """The number of a new, empty list; numbers of dropped lists are used again."""
        if self._unused:
            return self._unused.pop()
        self._lists += 1
        self.start = grown(self.start, self._lists)
        self.count = grown(self.count, self._lists)
        self._room = grown(self._room, self._lists)
        return self._lists - 1

    def drop(self, which: int) -> None:
        """Remove the list; its number may be used again."""
        self.clear(which)
        self._unused.append(which)

    def clear(self, which: int) -> None:
        """Empty the list."""
        if room := int(self._room[which]):
            self._free.setdefault(room, []).append(int(self.start[which]))
        self._room[which] = self.count[which] = 0

    def of(self, which: int) -> Ids:
        """The items of the list: a view of the pool, valid until anything is added."""
        start = int(self.start[which])
        return self.items[start : start + int(self.count[which])]

    def append(self, which: int, item: int, *beside: int) -> int:
        """Add an item, and the numbers beside it, to the list. Returns the list's new length."""
        length = self._make_room(which)
        self._put(int(self.start[which]) + length - 1, item, beside)
        return length

    def discard(self, which: int, item: int) -> int:
        """Remove `item`, which is in the list once. Returns the list's new length."""
        start, length = int(self.start[which]), int(self.count[which])
        at = start + int(np.flatnonzero(self.of(which) == item)[0])
        self._copy(start + length - 1, at, 1)
        self.count[which] = length - 1
        return length - 1

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        pool = self.items.nbytes + sum(array.nbytes for array in self.beside)
        return pool + self.start.nbytes + self.count.nbytes + self._room.nbytes

    def _put(self, at: int, item: int, beside: Sequence[int]) -> None:
        self.items[at] = item
        for array, value in zip(self.beside, beside, strict=True):
            array[at] = value

    def _make_room(self, which: int) -> int:
        """Lengthen the list by one. Returns its new length."""
        length = int(self.count[which]) + 1
        room = int(self._room[which])
        if length > room:
            self._move(which, max(1, 2 * room))
        self.count[which] = length
        return length

    def _move(self, which: int, room: int) -> None:
        start, length, old_room = int(self.start[which]), int(self.count[which]), int(self._room[which])
        moved = self._region(room)
        self._copy(start, moved, length)
        if old_room:
            self._free.setdefault(old_room, []).append(start)
        self.start[which] = moved
        self._room[which] = room

    def _region(self, room: int) -> int:
        if free := self._free.get(room):
            return free.pop()
        start = self._pool_size
        self._pool_size += room
        self._reserve(self._pool_size)
        return start

    def _reserve(self, size: int) -> None:
        self.items = grown(self.items, size)
        self.beside = [grown(array, size) for array in self.beside]

    def _copy(self, source: int, target: int, length: int) -> None:
        """Copy within the pool; the two may overlap."""
        self.items[target : target + length] = self.items[source : source + length]
        for array in self.beside:
            array[target : target + length] = array[source : source + length]
