"""Probes: which grids of which columns have cells in a node of the trie.

An event that reaches a node is looked up once for every probe of the node, so a probe is removed when it has
no cell that holds something.
"""

from __future__ import annotations

import numpy as np

from tidemark.matching.index.arrays import Index, Words, grown
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.trie.grid import Grid


class Probes:
    """All probes of all nodes, by number."""

    def __init__(self) -> None:
        #: node -> its probes
        self.of_node = Postings()
        #: probe -> its column. Descent reads it, and must not keep it: it is replaced when it grows.
        self.column: Index = np.zeros(16, np.int64)
        #: cell = ((key >> before) + moved) >> after, which is Grid.cell
        self._before: Words = np.zeros(16, np.uint64)
        self._moved: Words = np.zeros(16, np.uint64)
        self._after: Words = np.zeros(16, np.uint64)
        #: probe -> its node, and the number of its cells in use
        self._nodes: list[int] = []
        self._cells: list[int] = []
        self._numbers: dict[tuple[int, int, Grid], int] = {}
        self._unused: list[int] = []

    def get(self, node: int, column: int, grid: Grid) -> int | None:
        """The probe of this grid and column in this node; None if there is none."""
        return self._numbers.get((node, column, grid))

    def node(self, probe: int) -> int:
        """The node that a probe belongs to."""
        return self._nodes[probe]

    def grid(self, probe: int) -> Grid:
        """The grid that a probe is of."""
        after = int(self._after[probe])
        return Grid(int(self._before[probe]) + after, int(self._moved[probe]))

    def cells_in_use(self, probe: int) -> int:
        """The number of the probe's cells that hold something."""
        return self._cells[probe]

    def add_cell(self, node: int, column: int, grid: Grid) -> int:
        """Count one more cell in use. Returns its probe, a new one if need be."""
        probe = self._numbers.get((node, column, grid))
        if probe is None:
            probe = self._numbers[node, column, grid] = self._create(node, column, grid)
            self.of_node.append(node, probe)
        self._cells[probe] += 1
        return probe

    def remove_cell(self, probe: int) -> None:
        """Count one cell in use less; a probe without any is removed."""
        self._cells[probe] -= 1
        if self._cells[probe] == 0:
            node = self._nodes[probe]
            self.of_node.discard(node, probe)
            del self._numbers[node, int(self.column[probe]), self.grid(probe)]
            self._unused.append(probe)

    def cells(self, probes: Index, keys: Words) -> Words:
        """probes[...], keys[...] of the probe's column -> cell[...]; `probes` is broadcast to `keys`."""
        cells = keys >> self._before.take(probes)
        cells += self._moved.take(probes)
        cells >>= self._after.take(probes)
        return cells

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest."""
        return 4 * self.column.nbytes + self.of_node.nbytes + 300 * len(self._numbers)

    def _create(self, node: int, column: int, grid: Grid) -> int:
        if self._unused:
            probe = self._unused.pop()
            self._nodes[probe] = node
        else:
            probe = len(self._nodes)
            self._nodes.append(node)
            self._cells.append(0)
            self._reserve(probe + 1)
        self.column[probe] = column
        self._before[probe], self._after[probe] = max(0, grid.level - 1), min(1, grid.level)
        self._moved[probe] = grid.moved
        return probe

    def _reserve(self, size: int) -> None:
        self.column = grown(self.column, size)
        self._before = grown(self._before, size)
        self._moved = grown(self._moved, size)
        self._after = grown(self._after, size)
