"""A log stream: what the volume keeps of it in memory, and its records that wait to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.catalogue import Entry
from tidemark.storage.log.rows import RecordRows, RowTable, Words


class Undo(Protocol):
    """Takes back what the owner of a record did when it appended the record."""

    def __call__(self) -> None:
        """The record will not be written. The undo of the newest record is called first."""


@dataclass(slots=True)
class Pending:
    """A record that waits to be written."""

    stream: int
    index: int
    mark: int
    length: int
    payload_check: int
    pieces: Sequence[Buffer]
    undo: Undo | None = None

    @property
    def payload(self) -> bytes:
        """The pieces joined."""
        return b"".join(self.pieces)


class LogStream:
    """The indexes, marks and places of one stream's records."""

    def __init__(self, entry: Entry) -> None:
        self.id = entry.stream
        self.name = entry.name
        #: where the records of `(chopped, last]` are; a record that is missing here is damaged
        self.table = RowTable()
        #: index of the last record written, also if it is damaged by now
        self.last = entry.last
        #: records up to this index are chopped; `chopped_mark` is the mark of the last of them
        self.chopped = entry.chopped
        self.chopped_mark = entry.chopped_mark
        #: Records that wait for the next flush; their indexes follow `last` without a hole. The volume holds
        #: the same records in its group, and it alone adds and clears them.
        self.pending: list[Pending] = []

    @property
    def next(self) -> int:
        """The index that the next record gets."""
        return self.last + len(self.pending) + 1

    @property
    def last_mark(self) -> int:
        """The mark of the last whole record, waiting ones included, or else of the last one chopped."""
        if self.pending:
            return self.pending[-1].mark
        last = self.table.last_mark
        return self.chopped_mark if last is None else last

    def mark_upto(self, index: int) -> int:
        """The mark of the last whole record up to this index, or else of the last one chopped."""
        if self.pending and index > self.last:
            return self.pending[min(index - self.last, len(self.pending)) - 1].mark
        rows = self.table.rows
        at = int(rows.indexes.searchsorted(index, "right"))
        return int(rows.marks[at - 1]) if at else self.chopped_mark

    @property
    def entry(self) -> Entry:
        """The stream's entry in the catalogue, for the records already written."""
        return Entry(self.id, self.name, self.last, self.chopped, self.chopped_mark)

    def between(self, first: int, last: int) -> RecordRows:
        """Returns the rows of these indexes, both ends included, without damaged ones."""
        rows = self.table.rows
        low, high = rows.indexes.searchsorted((first, last + 1))
        return rows.select(slice(int(low), int(high)))

    def after_mark(self, mark: int) -> int:
        """Returns the first index whose mark is above this one; `next` if there is none."""
        rows = self.table.rows
        at = int(rows.marks.searchsorted(mark, "right"))
        if at < rows.size:
            return int(rows.indexes[at])
        return next((record.index for record in self.pending if record.mark > mark), self.next)

    def holes(self) -> list[tuple[int, int]]:
        """Returns first and last index of each run of damaged records."""
        edges = np.concatenate(([self.chopped], self.table.rows.indexes, [self.last + 1]))
        jumps = np.flatnonzero(np.diff(edges) > 1)
        return [(int(edges[at]) + 1, int(edges[at + 1]) - 1) for at in jumps]

    def chopped_to(self, upto: int) -> Entry:
        """Returns the stream's entry in the catalogue once the records up to `upto` are chopped."""
        rows = self.between(self.chopped + 1, upto)
        mark = int(rows.marks[-1]) if rows.size else self.chopped_mark
        return self.entry._replace(chopped=upto, chopped_mark=mark)

    def chop(self, entry: Entry) -> Words:
        """Drop the rows that `entry` says are chopped. Returns the segment of each dropped row."""
        rows = self.between(self.chopped + 1, entry.chopped)
        homes: Words = rows.homes.copy()
        self.table.drop_first(rows.size)
        self.chopped, self.chopped_mark = entry.chopped, entry.chopped_mark
        return homes
