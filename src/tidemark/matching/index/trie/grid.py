"""The grid over the key space: every bounded range of keys lies in one cell.

Cells of level L are 2**L keys wide. Each level has two grids, the second moved by half a cell: a range that
straddles an edge of one grid lies inside a cell of the other, as long as a cell is twice as wide as the
range. At level 0 a cell has one key. Only every LEVEL_STEP-th level is used, so that fewer cells are looked
up for an event, at the price of a few more ranges in each.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemark.matching.index.ranges import HIGHEST, LOWEST

LEVEL_STEP = 2
#: Wider cells do not select, with one exception: in the moved grid of level 63 one cell is the half of all
#: keys around the middle. For doubles the middle is 0.0 and the cell goes from -2.0 to 2.0, where ranges like
#: -1.0 to 1.0 lie.
LEVEL_MAX = 62


class Grid(NamedTuple):
    """One of the grids: `moved` is 1 for the one that is moved by half a cell."""

    level: int
    moved: int

    def cell(self, key: int) -> int:
        """The cell that a key lies in."""
        return ((key >> self.level - 1) + self.moved) >> 1 if self.level else key

    def fills(self, low: int, high: int) -> bool:
        """Are low and high the first and the last key of the cell that they share?"""
        before, inside, after = self.cell(low - 1), self.cell(low), self.cell(high + 1)
        return self.level == 0 or before != inside != after


def grid_for(low: int, high: int) -> Grid | None:
    """The finest grid with a cell that holds low to high.

    None when an end has no bound, or for wide ranges.
    """
    if low == high:
        return Grid(0, 0)
    if low <= LOWEST or high == HIGHEST:
        return None
    level = max(1, (high - low).bit_length())
    level += -level % LEVEL_STEP
    while level <= LEVEL_MAX:
        for grid in (Grid(level, 0), Grid(level, 1)):
            if grid.cell(low) == grid.cell(high):
                return grid
        level += LEVEL_STEP
    return _AROUND_MIDDLE if _AROUND_MIDDLE.cell(low) == _AROUND_MIDDLE.cell(high) else None


_AROUND_MIDDLE = Grid(LEVEL_MAX + 1, 1)
