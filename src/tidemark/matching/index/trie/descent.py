"""The way down the trie, for all events of a batch at once.

Every round takes the nodes that rows have reached, asks for the cells that the rows lie in, and gathers the
lists found there; the number of array operations depends on how deep the trie is and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tidemark.matching.index.arrays import Index, Words, spread
from tidemark.matching.index.postings import Postings
from tidemark.matching.index.trie.trie import NO_NODE, ROOT, Trie

#: Candidates checked at a time. Arrays of 128 KiB and more may be got from the operating system, and given
#: back, each time: checking 17,000 at once took half as long again as in two pieces.
PIECE_CANDIDATES = 12_000

#: rows[n], starts[n], counts[n]
_Lists = tuple[Index, Index, Index]


class Candidates:
    """Lists of boxes that may hold a row: in `trie.lists` and on `trie.ladders`, as rows, starts, counts."""

    def __init__(self, trie: Trie, keys: Words) -> None:
        self._trie = trie
        self._keys = keys
        self._listed: list[_Lists] = []
        self._laddered: list[_Lists] = []
        node = int(trie.node[ROOT])
        if node != NO_NODE:
            self._descend(*self._from_root(node))
        self.total = sum(int(counts.sum()) for _, _, counts in (*self._listed, *self._laddered))

    def pieces(self) -> Iterator[tuple[Index, Postings, Index]]:
        """Every candidate, some thousands at a time: rows[n], the lists they are in, position[n] there."""
        yield from _pieces(self._listed, self._trie.lists)
        yield from _pieces(self._laddered, self._trie.ladders.rungs)

    def _from_root(self, node: int) -> tuple[Index, Index]:
        """Ask for every row: a matrix rather than pairs. -> rows and slots that they reach."""
        probes = self._trie.probes
        width = self._keys.shape[1]
        self._climb(np.arange(width), np.full(width, node))
        asked = probes.of_node.of(node).astype(np.int64)[:, None]
        keys = self._keys.take(probes.column.take(asked[:, 0]), axis=0)
        where, slots = self._trie.cells.find(asked.view(np.uint64), probes.cells(asked, keys))
        return where % width, slots.astype(np.int64)

    def _descend(self, rows: Index, slots: Index) -> None:
        """rows[n] have reached slots[n]; go on until no slot has a node."""
        trie = self._trie
        while len(slots):
            counts = trie.lists.count.take(slots)
            self._listed.append((rows, trie.lists.start.take(slots), counts))
            nodes = trie.node.take(slots)
            deeper = np.flatnonzero(nodes)
            rows, slots = self._ask(rows.take(deeper), nodes.take(deeper))

    def _ask(self, rows: Index, nodes: Index) -> tuple[Index, Index]:
        """rows[n] have reached nodes[n] -> rows and slots one step deeper."""
        self._climb(rows, nodes)
        probes = self._trie.probes
        owner, position = spread(probes.of_node.start.take(nodes), probes.of_node.count.take(nodes))
        asked = probes.of_node.items.take(position).astype(np.int64)
        rows = rows.take(owner)
        keys = self._keys_at(probes.column.take(asked), rows)
        where, slots = self._trie.cells.find(asked.view(np.uint64), probes.cells(asked, keys))
        return rows.take(where), slots.astype(np.int64)

    def _climb(self, rows: Index, nodes: Index) -> None:
        """rows[n] have reached nodes[n]: gather what they reach on the ladders there."""
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


def _pieces(found: Sequence[_Lists], lists: Postings) -> Iterator[tuple[Index, Postings, Index]]:
    if not found:
        return
    rows, starts, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    ends = counts.cumsum()
    pieces = -(-int(ends[-1]) // PIECE_CANDIDATES)
    cuts = ends.searchsorted(np.arange(1, pieces) * PIECE_CANDIDATES).tolist()
    for first, upto in pairwise((0, *cuts, len(counts))):
        owner, position = spread(starts[first:upto], counts[first:upto])
        if len(owner):
            yield rows[first:upto].take(owner), lists, position
