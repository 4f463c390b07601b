"""A log stream: what the volume remembers of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.catalogue import Entry
from tidemark.storage.log.rows import RecordRows, RowTable, Words


@dataclass(slots=True)
class Pending:
    """A record that waits to be written."""

    stream: int
    index: int
    mark: int
    length: int
    payload_check: int
    pieces: Sequence[Buffer]
    #: takes back what its owner did when it appended the record
    undo: Callable[[], None] | None = None

    @property
    def payload(self) -> bytes:
        """All pieces in one."""
        return b"".join(self.pieces)


class LogStream:
    """Indexes, marks and places of one stream's records."""

    def __init__(self, entry: Entry) -> None:
        self.id = entry.stream
        self.name = entry.name
        #: where the records of `(chopped, last]` are; one that is missing here is damaged
        self.table = RowTable()
        #: index of the last record written, also if it is damaged by now
        self.last = entry.last
        #: records up to this index are gone on purpose; `chopped_mark` is the mark of the last of them
        self.chopped = entry.chopped
        self.chopped_mark = entry.chopped_mark
        #: indexes follow `last` without a hole
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
        """For the catalogue: what is true of the records already written."""
        return Entry(self.id, self.name, self.last, self.chopped, self.chopped_mark)

    def between(self, first: int, last: int) -> RecordRows:
        """The rows of these indexes, both included, as far as they are there."""
        rows = self.table.rows
        low, high = rows.indexes.searchsorted((first, last + 1))
        return rows.select(slice(int(low), int(high)))

    def after_mark(self, mark: int) -> int:
        """The first index whose mark is above this one; `next` if there is none."""
        rows = self.table.rows
        at = int(rows.marks.searchsorted(mark, "right"))
        if at < rows.size:
            return int(rows.indexes[at])
        return next((record.index for record in self.pending if record.mark > mark), self.next)

    def holes(self) -> list[tuple[int, int]]:
        """First and last index of each run of records that are damaged."""
        edges = np.concatenate(([self.chopped], self.table.rows.indexes, [self.last + 1]))
        jumps = np.flatnonzero(np.diff(edges) > 1)
        return [(int(edges[at]) + 1, int(edges[at + 1]) - 1) for at in jumps]

    def chopped_to(self, upto: int) -> Entry:
        """The catalogue's entry once the records up to `upto` are chopped."""
        rows = self.between(self.chopped + 1, upto)
        mark = int(rows.marks[-1]) if rows.size else self.chopped_mark
        return self.entry._replace(chopped=upto, chopped_mark=mark)

    def chop(self, entry: Entry) -> Words:
        """Drop what the entry says is chopped; the segments of the rows that went."""
        rows = self.between(self.chopped + 1, entry.chopped)
        homes: Words = rows.homes.copy()
        self.table.drop_first(rows.size)
        self.chopped, self.chopped_mark = entry.chopped, entry.chopped_mark
        return homes
