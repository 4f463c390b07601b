"""Reduction: the interest of many as few lines that cover it (DESIGN 5, 6).

What is told upstream may want more than is wanted, never less. A few lines are summed up anew at each
change; of many, a change costs only what it adds, and now and then all is summed up again.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.errors import TidemarkError
from tidemark.matching.forms.covering import TopicInterest, covers_interest
from tidemark.matching.forms.summary import UNTYPED, summarise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.topics import TopicPattern
from tidemark.wire.frames import Wanted

#: Lines told at the most; beyond it they become wider.
LINES_MAX = 256
#: Up to so many lines are summed up anew at each change.
_FEW = 32


class Reduction:
    """Sums up the interest told to one neighbour."""

    def __init__(self) -> None:
        self._lines: dict[Wanted, TopicInterest] = {}
        self._wanted: frozenset[Wanted] = frozenset()
        #: lines that have come or gone since all was summed up
        self._changes = 0

    def of(self, wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
        """Lines that cover `wanted`, sorted."""
        now = frozenset(wanted)
        added, gone = now - self._wanted, self._wanted - now
        self._wanted = now
        self._changes += len(added) + len(gone)
        if self._changes and (len(now) <= _FEW or self._changes > len(self._lines)):
            self._sum_up()
        else:
            self._add(added)
        return tuple(sorted(self._lines, key=lambda line: (line.pattern, line.selector)))

    def _sum_up(self) -> None:
        self._changes = 0
        self._lines = {}
        for each in summarise([_parsed(line) for line in self._wanted], LINES_MAX):
            self._lines[Wanted(str(each.pattern), render(each.selector))] = each

    def _add(self, added: Iterable[Wanted]) -> None:
        for line in sorted(added, key=lambda line: (line.pattern, line.selector)):
            parsed = _parsed(line)
            if not any(covers_interest(known, parsed) for known in self._lines.values()):
                self._lines[line] = parsed
        if len(self._lines) > LINES_MAX:
            self._sum_up()


def _parsed(line: Wanted) -> TopicInterest:
    """What cannot be read - a newer neighbour's selector, say - is taken to want the whole topic."""
    pattern = TopicPattern.parse(line.pattern)
    try:
        return TopicInterest.of(pattern, parse(line.selector), UNTYPED)
    except TidemarkError:
        return TopicInterest.of(pattern, parse(""), UNTYPED)
