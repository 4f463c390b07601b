"""Extents: which block on disk holds the rows of which ticks.

Disjoint ranges `(base, upto]` in order, each with its block. A block has one extent, unless damage has cut
pieces out of it; ticks between two extents are unknown to the PFS.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.storage.pfs.record import Ids
from tidemark.ticks import Range, Tick


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block on disk: its records are `first` to `last` of the log stream. Two are equal if they are one."""

    first: int
    last: int
    base: Tick
    upto: Tick
    rows: int
    group_bits: int
    #: every group in one of its sets; None when it was not worth the memory, and the block must be read
    present: Ids | None


class Extent(NamedTuple):
    """The ticks of `(base, upto]` are in this block."""

    base: Tick
    upto: Tick
    block: Block


class Extents:
    """A sorted map from ranges of ticks to blocks."""

    def __init__(self) -> None:
        #: base < upto <= the base of the next
        self._extents: list[Extent] = []

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    @property
    def last(self) -> Tick | None:
        """The last tick of all, None when there is none."""
        return self._extents[-1].upto if self._extents else None

    def after(self, tick: Tick) -> Extent | None:
        """The extent with the first known tick beyond `tick`."""
        at = self._ending_after(tick)
        return self._extents[at] if at < len(self._extents) else None

    def gaps(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that are in no extent, in order."""
        if base >= upto:
            return []
        inside = self._extents[self._ending_after(base) : bisect_left(self._extents, upto, key=_base)]
        starts = [base, *(extent.upto for extent in inside)]
        stops = [*(extent.base for extent in inside), upto]
        return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]

    def put(self, base: Tick, upto: Tick, block: Block) -> None:
        """`(base, upto]` is in `block`, whatever was there before."""
        assert base < upto
        first, stop = self._ending_after(base), bisect_left(self._extents, upto, key=_base)
        cut = [part for extent in self._extents[first:stop] for part in _around(extent, base, upto)]
        before = [part for part in cut if part.upto <= base]
        self._extents[first:stop] = [*before, Extent(base, upto, block), *cut[len(before) :]]

    def cut(self, block: Block, holes: list[Range]) -> None:
        """`holes` of this block are lost."""
        for base, upto in holes:
            first, stop = self._ending_after(base), bisect_left(self._extents, upto, key=_base)
            self._extents[first:stop] = [
                part
                for extent in self._extents[first:stop]
                for part in (_around(extent, base, upto) if extent.block is block else (extent,))
            ]

    def remove(self, blocks: set[Block], upto: Tick) -> None:
        """Forget the extents of these blocks, all at or below `upto`."""
        stop = self._ending_after(upto)
        self._extents[:stop] = [extent for extent in self._extents[:stop] if extent.block not in blocks]

    def _ending_after(self, tick: Tick) -> int:
        return bisect_right(self._extents, tick, key=_upto)


def _base(extent: Extent) -> Tick:
    return extent.base


def _upto(extent: Extent) -> Tick:
    return extent.upto


def _around(extent: Extent, base: Tick, upto: Tick) -> list[Extent]:
    """What is left of an extent without `(base, upto]`."""
    parts = (extent.base, min(base, extent.upto)), (max(upto, extent.base), extent.upto)
    return [Extent(*part, extent.block) for part in parts if part[0] < part[1]]
