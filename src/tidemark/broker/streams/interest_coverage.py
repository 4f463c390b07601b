"""InterestCoverage: for which interest versions the silence in a window is complete (docs/traps.md, 1 and 3).

S at a tick of a window means that nothing there was wanted when the tick was learnt. First-time knowledge is
tagged with the interest version that it is complete for, and versions only grow with the ticks. So from some
tick on everything is complete for a version; before that tick only the ranges are that were asked for, and
answered, on behalf of that version.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tidemark.broker.streams.interest import VERSIONS_KEPT_MAX
from tidemark.ticks import TICK_MAX, Range, RangeSet


class InterestCoverage:
    """The coverage of one stream's window, at a broker that does not host the pubend."""

    def __init__(self) -> None:
        #: (version, the tick from which on everything is complete for it), both increasing
        self._steps: list[tuple[int, int]] = []
        #: ranges that were answered completely for `_firm_version` or a newer version
        self._firm = RangeSet()
        self._firm_version = 0

    @property
    def newest(self) -> int:
        """The newest version that first-time knowledge was complete for; 0 before the first."""
        return self._steps[-1][0] if self._steps else 0

    def learnt(self, version: int, base: int, known_upto: int) -> int:
        """First-time knowledge beyond `base` is tagged `version`; return the version it is complete for here.

        What is known already, up to `known_upto`, came for an older interest, perhaps from another neighbour
        that was further on: the new version counts only beyond it.
        """
        if version > self.newest:
            self._steps.append((version, max(base, known_upto, self._steps[-1][1] if self._steps else base)))
            del self._steps[:-VERSIONS_KEPT_MAX]
        for reached, tick in reversed(self._steps):
            if tick <= base:
                return reached
        return 0

    def need(self, version: int) -> None:
        """A nack on behalf of this version has come: from now on only answers to such are remembered."""
        if version > self._firm_version:
            self._firm = RangeSet()
            self._firm_version = version

    def answered(self, version: int, base: int, upto: int) -> None:
        """An answer to `(base, upto]` has come that is complete for this version."""
        if 0 < self._firm_version <= version:
            self._firm.add(base, upto)

    def lose(self, upto: int) -> None:
        """Everything at or below `upto` is L: no one will ask for it any more."""
        self._firm.remove_upto(upto)

    def since(self, version: int) -> int:
        """Return the tick beyond which everything is complete for this version; TICK_MAX if there is none."""
        return next((tick for reached, tick in self._steps if reached >= version), TICK_MAX)

    def versions(self, base: int, upto: int) -> list[tuple[int, int, int]]:
        """Return `(base, upto]` in parts, each with the newest version that its silence is complete for."""
        firm = self._firm.parts(base, upto)
        edges = {base, upto, *(tick for _, tick in self._steps), *(edge for part in firm for edge in part)}
        found: list[tuple[int, int, int]] = []
        for first, last in pairwise(sorted(edge for edge in edges if base <= edge <= upto)):
            version = max((reached for reached, tick in self._steps if tick <= first), default=0)
            if self._firm.covers(first, last):
                version = max(version, self._firm_version)
            if found and found[-1][2] == version:
                first = found.pop()[0]
            found.append((first, last, version))
        return found

    def covered(self, known: Iterable[Range], version: int) -> list[Range]:
        """Return the parts of the `known` ranges whose silence is complete for this version, in order."""
        since = self.since(version)
        firm = self._firm.copy() if version <= self._firm_version else RangeSet()
        firm.remove(since, TICK_MAX)
        if since < TICK_MAX:
            firm.add(since, TICK_MAX)
        return [part for base, upto in known for part in firm.parts(base, upto)]
