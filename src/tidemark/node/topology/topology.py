"""Topology: the brokers of an overlay, where they listen, and how their cells are joined (DESIGN 9).

Brokers stand in cells, cells are joined by bundles of links, and trees say which bundles a pubend uses. A
topology is checked as a whole when it is built; a change at run time is another topology, with
a higher version. Where a broker keeps its data is its own business and no part of what others are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from tidemark.broker.overlay.layout import MAIN_TREE, Layout, Pair, pair
from tidemark.node.config.units import SocketAddress
from tidemark.node.topology.checks import check, spanning
from tidemark.node.topology.text import to_text

#: Versions are counted from here when an administrator changes a running overlay; a file has this one.
OF_FILE = 0


@dataclass(frozen=True, slots=True)
class BrokerPlacement:
    """One broker as the topology has it."""

    name: str
    cell: str
    listen: SocketAddress
    pubends: tuple[str, ...] = ()
    is_draining: bool = False
    #: its own data directory and HTTP address, where the file says them
    data_dir: str | None = None
    http: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """What joins two cells. Whoever is named first calls the other."""

    name: str
    cells: Pair
    #: between brokers of the two cells; None for each to each
    links: tuple[Pair, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A choice of bundles that joins all cells without a circle, and the pubends that use it."""

    name: str
    bundles: tuple[str, ...]
    #: those of MAIN_TREE are all that no other tree names
    pubends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole overlay. Made by `build`, which checks that everything fits together."""

    brokers: Mapping[str, BrokerPlacement]
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    #: as they were named; without MAIN_TREE, that one is found
    trees: Mapping[str, Tree] = field(default_factory=dict)
    #: brokers that share a process: process -> brokers
    processes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = OF_FILE
    _layout: Layout = field(default_factory=lambda: Layout({}), repr=False, compare=False)

    @classmethod
    def build(
        cls,
        placements: Iterable[BrokerPlacement],
        bundles: Iterable[Bundle] = (),
        trees: Iterable[Tree] = (),
        processes: Mapping[str, tuple[str, ...]] | None = None,
        *,
        version: int = OF_FILE,
    ) -> Topology:
        """ConfigError, at the key that is wrong, unless everything fits together."""
        all_placements, all_bundles, all_trees = list(placements), list(bundles), list(trees)
        check(all_placements, all_bundles, all_trees, processes or {})
        made = cls(
            {each.name: each for each in all_placements},
            {each.name: each for each in all_bundles},
            {each.name: each for each in all_trees},
            dict(processes or {}),
            version,
        )
        return replace(made, _layout=made._laid_out())

    def layout(self) -> Layout:
        """The overlay as brokers' cores know it."""
        return self._layout

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Those a broker is linked to, whichever side calls; none if there is no such broker."""
        return self._layout.neighbours(name) if name in self.brokers else ()

    def calls(self, name: str) -> dict[str, SocketAddress]:
        """Those a broker calls, and where. Inside a cell the later name calls."""
        if name not in self.brokers:
            return {}
        mates = self._layout.cells[self.brokers[name].cell]
        called = [mate for mate in mates if mate < name]
        for bundle in self.bundles.values():
            called += [there for here, there in self.links(bundle.name) if here == name]
        return {peer: self.brokers[peer].listen for peer in called}

    def links(self, bundle: str) -> tuple[Pair, ...]:
        """The links of a bundle; the first of each calls the second."""
        found = self.bundles[bundle]
        if found.links is not None:
            return found.links
        here, there = (self.cell(cell) for cell in found.cells)
        return tuple((a, b) for a in here for b in there)

    def cell(self, name: str) -> tuple[str, ...]:
        """The brokers of a cell."""
        return tuple(each.name for each in self.brokers.values() if each.cell == name)

    def of_main_tree(self) -> tuple[str, ...]:
        """The bundles of the tree that is used where no other is named."""
        if MAIN_TREE in self.trees:
            return self.trees[MAIN_TREE].bundles
        return spanning(self.bundles.values())

    @property
    def digest(self) -> str:
        """Tells two topologies of one version apart."""
        return blake2b(to_text(self).encode(), digest_size=8).hexdigest()

    def is_newer_than(self, other: Topology) -> bool:
        """What was changed later holds; of two changes at once, all agree on one."""
        return self.version > OF_FILE and (self.version, self.digest) > (other.version, other.digest)

    def _laid_out(self) -> Layout:
        cells: dict[str, tuple[str, ...]] = {}
        for each in self.brokers.values():
            cells[each.cell] = (*cells.get(each.cell, ()), each.name)
        links = frozenset(pair(a, b) for bundle in self.bundles for a, b in self.links(bundle))
        joined = {name: tree.bundles for name, tree in self.trees.items()}
        joined[MAIN_TREE] = self.of_main_tree()
        return Layout(
            cells,
            links,
            {pubend: each.name for each in self.brokers.values() for pubend in each.pubends},
            {name: frozenset(pair(*self.bundles[each].cells) for each in of) for name, of in joined.items()},
            {pubend: each.name for each in self.trees.values() for pubend in each.pubends},
            frozenset(each.name for each in self.brokers.values() if each.is_draining),
        )
