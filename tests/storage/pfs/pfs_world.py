"""A subscriber hosting broker's PFS on a disk in memory, and a truth to compare it with.

A truth says of every tick which subscribers its event matched; nobody, or no event, is the same to the PFS.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np

from tidemark.storage.disk.memory_disk import Choice, MemoryDisk, keep_all
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs import PersistentFiltering, openblock
from tidemark.storage.pfs.openblock import MembersOf
from tidemark.storage.pfs.record import Ids
from tidemark.ticks import Range, Tick, Ticks

Truth = Mapping[Tick, frozenset[int]]

#: Blocks and records so small that a few dozen ticks make several of each.
SMALL = {
    "BLOCK_ROWS": 4,
    "BLOCK_ROWS_MAX": 6,
    "BLOCK_MEMBERS_MAX": 12,
    "BLOCK_RECORDS_MAX": 5,
    "RECORD_ROWS_MAX": 3,
    "RECORD_MEMBERS_MAX": 5,
}
SEGMENT_BYTES = 2_000


def small_blocks() -> AbstractContextManager[Any]:
    """While it lasts, blocks are small."""
    return cast(AbstractContextManager[Any], patch.multiple(openblock, **cast(Any, SMALL)))


def length_of(tick: Tick) -> int:
    """The bytes of the event at a tick."""
    return 20 + tick % 7 * (300 if tick % 50 == 0 else 1)


class Filtered(NamedTuple):
    """What matched the events of a range, in the form that `PersistentFiltering.append` takes."""

    ticks: Ticks
    sets: Ids
    lengths: Ids
    members: MembersOf


class Numbering:
    """A matcher's numbers for sets, as they come."""

    def __init__(self) -> None:
        self._sets: list[frozenset[int]] = [frozenset()]

    def number(self, of: frozenset[int]) -> int:
        if of not in self._sets:
            self._sets.append(of)
        return self._sets.index(of)

    def members(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return np.array(sorted(self._sets[number]), np.uint32)

    def filtered(self, truth: Truth, base: Tick, upto: Tick) -> Filtered:
        """What a matcher makes of the events in `(base, upto]`."""
        ticks = sorted(tick for tick in truth if base < tick <= upto)
        numbers = [self.number(truth[tick]) for tick in ticks]
        lengths = np.array([length_of(tick) for tick in ticks], np.uint32)
        return Filtered(np.array(ticks, np.int64), np.array(numbers, np.uint32), lengths, self.members)


@dataclass
class World:
    """The PFS of one pubend, and how often it was started."""

    truth: Truth
    group_bits: int = 0
    cache_bytes: int = 1 << 20
    reads_max: int = 256
    disk: MemoryDisk = field(default_factory=MemoryDisk)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a broker does, its matcher with new numbers."""
        self.numbering = Numbering()
        self.volume = LogVolume.open(self.disk, identity=7, segment_bytes=SEGMENT_BYTES)
        self.pfs = PersistentFiltering(
            self.volume,
            group_bits=self.group_bits,
            cache_bytes_max=self.cache_bytes,
            read_blocks_max=self.reads_max,
        )

    def restart(self, choose: Choice = keep_all) -> None:
        """Crash and start again."""
        self.disk.crash(choose)
        self.start()

    def filtered(self, base: Tick, upto: Tick) -> Filtered:
        return self.numbering.filtered(self.truth, base, upto)

    def append(self, base: Tick, upto: Tick) -> None:
        self.pfs.append("p1", base, upto, *self.filtered(base, upto))

    def fill(self, base: Tick, upto: Tick) -> list[Range]:
        """Append what the PFS does not know of `(base, upto]`, and return what that was."""
        unknown = self.pfs.unknown("p1", base, upto)
        for start, stop in unknown:
            self.append(start, stop)
        return unknown

    def matched(self, subscriber: int, base: Tick, upto: Tick) -> list[Tick]:
        """The truth of one subscriber."""
        return sorted(t for t, who in self.truth.items() if base < t <= upto and subscriber in who)

    def read_all(self, subscriber: int, base: Tick, upto: Tick, limit: int = 1_000) -> list[Range]:
        """Read what the PFS knows of `(base, upto]`, check all of it, and return what it does not know."""
        unknown: list[Range] = []
        while base < upto:
            missed = self.pfs.read("p1", subscriber, base, limit)
            self.check(subscriber, base, missed.upto, missed.ticks.tolist())
            assert len(missed.ticks) <= limit
            if missed.unknown is not None:
                assert missed.unknown[0] == missed.upto
                unknown.append((missed.unknown[0], min(missed.unknown[1], upto)))
                base = missed.unknown[1]
            elif missed.upto == base:
                unknown.append((base, upto))
                base = upto
            else:
                base = missed.upto
        return [part for part in unknown if part[0] < part[1]]

    def check(self, subscriber: int, base: Tick, upto: Tick, found: list[Tick]) -> None:
        expected = self.matched(subscriber, base, upto)
        if self.group_bits == 0:
            assert found == expected
            return
        assert set(found) >= set(expected)
        assert found == sorted(set(found) & self.truth.keys())


def ticks_in(ranges: list[Range]) -> set[Tick]:
    return {tick for base, upto in ranges for tick in range(base + 1, upto + 1)}
