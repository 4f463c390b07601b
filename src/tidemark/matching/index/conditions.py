"""Conditions that are no range of keys: each distinct one is evaluated at most once a batch, if at all."""

from __future__ import annotations

from tidemark.matching.index.postings import Postings
from tidemark.matching.selectors.tree import Node
from tidemark.matching.vectors.vector import Condition, compile_condition
from tidemark.message.batches.columns import Bools, Column, ColumnSource, FieldTypes
from tidemark.message.types import Path


class Conditions:
    """The conditions in use, counted."""

    def __init__(self) -> None:
        #: condition -> boxes that have no side to be filed by, filed here instead
        self.boxes = Postings()
        #: conditions with such boxes: an ordered set
        self.asked: dict[int, None] = {}
        self._numbers: dict[Node, int] = {}
        self._compiled: dict[int, Condition] = {}
        self._uses: dict[int, int] = {}

    def acquire(self, tree: Node, fields: FieldTypes) -> int:
        """The number of a condition, to be released once for every time it was acquired."""
        number = self._numbers.get(tree)
        if number is None:
            number = self._numbers[tree] = self.boxes.create()
            self._compiled[number] = compile_condition(tree, fields)
            self._uses[number] = 0
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """One use less."""
        self._uses[number] -= 1
        if self._uses[number] == 0:
            del self._numbers[self._compiled.pop(number).tree], self._uses[number]
            self.boxes.drop(number)

    def file(self, number: int, box: int) -> None:
        """Every event for which the condition is true is a candidate for the box."""
        self.boxes.append(number, box)
        self.asked[number] = None

    def withdraw(self, number: int, box: int) -> None:
        """The opposite of `file`."""
        if self.boxes.discard(number, box) == 0:
            del self.asked[number]

    def tree(self, number: int) -> Node:
        """What was acquired."""
        return self._compiled[number].tree

    def evaluate(self, number: int, columns: ColumnSource) -> Bools:
        """matched[row]."""
        return self._compiled[number].matched(columns)

    @property
    def nbytes(self) -> int:
        """Memory, roughly: a compiled condition is a few closures."""
        return self.boxes.nbytes + 2000 * len(self._compiled)


class Truths:
    """What a batch says to the conditions, each asked once; fields are extracted once too."""

    def __init__(self, conditions: Conditions, columns: ColumnSource) -> None:
        self._conditions = conditions
        self._columns = columns
        self._held: dict[Path, Column] = {}
        self._known: dict[int, Bools] = {}

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._columns.count

    def column(self, path: Path) -> Column:
        """The field at `path`, as ColumnSource has it."""
        column = self._held.get(path)
        if column is None:
            column = self._held[path] = self._columns.column(path)
        return column

    def of(self, condition: int) -> Bools:
        """matched[row]."""
        known = self._known.get(condition)
        if known is None:
            known = self._known[condition] = self._conditions.evaluate(condition, self)
        return known
