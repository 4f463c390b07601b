"""Conditions that are no range of keys: each distinct one is evaluated at most once a batch, if needed.

A condition that is filed here because no range leads to its boxes is asked for every batch, unless its
literal does not occur in the batch (`gram_filter`).
"""

from __future__ import annotations

from tidemark.matching.index.gram_filter import GramFilter, literal_of
from tidemark.matching.index.postings import Postings
from tidemark.matching.selectors.tree import Node
from tidemark.matching.vectors.vector import Condition, compile_condition
from tidemark.message.batches.columns import Bools, Column, ColumnSource, FieldTypes
from tidemark.message.types import Path


class Conditions:
    """The conditions in use, with the number of their uses."""

    def __init__(self) -> None:
        #: condition -> boxes without a side to be filed by, which are filed here. BoxIndex reads it.
        self.boxes = Postings()
        #: the conditions with such boxes: those without a literal, as an ordered set, and the others with the
        #: field that has to have their literal
        self._asked: dict[int, None] = {}
        self._field_of: dict[int, Path] = {}
        self._filter = GramFilter()
        self._numbers: dict[Node, int] = {}
        self._compiled: dict[int, Condition] = {}
        self._uses: dict[int, int] = {}

    def acquire(self, tree: Node, fields: FieldTypes) -> int:
        """The number of a condition, which the caller must `release` as often as it was acquired."""
        number = self._numbers.get(tree)
        if number is None:
            number = self._numbers[tree] = self.boxes.create()
            self._compiled[number] = compile_condition(tree, fields)
            self._uses[number] = 0
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """End one use; after the last one the condition is forgotten."""
        self._uses[number] -= 1
        if self._uses[number] == 0:
            del self._numbers[self._compiled.pop(number).tree], self._uses[number]
            self.boxes.drop(number)

    @property
    def in_use(self) -> bool:
        """Whether any condition is in use."""
        return bool(self._compiled)

    def file(self, number: int, box: int) -> None:
        """File a box under a condition: every event for which it is true is a candidate for the box."""
        self.boxes.append(number, box)
        if number in self._asked or number in self._field_of:
            return
        literal = literal_of(self.tree(number))
        if literal is None:
            self._asked[number] = None
        else:
            self._field_of[number] = literal[0]
            self._filter.add(number, *literal)

    def withdraw(self, number: int, box: int) -> None:
        """Undo `file`."""
        if self.boxes.discard(number, box) > 0:
            return
        path = self._field_of.pop(number, None)
        if path is None:
            del self._asked[number]
        else:
            self._filter.remove(number, path)

    def asked(self, truths: Truths) -> list[int]:
        """The conditions with filed boxes that may be true for some row of a batch."""
        return [*self._asked, *self._filter.possible(truths.column)]

    def tree(self, number: int) -> Node:
        """The tree of a condition."""
        return self._compiled[number].tree

    def evaluate(self, number: int, columns: ColumnSource) -> Bools:
        """matched[row]: the condition is true."""
        return self._compiled[number].matched(columns)

    @property
    def nbytes(self) -> int:
        """Memory, as an estimate: a compiled condition is a few closures."""
        return self.boxes.nbytes + 2000 * len(self._compiled)


class Truths:
    """The conditions evaluated over one batch, each at most once.

    Each column is extracted at most once, too.
    """

    def __init__(self, conditions: Conditions, columns: ColumnSource) -> None:
        self._conditions = conditions
        self._columns = columns
        self._held: dict[Path, Column] = {}
        self._known: dict[int, Bools] = {}
        self._asked: list[int] | None = None

    @property
    def asked(self) -> list[int]:
        """The conditions with filed boxes that may be true for some row."""
        if self._asked is None:
            self._asked = self._conditions.asked(self)
        return self._asked

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._columns.count

    def column(self, path: Path) -> Column:
        """The column of the field at `path`."""
        column = self._held.get(path)
        if column is None:
            column = self._held[path] = self._columns.column(path)
        return column

    def of(self, condition: int) -> Bools:
        """matched[row]: the condition is true. The array is kept; the caller must not change it."""
        known = self._known.get(condition)
        if known is None:
            known = self._known[condition] = self._conditions.evaluate(condition, self)
        return known


class TruthsOfRows:
    """The truths of `count` rows of a batch from row `first` on: what the index asks for one part of it."""

    def __init__(self, truths: Truths, first: int, count: int) -> None:
        self._truths = truths
        self._rows = slice(first, first + count)

    def of(self, condition: int) -> Bools:
        """matched[row], counted from the first of these rows: a view, which the caller must not change."""
        return self._truths.of(condition)[self._rows]
