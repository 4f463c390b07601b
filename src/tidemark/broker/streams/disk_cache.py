"""DiskCache: what of the streams' history lies in the cache on this broker's disk (DSN'03 1).

A relay or host writes knowledge to its disk that its windows let go, and answers to what is older than its
windows. A nack that the window cannot answer is answered from there, so that the pubend is asked once for
what many ask for at different times. This is soft state of one life: nobody relies on it, the index is in
memory, and what an earlier life has written is removed at the start. An entry that cannot be read is asked
for upstream instead.

Silence in an entry is complete only for the interest version that it was learnt for, as in a window
(`interest_coverage`). The version is part of the entry.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import NamedTuple

from tidemark.broker.effects import ChopCache, ReadCache, WriteCache
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import Range, RangeSet

#: Bytes that an entry counts for besides those of its events: its index here and its record on the disk.
ENTRY_BYTES = 512
#: Bytes that may be on their way to the disk; beyond that nothing more is cached.
UNWRITTEN_BYTES_MAX = 32 << 20


class Entry(NamedTuple):
    """Knowledge of `(base, upto]` on the disk, complete for the interest of `version`; sorted by `upto`."""

    upto: int
    base: int
    version: int
    #: the number of its record; later entries have higher ones
    number: int
    pubend: str
    #: what it counts for
    bytes: int


class DiskCache:
    """The index of the cache of one broker, for all its streams."""

    def __init__(self, turn: Turn, bytes_max: int) -> None:
        """At most `bytes_max` bytes lie on the disk; with 0 there is no cache."""
        self._out = turn.out
        self._counters = turn.counters
        self._bytes_max = bytes_max
        self._bytes = 0
        self._last = 0
        #: number -> bytes, of entries on their way to the disk, and the sum
        self._unwritten: dict[int, int] = {}
        self._unwritten_bytes = 0
        #: number -> entry, the oldest first
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        #: number -> the range that is wanted of an entry that is being read
        self._reading: dict[int, Range] = {}
        #: pubend -> its entries, sorted
        self._of: dict[str, list[Entry]] = {}

    @property
    def is_on(self) -> bool:
        """Whether there is a cache."""
        return self._bytes_max > 0

    def keep(self, pubend: str, base: int, upto: int, version: int, batch: EventBatch | None) -> None:
        """Write knowledge of `(base, upto]` to the disk, and let the oldest go; what is there is left out."""
        size = ENTRY_BYTES + (len(batch.data) if batch is not None else 0)
        if not self.is_on or size > self._bytes_max or self._unwritten_bytes > UNWRITTEN_BYTES_MAX:
            return
        if not split(base, upto, self.find(pubend, base, upto, version))[1]:
            return
        self._last += 1
        self._counters["cache_writes"] += 1
        entry = Entry(upto, base, version, self._last, pubend, size)
        self._entries[entry.number] = entry
        insort(self._of.setdefault(pubend, []), entry)
        self._bytes += size
        self._unwritten[entry.number] = size
        self._unwritten_bytes += size
        self._out.add(WriteCache(entry.number, pubend, base, upto, batch))
        oldest = None
        while self._bytes > self._bytes_max:
            oldest = next(iter(self._entries))
            self.forget(oldest)
        if oldest is not None:
            self._out.add(ChopCache(oldest))

    def written(self, number: int) -> None:
        """An entry is on the disk, or was given up."""
        self._unwritten_bytes -= self._unwritten.pop(number, 0)

    def find(self, pubend: str, base: int, upto: int, version: int) -> list[Entry]:
        """Return entries that together have parts of `(base, upto]`, complete for this version, in order."""
        entries, found = self._of.get(pubend, []), []
        for at in range(bisect_right(entries, base, key=lambda each: each.upto), len(entries)):
            if entries[at].base >= upto:
                break  # an entry that overlaps others may be missed, which costs only a question
            if entries[at].version >= version:
                found.append(entries[at])
        return found

    def begin_read(self, entry: Entry, part: Range) -> bool:
        """Return whether an entry has to be read for a part of it; if it is being read, that is for it too.

        An entry has many events, and those who catch up ask for few of them at a time.
        """
        base, upto = self._reading.get(entry.number, part)
        is_new = entry.number not in self._reading
        self._reading[entry.number] = min(base, part[0]), max(upto, part[1])
        return is_new

    def end_read(self, asked: ReadCache) -> Range:
        """An entry was read: return the range of it that is wanted by now."""
        return self._reading.pop(asked.number, (asked.base, asked.upto))

    def forget(self, number: int) -> None:
        """An entry is not there any more."""
        entry = self._entries.pop(number, None)
        if entry is not None:
            self._bytes -= entry.bytes
            of_pubend = self._of[entry.pubend]
            del of_pubend[bisect_right(of_pubend, entry) - 1]

    def forget_pubend(self, pubend: str) -> None:
        """The pubend is not in the layout any more."""
        for entry in list(self._of.pop(pubend, ())):
            self._bytes -= self._entries.pop(entry.number).bytes
            self._reading.pop(entry.number, None)


def split(base: int, upto: int, entries: list[Entry]) -> tuple[list[tuple[Entry, Range]], list[Range]]:
    """Return which part of `(base, upto]` to read from each entry, and the parts that none of them has."""
    left = RangeSet([(base, upto)])
    reads: list[tuple[Entry, Range]] = []
    for entry in entries:
        for part in left.parts(max(base, entry.base), min(upto, entry.upto)):
            reads.append((entry, part))
            left.remove(*part)
    return reads, list(left)
