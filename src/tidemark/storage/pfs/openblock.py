"""The open block: it gathers rows and numbers match sets until it is closed.

A block numbers its sets itself, and defines each of them once. So a block can be read, chopped or damaged
without regard to any other. A set that is used again is defined again in the next block, and a caller's
number that has come to mean another set does no harm.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.growing import Growing
from tidemark.storage.pfs.record import BlockHead, Definitions, Ids, PfsRecord, Summary
from tidemark.ticks import Tick, Ticks

#: A block ends after BLOCK_ROWS rows; if its definitions outweigh its rows, after BLOCK_ROWS_MAX.
BLOCK_ROWS = 8192
BLOCK_ROWS_MAX = 8 * BLOCK_ROWS
BLOCK_MEMBERS_MAX = 1 << 20
#: A block also ends after so many records, however little is in them: a quiet pubend has to be chopped too.
BLOCK_RECORDS_MAX = 1024
#: With more than this, a record is written without waiting for the next flush.
RECORD_ROWS_MAX = 16384
RECORD_MEMBERS_MAX = 1 << 18
#: Numbers of a caller up to this one are looked up in a table where there are many rows.
_TABLE_NUMBERS = 1 << 16


class MembersOf(Protocol):
    """Knows the subscribers of each match set, by the caller's numbers."""

    def __call__(self, number: int, /) -> Ids:
        """Returns the subscribers of the set with this number, ascending."""


