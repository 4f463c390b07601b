"""Reduction: few lines that cover the interest of many subscribers (docs/matching.md).

The interest that is told upstream may be wider than what is wanted, never narrower. A few lines are summed up
anew at each change. With many, a change costs only what it adds, and now and then all are summed up again.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.errors import TidemarkError
from tidemark.matching.forms.covering import TopicInterest, covers_interest
from tidemark.matching.forms.summary import UNTYPED, summarise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.topic_conditions import for_pattern
from tidemark.matching.selectors.tree import TRUE
from tidemark.matching.topics import TopicPattern
from tidemark.message.topic_selector import TopicSelector

#: Lines that are told at the most; with more, some are merged into wider ones.
LINES_MAX = 256
#: Up to so many lines are summed up anew at each change.
_FEW = 32


class Reduction:
    """Sums up the interest that is told to one neighbour."""

    def __init__(self) -> None:
        self._lines: dict[TopicSelector, TopicInterest] = {}
        self._wanted: frozenset[TopicSelector] = frozenset()
        #: wanted lines that have come or gone since everything was summed up last
        self._changes = 0

    def of(self, wanted: Iterable[TopicSelector]) -> tuple[TopicSelector, ...]:
        """Return lines that cover `wanted`, sorted."""
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
            self._lines[TopicSelector(str(each.pattern), render(each.selector))] = each

    def _add(self, added: Iterable[TopicSelector]) -> None:
        for line in sorted(added, key=lambda line: (line.pattern, line.selector)):
            parsed = _parsed(line)
            if not any(covers_interest(known, parsed) for known in self._lines.values()):
                self._lines[line] = parsed
        if len(self._lines) > LINES_MAX:
            self._sum_up()


def _parsed(line: TopicSelector) -> TopicInterest:
    """Parse a line; one that cannot be told is taken to want all events of its topics.

    That is a selector that cannot be read, of a newer neighbour say, and one that asks different topics of
    its pattern for different things.
    """
    pattern = TopicPattern.parse(line.pattern)
    try:
        tree = for_pattern(parse(line.selector), pattern)
    except TidemarkError:
        tree = None
    return TopicInterest.of(pattern, TRUE if tree is None else tree, UNTYPED)
