"""Match sets: the distinct sets of subscribers that events matched, each with a number.

A number means the same set for as long as it is known. The numbers of the latest batch are always known,
older ones until more than MATCH_SETS_MAX sets or MATCH_SET_MEMBERS_MAX members are held. Then all are
forgotten together and the next sets get new numbers; a number is used again only after two billion others.

A set is identified by a digest of the rules in it (`rules.Rules`), so a batch costs one look-up a row,
however many subscribers there are. The members are put together once for every new set.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidemark.matching.index.arrays import Ids, Index, Words, few_looked_up, grown, spread

NOBODY = 0
MATCH_SETS_MAX = 1 << 18
MATCH_SET_MEMBERS_MAX = 1 << 24
#: Of so many rows or more it is found out first which digests are different. Only those are looked up, if
#: there is at most one of them for so many rows.
DISTINCT_ROWS = 512
DISTINCT_ONE_IN = 4

DIGEST_BYTES = 16
_NO_RULES = bytes(DIGEST_BYTES)
_NUMBER_MAX = 1 << 31


#: digests[:, row]: two words for each row
Digests = Words


class MembersOfRows(Protocol):
    """Puts the members of new match sets together; `Matcher` makes one for each part of a batch."""

    def __call__(self, wanted: list[int], /) -> tuple[Index, Ids]:
        """wanted[n], rows of the part -> length[n] of the set of each, and the members of all, end to end."""


class MatchSets:
    """Sets of subscribers by number, and by digest."""

    def __init__(self) -> None:
        #: Set n is members[ends[n - first - 1] : ends[n - first]]. Callers of `members` hold views of it, not
        #: writable: a set that they may hold never changes, and `_forget` replaces the array.
        self._members: Ids = np.zeros(64, np.uint32)
        self._ends: Index = np.zeros(64, np.int64)
        #: A set is sorted when its members are first asked for.
        self._is_sorted = np.zeros(64, np.bool_)
        #: number of members in all sets
        self._held = 0
        self._numbers: dict[bytes, int] = {_NO_RULES: NOBODY}
        self._first = self._next = NOBODY + 1

    def __len__(self) -> int:
        """The number of sets held, without the empty one."""
        return len(self._numbers) - 1

    def renew(self) -> bool:
        """Forget all sets if too much is held; returns whether. The matcher calls it between batches."""
        is_full = len(self) > MATCH_SETS_MAX or self._held > MATCH_SET_MEMBERS_MAX
        if is_full:
            self._forget()
        return is_full

    def intern(self, digests: Digests, members_of: MembersOfRows) -> Ids:
        """digests[:, row] -> number[row]. `members_of` is called once, with a row of each new set."""
        few = few_looked_up(digests, self._numbers)
        if few is not None:
            return few
        if digests.shape[1] < DISTINCT_ROWS:
            return self._looked_up(digests, None, members_of)
        words, firsts, of_row = np.unique(digests[0], return_index=True, return_inverse=True)
        seconds = digests[1].take(firsts)
        if len(words) * DISTINCT_ONE_IN > len(of_row) or (seconds.take(of_row) != digests[1]).any():
            return self._looked_up(digests, None, members_of)
        # In the order of the rows, so that sets have the numbers that they have when every row is looked up.
        order = firsts.argsort()
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        firsts = firsts.take(order)
        return self._looked_up(digests[:, firsts], firsts, members_of).take(rank.take(of_row))

    def _looked_up(self, digests: Digests, rows: Index | None, members_of: MembersOfRows) -> Ids:
        """digests[:, n] of rows[n] -> number[n]; None stands for all rows, in order."""
        listed: list[bytes] = digests.T.copy().view(f"V{DIGEST_BYTES}").ravel().tolist()
        numbers = list(map(self._numbers.get, listed))
        if None in numbers:
            self._add(listed, rows, members_of)
            numbers = list(map(self._numbers.get, listed))
        return np.array(numbers, np.uint32)

    def members(self, number: int) -> Ids:
        """The subscribers of a set, ascending and read-only."""
        if number == NOBODY:
            return self._members[:0]
        index = number - self._first
        assert 0 <= index < len(self), "this match set has been forgotten"
        start = int(self._ends[index - 1]) if index else 0
        members = self._members[start : int(self._ends[index])]
        if not self._is_sorted[index]:
            members.sort()
            self._is_sorted[index] = True
        members.flags.writeable = False
        return members

    def members_of(self, numbers: Ids) -> tuple[Index, Ids]:
        """numbers[n], none of them NOBODY -> which[m], member[m]: the members of these sets, in no order."""
        at = numbers.astype(np.int64) - self._first
        assert not len(at) or 0 <= at.min() <= at.max() < len(self), "a match set has been forgotten"
        starts = np.where(at > 0, self._ends[at - 1], 0)
        owner, place = spread(starts, self._ends[at] - starts)
        return owner, self._members[place]

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest."""
        return self._members.nbytes + self._ends.nbytes + 200 * len(self._numbers)

    def _add(self, digests: list[bytes], rows: Index | None, members_of: MembersOfRows) -> None:
        known = self._numbers
        of_digest = range(len(digests)) if rows is None else rows.tolist()
        pairs = zip(digests, of_digest, strict=True)
        new = {digest: row for digest, row in pairs if digest not in known}
        lengths, members = members_of(list(new.values()))
        before = len(self)
        known.update(zip(new, range(self._next, self._next + len(new)), strict=True))
        self._next += len(new)
        self._ends = grown(self._ends, len(self))
        self._is_sorted = grown(self._is_sorted, len(self))
        self._ends[before : len(self)] = lengths.cumsum() + self._held
        self._members = grown(self._members, self._held + len(members))
        self._members[self._held : self._held + len(members)] = members
        self._held += len(members)

    def _forget(self) -> None:
        if self._next > _NUMBER_MAX:
            self._next = NOBODY + 1
        self._first = self._next
        self._numbers = {_NO_RULES: NOBODY}
        # New arrays, not the old ones emptied: callers may still read the members they hold.
        self._members = np.zeros(64, np.uint32)
        self._ends = np.zeros(64, np.int64)
        self._is_sorted = np.zeros(64, np.bool_)
        self._held = 0
