"""Topology changes: what an administrator does to the overlay of a simulated world while it runs.

Only brokers that host neither a pubend nor a subscriber are removed, and every bundle of a tree keeps a link:
in the changed overlay every broker can still be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tidemark.broker.overlay.layout import Layout, pair
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.sim.world.overlays import BROKERS_MAX, bundle_of, spanning_tree
from tidemark.sim.world.world import World


class TopologyChanger:
    """Changes the overlay at random."""

    def __init__(self, world: World, plan: WorldPlan, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._next = len(plan.layout.brokers)

    def change(self) -> None:
        """Make one random change, if it is possible in the present overlay."""
        layout = self._world.layout
        changes: list[Callable[[Layout], Layout | None]] = [
            self._drain,
            self._remove_broker,
            self._add_broker,
            self._add_link,
            self._remove_link,
            self._move_tree,
            self._change_tree,
        ]
        changed = self._chance.choice(changes)(layout)
        if changed is not None and changed != layout:
            self._world.change_topology(changed, self._chance)

    def heal(self) -> None:
        """Pubends take new events again: a broker that hosts one is not drained any more."""
        layout = self._world.layout
        draining = layout.draining - set(layout.pubends.values())
        if draining != layout.draining:
            self._world.change_topology(replace(layout, draining=draining), self._chance)

    def _drain(self, layout: Layout) -> Layout:
        """A broker is to be drained, or not any more."""
        return replace(layout, draining=layout.draining ^ {self._chance.choice(layout.brokers)})

    def _remove_broker(self, layout: Layout) -> Layout | None:
        busy = set(layout.pubends.values()) | {each.machine for each in self._world.subscribers}
        idle = [name for name in layout.brokers if name not in busy]
        if not idle:
            return None
        name = self._chance.choice(idle)
        rest = layout.without(name)
        is_whole = set(rest.cells) == set(layout.cells) and _is_joined(rest)
        return rest if is_whole else None

    def _add_broker(self, layout: Layout) -> Layout | None:
        if len(layout.brokers) >= BROKERS_MAX + 1:
            return None
        name, cell = f"b{self._next}", self._chance.choice(sorted(layout.cells))
        self._next += 1
        cells = dict(layout.cells) | {cell: (*layout.cells[cell], name)}
        others = {b if a == cell else a for tree in layout.trees.values() for a, b in tree if cell in (a, b)}
        links = set(layout.links)
        for other in sorted(others):
            links |= bundle_of(self._chance, (name,), layout.cells[other])
        return replace(layout, cells=cells, links=frozenset(links))

    def _add_link(self, layout: Layout) -> Layout | None:
        edges = sorted({edge for tree in layout.trees.values() for edge in tree})
        if not edges:
            return None
        a, b = self._chance.choice(edges)
        link = pair(self._chance.choice(layout.cells[a]), self._chance.choice(layout.cells[b]))
        return replace(layout, links=layout.links | {link})

    def _remove_link(self, layout: Layout) -> Layout | None:
        if not layout.links:
            return None
        rest = replace(layout, links=layout.links - {self._chance.choice(sorted(layout.links))})
        return rest if _is_joined(rest) else None

    def _move_tree(self, layout: Layout) -> Layout | None:
        """A pubend uses another tree."""
        if not layout.pubends:
            return None
        moved = {self._chance.choice(sorted(layout.pubends)): self._chance.choice(sorted(layout.trees))}
        return replace(layout, tree_of=dict(layout.tree_of) | moved)

    def _change_tree(self, layout: Layout) -> Layout:
        """A tree joins the cells in another way; bundles that it needs are made."""
        name = self._chance.choice(sorted(layout.trees))
        tree = spanning_tree(self._chance, sorted(layout.cells))
        links = set(layout.links)
        for a, b in sorted(tree):
            if not layout.bundle(a, b):
                links |= bundle_of(self._chance, layout.cells[a], layout.cells[b])
        return replace(layout, trees=dict(layout.trees) | {name: tree}, links=frozenset(links))


def _is_joined(layout: Layout) -> bool:
    return all(layout.bundle(a, b) for tree in layout.trees.values() for a, b in tree)
