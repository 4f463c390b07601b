"""The trie: where boxes are filed so that an event finds the few that may hold it.

A box is filed in the cell (`grid`) of one of its sides: the side whose cell the fewest events seem to lie in.
When a cell holds more than SPLIT_BOXES_MAX boxes it becomes a node, and its boxes are filed again by another
of their sides. So the cost of an event grows with how alike subscriptions are, hardly with their number, and
not with the number of combinations of fields that they use.

A node knows its probes: which grids of which columns have cells in it. A half-open side, which is too wide
for a cell, is filed by its threshold (`ladders`). A box that has no side left stays in the list where it is.
Boxes are added and removed in place, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.matching.index.arrays import Index, Words, grown
from tidemark.matching.index.boxes import HEAD, Boxes, Side
from tidemark.matching.index.dense import DenseBoxes
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.ranges import HIGHEST, LOWEST
from tidemark.matching.index.trie.cells import Cells
from tidemark.matching.index.trie.grid import Grid, grid_for
from tidemark.matching.index.trie.ladders import Ladders
from tidemark.matching.index.trie.probes import Probes

#: A longer list is split, if its boxes have sides left to split by. The root's list may be longer: checking
#: every event against a few boxes at once (`dense`) costs less than descending a trie.
SPLIT_BOXES_MAX = 16
ROOT_BOXES_MAX = 32

ROOT = 0
NO_NODE = 0
#: Marks the home of a box on a ladder; the home of any other box is the slot in whose list it is.
_ON_LADDER = 1 << 31


@dataclass(frozen=True, slots=True)
class _Way:
    """The columns through which an event finds a box."""

    used: frozenset[int] = frozenset()
    #: those of `used` whose cell the box fills, so that they need no check
    known: frozenset[int] = frozenset()

    def through(self, side: Side, grid: Grid | None) -> _Way:
        """This way and then one side, filed in a cell of `grid`, or by threshold if that is None."""
        is_known = grid is not None and grid.fills(side.low, side.high)
        return _Way(self.used | {side.column}, self.known | {side.column} if is_known else self.known)


class Trie:
    """The trie. A slot holds the boxes of a cell; ROOT holds those that every event is checked against.

    `descent.Descent` reads the public attributes; only the trie changes them.
    """

    def __init__(self, boxes: Boxes) -> None:
        #: shared with BoxIndex, which adds and removes boxes; the trie arranges their sides and writes `home`
        self._boxes = boxes
        self.probes = Probes()
        self.ladders = Ladders()
        #: (probe, cell) -> slot
        self.cells = Cells()
        #: slot -> boxes filed there and no deeper
        self.lists = Postings(*HEAD)
        #: slot -> its node, or NO_NODE
        self.node: Index = np.zeros(16, np.int64)
        #: slot -> boxes filed there or deeper
        self._under: Index = np.zeros(16, np.int64)
        self._probe: Index = np.zeros(16, np.int64)
        self._cell: Words = np.zeros(16, np.uint64)
        #: node -> its slot
        self._slots: list[int] = []
        self._dense: DenseBoxes | None = None
        no_node, root = self._create_node(ROOT), self.lists.create()
        assert (no_node, root) == (NO_NODE, ROOT)

    def add(self, box: int) -> None:
        """File a box."""
        self._file(box, ROOT, _Way())

    def remove(self, box: int) -> None:
        """Remove a box, and the cells and nodes that are empty without it."""
        home = int(self._boxes.home[box])
        if home & _ON_LADDER:
            ladder = home ^ _ON_LADDER
            column = int(self.ladders.column[ladder])
            slot = self._slots[self.ladders.node(ladder)]
            self.ladders.withdraw(ladder, self._side(box, column), box)
        else:
            slot = home
            self.lists.discard(slot, box)
        if home == ROOT:
            self._dense = None
        self._forget(slot)

    def common(self) -> DenseBoxes:
        """The boxes that every event is checked against."""
        if self._dense is None:
            self._dense = DenseBoxes(self._boxes, self.lists.of(ROOT).tolist())
        return self._dense

    def way_to(self, box: int) -> list[int]:
        """The columns through which an event finds the box, from the root on.

        For a box that every event is checked against: the column that it would be filed by if there were too
        many such boxes.
        """
        home = int(self._boxes.home[box])
        if home == ROOT:
            bounded = [side for side in self._boxes.sides(box) if _is_bounded(side)]
            return [self._best(NO_NODE, bounded)[0].column] if bounded else []
        way: list[int] = []
        slot = home
        if home & _ON_LADDER:
            way.append(int(self.ladders.column[home ^ _ON_LADDER]))
            slot = self._slots[self.ladders.node(home ^ _ON_LADDER)]
        way += [int(self.probes.column[probe]) for probe in self._probes_to(slot)]
        return way[::-1]

    @property
    def nbytes(self) -> int:
        """Memory: exact for arrays, an estimate for the rest."""
        parts = self.probes, self.ladders, self.cells, self.lists
        return 4 * self.node.nbytes + sum(part.nbytes for part in parts) + 40 * len(self._slots)

    def _file(self, box: int, slot: int, way: _Way) -> None:
        """File a box in `slot`, to which `way` leads, or deeper."""
        sides = self._boxes.sides(box)
        while True:
            self._under[slot] += 1
            node = int(self.node[slot])
            free = [side for side in sides if side.column not in way.used and _is_bounded(side)]
            if node == NO_NODE or not free:
                self._keep(box, slot, way, bool(free))
                return
            side, grid = self._best(node, free)
            way = way.through(side, grid)
            if grid is None:
                head = self._boxes.arrange(box, way.used, way.known)
                self._boxes.home[box] = self.ladders.file(node, side, box, head) | _ON_LADDER
                return
            slot = self._slot(node, side.column, grid, grid.cell(side.low))

    def _keep(self, box: int, slot: int, way: _Way, can_move: bool) -> None:
        """Put a box in the list of a slot, and split the list when it has grown too long."""
        head = self._boxes.arrange(box, way.used, way.known)
        length = self.lists.append(slot, box, *head)
        self._boxes.home[box] = slot
        if slot == ROOT:
            self._dense = None
        if can_move and length > (ROOT_BOXES_MAX if slot == ROOT else SPLIT_BOXES_MAX):
            self._split(slot, way.used)

    def _split(self, slot: int, used: frozenset[int]) -> None:
        boxes = self.lists.of(slot).tolist()
        self.lists.clear(slot)
        self._under[slot] -= len(boxes)
        self.node[slot] = self._create_node(slot)
        for box in boxes:
            self._file(box, slot, _Way(used, self._known(box, slot)))

    def _known(self, box: int, slot: int) -> frozenset[int]:
        """The columns on the way to `slot` whose cells the box fills."""
        sides = {side.column: side for side in self._boxes.sides(box)}
        known: set[int] = set()
        for probe in self._probes_to(slot):
            side = sides[int(self.probes.column[probe])]
            if self.probes.grid(probe).fills(side.low, side.high):
                known.add(side.column)
        return frozenset(known)

    def _probes_to(self, slot: int) -> Iterator[int]:
        """The probes through which events come to a slot, the last one first."""
        while slot != ROOT:
            probe = int(self._probe[slot])
            yield probe
            slot = self._slots[self.probes.node(probe)]

    def _best(self, node: int, sides: Sequence[Side]) -> tuple[Side, Grid | None]:
        """The side to file a box by, and its grid: the side in whose cell an event is least likely to be.

        A grid with many cells in use splits events into many; a cell with many boxes is a popular value. Of
        equal sides the one with the finest grid is taken. Only a box without any cell is filed by threshold,
        with the grid None.
        """
        best, best_grid, least = sides[0], None, (math.inf, 0)
        for side in sides:
            grid = grid_for(side.low, side.high)
            if grid is not None:
                cost = self._crowding(node, side, grid), grid.level
                if cost < least:
                    best, best_grid, least = side, grid, cost
        return best, best_grid

    def _crowding(self, node: int, side: Side, grid: Grid) -> float:
        probe = self.probes.get(node, side.column, grid)
        if probe is None:
            return 1.0
        slot = self.cells.get(probe, grid.cell(side.low))
        held = 0 if slot is None else int(self._under[slot])
        return (held + 1) / (self.probes.cells_in_use(probe) + 1)

    def _slot(self, node: int, column: int, grid: Grid, cell: int) -> int:
        """The slot of a cell; a new one if the cell has none."""
        probe = self.probes.get(node, column, grid)
        slot = None if probe is None else self.cells.get(probe, cell)
        if slot is not None:
            return slot
        probe = self.probes.add_cell(node, column, grid)
        slot = self.lists.create()
        self._reserve(slot + 1)
        self._probe[slot], self._cell[slot] = probe, cell
        self.cells.put(probe, cell, slot)
        return slot

    def _forget(self, slot: int) -> None:
        """Count one box less in `slot` and in the slots above it, and remove those that are empty."""
        while True:
            self._under[slot] -= 1
            is_empty = self._under[slot] == 0
            if is_empty and self.node[slot] != NO_NODE:
                self._drop_node(int(self.node[slot]))
                self.node[slot] = NO_NODE
            if slot == ROOT:
                return
            probe = int(self._probe[slot])
            parent = self._slots[self.probes.node(probe)]
            if is_empty:
                self.cells.remove(probe, int(self._cell[slot]))
                self.lists.drop(slot)
                self.probes.remove_cell(probe)
            slot = parent

    def _side(self, box: int, column: int) -> Side:
        return next(side for side in self._boxes.sides(box) if side.column == column)

    def _create_node(self, slot: int) -> int:
        node, twin = self.probes.of_node.create(), self.ladders.of_node.create()
        assert node == twin
        if node == len(self._slots):
            self._slots.append(slot)
        self._slots[node] = slot
        return node

    def _drop_node(self, node: int) -> None:
        assert self.probes.of_node.count[node] == 0
        assert self.ladders.of_node.count[node] == 0
        self.probes.of_node.drop(node)
        self.ladders.of_node.drop(node)

    def _reserve(self, slots: int) -> None:
        self.node = grown(self.node, slots)
        self._under = grown(self._under, slots)
        self._probe = grown(self._probe, slots)
        self._cell = grown(self._cell, slots)


def _is_bounded(side: Side) -> bool:
    return side.low > LOWEST or side.high < HIGHEST
