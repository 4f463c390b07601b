"""The index: which boxes hold which events of a batch.

A box with a bounded side is in the trie; a box with conditions only is filed under one of them. So every box
is in exactly one place, and no event meets it twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.matching.index.arrays import Index, Words, spread
from tidemark.matching.index.boxes import Boxes, Side
from tidemark.matching.index.conditions import Conditions, Truths, TruthsOfRows
from tidemark.matching.index.keys import EVERY_ROW
from tidemark.matching.index.ranges import HIGHEST, LOWEST
from tidemark.matching.index.trie.descent import Descent
from tidemark.matching.index.trie.trie import Trie

#: Rows that are looked up together, and candidates that may be found for them; both bound the memory that a
#: batch needs.
ROWS_AT_ONCE_MAX = 1 << 11
CANDIDATES_AT_ONCE_MAX = 1 << 20

_EVERYWHERE = (Side(EVERY_ROW, LOWEST, HIGHEST),)
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Matches:
    """What the next `count` rows match: rows[n], counted from the first of them, and rules[n], in no order.

    A rule with several boxes may occur more than once for a row.
    """

    count: int
    rows: Index
    rules: Index


class BoxIndex:
    """The boxes of all rules, each in the trie or under a condition."""

    def __init__(self, conditions: Conditions) -> None:
        #: shared with the trie, which arranges the sides of a box and writes its `home`
        self._boxes = Boxes()
        self._trie = Trie(self._boxes)
        #: shared with the matcher, which acquires and releases conditions; the index files boxes under them
        self._conditions = conditions
        #: box -> the condition that it is filed under
        self._condition_of: dict[int, int] = {}

    def add(self, rule: int, sides: Sequence[Side], conditions: tuple[int, ...]) -> int:
        """The number of a new box, which holds an event if all sides do and all conditions are true."""
        if sides or not conditions:
            box = self._boxes.add(rule, sides or _EVERYWHERE, conditions)
            self._trie.add(box)
            return box
        box = self._boxes.add(rule, _EVERYWHERE, conditions[1:])
        self._condition_of[box] = conditions[0]
        self._conditions.file(conditions[0], box)
        return box

    def remove(self, box: int) -> list[int]:
        """Remove a box. Returns the columns that it had sides in."""
        condition = self._condition_of.pop(box, None)
        if condition is None:
            self._trie.remove(box)
        else:
            self._conditions.withdraw(condition, box)
        columns = [side.column for side in self._boxes.sides(box) if side.column != EVERY_ROW]
        self._boxes.remove(box)
        return columns

    def way_to(self, box: int) -> list[int]:
        """The columns through which an event finds the box; [] when every event is checked against it."""
        return [] if box in self._condition_of else self._trie.way_to(box)

    def match(self, keys: Words, truths: Truths) -> Iterator[Matches]:
        """keys[column, row] -> the matches, some rows at a time, from the first row to the last."""
        for first in range(0, keys.shape[1], ROWS_AT_ONCE_MAX):
            part = keys[:, first : first + ROWS_AT_ONCE_MAX]
            yield from self._match(np.ascontiguousarray(part), first, truths)

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest."""
        return self._boxes.nbytes + self._trie.nbytes + 100 * len(self._condition_of)

    def _match(self, keys: Words, first: int, truths: Truths) -> Iterator[Matches]:
        count = keys.shape[1]
        common = self._trie.common()
        descent = Descent(self._trie, keys)
        asked = np.array(truths.asked if self._condition_of else (), np.int64)
        filed = int(self._conditions.boxes.count.take(asked).sum())
        total = descent.total + (len(common) + filed) * count
        if total > CANDIDATES_AT_ONCE_MAX and count > 1:
            for low, high in ((0, count // 2), (count // 2, count)):
                yield from self._match(np.ascontiguousarray(keys[:, low:high]), first + low, truths)
            return
        of_rows = TruthsOfRows(truths, first, count)
        found = []
        if len(common):
            found.append(self._boxes.confirm(*common.match(keys), of_rows))
        found += [self._boxes.check(keys, candidates, of_rows) for candidates in descent.pieces()]
        if len(asked):
            found.append(self._boxes.confirm(*self._asked(asked, of_rows), of_rows))
        rows, rules = found[0] if len(found) == 1 else _joined(found)
        yield Matches(count, rows, rules)

    def _asked(self, conditions: Index, truths: TruthsOfRows) -> tuple[Index, Index]:
        """row[n], box[n] for boxes whose condition is true for the row; such a box has a single range."""
        filed = self._conditions.boxes
        rows = [np.flatnonzero(truths.of(condition)) for condition in conditions.tolist()]
        asked = conditions.repeat([len(each) for each in rows])
        owner, position = spread(filed.start.take(asked), filed.count.take(asked))
        return np.concatenate(rows).take(owner), filed.items.take(position).astype(np.int64)


def _joined(found: Sequence[tuple[Index, Index]]) -> tuple[Index, Index]:
    if not found:
        return _NOTHING, _NOTHING
    return np.concatenate([rows for rows, _ in found]), np.concatenate([rules for _, rules in found])
