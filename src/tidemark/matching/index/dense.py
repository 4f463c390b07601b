"""A few boxes that every row is checked against, without looking for candidates first.

For up to a few dozen boxes this is faster than any index: it takes one comparison of a small matrix for each
side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemark.matching.index.arrays import Index, Words
from tidemark.matching.index.boxes import Boxes, Side
from tidemark.matching.index.keys import EVERY_ROW
from tidemark.matching.index.ranges import HIGHEST

_ANYTHING = Side(EVERY_ROW, 0, HIGHEST)


class DenseBoxes:
    """A few boxes in matrices, as they were when this was made; the trie makes a new one when they change."""

    def __init__(self, boxes: Boxes, members: Sequence[int]) -> None:
        sides = [boxes.sides(box) for box in members]
        self._last: Index = np.array([boxes.last(box) for box in members], np.int64)
        #: layers[k]: the k-th side of every box; a box with fewer sides has one that holds every key
        self._layers = [
            _layer([each[k] if k < len(each) else _ANYTHING for each in sides])
            for k in range(max(map(len, sides), default=0))
        ]

    def __len__(self) -> int:
        return len(self._last)

    def match(self, keys: Words) -> tuple[Index, Index]:
        """keys[column, row] -> row[n], and the LAST range of a box that holds it, as `Boxes.confirm` asks."""
        (columns, low, span), *rest = self._layers
        inside = keys.take(columns, axis=0) - low <= span
        for columns, low, span in rest:
            inside &= keys.take(columns, axis=0) - low <= span
        which, rows = inside.nonzero()
        return rows, self._last.take(which)


def _layer(sides: Sequence[Side]) -> tuple[Index, Words, Words]:
    """column[box], low[box, 1], span[box, 1]."""
    low = np.array([side.low for side in sides], np.uint64)
    high = np.array([side.high for side in sides], np.uint64)
    return np.array([side.column for side in sides]), low[:, None], (high - low)[:, None]
