"""Routing: by which neighbour a pubend comes to a broker (docs/overlay.md; Gryphon II).

Of all links of a bundle that are up, one carries a pubend into a cell: the one of the highest rendezvous
hash, so that pubends spread over links and a failure moves only what the failed link carried. The other
brokers of the cell take the pubend from the broker at that link's end. Each step leads to a link of a better
rank, so there are no circles as long as cellmates agree on which links are up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.broker.overlay.layout import Layout
from tidemark.wire.rendezvous import weight

#: broker of this broker's cell, itself included -> the brokers that it has a link to that is up
Live = Mapping[str, frozenset[str]]


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
        #: pubend -> the links it may come into this cell by, best first, as (outside, inside); a pubend that
        #: is hosted in this cell comes in at its host
        self._doors = {pubend: self._ranked(pubend, cell) for pubend in layout.pubends}

    def ways(self, pubend: str, live: Live) -> list[str]:
        """Return the neighbours that can pass the pubend on now, best first; none at its own host."""
        mine = live.get(self.me, frozenset())
        found: dict[str, None] = {}
        for outside, inside in self._doors[pubend]:
            if inside == self.me:
                if outside in mine:
                    found[outside] = None
            elif inside in mine and outside in live.get(inside, ()):
                found[inside] = None
        return list(found)

    def upstream(self, pubend: str, live: Live) -> str | None:
        """Return the best of `ways`; None at the pubend's host, and where there is no way."""
        return next(iter(self.ways(pubend, live)), None)

    def door(self, pubend: str, cell: str, up: frozenset[frozenset[str]]) -> tuple[str, str] | None:
        """Return the link of `up` by which a pubend should come into a cell; None at its own cell."""
        ranked = self._ranked(pubend, cell)
        links = (link for link in ranked if frozenset(link) in up)
        return None if self.layout.parent_cell(pubend, cell) is None else next(links, None)

    def _ranked(self, pubend: str, cell: str) -> tuple[tuple[str, str], ...]:
        layout, host = self.layout, self.layout.pubends[pubend]
        if host in layout.cells[cell]:
            links = list(self._from_cellmates(host, cell))
        else:
            parent = layout.parent_cell(pubend, cell)
            links = [] if parent is None else list(layout.bundle(parent, cell))

        def rank(link: tuple[str, str]) -> tuple[bool, bool, int]:
            # The host itself comes before a way through a cellmate, and a drained broker comes last of all.
            is_drained = any(end in layout.draining and end != host for end in link)
            return is_drained, link[1] != self.me and host in layout.cells[cell], -weight(pubend, *link)

        return tuple(sorted(links, key=rank))

    def _from_cellmates(self, host: str, cell: str) -> Iterator[tuple[str, str]]:
        """Yield the host's links inside its own cell, host first; none at the host itself."""
        if host != self.me:
            yield from ((host, mate) for mate in self.layout.cells[cell] if mate != host)
