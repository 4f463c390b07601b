"""InterestCoverage: for which interest the silence in a window can be believed (TRAPS 1, 3).

A window's S at a tick says that nothing there was wanted when that was learnt. First-time knowledge carries
the version of interest it accounts for, and versions only grow with the ticks; so from a tick on everything
accounts for a version, and before it only what was asked for, and answered, on behalf of that version.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.broker.streams.interest import VERSIONS_KEPT_MAX
from tidemark.ticks import TICK_MAX, RangeSet
from tidemark.wire.frames import Range


class InterestCoverage:
    """Of one stream's window, at a broker that does not host the pubend."""

    def __init__(self) -> None:
        #: (version, from which tick on everything accounts for it), both increasing
        self._steps: list[tuple[int, int]] = []
        #: was answered, accounting for at least this version
        self._firm = RangeSet()
        self._firm_version = 0

    @property
    def newest(self) -> int:
        """The newest version that first-time knowledge has accounted for."""
        return self._steps[-1][0] if self._steps else 0

    def learnt(self, version: int, base: int, known_upto: int) -> int:
        """First-time knowledge beyond `base` is tagged `version`; what it may be said to account for.

        What is known already, up to `known_upto`, came by an older interest, perhaps from another neighbour
        that was further on: the new one counts only beyond it.
        """
        if version > self.newest:
            self._steps.append((version, max(base, known_upto, self._steps[-1][1] if self._steps else base)))
            del self._steps[:-VERSIONS_KEPT_MAX]
        for reached, tick in reversed(self._steps):
            if tick <= base:
                return reached
        return 0

    def need(self, version: int) -> None:
        """Somebody asks on behalf of this version."""
        if version > self._firm_version:
            self._firm = RangeSet()
            self._firm_version = version

    def answered(self, version: int, base: int, upto: int) -> None:
        """An answer that accounts for this version has come."""
        if 0 < self._firm_version <= version:
            self._firm.add(base, upto)

    def lose(self, upto: int) -> None:
        """Nobody will ask for this any more."""
        self._firm.remove_upto(upto)

    def since(self, version: int) -> int:
        """From which tick on everything accounts for this version; TICK_MAX when nothing does yet."""
        return next((tick for reached, tick in self._steps if reached >= version), TICK_MAX)

    def covered(self, known: Iterable[Range], version: int) -> list[Range]:
        """The parts of what is known whose silence accounts for this version, in order."""
        since = self.since(version)
        firm = self._firm.copy() if version <= self._firm_version else RangeSet()
        firm.remove(since, TICK_MAX)
        if since < TICK_MAX:
            firm.add(since, TICK_MAX)
        return [part for base, upto in known for part in firm.parts(base, upto)]
