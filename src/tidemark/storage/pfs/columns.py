"""The columns of a block: a tick and a match set per row, and who is in each set.

Reading what a subscriber missed is two gathers: the sets it is in, then the rows that have one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.pfs.record import Ids, Index
from tidemark.ticks import Tick, Ticks


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """ticks[row] ascending, sets[row]; set n is members[ends[n - 1] : ends[n]], groups of subscribers."""

    ticks: Ticks
    sets: Ids
    ends: Index
    members: Ids
    #: a subscriber's group is its number shifted right by so many bits
    group_bits: int

    @classmethod
    def nothing(cls, group_bits: int) -> BlockColumns:
        """No rows."""
        none, nobody = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return cls(none, nobody, none, nobody, group_bits)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.ticks.nbytes + self.sets.nbytes + self.ends.nbytes + self.members.nbytes

    def present(self) -> Ids:
        """Every group in any set."""
        return np.unique(self.members)

    def missed(self, subscribers: Ids, bases: Ticks, upto: Tick) -> list[Ticks]:
        """subscribers[i], bases[i] -> the ticks in `(bases[i], upto]` that matched it."""
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
        """subscribers[i] -> the sets its group is in."""
        groups = subscribers >> np.uint32(self.group_bits)
        if len(groups) == 1:
            return [self._set_at(np.flatnonzero(self.members == groups[0]))]
        places = np.flatnonzero(np.isin(self.members, groups))
        places = places[self.members[places].argsort(kind="stable")]
        held, sets = self.members[places], self._set_at(places)
        low, high = held.searchsorted(groups), held.searchsorted(groups, "right")
        return [sets[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]

    def _set_at(self, places: NDArray[np.intp]) -> Index:
        """places[i] in `members` -> the set that lies there."""
        return self.ends.searchsorted(places, "right")
