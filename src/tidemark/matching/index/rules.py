"""Rules: the distinct selectors, each with the subscribers that have it.

A rule's name in the digest of a match set changes whenever its subscribers change. So a match set that was
put together with other subscribers is never found again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tidemark.matching.index.arrays import Ids, Index, Words, grown, spread
from tidemark.matching.index.match_sets import Digests
from tidemark.matching.index.postings import Postings
from tidemark.matching.selectors.selector import paths_of
from tidemark.matching.selectors.tree import Node
from tidemark.message.types import Path

#: Members of new match sets that are put in order together; it bounds the memory that a batch needs.
MEMBERS_AT_ONCE_MAX = 1 << 20

_MASK = 2**64 - 1
_STEP, _MIX, _LAST_MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(slots=True)
class _Readers:
    """A set of fields, and the number of rules that read exactly these."""

    paths: frozenset[Path]
    count: int = 0


class Rules:
    """Rules by number. Kept in arrays where possible, since there may be a million of them."""

    def __init__(self) -> None:
        #: rule -> subscribers, in no order
        self._subscribers = Postings()
        #: rule -> its boxes
        self._boxes = Postings()
        #: rule -> the conditions of all its boxes, one for every use; most rules have none
        self._conditions: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[Node, int] = {}
        self._trees: list[Node | None] = []
        #: rule -> the fields it reads; rules that read the same fields share one set
        self._paths: list[frozenset[Path]] = []
        self._readers: dict[frozenset[Path], _Readers] = {}
        #: rule -> the two halves of its name in digests
        self._name: Words = np.zeros(64, np.uint64)
        self._second_name: Words = np.zeros(64, np.uint64)
        self._names_given = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[int, Node]]:
        """Every rule and its tree."""
        return ((number, tree) for tree, number in self._numbers.items())

    def number(self, tree: Node) -> int | None:
        """The rule with this tree, if there is one."""
        return self._numbers.get(tree)

    def tree(self, number: int) -> Node:
        """The selector of a rule."""
        tree = self._trees[number]
        assert tree is not None
        return tree

    def reads(self, number: int) -> frozenset[Path]:
        """The fields that a rule reads."""
        return self._paths[number]

    def boxes(self, number: int) -> list[int]:
        """The boxes that a rule is indexed as."""
        boxes: list[int] = self._boxes.of(number).tolist()
        return boxes

    def conditions(self, number: int) -> tuple[int, ...]:
        """The conditions that the rule's boxes use, one for every use."""
        return self._conditions.get(number, ())

    def paths(self) -> set[Path]:
        """Every field that some rule reads."""
        return set().union(*self._readers)

    def reading(self, paths: Set[Path]) -> list[int]:
        """The rules that read one of the fields."""
        concerned = {read for read in self._readers if read & paths}
        return [number for number in self._numbers.values() if self._paths[number] in concerned]

    def create(self, tree: Node) -> int:
        """A new rule, without boxes yet."""
        number, twin = self._subscribers.create(), self._boxes.create()
        assert number == twin
        if number == len(self._trees):
            self._trees.append(None)
            self._paths.append(frozenset())
            self._name = grown(self._name, number + 1)
            self._second_name = grown(self._second_name, number + 1)
        self._numbers[tree] = number
        self._trees[number] = tree
        self._paths[number] = self._one_more(paths_of(tree))
        return number

    def place(self, number: int, boxes: Sequence[int], conditions: tuple[int, ...]) -> None:
        """Set the boxes that the rule is indexed as, and the conditions that they use."""
        self._boxes.clear(number)
        for box in boxes:
            self._boxes.append(number, box)
        if conditions:
            self._conditions[number] = conditions
        else:
            self._conditions.pop(number, None)

    def remove(self, number: int) -> None:
        """Remove a rule that has no subscriber; its number may be used again."""
        del self._numbers[self.tree(number)]
        self._trees[number] = None
        self._conditions.pop(number, None)
        self._subscribers.drop(number)
        self._boxes.drop(number)
        readers = self._readers[self._paths[number]]
        readers.count -= 1
        if readers.count == 0:
            del self._readers[self._paths[number]]

    def subscribe(self, number: int, subscriber: int) -> None:
        """Add a subscriber to a rule."""
        self._subscribers.append(number, subscriber)
        self._rename(number)

    def unsubscribe(self, number: int, subscriber: int) -> int:
        """Remove a subscriber from a rule. Returns how many are left."""
        self._rename(number)
        return self._subscribers.discard(number, subscriber)

    def subscribers(self, number: int) -> Ids:
        """A copy of the subscribers of a rule, in no order."""
        return self._subscribers.of(number).copy()

    def distinct(self, rows: Index, rules: Index) -> tuple[Index, Index]:
        """The pairs (rows[n], rules[n]) without repetitions."""
        if (self._boxes.count.take(rules) == 1).all():
            return rows, rules
        pairs = np.unique(rows << 32 | rules)
        return pairs >> 32, pairs & (2**32 - 1)

    def digests(self, rows: Index, rules: Index, count: int) -> Digests:
        """Distinct pairs (rows[n], rules[n]) of `count` rows -> digest[:, row] of the row's set of rules."""
        sums = np.zeros((2, count), np.uint64)
        np.add.at(sums[0], rows, self._name.take(rules))
        np.add.at(sums[1], rows, self._second_name.take(rules))
        return sums

    def members(self, rows: Index, rules: Index, wanted: list[int], count: int) -> tuple[Index, Ids]:
        """Distinct pairs (rows[n], rules[n]) of `count` rows -> the subscribers of the rows in `wanted`.

        Returns the number of subscribers of each wanted row, and all of them, row after row.
        """
        rank = np.full(count, -1)
        rank[wanted] = np.arange(len(wanted))
        ranks = rank.take(rows)
        kept = np.flatnonzero(ranks >= 0)
        ranks, held = ranks.take(kept), rules.take(kept)
        sizes = self._subscribers.count.take(held)
        if len(wanted) > 1 and sizes.sum() > MEMBERS_AT_ONCE_MAX:
            middle = len(wanted) // 2
            halves = [self.members(rows, rules, half, count) for half in (wanted[:middle], wanted[middle:])]
            return np.concatenate([each[0] for each in halves]), np.concatenate([each[1] for each in halves])
        position = self._subscribers.start.take(held)
        if sizes.sum() > len(sizes):  # otherwise every rule has one subscriber
            owner, position = spread(position, sizes)
            ranks = ranks.take(owner)
        # numpy sorts numbers of 16 bits by radix, several times faster than longer ones.
        order = ranks.astype(np.uint16 if len(wanted) <= 1 << 16 else np.int64).argsort(kind="stable")
        return np.bincount(ranks, minlength=len(wanted)), self._subscribers.items.take(position.take(order))

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest, without the selectors themselves."""
        arrays = 2 * self._name.nbytes + self._subscribers.nbytes + self._boxes.nbytes
        return arrays + sys.getsizeof(self._numbers) + 48 * len(self._trees) + 200 * len(self._conditions)

    def _one_more(self, paths: frozenset[Path]) -> frozenset[Path]:
        """Count one more rule that reads these fields. Returns the set that all such rules share."""
        readers = self._readers.setdefault(paths, _Readers(paths))
        readers.count += 1
        return readers.paths

    def _rename(self, number: int) -> None:
        self._names_given += 1
        self._name[number] = _mixed(2 * self._names_given)
        self._second_name[number] = _mixed(2 * self._names_given + 1)


def _mixed(count: int) -> int:
    """splitmix64 of a counter: numbers whose sums do not repeat by any pattern, the same in every run."""
    mixed = count * _STEP & _MASK
    mixed = (mixed ^ mixed >> 30) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 27) * _LAST_MIX & _MASK
    return mixed ^ mixed >> 31