class OpenBlock:
    """Rows of `(base, upto]` and the sets they name."""

    def __init__(self, base: Tick, group_bits: int) -> None:
        self.base = self.upto = base
        #: how many records were written, the index of the first, and the tick up to which they reach
        self.records = 0
        self.first = -1
        self._written_upto = base
        #: how much of the columns below the written records have
        self._written_rows = self._written_sets = self._written_members = 0
        self._group_bits = group_bits
        #: a row each: its tick and the number of its set in this block
        self._ticks, self._sets = Growing(np.int64), Growing(np.uint32)
        #: and the bytes of its event
        self._lengths = Growing(np.uint32)
        #: set n is members[ends[n - 1] : ends[n]]
        self._ends, self._members = Growing(np.int64), Growing(np.uint32)
        #: members of a set, as bytes -> its number in this block
        self._set_of: dict[bytes, int] = {}
        #: the caller's number -> the block's, valid as long as the caller passes the same `members`
        self._known: dict[int, int] = {}
        self._asked: MembersOf | None = None
        #: the caller's numbers for the last rows, which are not in the column of sets yet
        self._waiting = Growing(np.uint32)

    def add(self, upto: Tick, ticks: Ticks, numbers: Ids, lengths: Ids, members: MembersOf) -> int:
        """Add that in `(self.upto, upto]` these ticks matched these sets, and no other tick matched anyone.

        No number is 0. Returns for how many rows there was room in a record; if not for all, the block ends
        at the last of them.
        """
        if len(ticks) == 0:
            self.upto = upto
            return 0
        assert self.upto < ticks[0]
        assert ticks[-1] <= upto
        room = RECORD_ROWS_MAX - len(self._ticks) + self._written_rows
        taken = self._learn(numbers[:room], members)
        self._ticks.extend(ticks[:taken])
        self._waiting.extend(numbers[:taken])
        self._lengths.extend(lengths[:taken])
        self.upto = upto if taken == len(ticks) else int(ticks[taken - 1])
        return taken

    def columns(self) -> BlockColumns:
        """Returns all rows so far."""
        self._settle()
        views = self._ticks.view(), self._sets.view(), self._lengths.view()
        return BlockColumns(*views, self._ends.view(), self._members.view(), self._group_bits)

    @property
    def unwritten(self) -> bool:
        """Whether there is anything that no record has yet."""
        return self._written_upto < self.upto

    @property
    def pressing(self) -> bool:
        """Whether a record should be written without waiting for the next flush."""
        rows = len(self._ticks) - self._written_rows
        return rows >= RECORD_ROWS_MAX or self._unwritten_members >= RECORD_MEMBERS_MAX

    @property
    def full(self) -> bool:
        """Whether the block should end here."""
        rows, members = len(self._ticks), len(self._members)
        rows_max = BLOCK_ROWS if members <= 2 * rows else BLOCK_ROWS_MAX
        return rows >= rows_max or members >= BLOCK_MEMBERS_MAX or self.records >= BLOCK_RECORDS_MAX

    def record(self, before: Summary | None) -> PfsRecord:
        """Returns a record with what no record has yet; `before` sums up the block before this one."""
        self._settle()
        head = BlockHead(self._group_bits, before) if self.records == 0 else None
        rows = self._written_rows
        ticks, sets, lengths = self._ticks.view(rows), self._sets.view(rows), self._lengths.view(rows)
        assert (ticks[1:] > ticks[:-1]).all(), "ticks increase"
        sizes = np.diff(self._ends.view(self._written_sets), prepend=self._written_members)
        new = Definitions(sizes, self._members.view(self._written_members))
        return PfsRecord(
            self.records, self._written_upto, self.upto, ticks, sets, lengths, self._written_sets, new, head
        )

    def written(self, index: int) -> None:
        """The last `record` is in the log, under this index."""
        if self.records == 0:
            self.first = index
        assert index == self.first + self.records, "a block's records follow one another"
        self.records += 1
        self._written_upto = self.upto
        self._written_rows = len(self._ticks)
        self._written_sets, self._written_members = len(self._ends), len(self._members)

    def summary(self) -> Summary:
        """Returns the summary of this block for the head of the next one."""
        assert not self.unwritten
        columns = self.columns()
        return Summary(
            self.records, self.base, self.upto, len(columns.ticks), self._group_bits, columns.present()
        )

    def _learn(self, numbers: Ids, members: MembersOf) -> int:
        """Number the sets that are new, while the caller still knows them.

        Returns for how many rows it did.
        """
        # A bound method equals itself and not that of another object: numbers of two matchers are never
        # mixed.
        if members != self._asked:
            self._settle()
            self._known.clear()
            self._asked = members
        for number in _in_order(numbers):
            if number in self._known:
                continue
            if self._unwritten_members >= RECORD_MEMBERS_MAX:
                return int((numbers == number).argmax())
            self._known[number] = self._define(np.asarray(members(number), np.uint32))
        return len(numbers)

    def _define(self, ids: Ids) -> int:
        assert len(ids) > 0, "only set 0 is empty"
        groups = np.unique(ids >> np.uint32(self._group_bits)) if self._group_bits else ids
        content = groups.tobytes()
        number = self._set_of.setdefault(content, len(self._set_of))
        if number == len(self._ends):
            self._members.extend(groups)
            self._ends.extend(np.array([len(self._members)]))
        return number

    def _settle(self) -> None:
        """Complete the column of sets up to the last row."""
        if len(self._waiting) == 0:
            return
        self._sets.extend(_renumbered(self._waiting.view(), self._known))
        self._waiting = Growing(np.uint32)

    @property
    def _unwritten_members(self) -> int:
        return len(self._members) - self._written_members


def _in_order(numbers: Ids) -> list[int]:
    """Returns each of the numbers once, in the order of their first rows."""
    is_first = np.ones(len(numbers), np.bool_)
    # Most rows have the number of the row before: what is left to Python are the others.
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return list(dict.fromkeys(numbers[is_first].tolist()))


def _renumbered(numbers: Ids, of: dict[int, int]) -> Ids:
    """numbers[row] -> of[numbers[row]]"""
    last = int(numbers.max())
    if len(of) <= len(numbers) and last <= _TABLE_NUMBERS:
        table = np.zeros(last + 1, np.uint32)
        used = [number for number in of if number <= last]
        table[used] = [of[number] for number in used]
        return table[numbers]
    found, inverse = np.unique(numbers, return_inverse=True)
    ours: Ids = np.array([of[number] for number in found.tolist()], np.uint32)
    return ours[inverse]
