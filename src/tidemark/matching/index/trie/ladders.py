"""Ladders: the boxes in a node of the trie that are filed by a half-open side, sorted by its threshold.

A ladder is for one column and one direction. It goes up (`x >= 5` is filed at 5 and looked up with x) or down
(`x <= 5` is filed at the complement of 5 and looked up with the complement of x). Either way the sides that
hold for a value are the first rungs of the ladder.
"""

from __future__ import annotations

import numpy as np

from tidemark.matching.index.arrays import Index, Words, grown
from tidemark.matching.index.boxes import HEAD, Head, Side
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.ranges import HIGHEST, LOWEST
from tidemark.matching.index.trie.sorted_postings import SortedPostings

_MIDDLE = 2**63


class Ladders:
    """All ladders of all nodes, by number."""

    def __init__(self) -> None:
        #: node -> its ladders
        self.of_node = Postings()
        #: ladder -> boxes by threshold
        self.rungs = SortedPostings(*HEAD)
        #: ladder -> its column. Descent reads it, and must not keep it: it is replaced when it grows.
        self.column: Index = np.zeros(16, np.int64)
        #: all ones for a ladder that goes down
        self._flip: Words = np.zeros(16, np.uint64)
        #: ladder -> (node, column, goes down), and back
        self._keys: dict[int, tuple[int, int, bool]] = {}
        self._numbers: dict[tuple[int, int, bool], int] = {}

    def file(self, node: int, side: Side, box: int, head: Head) -> int:
        """Add a box by one of its sides. Returns the ladder that it is on."""
        key = node, side.column, _goes_down(side)
        ladder = self._numbers.get(key)
        if ladder is None:
            ladder = self._numbers[key] = self._create(key)
        self.rungs.insert(ladder, _level(side), box, *head)
        return ladder

    def withdraw(self, ladder: int, side: Side, box: int) -> None:
        """Remove a box from a ladder, and the ladder if it is empty then."""
        if self.rungs.withdraw(ladder, _level(side), box) == 0:
            key = self._keys.pop(ladder)
            del self._numbers[key]
            self.of_node.discard(key[0], ladder)
            self.rungs.drop(ladder)

    def node(self, ladder: int) -> int:
        """The node that a ladder belongs to."""
        return self._keys[ladder][0]

    def reached(self, ladders: Index, keys: Words) -> Index:
        """ladders[n], keys[n] of its column -> how many of the ladder's first boxes may hold the key."""
        asked = keys ^ self._flip.take(ladders)
        asked *= keys != 0  # key 0, no value, reaches no rung in either direction
        return self.rungs.reached(ladders, asked)

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest."""
        return 2 * self.column.nbytes + self.of_node.nbytes + self.rungs.nbytes + 400 * len(self._keys)

    def _create(self, key: tuple[int, int, bool]) -> int:
        ladder = self.rungs.create()
        node, column, down = self._keys[ladder] = key
        self.column = grown(self.column, ladder + 1)
        self._flip = grown(self._flip, ladder + 1)
        self.column[ladder] = column
        self._flip[ladder] = HIGHEST if down else 0
        self.of_node.append(node, ladder)
        return ladder


def _goes_down(side: Side) -> bool:
    if side.low <= LOWEST or side.high == HIGHEST:
        return side.high < HIGHEST
    # A side with two ends is filed by the one further from the middle, which is zero for numbers: the nearer
    # one is often just where the values start.
    return side.high - _MIDDLE > _MIDDLE - side.low


def _level(side: Side) -> int:
    return HIGHEST - side.high if _goes_down(side) else side.low
