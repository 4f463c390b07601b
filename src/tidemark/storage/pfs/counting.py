"""Counting what subscribers are owed: the events beyond what each has acknowledged, without matching again.

What was counted for a subscriber is remembered, so that the next count only adds what came since and takes
off what was acknowledged since: a block is looked at once when it is new and once when it is acknowledged,
however long the history is. Blocks that are chopped are taken off before they go. After a restart nothing is
remembered, and the first count reads every block that is owed, a bounded number of them in each call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tidemark.storage.pfs.reading import Stretch, StretchSource
from tidemark.storage.pfs.record import Ids, Index
from tidemark.ticks import TICK_MAX, TICK_MIN, Tick, Ticks

#: Subscribers of a pubend whose count is remembered; the others are counted anew each time.
COUNTS_MAX = 65_536
#: More blocks that are chopped at once are not taken off: the subscribers concerned are counted anew.
PASSED_BLOCKS_MAX = 64


@dataclass(frozen=True, slots=True)
class CountedMatches:
    """What matched a subscriber beyond a base."""

    events: int = 0
    bytes: int = 0
    #: the tick of the first of these events; None if there is none
    oldest: Tick | None = None
    #: False if there may be more, because the PFS has lost what matched, or does not know the bytes of it
    is_exact: bool = True


@dataclass(slots=True)
class _Count:
    """What matched one subscriber in `(base, upto]`."""

    base: Tick
    upto: Tick
    events: int = 0
    bytes: int = 0
    #: the oldest of these events; one that is not beyond `base` was taken off and has to be found anew
    oldest: Tick = TICK_MAX
    #: up to this tick, something is not known
    unknown: Tick = TICK_MIN

    def owed(self) -> CountedMatches:
        oldest = self.oldest if self.events else None
        return CountedMatches(self.events, self.bytes, oldest, self.unknown <= self.base)


@dataclass(slots=True)
class _Walk:
    """A walk for several subscribers, of which number i goes from at[i] to stops[i], and what it met."""

    subscribers: Ids
    at: Ticks
    stops: Ticks
    events: Index
    bytes: Index
    oldest: Ticks
    #: some ticks up to this one are not known
    unknown: Ticks
    #: the bytes of some events up to this tick are not known
    unmeasured: Ticks

    @classmethod
    def begin(cls, subscribers: Iterable[int], starts: Iterable[Tick], stops: Iterable[Tick]) -> _Walk:
        who = np.array(list(subscribers), np.uint32)
        count = len(who)
        none = np.full(count, TICK_MIN, np.int64)
        return cls(
            who,
            np.array(list(starts), np.int64),
            np.array(list(stops), np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.full(count, TICK_MAX, np.int64),
            none,
            none.copy(),
        )

    def over(self, stretch: Stretch) -> None:
        """Go over a stretch, with everyone who stands before its end."""
        moving = np.flatnonzero((self.at < self.stops) & (self.at < stretch.upto))
        late = moving[self.at[moving] < stretch.base]
        self.at[late] = self.unknown[late] = np.minimum(stretch.base, self.stops[late])
        uptos = np.minimum(self.stops[moving], stretch.upto)
        if stretch.columns is not None:
            found = stretch.columns.tally(self.subscribers[moving], self.at[moving], uptos)
            self.events[moving] += found.events
            self.bytes[moving] += found.bytes
            self.oldest[moving] = np.minimum(self.oldest[moving], found.oldest)
            if not found.is_exact:
                some = found.events > 0
                self.unmeasured[moving[some]] = uptos[some]
        self.at[moving] = np.maximum(self.at[moving], uptos)


class OwedCounts:
    """The counts of the subscribers of one pubend."""

    def __init__(self, stream: StretchSource) -> None:
        self._stream = stream
        #: subscriber -> what was counted for it; the one that was not asked for the longest is dropped first
        self._counts: OrderedDict[int, _Count] = OrderedDict()
        #: blocks that this call may still read
        self._reads = 0

    def count(self, bases: Mapping[int, Tick], reads_max: int) -> dict[int, CountedMatches] | None:
        """Returns what each subscriber is owed beyond its base.

        None if more blocks than `reads_max` have to be read. What was read is remembered, so call again.
        """
        last = self._stream.last
        if last is None:
            return dict.fromkeys(bases, CountedMatches())
        self._reads = reads_max
        for subscriber, base in bases.items():
            known = self._counts.get(subscriber)
            if known is None or not known.base <= base <= known.upto:
                self._counts[subscriber] = _Count(base, base)
            self._counts.move_to_end(subscriber)
        found = None
        if self._take_off(bases) and self._add(list(bases), last) and self._find_oldest(list(bases)):
            found = {subscriber: self._counts[subscriber].owed() for subscriber in bases}
        while len(self._counts) > COUNTS_MAX:
            self._counts.popitem(last=False)
        return found

    def chopped(self, upto: Tick) -> None:
        """What lies at or below `upto` is about to go: everyone has acknowledged it."""
        behind = {who: min(upto, each.upto) for who, each in self._counts.items() if each.base < upto}
        self._reads = PASSED_BLOCKS_MAX
        if behind and not self._take_off(behind):
            for subscriber in behind:
                del self._counts[subscriber]

    def forget(self) -> None:
        """What was unknown has become known: count everyone anew."""
        self._counts.clear()

    def _take_off(self, bases: Mapping[int, Tick]) -> bool:
        """Take off what each subscriber has acknowledged since; return False if there were too many reads."""
        late = [who for who, base in bases.items() if self._counts[who].base < base]
        walk = _Walk.begin(late, (self._counts[who].base for who in late), (bases[who] for who in late))
        is_whole = self._go(walk)
        for i, who in enumerate(late):
            count = self._counts[who]
            if walk.unknown[i] > TICK_MIN:
                # What was counted before cannot be read any more: count anew.
                self._counts[who] = _Count(bases[who], bases[who])
                continue
            count.base = int(walk.at[i])
            count.events -= int(walk.events[i])
            count.bytes -= int(walk.bytes[i])
        return is_whole

    def _add(self, subscribers: list[int], last: Tick) -> bool:
        """Add what has come for each subscriber since; return False if there were too many reads."""
        late = [who for who in subscribers if self._counts[who].upto < last]
        walk = _Walk.begin(late, (self._counts[who].upto for who in late), (last for _ in late))
        is_whole = self._go(walk)
        for i, who in enumerate(late):
            count = self._counts[who]
            if count.events == 0:
                count.oldest = int(walk.oldest[i])
            count.upto = int(walk.at[i])
            count.events += int(walk.events[i])
            count.bytes += int(walk.bytes[i])
            count.unknown = max(count.unknown, int(walk.unknown[i]), int(walk.unmeasured[i]))
        return is_whole

    def _find_oldest(self, subscribers: list[int]) -> bool:
        """Find the oldest event where the one before was taken off; False if there were too many reads."""
        counts = self._counts
        stale = [who for who in subscribers if counts[who].events and counts[who].oldest <= counts[who].base]
        walk = _Walk.begin(stale, (counts[who].base for who in stale), (counts[who].upto for who in stale))
        is_whole = self._go(walk, until_found=True)
        for i, who in enumerate(stale):
            if walk.events[i]:
                counts[who].oldest = int(walk.oldest[i])
        return is_whole

    def _go(self, walk: _Walk, *, until_found: bool = False) -> bool:
        """Walk to the end, or for each subscriber to its first event; False if there were too many reads."""
        while True:
            if until_found:
                found = walk.events > 0
                walk.stops[found] = walk.at[found]
            active = np.flatnonzero(walk.at < walk.stops)
            if not len(active):
                return True
            if self._reads <= 0:
                return False
            stretch = self._stream.stretch(int(walk.at[active].min()), walk.subscribers[active])
            if stretch is None:
                walk.at[active] = walk.unknown[active] = walk.stops[active]
                return True
            self._reads -= stretch.columns is not None
            walk.over(stretch)
