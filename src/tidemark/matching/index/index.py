"""The index: which boxes hold which events of a batch.

Boxes with a bounded side are in the trie, those with conditions only are filed under one of these; either way
every box is in exactly one place, so no event meets it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.matching.index.arrays import Index, Words, spread
from tidemark.matching.index.boxes import Boxes, Side
from tidemark.matching.index.conditions import Conditions, Truths
from tidemark.matching.index.keys import EVERY_ROW
from tidemark.matching.index.ranges import HIGHEST, LOWEST
from tidemark.matching.index.trie.descent import Candidates
from tidemark.matching.index.trie.trie import Trie
from tidemark.message.batches.columns import Bools

#: Rows looked up together, and candidates found for them: they bound the memory that a batch needs.
ROWS_AT_ONCE_MAX = 1 << 11
CANDIDATES_AT_ONCE_MAX = 1 << 20

_EVERYWHERE = (Side(EVERY_ROW, LOWEST, HIGHEST),)
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Matches:
    """What the next `count` rows match: rows[n], counted from the first of them, and rules[n], in no order.

    A rule of several boxes may be there more than once for a row.
    """

    count: int
    rows: Index
    rules: Index


class BoxIndex:
    """Boxes by number, and the rule each belongs to."""

    def __init__(self, conditions: Conditions) -> None:
        self._boxes = Boxes()
        self._trie = Trie(self._boxes)
        self._conditions = conditions
        #: boxes that are filed under a condition
        self._condition_of: dict[int, int] = {}

    def add(self, rule: int, sides: Sequence[Side], conditions: tuple[int, ...]) -> int:
        """File a new box: all sides and all conditions."""
        if sides or not conditions:
            box = self._boxes.add(rule, sides or _EVERYWHERE, conditions)
            self._trie.add(box)
            return box
        box = self._boxes.add(rule, _EVERYWHERE, conditions[1:])
        self._condition_of[box] = conditions[0]
        self._conditions.file(conditions[0], box)
        return box

    def remove(self, box: int) -> list[int]:
        """Forget a box; the columns it had sides in."""
        condition = self._condition_of.pop(box, None)
        if condition is None:
            self._trie.remove(box)
        else:
            self._conditions.withdraw(condition, box)
        columns = [side.column for side in self._boxes.sides(box) if side.column != EVERY_ROW]
        self._boxes.remove(box)
        return columns

    def way_to(self, box: int) -> list[int]:
        """The columns through which an event finds the box; none when it is checked against every event."""
        return [] if box in self._condition_of else self._trie.way_to(box)

    def match(self, keys: Words, truths: Truths) -> Iterator[Matches]:
        """keys[column, row] -> what matches, some rows at a time, from the first row to the last."""
        for first in range(0, keys.shape[1], ROWS_AT_ONCE_MAX):
            part = keys[:, first : first + ROWS_AT_ONCE_MAX]
            yield from self._match(np.ascontiguousarray(part), first, truths)

    @property
    def nbytes(self) -> int:
        """Memory, of what is not an array roughly."""
        return self._boxes.nbytes + self._trie.nbytes + 100 * len(self._condition_of)

    def _match(self, keys: Words, first: int, truths: Truths) -> Iterator[Matches]:
        count = keys.shape[1]
        common = self._trie.common()
        candidates = Candidates(self._trie, keys)
        total = candidates.total + len(common) * count + len(self._condition_of) * count
        if total > CANDIDATES_AT_ONCE_MAX and count > 1:
            for low, high in ((0, count // 2), (count // 2, count)):
                yield from self._match(np.ascontiguousarray(keys[:, low:high]), first + low, truths)
            return

        def holds(condition: int) -> Bools:
            return truths.of(condition)[first : first + count]

        found = []
        if len(common):
            found.append(self._boxes.confirm(*common.match(keys), holds))
        found += [self._boxes.check(keys, *piece, holds) for piece in candidates.pieces()]
        if self._conditions.asked:
            found.append(self._boxes.confirm(*self._asked(holds), holds))
        rows, rules = found[0] if len(found) == 1 else _joined(found)
        yield Matches(count, rows, rules)

    def _asked(self, holds: Callable[[int], Bools]) -> tuple[Index, Index]:
        """(row, box) for the boxes filed under conditions; such a box is a single range."""
        filed = self._conditions.boxes
        rows = [np.flatnonzero(holds(condition)) for condition in self._conditions.asked]
        asked = np.fromiter(self._conditions.asked, np.int64).repeat([len(each) for each in rows])
        owner, position = spread(filed.start.take(asked), filed.count.take(asked))
        return np.concatenate(rows).take(owner), filed.items.take(position).astype(np.int64)


def _joined(found: Sequence[tuple[Index, Index]]) -> tuple[Index, Index]:
    if not found:
        return _NOTHING, _NOTHING
    return np.concatenate([rows for rows, _ in found]), np.concatenate([rules for _, rules in found])
