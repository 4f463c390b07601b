"""Boxes: the conjunctions that the index looks for, as ranges of keys in arrays.

A box is a run of ranges in the arrays, and its number is the index of the first. The ranges are checked in
order up to the one marked LAST; the ranges behind it hold for every candidate, because candidates were found
through them. The first range, the head, is also kept beside the box's posting: most candidates fail there, in
the order of memory, and the box itself is never looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidemark.matching.index.arrays import Ids, Index, Words, grown
from tidemark.matching.index.conditions import TruthsOfRows
from tidemark.matching.index.postings import Postings

# The bits of a range's marks: its column, the last range that is checked, the last range of the box, a box
# with conditions, and from _RULE_SHIFT on the box's rule.
_COLUMN = 2**16 - 1
_LAST = 1 << 16
_END = 1 << 17
_CONDITIONAL = 1 << 18
_RULE_SHIFT = 32

#: the marks, low and span of a box's first range
Head = tuple[int, int, int]
HEAD = (np.uint64, np.uint64, np.uint64)


class Side(NamedTuple):
    """The range of a box in one column: keys low to high, both included."""

    column: int
    low: int
    high: int


class Candidates(NamedTuple):
    """Pairs of a row and a box that may hold it: row rows[n], and the box at position[n] of `listed`.

    The last three arrays beside the postings in `listed` are the boxes' heads.
    """

    rows: Index
    listed: Postings
    position: Index


class Boxes:
    """Every box with the rule it belongs to. Boxes of one rule may overlap."""

    def __init__(self) -> None:
        #: low and span of each range: a key is inside when key - low, as an unsigned number, is at most span
        self._low: Words = np.zeros(64, np.uint64)
        self._span: Words = np.zeros(64, np.uint64)
        #: marks of each range: its rule, _CONDITIONAL, _END, _LAST and its column, in one number
        self._marks: Words = np.zeros(64, np.uint64)
        #: box -> where the trie filed it. Only the trie reads and writes it; it is here because it grows with
        #: the boxes, which replaces the array, so the trie must not keep a reference to it.
        self.home: Ids = np.zeros(64, np.uint32)
        self._size = 0
        #: length of a run -> the boxes of that length that were removed
        self._free: dict[int, list[int]] = {}
        #: index of a box's LAST range -> the conditions that must be true too
        self._conditions: dict[int, tuple[int, ...]] = {}

    def add(self, rule: int, sides: Sequence[Side], conditions: tuple[int, ...]) -> int:
        """The number of a new box of a rule; it has at least one side, and at most one in each column."""
        free = self._free.get(len(sides))
        box = free.pop() if free else self._run(len(sides))
        if conditions:
            self._conditions[box + len(sides) - 1] = conditions
        self._write(box, sides, len(sides), rule << _RULE_SHIFT | (_CONDITIONAL if conditions else 0))
        return box

    def remove(self, box: int) -> None:
        """Remove a box; its number may be given to another one."""
        self._conditions.pop(self.last(box), None)
        self._free.setdefault(self._length(box, _END), []).append(box)

    def sides(self, box: int) -> list[Side]:
        """The ranges of a box, in the order in which they are checked."""
        run = slice(box, box + self._length(box, _END))
        parts = zip(self._marks[run].tolist(), self._low[run].tolist(), self._span[run].tolist(), strict=True)
        return [Side(marks & _COLUMN, low, low + span) for marks, low, span in parts]

    def arrange(self, box: int, used: Collection[int], known: Collection[int]) -> Head:
        """Put the sides of a box in the order in which to check them, and return its head.

        The `used` columns, through which candidates are found, come after all others; the `known` ones, which
        hold for every candidate, come last and are not checked.
        """
        sides = self.sides(box)
        sides.sort(key=lambda side: (side.column in known, side.column in used))
        checked = max(1, sum(side.column not in known for side in sides))
        conditions = self._conditions.pop(self.last(box), None)
        if conditions:
            self._conditions[box + checked - 1] = conditions
        self._write(box, sides, checked, int(self._marks[box]) & ~(_COLUMN | _LAST | _END))
        return int(self._marks[box]), int(self._low[box]), int(self._span[box])

    def last(self, box: int) -> int:
        """The index of the LAST range of a box."""
        return box + self._length(box, _LAST) - 1

    def check(self, keys: Words, candidates: Candidates, truths: TruthsOfRows) -> tuple[Index, Index]:
        """keys[column, row] and candidates -> row[m], rule[m]: the candidates whose box holds the row."""
        rows, listed, position = candidates
        flat, width = keys.reshape(-1), keys.shape[1]
        marks, low, span = (array.take(position) for array in listed.beside[-3:])
        kept = _inside(flat, width, rows, marks, low, span)
        rows, marks = rows.take(kept), marks.take(kept)
        at = listed.items.take(position.take(kept)).astype(np.int64)
        found: list[tuple[Index, Index, Words]] = []
        while len(going := np.flatnonzero((marks & np.uint64(_LAST)) == 0)):
            done = np.flatnonzero(marks & np.uint64(_LAST))
            found.append((rows.take(done), at.take(done), marks.take(done)))
            rows, at = rows.take(going), at.take(going) + 1
            marks = self._marks.take(at)
            kept = _inside(flat, width, rows, marks, self._low.take(at), self._span.take(at))
            rows, marks, at = rows.take(kept), marks.take(kept), at.take(kept)
        if found:
            found.append((rows, at, marks))
            rows, at, marks = (np.concatenate(part) for part in zip(*found, strict=True))
        return self._confirmed(rows, at, marks, truths)

    def confirm(self, rows: Index, at: Index, truths: TruthsOfRows) -> tuple[Index, Index]:
        """rows[n], and at[n], the LAST range of a box whose ranges hold -> row[m], rule[m] that match.

        Those remain whose box has only conditions that are true for the row.
        """
        return self._confirmed(rows, at, self._marks.take(at), truths)

    def _confirmed(self, rows: Index, at: Index, marks: Words, truths: TruthsOfRows) -> tuple[Index, Index]:
        conditional = np.flatnonzero(marks & np.uint64(_CONDITIONAL))
        rules = (marks >> np.uint64(_RULE_SHIFT)).view(np.int64)
        if len(conditional) == 0:
            return rows, rules
        holding = np.ones(len(rows), np.bool_)
        for group in _groups(conditional, at.take(conditional)):
            for condition in self._conditions[int(at[group[0]])]:
                holding[group] &= truths.of(condition).take(rows.take(group))
        return rows[holding], rules[holding]

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the conditions."""
        arrays = self._low.nbytes + self._span.nbytes + self._marks.nbytes + self.home.nbytes
        return arrays + 200 * len(self._conditions)

    def _run(self, length: int) -> int:
        box = self._size
        self._size += length
        self._low = grown(self._low, self._size)
        self._span = grown(self._span, self._size)
        self._marks = grown(self._marks, self._size)
        self.home = grown(self.home, self._size)
        return box

    def _length(self, box: int, mark: int) -> int:
        """The number of ranges of a box up to the first one with this mark: _LAST or _END."""
        length = 1
        while not int(self._marks[box + length - 1]) & mark:
            length += 1
        return length

    def _write(self, box: int, sides: Sequence[Side], checked: int, marks: int) -> None:
        """Write the ranges of a box, in this order; the first `checked` of them are to be checked."""
        for number, side in enumerate(sides, start=1):
            at = box + number - 1
            self._low[at] = side.low
            self._span[at] = side.high - side.low
            position_marks = (_LAST if number == checked else 0) | (_END if number == len(sides) else 0)
            self._marks[at] = marks | position_marks | side.column


def _inside(flat: Words, width: int, rows: Index, marks: Words, low: Words, span: Words) -> Index:
    """flat[column * width + row] and a range for each rows[n] -> the n for which the key is in the range."""
    place = (marks & np.uint64(_COLUMN)).view(np.int64)
    place *= width
    place += rows
    return np.flatnonzero(flat.take(place) - low <= span)


def _groups(items: Index, by: Index) -> Iterator[Index]:
    """Yields groups of items[n] with equal by[n]."""
    order = by.argsort(kind="stable")
    edges = np.flatnonzero(np.diff(by.take(order))) + 1
    yield from np.split(items.take(order), edges)
