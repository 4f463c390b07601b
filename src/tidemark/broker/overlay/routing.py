"""Routing: by which neighbour a pubend comes to a broker (docs/overlay.md; Gryphon II).

Of all links of a bundle that are up and work best, one carries a pubend into a cell: the one of the highest
rendezvous hash, so that pubends spread over links and a failure moves only what the failed link carried. The
other brokers of the cell take the pubend from the broker at that link's end. Each step leads to a link of a
better rank, so there are no circles as long as cellmates agree on which links are up and how well they work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

from tidemark.broker.overlay.layout import Layout
from tidemark.wire.rendezvous import weight

#: broker of this broker's cell, itself included -> the brokers that it has a link to that is up
Live = Mapping[str, frozenset[str]]


class Door(NamedTuple):
    """A link by which a pubend may come into a cell, from its end outside to its end inside."""

    outside: str
    inside: str
    #: one of its ends is being drained
    is_drained: bool


#: (pubend, door) -> whether the way does not lead to the pubend, whether it is drained, and its grade
Rank = Callable[[str, Door], tuple[bool, bool, int]]


def alike(pubend: str, door: Door) -> tuple[bool, bool, int]:  # noqa: ARG001  (the signature of a Rank)
    """Rank all ways alike, but for those that are drained."""
    return False, door.is_drained, 0


class Routing:
    """The routes of one layout, as one broker sees them."""

    def __init__(self, layout: Layout, me: str) -> None:
        self.layout = layout
        self.me = me
        cell = layout.cell_of(me)
        self.members = frozenset(layout.brokers)
        self.neighbours = layout.neighbours(me)
        self.cellmates = tuple(sorted(each for each in layout.cells[cell] if each != me))
        self.hosted = tuple(sorted(name for name, host in layout.pubends.items() if host == me))
        #: pubend -> the doors it may come into this cell by, best first if all work alike; a pubend that is
        #: hosted in this cell comes in at its host
        self._doors = {pubend: self._ranked(pubend, cell) for pubend in layout.pubends}
        #: broker -> broker -> links between the two, at the least, whether they are up or not
        self._distances: dict[str, dict[str, int]] = {}
        #: pubend and neighbour -> the hosts behind that neighbour
        self._behind: dict[tuple[str, str], frozenset[str]] = {}

    def ways(self, pubend: str, live: Live, rank: Rank = alike) -> list[str]:
        """Return the neighbours that can pass the pubend on now, best first; none at its own host."""
        doors = sorted(self._open(pubend, live), key=lambda door: rank(pubend, door))
        return list(dict.fromkeys(door.outside if door.inside == self.me else door.inside for door in doors))

    def is_behind(self, pubend: str, host: str, peer: str) -> bool:
        """Return whether a host's way to the pubend may lead over a neighbour and then here.

        A cellmate may pass on what comes from any cell whose way leads over this one.
        """
        found = self._behind.get((pubend, peer))
        if found is None:
            found = self._behind[pubend, peer] = self._hosts_behind(pubend, peer)
        return host in found

    def _hosts_behind(self, pubend: str, peer: str) -> frozenset[str]:
        layout = self.layout
        if peer not in self.members or pubend not in layout.pubends:
            return frozenset()
        here, there = layout.cell_of(self.me), layout.cell_of(peer)
        if there not in (here, *self._cells_below(pubend, here)):
            return frozenset()
        cells = [cell for cell in layout.cells if there in self._cells_on_way(pubend, cell)]
        return frozenset(broker for cell in cells for broker in layout.cells[cell])

    def _cells_below(self, pubend: str, cell: str) -> list[str]:
        return [each for each in self.layout.cells if self.layout.parent_cell(pubend, each) == cell]

    def _cells_on_way(self, pubend: str, cell: str) -> list[str]:
        """Return the cells of the tree from `cell`, which is the first, to the pubend's own."""
        way: list[str] = []
        at: str | None = cell
        while at is not None:
            way.append(at)
            at = self.layout.parent_cell(pubend, at)
        return way

    def is_towards(self, pubend: str, peer: str) -> bool:
        """Return whether the pubend may come from a neighbour: one of this cell or of the next towards it."""
        if peer not in self.members or pubend not in self.layout.pubends:
            return False
        here, there = self.layout.cell_of(self.me), self.layout.cell_of(peer)
        return there in (here, self.layout.parent_cell(pubend, here))

    def way_to(self, broker: str, present: Container[str]) -> str | None:
        """Return the neighbour among `present` that is nearest to a broker; None if none is nearer than this.

        Each step leads nearer, so what goes this way never goes in a circle.
        """
        if broker not in self.members or broker == self.me:
            return None
        far = self._distances.get(broker)
        if far is None:
            far = self._distances[broker] = self._distances_from(broker)
        here = far.get(self.me, 0)
        nearer = [each for each in self.neighbours if each in present and far.get(each, here) < here]
        return min(nearer, key=lambda each: (far[each], each), default=None)

    def _distances_from(self, broker: str) -> dict[str, int]:
        far, edge = {broker: 0}, [broker]
        while edge:
            near = edge.pop(0)
            for each in self.layout.neighbours(near):
                if each not in far:
                    far[each] = far[near] + 1
                    edge.append(each)
        return far

    def is_reachable(self, pubend: str, live: Live, rank: Rank, *, alone: bool) -> bool:
        """Return whether a way leads to the pubend; if `alone`, by a link of this broker's own."""
        return any(
            not rank(pubend, door)[0]
            for door in self._open(pubend, live)
            if door.inside == self.me or not alone
        )

    def _open(self, pubend: str, live: Live) -> Iterator[Door]:
        """Yield the doors whose links are all up, as seen from this broker."""
        mine = live.get(self.me, frozenset())
        for door in self._doors[pubend]:
            if door.inside == self.me:
                if door.outside in mine:
                    yield door
            elif door.inside in mine and door.outside in live.get(door.inside, ()):
                yield door

    def upstream(self, pubend: str, live: Live) -> str | None:
        """Return the best of `ways`; None at the pubend's host, and where there is no way."""
        return next(iter(self.ways(pubend, live)), None)

    def door(self, pubend: str, cell: str, up: frozenset[frozenset[str]]) -> tuple[str, str] | None:
        """Return the link of `up` by which a pubend should come into a cell; None at its own cell."""
        ranked = self._ranked(pubend, cell)
        links = ((door.outside, door.inside) for door in ranked if frozenset(door[:2]) in up)
        return None if self.layout.parent_cell(pubend, cell) is None else next(links, None)

    def _ranked(self, pubend: str, cell: str) -> tuple[Door, ...]:
        layout, host = self.layout, self.layout.pubends[pubend]
        if host in layout.cells[cell]:
            links = list(self._from_cellmates(host, cell))
        else:
            parent = layout.parent_cell(pubend, cell)
            links = [] if parent is None else list(layout.bundle(parent, cell))

        def rank(door: Door) -> tuple[bool, bool, int]:
            # The host itself comes before a way through a cellmate, and a drained broker comes last of all.
            is_second_hand = door.inside != self.me and host in layout.cells[cell]
            return door.is_drained, is_second_hand, -weight(pubend, door.outside, door.inside)

        drained = layout.draining - {host}
        return tuple(sorted((Door(*link, not drained.isdisjoint(link)) for link in links), key=rank))

    def _from_cellmates(self, host: str, cell: str) -> Iterator[tuple[str, str]]:
        """Yield the host's links inside its own cell, host first; none at the host itself."""
        if host != self.me:
            yield from ((host, mate) for mate in self.layout.cells[cell] if mate != host)
