"""The columns of a block: a tick and a match set for each row, and the subscribers in each set.

Reading what a subscriber missed takes two gathers: the sets that it is in, then the rows with one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.pfs.record import Ids, Index
from tidemark.ticks import Tick, Ticks


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """ticks[row] ascend, sets[row].

    Set n is members[ends[n - 1] : ends[n]], which are groups of subscribers.
    """

    ticks: Ticks
    sets: Ids
    ends: Index
    members: Ids
    #: the group of a subscriber is its number shifted right by so many bits
    group_bits: int

    @classmethod
    def nothing(cls, group_bits: int) -> BlockColumns:
        """Returns columns without rows."""
        none, nobody = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return cls(none, nobody, none, nobody, group_bits)

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the arrays take."""
        return self.ticks.nbytes + self.sets.nbytes + self.ends.nbytes + self.members.nbytes

    def present(self) -> Ids:
        """Returns every group that is in some set."""
        return np.unique(self.members)

    def missed(self, subscribers: Ids, bases: Ticks, upto: Tick) -> list[Ticks]:
        """subscribers[i], bases[i] -> the ticks in `(bases[i], upto]` that matched the subscriber."""
        firsts = self.ticks.searchsorted(bases, "right").tolist()
        last = int(self.ticks.searchsorted(upto, "right"))
        chosen = np.zeros(len(self.ends), np.bool_)
        found: list[Ticks] = []
        for sets, first in zip(self._sets_of(subscribers), firsts, strict=True):
            chosen[sets] = True
            found.append(self.ticks[first:last][chosen[self.sets[first:last]]])
            chosen[sets] = False
        return found

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
