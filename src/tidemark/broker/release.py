"""Release: the minima of what everyone behind a broker has consumed (DSN'03 3, TRAPS 8).

Unknown holds: a neighbour that has not reported since it last said it wants something counts as having
released nothing. Minima never go back, and a link that is down keeps its last word.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.ticks import TICK_MAX, TICK_MIN


class Minima:
    """(released, delivered) of one pubend over all downstream."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._reports: dict[str, tuple[int, int] | None] = dict.fromkeys(sources)
        self._last = (TICK_MIN, TICK_MIN)

    def report(self, source: str, released: int, delivered: int) -> None:
        """A source's own minima; TICK_MAX when nobody is behind it."""
        self._reports[source] = (released, delivered)

    def doubt(self, source: str) -> None:
        """A source may hold something that it has not reported yet; if it had nobody, it is unknown again."""
        known = self._reports[source]
        if known is not None and known[0] == TICK_MAX:
            self._reports[source] = None

    def total(self) -> tuple[int, int] | None:
        """The minima over all sources, not below what they were; None while one is unknown."""
        known = [report for report in self._reports.values() if report is not None]
        if len(known) < len(self._reports):
            return None
        released = min((each[0] for each in known), default=TICK_MAX)
        delivered = min((each[1] for each in known), default=TICK_MAX)
        if released == TICK_MAX:
            return released, delivered  # nobody is there, which may change: no minimum to hold to
        self._last = (max(self._last[0], released), max(self._last[1], delivered))
        return self._last
