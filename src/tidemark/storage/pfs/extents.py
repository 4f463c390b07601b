"""Extents: which block on disk has the rows of which ticks.

Extents are disjoint ranges `(base, upto]` in order, each with its block. A block has one extent, unless
damage has cut pieces out of it. Ticks between two extents are unknown to the PFS.
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
    """A block on disk: its records are `first` to `last` of the log stream. A block equals only itself."""

    first: int
    last: int
    base: Tick
    upto: Tick
    rows: int
    group_bits: int
    #: every group in one of its sets; None if that took too much memory, so that the block must be read
    present: Ids | None


class Extent(NamedTuple):
    """The ticks of `(base, upto]` are in this block."""

    base: Tick
    upto: Tick
    block: Block


class Extents:
    """A sorted map from ranges of ticks to blocks."""

    def __init__(self) -> None:
        #: of each extent, base < upto <= base of the next
        self._extents: list[Extent] = []

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    @property
    def last(self) -> Tick | None:
        """The last tick of all extents; None if there are none."""
        return self._extents[-1].upto if self._extents else None

    def after(self, tick: Tick) -> Extent | None:
        """Returns the extent with the first known tick beyond `tick`; None if there is none."""
        at = self._ending_after(tick)
        return self._extents[at] if at < len(self._extents) else None

    def gaps(self, base: Tick, upto: Tick) -> list[Range]:
        """Returns the parts of `(base, upto]` that are in no extent, in order."""
        if base >= upto:
            return []
        inside = self._extents[self._ending_after(base) : bisect_left(self._extents, upto, key=_base)]
        starts = [base, *(extent.upto for extent in inside)]
        stops = [*(extent.base for extent in inside), upto]
        return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]

    def put(self, base: Tick, upto: Tick, block: Block) -> None:
        """Map `(base, upto]` to `block`, whatever it was mapped to before."""
        assert base < upto
        first, stop = self._ending_after(base), bisect_left(self._extents, upto, key=_base)
        cut = [part for extent in self._extents[first:stop] for part in _around(extent, base, upto)]
        before = [part for part in cut if part.upto <= base]
        self._extents[first:stop] = [*before, Extent(base, upto, block), *cut[len(before) :]]

    def cut(self, block: Block, holes: list[Range]) -> None:
        """Unmap the ranges `holes` of this block, which are lost."""
        for base, upto in holes:
            first, stop = self._ending_after(base), bisect_left(self._extents, upto, key=_base)
            self._extents[first:stop] = [
                part
                for extent in self._extents[first:stop]
                for part in (_around(extent, base, upto) if extent.block is block else (extent,))
            ]

    def remove(self, blocks: set[Block], upto: Tick) -> None:
        """Remove the extents of these blocks, which are all at or below `upto`."""
        stop = self._ending_after(upto)
        self._extents[:stop] = [extent for extent in self._extents[:stop] if extent.block not in blocks]

    def _ending_after(self, tick: Tick) -> int:
        return bisect_right(self._extents, tick, key=_upto)


def _base(extent: Extent) -> Tick:
    return extent.base


def _upto(extent: Extent) -> Tick:
    return extent.upto


def _around(extent: Extent, base: Tick, upto: Tick) -> list[Extent]:
    """Returns what is left of an extent without `(base, upto]`."""
    parts = (extent.base, min(base, extent.upto)), (max(upto, extent.base), extent.upto)
    return [Extent(*part, extent.block) for part in parts if part[0] < part[1]]
