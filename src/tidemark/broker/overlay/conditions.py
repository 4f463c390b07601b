"""Conditions: what a broker knows of links and neighbours beyond which links are up (docs/overlay.md).

A broker knows how well its own links have worked, what its neighbours have said of theirs, and which pubends
its neighbours cannot reach. Brokers of one cell tell each other, so that they rank the ways into their cell
alike. All of it is soft state.
"""

from __future__ import annotations

from tidemark.broker.overlay.link_quality import DAMPED, LinkQuality
from tidemark.broker.overlay.routing import Door
from tidemark.wire.frames import LinkGrade, Ways


class Conditions:
    """The conditions of the ways of one broker."""

    def __init__(self, me: str, half_life: int) -> None:
        self._me = me
        self._half_life = half_life
        #: neighbour -> how well the link to it has worked; kept while it is a neighbour
        self._qualities: dict[str, LinkQuality] = {}
        #: neighbour whose link is up -> the pubends that should not be taken from it, and the grades of its
        #: links by their other end
        self._unreachable: dict[str, frozenset[str]] = {}
        self._grades: dict[str, dict[str, int]] = {}

    def of(self, peer: str) -> LinkQuality:
        """Return how well the link to a neighbour has worked."""
        return self._qualities.setdefault(peer, LinkQuality(self._half_life))

    def heard(self, peer: str, frame: Ways) -> None:
        """A neighbour says what it cannot reach, and how well its links work."""
        self._unreachable[peer] = frozenset(frame.unreachable)
        grades = {each.peer: min(each.grade, DAMPED) for each in frame.grades}
        self.of(peer).theirs = grades.pop(self._me, 0)
        self._grades[peer] = grades

    def link_lost(self, peer: str, now: int) -> None:
        """The link to a neighbour has gone down: what came over it does not hold any more."""
        self._unreachable.pop(peer, None)
        self._grades.pop(peer, None)
        quality = self.of(peer)
        quality.theirs = 0
        quality.died(now)

    def forget(self, peer: str) -> None:
        """A broker is no neighbour any more."""
        self._qualities.pop(peer, None)

    def wake(self, now: int) -> bool:
        """Let what is old count less; return whether the grade of a link has changed by that."""
        changed = {peer for peer, quality in self._qualities.items() if quality.wake(now)}
        return bool(changed)

    def is_cut(self, pubend: str, way: str) -> bool:
        """Return whether a neighbour has said that the pubend should not be taken from it."""
        return pubend in self._unreachable.get(way, ())

    def rank(self, pubend: str, door: Door) -> tuple[bool, bool, int]:
        """Return by what the way through a door comes before others: the least is the best.

        A way through a cellmate is as good as the worse of the door and the link to the cellmate.
        """
        if door.inside == self._me:
            return self.is_cut(pubend, door.outside), door.is_drained, self.of(door.outside).grade
        beyond = self._grades.get(door.inside, {}).get(door.outside, 0)
        return self.is_cut(pubend, door.inside), door.is_drained, max(beyond, self.of(door.inside).grade)

    def ways(self, peer: str, unreachable: tuple[str, ...], *, is_cellmate: bool) -> Ways:
        """Return what to say to a neighbour; see `Ways`."""
        grades = {peer: self.of(peer).here}
        if is_cellmate:
            grades |= {each: quality.grade for each, quality in self._qualities.items() if each != peer}
        return Ways(unreachable, tuple(LinkGrade(*each) for each in sorted(grades.items()) if each[1]))
