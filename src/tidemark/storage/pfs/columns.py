"""The columns of a block: a tick, a match set and the bytes of the event for each row, and the subscribers in
each set.

Reading what a subscriber missed takes two gathers: the sets that it is in, then the rows with one of them.
The second is remembered for the next subscriber that is in the same sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.pfs.record import Ids, Index
from tidemark.ticks import TICK_MAX, Tick, Ticks


class BlockTally(NamedTuple):
    """For each subscriber how many events matched, their bytes, and the oldest; TICK_MAX if there is none."""

    events: Index
    bytes: Index
    oldest: Ticks
    #: the block knows how many bytes its events have, and which subscribers they matched
    is_exact: bool


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """ticks[row] ascend, sets[row], and lengths[row]: the bytes of the event, None if they are not known.

    Set n is members[ends[n - 1] : ends[n]], which are groups of subscribers.
    """

    ticks: Ticks
    sets: Ids
    lengths: Ids | None
    ends: Index
    members: Ids
    #: the group of a subscriber is its number shifted right by so many bits
    group_bits: int
    #: sets, as bytes -> the ticks of all their rows; together they have at most as many ticks as the block
    _ticks_of_sets: dict[bytes, Ticks] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def nothing(cls, group_bits: int) -> BlockColumns:
        """Returns columns without rows."""
        none, nobody = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return cls(none, nobody, nobody, none, nobody, group_bits)

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the arrays take, with what is remembered of them at most."""
        lengths = 0 if self.lengths is None else self.lengths.nbytes
        return 2 * self.ticks.nbytes + self.sets.nbytes + lengths + self.ends.nbytes + self.members.nbytes

    def present(self) -> Ids:
        """Returns every group that is in some set."""
        return np.unique(self.members)

    def missed(self, subscribers: Ids, bases: Ticks, upto: Tick) -> list[Ticks]:
        """subscribers[i], bases[i] -> the ticks in `(bases[i], upto]` that matched the subscriber."""
        found: list[Ticks] = []
        for sets, base in zip(self._sets_of(subscribers), bases.tolist(), strict=True):
            ticks = self._ticks_of(sets)
            found.append(ticks[ticks.searchsorted(base, "right") : ticks.searchsorted(upto, "right")])
        return found

    def _ticks_of(self, sets: Index) -> Ticks:
        """Returns the ticks of all rows with one of these sets. The array must not be changed."""
        key, known = sets.tobytes(), self._ticks_of_sets
        found = known.get(key)
        if found is None:
            chosen = np.zeros(len(self.ends), np.bool_)
            chosen[sets] = True
            found = self.ticks[chosen[self.sets]]
            if sum(map(len, known.values())) + len(found) > len(self.ticks):
                known.clear()
            known[key] = found
        return found

    def tally(self, subscribers: Ids, bases: Ticks, uptos: Ticks) -> BlockTally:
        """Returns how much in `(bases[i], uptos[i]]` matched subscribers[i]."""
        count = len(subscribers)
        events, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
        oldest = np.full(count, TICK_MAX, np.int64)
        firsts = self.ticks.searchsorted(bases, "right").tolist()
        lasts = self.ticks.searchsorted(uptos, "right").tolist()
        lengths = np.zeros(len(self.ticks), np.uint32) if self.lengths is None else self.lengths
        # Most ranges hold the whole block: for them each set is added up once for all subscribers.
        sets_events = np.bincount(self.sets, minlength=len(self.ends))
        sets_bytes = np.bincount(self.sets, lengths, len(self.ends)).astype(np.int64)
        named, places = np.unique(self.sets, return_index=True)
        sets_oldest = np.full(len(self.ends), TICK_MAX, np.int64)
        sets_oldest[named] = self.ticks[places]
        chosen = np.zeros(len(self.ends), np.bool_)
        for i, (sets, first, last) in enumerate(zip(self._sets_of(subscribers), firsts, lasts, strict=True)):
            if not len(sets) or first >= last:
                continue
            if first == 0 and last == len(self.ticks):
                events[i], size[i] = sets_events[sets].sum(), sets_bytes[sets].sum()
                oldest[i] = sets_oldest[sets].min()
                continue
            chosen[sets] = True
            rows = first + np.flatnonzero(chosen[self.sets[first:last]])
            chosen[sets] = False
            if len(rows):
                events[i], size[i] = len(rows), lengths[rows].sum(dtype=np.int64)
                oldest[i] = self.ticks[rows[0]]
        return BlockTally(events, size, oldest, self.lengths is not None and not self.group_bits)

    def _sets_of(self, subscribers: Ids) -> list[Index]:
        """subscribers[i] -> the sets that the subscriber's group is in."""
        groups = subscribers >> np.uint32(self.group_bits)
        if len(groups) == 1:
            return [self._set_at(np.flatnonzero(self.members == groups[0]))]
        places = np.flatnonzero(np.isin(self.members, groups))
        places = places[self.members[places].argsort(kind="stable")]
        held, sets = self.members[places], self._set_at(places)
        low, high = held.searchsorted(groups), held.searchsorted(groups, "right")
        return [sets[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]

    def _set_at(self, places: NDArray[np.intp]) -> Index:
        """places[i] in `members` -> the set that the place belongs to."""
        return self.ends.searchsorted(places, "right")
