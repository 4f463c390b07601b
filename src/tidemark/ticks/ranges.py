"""RangeSet: a set of ticks that come in runs.

The set is kept as sorted ranges `(base, upto]` that neither overlap nor touch, so equal sets have equal
ranges. Adding at the end, which is what an undisturbed stream does, looks at the last range only. Every other
operation finds its place by bisection and then works on the ranges that it changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tidemark.ticks.tick import Range, Tick


class RangeSet:
    """A mutable set of ticks."""

    __slots__ = ("_bases", "_uptos")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        #: Range i is (bases[i], uptos[i]]; bases[i] < uptos[i] < bases[i + 1].
        self._bases: list[Tick] = []
        self._uptos: list[Tick] = []
        for base, upto in ranges:
            self.add(base, upto)

    def add(self, base: Tick, upto: Tick) -> list[Range]:
        """Add `(base, upto]` to the set. Returns the parts of it that were not in the set before."""
        assert base <= upto
        uptos = self._uptos
        if base == upto:
            return []
        if not uptos or base > uptos[-1]:
            self._bases.append(base)
            uptos.append(upto)
            return [(base, upto)]
        if base == uptos[-1]:
            uptos[-1] = upto
            return [(base, upto)]
        return self._add_inside(base, upto)

    def _add_inside(self, base: Tick, upto: Tick) -> list[Range]:
        added = self.gaps(base, upto)
        if not added:
            return added
        # Ranges that only touch the new one are joined with it too.
        low, high = bisect_left(self._uptos, base), bisect_right(self._bases, upto)
        if low < high:
            base, upto = min(base, self._bases[low]), max(upto, self._uptos[high - 1])
        self._bases[low:high] = [base]
        self._uptos[low:high] = [upto]
        return added

    def remove(self, base: Tick, upto: Tick) -> list[Range]:
        """Remove `(base, upto]` from the set. Returns the parts of it that were in the set."""
        low, high = self._overlapping(base, upto)
        if low == high:
            return []
        removed = self.parts(base, upto)
        first, last = self._bases[low], self._uptos[high - 1]
        kept = [part for part in ((first, base), (upto, last)) if part[0] < part[1]]
        self._bases[low:high] = [part[0] for part in kept]
        self._uptos[low:high] = [part[1] for part in kept]
        return removed

    def remove_upto(self, upto: Tick) -> None:
        """Remove every tick at or below `upto`."""
        gone = bisect_right(self._uptos, upto)
        del self._bases[:gone], self._uptos[:gone]
        if self._bases and self._bases[0] < upto:
            self._bases[0] = upto

    def contains(self, tick: Tick) -> bool:
        """Is `tick` in the set?"""
        at = bisect_left(self._uptos, tick)
        return at < len(self._uptos) and self._bases[at] < tick

    def covers(self, base: Tick, upto: Tick) -> bool:
        """Is all of `(base, upto]` in the set?"""
        return self.end_of_run(base) >= upto

    def end_of_run(self, base: Tick) -> Tick:
        """The last tick t such that all of `(base, t]` is in the set; `base` itself if there is none."""
        at = bisect_right(self._uptos, base)
        return self._uptos[at] if at < len(self._uptos) and self._bases[at] <= base else base

    def gaps(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that are not in the set, in order."""
        assert base <= upto
        low, high = self._overlapping(base, upto)
        edges = zip([base, *self._uptos[low:high]], [*self._bases[low:high], upto], strict=True)
        return [(start, stop) for start, stop in edges if start < stop]

    def few_gaps(self, base: Tick, upto: Tick, most: int) -> list[Range]:
        """The gaps of `(base, upto]`; if there are more than `most`, the last has all that is left."""
        assert base <= upto
        assert most > 0
        found: list[Range] = []
        at = bisect_right(self._uptos, base)
        while base < upto:
            stop = min(self._bases[at], upto) if at < len(self._bases) else upto
            if base < stop and len(found) == most:
                return [*found[:-1], (found[-1][0], upto)]
            if base < stop:
                found.append((base, stop))
            base = self._uptos[at] if at < len(self._uptos) else upto
            at += 1
        return found

    def parts(self, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that are in the set, in order."""
        assert base <= upto
        if not self._bases:
            return []
        low, high = self._overlapping(base, upto)
        inside = zip(self._bases[low:high], self._uptos[low:high], strict=True)
        return [(max(start, base), min(stop, upto)) for start, stop in inside]

    def _overlapping(self, base: Tick, upto: Tick) -> tuple[int, int]:
        """Indices low:high of the ranges that share a tick with `(base, upto]`."""
        if base == upto:
            return 0, 0
        return bisect_right(self._uptos, base), bisect_left(self._bases, upto)

    def union(self, other: RangeSet) -> RangeSet:
        """A new set of the ticks in either set."""
        return RangeSet(sorted([*self, *other]))

    def intersection(self, other: RangeSet) -> RangeSet:
        """A new set of the ticks in both sets."""
        few, many = sorted((self, other), key=len)
        return RangeSet(part for base, upto in few for part in many.parts(base, upto))

    def difference(self, other: RangeSet) -> RangeSet:
        """A new set of the ticks that are in this set and not in `other`."""
        return RangeSet(gap for base, upto in self for gap in other.gaps(base, upto))

    def copy(self) -> RangeSet:
        """A new set with the same ticks; a change of one does not change the other."""
        twin = RangeSet()
        twin._bases, twin._uptos = self._bases.copy(), self._uptos.copy()
        return twin

    @property
    def span(self) -> Range | None:
        """The smallest range that covers the set; None when it is empty."""
        return (self._bases[0], self._uptos[-1]) if self._bases else None

    def ticks(self) -> int:
        """The number of ticks in the set."""
        return sum(self._uptos) - sum(self._bases)

    def __len__(self) -> int:
        """The number of ranges, not of ticks."""
        return len(self._bases)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._bases, self._uptos, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._bases == other._bases and self._uptos == other._uptos

    __hash__ = None  # type: ignore[assignment]  # a mutable set has no hash; mypy wants a method

    def __repr__(self) -> str:
        return f"RangeSet({', '.join(f'({base}, {upto}]' for base, upto in self)})"


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the ticks of all ranges in as few ranges as possible, in order; empty ranges are left out."""
    return list(RangeSet(sorted(each for each in ranges if each[0] < each[1])))


def within(ranges: Iterable[Range], base: Tick, upto: Tick) -> list[Range]:
    """Return the parts of each range that lie in `(base, upto]`, in the order of the ranges."""
    cut = ((max(low, base), min(high, upto)) for low, high in ranges)
    return [(low, high) for low, high in cut if low < high]
