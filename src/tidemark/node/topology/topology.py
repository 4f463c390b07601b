"""Topology: the brokers of an overlay, where they listen, and how their cells are joined (docs/overlay.md).

Brokers stand in cells, cells are joined by bundles of links, and trees say which bundles a pubend uses. A
topology is checked as a whole when it is built; a change at run time is another topology with a higher
version. Where a broker keeps its data concerns that broker alone and is not sent to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import product

from tidemark.broker.overlay.layout import MAIN_TREE, Layout, Pair, pair
from tidemark.node.config.units import HostPort
from tidemark.node.topology.checks import check, spanning
from tidemark.node.topology.text import to_text

#: The version of a topology from a file. Each change of a running overlay counts one up.
OF_FILE = 0


@dataclass(frozen=True, slots=True)
class BrokerPlacement:
    """One broker of a topology: its cell, its address, and the pubends it hosts."""

    name: str
    cell: str
    listen: HostPort
    pubends: tuple[str, ...] = ()
    is_draining: bool = False
    #: data directory and HTTP address, where the file names them; not sent to other brokers
    data_dir: str | None = None
    http: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The links that join two cells."""

    name: str
    cells: Pair
    #: (caller, called) for each link; None: each broker of the first cell calls each of the second
    links: tuple[Pair, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """Bundles that join all cells without a circle, and the pubends whose events travel over them."""

    name: str
    bundles: tuple[str, ...]
    #: MAIN_TREE has besides these all pubends that no other tree names
    pubends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole overlay. Made by `build`, which checks that everything fits together."""

    brokers: Mapping[str, BrokerPlacement]
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    #: the trees that were named; if MAIN_TREE is not among them, `of_main_tree` finds it
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
        """Returns the topology. Raises ConfigError, at the key that is wrong, if its parts do not fit."""
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
        """Returns the overlay in the form that the brokers' cores use."""
        return self._layout

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Returns the brokers that `name` is linked to, whichever side calls; none if there is no `name`."""
        return self._layout.neighbours(name) if name in self.brokers else ()

    def calls(self, name: str) -> dict[str, HostPort]:
        """Returns the brokers that `name` calls, each with its address.

        Inside a cell the later name calls.
        """
        if name not in self.brokers:
            return {}
        mates = self._layout.cells[self.brokers[name].cell]
        called = [mate for mate in mates if mate < name]
        for bundle in self.bundles.values():
            called += [there for here, there in self.links(bundle.name) if here == name]
        return {peer: self.brokers[peer].listen for peer in called}

    def links(self, bundle: str) -> tuple[Pair, ...]:
        """Returns the links of a bundle as (caller, called)."""
        found = self.bundles[bundle]
        if found.links is not None:
            return found.links
        here, there = (self.cell(cell) for cell in found.cells)
        return tuple((a, b) for a in here for b in there)

    def cell(self, name: str) -> tuple[str, ...]:
        """Returns the names of the brokers of a cell."""
        return tuple(each.name for each in self.brokers.values() if each.cell == name)

    def of_main_tree(self) -> tuple[str, ...]:
        """Returns the bundles of the tree for pubends that no other tree names."""
        if MAIN_TREE in self.trees:
            return self.trees[MAIN_TREE].bundles
        return spanning(self.bundles.values())

    @property
    def digest(self) -> str:
        """A hash of the text, which tells two topologies of one version apart."""
        return blake2b(to_text(self).encode(), digest_size=8).hexdigest()

    def is_newer_than(self, other: Topology) -> bool:
        """Returns whether this topology wins over `other`.

        Of two with one version, the higher digest wins.
        """
        return self.version > OF_FILE and (self.version, self.digest) > (other.version, other.digest)

    def _laid_out(self) -> Layout:
        cells: dict[str, tuple[str, ...]] = {}
        for each in self.brokers.values():
            cells[each.cell] = (*cells.get(each.cell, ()), each.name)
        links = frozenset(
            pair(a, b)
            for each in self.bundles.values()
            for a, b in (product(*(cells[cell] for cell in each.cells)) if each.links is None else each.links)
        )
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
