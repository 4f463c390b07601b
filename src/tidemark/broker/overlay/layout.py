"""Layout: which brokers there are, how they are linked, and where each pubend lies (DESIGN 9).

Brokers stand in cells; those of one cell stand in for each other and are all linked to each other. Between
two cells there is a bundle: whatever links there are between their brokers. A spanning tree of cells says
which bundles a pubend's events travel over; there may be several trees, and each pubend uses one of them. A
layout is a value: a change at run time is another layout. Whether it makes sense as a whole is checked where
it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

#: Two brokers, or two cells, in the order of their names.
Pair = tuple[str, str]

#: The tree of a pubend that names none.
MAIN_TREE = "main"


def pair(a: str, b: str) -> Pair:
    """The two in the order of their names."""
    return (a, b) if a <= b else (b, a)


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole overlay, as every broker of it should know it."""

    #: cell -> its brokers
    cells: Mapping[str, tuple[str, ...]]
    #: between brokers of different cells; those inside a cell go without saying
    links: frozenset[Pair] = frozenset()
    #: pubend -> the broker that hosts it
    pubends: Mapping[str, str] = field(default_factory=dict)
    #: tree -> the pairs of cells that it joins
    trees: Mapping[str, frozenset[Pair]] = field(default_factory=dict)
    #: pubend -> its tree, where that is not MAIN_TREE
    tree_of: Mapping[str, str] = field(default_factory=dict)
    #: brokers that nothing is to flow through where there is another way
    draining: frozenset[str] = frozenset()

    @classmethod
    def of_tree(
        cls, parents: Mapping[str, str | None], pubends: Mapping[str, str], *, draining: Iterable[str] = ()
    ) -> Layout:
        """Cells of one broker each, named as it is, in a tree: broker -> its parent."""
        links = frozenset(pair(name, parent) for name, parent in parents.items() if parent is not None)
        cells = {name: (name,) for name in parents}
        return cls(cells, links, dict(pubends), {MAIN_TREE: links}, {}, frozenset(draining))

    def cell_of(self, broker: str) -> str:
        """The cell that a broker stands in; KeyError if there is no such broker."""
        for cell, brokers in self.cells.items():
            if broker in brokers:
                return cell
        raise KeyError(broker)

    @property
    def brokers(self) -> tuple[str, ...]:
        """All of them, by name."""
        return tuple(sorted(broker for brokers in self.cells.values() for broker in brokers))

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Those that a broker is linked to: its cellmates, and the far ends of its links."""
        mates = {each for each in self.cells[self.cell_of(broker)] if each != broker}
        return tuple(sorted(mates | {b if a == broker else a for a, b in self.links if broker in (a, b)}))

    def all_links(self) -> tuple[Pair, ...]:
        """Every link, also those inside cells."""
        inside = {pair(a, b) for brokers in self.cells.values() for a in brokers for b in brokers if a < b}
        return tuple(sorted(inside | self.links))

    def bundle(self, a: str, b: str) -> tuple[Pair, ...]:
        """The links between two cells, each with its end in `a` first."""
        here, there = set(self.cells[a]), set(self.cells[b])
        ordered = ((x, y) if x in here else (y, x) for x, y in self.links)
        return tuple(sorted((x, y) for x, y in ordered if x in here and y in there))

    def edges(self, pubend: str) -> frozenset[Pair]:
        """The pairs of cells that the pubend's tree joins."""
        return self.trees.get(self.tree_of.get(pubend, MAIN_TREE), frozenset())

    def parent_cell(self, pubend: str, cell: str) -> str | None:
        """The next cell on the tree from `cell` towards the pubend; None at its own, and where no way is."""
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

    def with_drained(self, *brokers: str) -> Layout:
        """The same, with these to be used only where there is no other way."""
        return replace(self, draining=self.draining | frozenset(brokers))

    def without(self, broker: str) -> Layout:
        """The same without a broker, its links, and the pubends that it hosted."""
        cells = {cell: tuple(each for each in all_ if each != broker) for cell, all_ in self.cells.items()}
        return replace(
            self,
            cells={cell: brokers for cell, brokers in cells.items() if brokers},
            links=frozenset(link for link in self.links if broker not in link),
            pubends={pubend: host for pubend, host in self.pubends.items() if host != broker},
            draining=self.draining - {broker},
        )
