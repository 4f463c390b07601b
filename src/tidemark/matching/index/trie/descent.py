"""The descent through the trie, for all events of a batch at once.

Every round takes the nodes that rows have reached, looks up the cells that the rows lie in, and collects the
lists found there. The number of array operations depends only on the depth of the trie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tidemark.matching.index.arrays import Index, Words, spread
from tidemark.matching.index.boxes import Candidates
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.trie.trie import NO_NODE, ROOT, Trie

#: Candidates checked at a time. The C library may get arrays of 128 KiB and more from the operating system,
#: and give them back, each time: checking 17,000 at once took half as long again as in two pieces.
PIECE_CANDIDATES = 12_000

#: rows[n], starts[n], counts[n]: the boxes from starts[n] on, counts[n] of them, may hold rows[n]
_Lists = tuple[Index, Index, Index]


class Descent:
    """The lists of boxes that may hold a row of a batch, in `trie.lists` and on `trie.ladders`.

    It reads the arrays of the trie and must be used up before a box is added or removed.
    """

    def __init__(self, trie: Trie, keys: Words) -> None:
        self._trie = trie
        self._keys = keys
        self._listed: list[_Lists] = []
        self._laddered: list[_Lists] = []
        node = int(trie.node[ROOT])
        if node != NO_NODE:
            self._descend(*self._from_root(node))
        #: number of candidates
        self.total = sum(int(counts.sum()) for _, _, counts in (*self._listed, *self._laddered))

    def pieces(self) -> Iterator[Candidates]:
        """Yields all candidates, PIECE_CANDIDATES or a few more at a time."""
        yield from _pieces(self._listed, self._trie.lists)
        yield from _pieces(self._laddered, self._trie.ladders.rungs)

    def _from_root(self, node: int) -> tuple[Index, Index]:
        """The rows, and the slots that they reach from the root node: row[n], slot[n].

        Every row is looked up in every probe of the root, so the cells are a matrix.
        """
        probes = self._trie.probes
        width = self._keys.shape[1]
        self._climb(np.arange(width), np.full(width, node))
        asked = probes.of_node.of(node).astype(np.int64)[:, None]
        keys = self._keys.take(probes.column.take(asked[:, 0]), axis=0)
        where, slots = self._trie.cells.find(asked.view(np.uint64), probes.cells(asked, keys))
        return where % width, slots.astype(np.int64)

    def _descend(self, rows: Index, slots: Index) -> None:
        """Collect the lists of slots[n], which rows[n] have reached, and go on until no slot has a node."""
        trie = self._trie
        while len(slots):
            counts = trie.lists.count.take(slots)
            self._listed.append((rows, trie.lists.start.take(slots), counts))
            nodes = trie.node.take(slots)
            deeper = np.flatnonzero(nodes)
            rows, slots = self._ask(rows.take(deeper), nodes.take(deeper))

    def _ask(self, rows: Index, nodes: Index) -> tuple[Index, Index]:
        """rows[n] that have reached nodes[n] -> row[m], slot[m] one step deeper."""
        self._climb(rows, nodes)
        probes = self._trie.probes
        owner, position = spread(probes.of_node.start.take(nodes), probes.of_node.count.take(nodes))
        asked = probes.of_node.items.take(position).astype(np.int64)
        rows = rows.take(owner)
        keys = self._keys_at(probes.column.take(asked), rows)
        where, slots = self._trie.cells.find(asked.view(np.uint64), probes.cells(asked, keys))
        return rows.take(where), slots.astype(np.int64)

    def _climb(self, rows: Index, nodes: Index) -> None:
        """Collect the boxes that rows[n], which have reached nodes[n], reach on the ladders there."""
        ladders = self._trie.ladders
        counts = ladders.of_node.count.take(nodes)
        if not counts.any():
            return
        owner, position = spread(ladders.of_node.start.take(nodes), counts)
        climbed = ladders.of_node.items.take(position).astype(np.int64)
        rows = rows.take(owner)
        reached = ladders.reached(climbed, self._keys_at(ladders.column.take(climbed), rows))
        self._laddered.append((rows, ladders.rungs.start.take(climbed), reached))

    def _keys_at(self, columns: Index, rows: Index) -> Words:
        columns *= self._keys.shape[1]
        columns += rows
        return self._keys.reshape(-1).take(columns)


def _pieces(found: Sequence[_Lists], lists: Postings) -> Iterator[Candidates]:
    if not found:
        return
    rows, starts, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    ends = counts.cumsum()
    pieces = -(-int(ends[-1]) // PIECE_CANDIDATES)
    cuts = ends.searchsorted(np.arange(1, pieces) * PIECE_CANDIDATES).tolist()
    for first, upto in pairwise((0, *cuts, len(counts))):
        owner, position = spread(starts[first:upto], counts[first:upto])
        if len(owner):
            yield Candidates(rows[first:upto].take(owner), lists, position)
