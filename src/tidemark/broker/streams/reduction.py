"""Reduction: few lines that cover the interest of many subscribers (docs/matching.md).

The interest that is told upstream may be wider than what is wanted, never narrower. A few lines are summed up
anew at each change, so that nothing is told that another line covers. Many are told as they are, and where
there are too many of them, the topics with the most lines are told as a whole. A change of many then costs
what it adds. Now and then all lines are gathered anew, since what is gone was not taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tidemark.errors import TidemarkError
from tidemark.matching.forms.covering import TopicInterest
from tidemark.matching.forms.summary import UNTYPED, summarise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.topic_conditions import for_pattern
from tidemark.matching.selectors.tree import TRUE, And, Node, Not, Or
from tidemark.matching.topics import TopicPattern
from tidemark.message.topic_selector import TopicSelector

#: Lines that are told at the most; with more, those of whole topics take their place.
LINES_MAX = 256
#: Up to so many lines are summed up anew at each change.
_FEW = 32
#: A selector of more conditions is told as it is. To multiply them out, and to compare the results, takes
#: time that grows much faster than their number.
_CONDITIONS_MAX = 8
#: The same holds for all lines together: those of more conditions count as many.
_FEW_CONDITIONS = 64
#: How a line says that all events of its topics are wanted.
_ALL = render(TRUE)


class Reduction:
    """Sums up the interest that is told to one neighbour."""

    def __init__(self) -> None:
        #: topic pattern -> the selectors that are told for it
        self._lines: dict[str, set[str]] = {}
        #: the patterns whose topics are told as a whole
        self._whole: dict[str, TopicPattern] = {}
        self._count = 0
        self._wanted: frozenset[TopicSelector] = frozenset()
        #: wanted lines that have come or gone since all were gathered last
        self._changes = 0

    def of(self, wanted: Iterable[TopicSelector]) -> tuple[TopicSelector, ...]:
        """Return lines that cover `wanted`, sorted."""
        now, before = frozenset(wanted), self._wanted
        added, gone = now - before, before - now
        self._wanted = now
        self._changes += len(added) + len(gone)
        if self._changes and len(now) <= _FEW:
            self._sum_up()
        elif len(before) <= _FEW or self._changes > max(LINES_MAX, len(now) // 2):
            self._begin()
            self._add(now)
        else:
            self._add(added)
        return tuple(
            TopicSelector(pattern, selector)
            for pattern in sorted(self._lines)
            for selector in sorted(self._lines[pattern])
        )

    def _begin(self) -> None:
        self._changes = self._count = 0
        self._lines, self._whole = {}, {}

    def _sum_up(self) -> None:
        self._begin()
        interests = {line: _interest(line) for line in self._wanted}
        simple = [each for each in interests.values() if each is not None]
        if sum(_conditions(each.selector) for each in simple) > _FEW_CONDITIONS:
            self._add(self._wanted)
            return
        for each in summarise(simple, LINES_MAX):
            self._put(str(each.pattern), render(each.selector))
        self._add(line for line, interest in interests.items() if interest is None)

    def _add(self, added: Iterable[TopicSelector]) -> None:
        for line in sorted(added, key=lambda line: (line.pattern, line.selector)):
            pattern = TopicPattern.parse(line.pattern)
            if not any(whole.covers(pattern) for whole in self._whole.values()):
                self._put(line.pattern, _ALL if _tree(line) == TRUE else line.selector)
            if self._count > LINES_MAX:
                self._widen()

    def _put(self, pattern: str, selector: str) -> None:
        before = self._lines.get(pattern, set())
        self._lines[pattern] = after = {_ALL} if selector == _ALL else {*before, selector}
        self._count += len(after) - len(before)
        if selector == _ALL:
            self._whole[pattern] = TopicPattern.parse(pattern)

    def _widen(self) -> None:
        """Tell whole topics in place of many lines, until there is room again for as many."""
        for pattern in sorted(self._lines, key=lambda each: (-len(self._lines[each]), each)):
            if self._count <= LINES_MAX // 2 or len(self._lines[pattern]) == 1:
                break
            self._put(pattern, _ALL)
        if self._count > LINES_MAX // 2:
            parsed = [TopicInterest.of(TopicPattern.parse(each), TRUE, UNTYPED) for each in self._lines]
            self._lines, self._whole, self._count = {}, {}, 0
            for each in summarise(parsed, LINES_MAX // 2):
                self._put(str(each.pattern), _ALL)


def _tree(line: TopicSelector) -> Node:
    """Return the condition of a line; TRUE for one that cannot be told.

    That is a selector that cannot be read, of a newer neighbour say, and one that asks different topics of
    its pattern for different things.
    """
    try:
        tree = for_pattern(parse(line.selector), TopicPattern.parse(line.pattern))
    except TidemarkError:
        tree = None
    return TRUE if tree is None else tree


@lru_cache(maxsize=2 * _FEW)
def _interest(line: TopicSelector) -> TopicInterest | None:
    """Return what a line asks for, with its normal form; None if it has too many conditions for that."""
    tree = _tree(line)
    if _conditions(tree) > _CONDITIONS_MAX:
        return None
    return TopicInterest.of(TopicPattern.parse(line.pattern), tree, UNTYPED)


def _conditions(tree: Node) -> int:
    """Return how many conditions a selector is made of."""
    match tree:
        case Not(operand):
            return _conditions(operand)
        case And(operands) | Or(operands):
            return sum(map(_conditions, operands))
        case _:
            return 1
