"""Layout: which brokers there are, how they are linked, and where each pubend lies (docs/overlay.md).

Brokers stand in cells; the brokers of one cell stand in for each other and are all linked to each other. The
links between the brokers of two cells are a bundle. A spanning tree of cells says which bundles a pubend's
events travel over; there may be several trees, and each pubend uses one of them. A layout is a value: a
change at run time makes another layout. Whether a layout makes sense as a whole is checked where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

#: Two brokers, or two cells, in the order of their names.
Pair = tuple[str, str]

#: The tree of a pubend that names none.
MAIN_TREE = "main"


def pair(a: str, b: str) -> Pair:
    """Return the two names in order."""
    return (a, b) if a <= b else (b, a)


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole overlay, as every broker of it should know it."""

    #: cell -> its brokers
    cells: Mapping[str, tuple[str, ...]]
    #: links between brokers of different cells; all links inside a cell exist
    links: frozenset[Pair] = frozenset()
    #: pubend -> the broker that hosts it
    pubends: Mapping[str, str] = field(default_factory=dict)
    #: tree -> the pairs of cells that it joins
    trees: Mapping[str, frozenset[Pair]] = field(default_factory=dict)
    #: pubend -> its tree, where that is not MAIN_TREE
    tree_of: Mapping[str, str] = field(default_factory=dict)
    #: brokers that are drained: streams flow through them only where there is no other way
    draining: frozenset[str] = frozenset()

    @classmethod
    def of_tree(
        cls, parents: Mapping[str, str | None], pubends: Mapping[str, str], *, draining: Iterable[str] = ()
    ) -> Layout:
        """Return the layout of a tree, broker -> its parent: each broker is a cell of its own name."""
        links = frozenset(pair(name, parent) for name, parent in parents.items() if parent is not None)
        cells = {name: (name,) for name in parents}
        return cls(cells, links, dict(pubends), {MAIN_TREE: links}, {}, frozenset(draining))

    def cell_of(self, broker: str) -> str:
        """Return the cell that a broker stands in; KeyError if there is no such broker."""
        for cell, brokers in self.cells.items():
            if broker in brokers:
                return cell
        raise KeyError(broker)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers, sorted."""
        return tuple(sorted(broker for brokers in self.cells.values() for broker in brokers))

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Return the brokers that a broker is linked to: its cellmates, and the far ends of its links."""
        mates = {each for each in self.cells[self.cell_of(broker)] if each != broker}
        return tuple(sorted(mates | {b if a == broker else a for a, b in self.links if broker in (a, b)}))

    def all_links(self) -> tuple[Pair, ...]:
        """Return every link, those inside cells included."""
        inside = {pair(a, b) for brokers in self.cells.values() for a in brokers for b in brokers if a < b}
        return tuple(sorted(inside | self.links))

    def bundle(self, a: str, b: str) -> tuple[Pair, ...]:
        """Return the links between two cells, each with its end in `a` first."""
        here, there = set(self.cells[a]), set(self.cells[b])
        ordered = ((x, y) if x in here else (y, x) for x, y in self.links)
        return tuple(sorted((x, y) for x, y in ordered if x in here and y in there))

    def edges(self, pubend: str) -> frozenset[Pair]:
        """Return the pairs of cells that the pubend's tree joins."""
        return self.trees.get(self.tree_of.get(pubend, MAIN_TREE), frozenset())

    def parent_cell(self, pubend: str, cell: str) -> str | None:
        """Return the next cell on the tree from `cell` to the pubend; None at its own, or without a way."""
        goal, edges = self.cell_of(self.pubends[pubend]), self.edges(pubend)
        below: dict[str, str | None] = {goal: None}
        front = [goal]
        while front and cell not in below:
            at = front.pop(0)
            for a, b in sorted(edges):
                other = b if a == at else a if b == at else None
                if other is not None and other not in below:
                    below[other] = at
                    front.append(other)
        return below.get(cell)

    def without(self, broker: str) -> Layout:
        """Return the same layout without a broker, its links, and the pubends that it hosted."""
        cells = {cell: tuple(each for each in all_ if each != broker) for cell, all_ in self.cells.items()}
        return replace(
            self,
            cells={cell: brokers for cell, brokers in cells.items() if brokers},
            links=frozenset(link for link in self.links if broker not in link),
            pubends={pubend: host for pubend, host in self.pubends.items() if host != broker},
            draining=self.draining - {broker},
        )
