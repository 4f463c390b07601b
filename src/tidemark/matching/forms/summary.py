"""Summaries: a few interests that cover many, for an upstream broker to forward by.

A summary matches at least what its inputs match, may match more, and has at most `limit` interests. Every
selector in it can be written as text within the parser's limits. The same inputs, in any order, give the same
summary. `summarise` works in steps, and takes a step only while there are still too many interests:

1. An interest that another covers is dropped, and lists of values for one field are united: no precision
   is lost.
2. Boxes with the same fields become their hull, the pairs whose hull adds least first.
3. Boxes with different fields keep the conditions they share, down to one box for each topic pattern.
4. Topic patterns are cut short, down to `>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.errors import SelectorLimitError
from tidemark.matching.forms.clause_algebra import absorb, covers_clause, make_clause, unite
from tidemark.matching.forms.clause_tree import clauses_to_tree
from tidemark.matching.forms.clauses import EVERYTHING, Clause, OneOf
from tidemark.matching.forms.constraints import span
from tidemark.matching.forms.covering import TopicInterest, clauses_under, covers
from tidemark.matching.forms.merging import VALUES_MAX, box_key, collapse, join, signature
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import TRUE, Node
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Path, Type

#: Up to this many boxes are compared each with each. Of more, only the _BROAD_MAX broadest boxes and the
#: _NEIGHBOURS_MAX nearest neighbours in sorting order are compared with each box.
_PAIRWISE_MAX = 128
_BROAD_MAX = 32
_NEIGHBOURS_MAX = 4
#: A text of fewer characters cannot have too many tokens, nor nest deeper than the selectors it came from.
_SHORT_CHARACTERS = 150


class Untyped:
    """The field types of topics whose schemas are not known: every path may exist, none has a type."""

    open = True

    def type_of(self, path: Path) -> Type | None:  # noqa: ARG002  # the protocol's
        return None

    def paths(self) -> Sequence[Path]:
        return ()


UNTYPED = Untyped()


@dataclass(slots=True)
class _PatternGroup:
    """The boxes of one topic pattern. A selector without a normal form is a box with itself as residual."""

    pattern: TopicPattern
    fields: FieldTypes
    #: sorted by box_key
    clauses: list[Clause]


class _Box(NamedTuple):
    """One box while boxes are merged."""

    #: index of its group
    group: int
    clause: Clause
    #: the costs (`merging.join`) of all merges that made this box
    lost: float = 0.0


def summarise(interests: Iterable[TopicInterest], limit: int) -> list[TopicInterest]:
    """At most `limit` interests that cover all of `interests`, sorted by topic pattern and text."""
    assert limit >= 1
    asked = {_text(each): each for each in interests if each.clauses != ()}
    ordered = [asked[text] for text in sorted(asked)]
    groups = _uncovered(_groups(ordered))
    if _count(groups) > limit >= len(ordered) and all(_fits(each.selector) for each in ordered):
        return ordered  # their boxes are over the limit, the interests as they came are not
    if _count(groups) > limit:
        groups = _uncovered(_cut(_merged(groups, limit), limit))
    return sorted((box for group in groups for box in _interests(group)), key=_text)


def _text(interest: TopicInterest) -> tuple[str, str]:
    return str(interest.pattern), render(interest.selector)


def _count(groups: Sequence[_PatternGroup]) -> int:
    return sum(len(group.clauses) for group in groups)


def _groups(ordered: Sequence[TopicInterest]) -> list[_PatternGroup]:
    """The boxes of each topic pattern, united and without those that other boxes of the pattern cover."""
    found: dict[tuple[TopicPattern, int], _PatternGroup] = {}
    for each in ordered:
        group = found.setdefault(
            (each.pattern, id(each.fields)), _PatternGroup(each.pattern, each.fields, [])
        )
        group.clauses += (Clause((), (each.selector,)),) if each.clauses is None else each.clauses
    for group in found.values():
        group.clauses = _absorbed(unite(group.clauses, VALUES_MAX))
    return list(found.values())


def _absorbed(clauses: Sequence[Clause]) -> list[Clause]:
    """The clauses sorted, without those that another covers, as far as that is found in linear time."""
    ordered = sorted(clauses, key=box_key)
    if len(ordered) <= _PAIRWISE_MAX:
        return absorb(ordered)
    broad = absorb(sorted(ordered, key=_breadth)[:_BROAD_MAX])
    kept: list[Clause] = []
    for each in ordered:
        if any(wide is not each and covers_clause(wide, each) for wide in broad):
            continue
        if any(covers_clause(near, each) for near in kept[-_NEIGHBOURS_MAX:]):
            continue
        while kept and covers_clause(each, kept[-1]):
            kept.pop()
        kept.append(each)
    return kept


def _breadth(item: Clause) -> int:
    """The number of conditions of a box; a box with fewer conditions holds more events."""
    return len(item.constraints) + len(item.residuals)


def _uncovered(groups: Sequence[_PatternGroup]) -> list[_PatternGroup]:
    """The groups without the boxes that a box of a wider topic pattern covers.

    Only the _BROAD_MAX broadest boxes are tried as covers.
    """
    wide = [
        (index, clause)
        for index, group in enumerate(groups)
        if not group.pattern.is_exact
        for clause in group.clauses
    ]
    wide = sorted(wide, key=lambda item: _breadth(item[1]))[:_BROAD_MAX]
    broad = [(index, _as_it_is(groups[index], clause)) for index, clause in wide]
    left: list[_PatternGroup] = []
    for index, group in enumerate(groups):
        # Of two groups on the same pattern only the earlier may cover the later, lest both go.
        wider = [
            clauses_under(other, group.fields) or ()
            for at, other in broad
            if other.pattern.covers(group.pattern) and (other.pattern != group.pattern or at < index)
        ]
        clauses = [each for each in group.clauses if not any(covers(over, (each,)) for over in wider)]
        left += [_PatternGroup(group.pattern, group.fields, clauses)] if clauses else []
    return left


def _merged(groups: Sequence[_PatternGroup], limit: int) -> list[_PatternGroup]:
    """The groups with at most `limit` boxes in all, or with one box each if there are more groups.

    Boxes of one signature are merged first, then any boxes of one group.
    """
    boxes = [_Box(index, each) for index, group in enumerate(groups) for each in group.clauses]
    boxes = collapse(boxes, limit, lambda box: (box.group, signature(box.clause)), _join)
    boxes = collapse(boxes, limit, lambda box: box.group, _join)
    merged = [_PatternGroup(group.pattern, group.fields, []) for group in groups]
    for box in boxes:
        merged[box.group].clauses.append(box.clause)
    for group in merged:
        group.clauses = _absorbed(group.clauses)
    return merged


def _join(a: _Box, b: _Box) -> tuple[float, _Box]:
    """The cost by which merges are ordered, and the merged box.

    The cost counts what earlier merges of both boxes lost; otherwise one box would swallow all others.
    """
    cost, joint = join(a.clause, b.clause)
    lost = a.lost + b.lost + cost
    return lost if cost else 0.0, _Box(a.group, joint, lost)


def _cut(groups: Sequence[_PatternGroup], limit: int) -> list[_PatternGroup]:
    """At most `limit` groups: patterns that are equal down to some level become those levels and `>`."""
    if _count(groups) <= limit:
        return list(groups)
    for depth in range(max(len(group.pattern.levels) for group in groups), -1, -1):
        alike: dict[TopicPattern, list[_PatternGroup]] = {}
        for group in groups:
            alike.setdefault(_shortened(group.pattern, depth), []).append(group)
        if len(alike) <= limit:
            break
    return [
        members[0] if len(members) == 1 else _PatternGroup(pattern, UNTYPED, [EVERYTHING])
        for pattern, members in alike.items()
    ]


def _shortened(pattern: TopicPattern, depth: int) -> TopicPattern:
    return TopicPattern(pattern.levels[:depth], True) if len(pattern.levels) > depth else pattern


def _as_it_is(group: _PatternGroup, clause: Clause) -> TopicInterest:
    tree = clauses_to_tree((clause,), group.fields)
    return TopicInterest(group.pattern, tree, group.fields, (clause,))


def _interests(group: _PatternGroup) -> Iterator[TopicInterest]:
    for clause in group.clauses:
        selector = next(tree for tree in _trees(clause, group.fields) if _fits(tree))
        yield TopicInterest.of(group.pattern, selector, group.fields)


def _trees(item: Clause, fields: FieldTypes) -> Iterator[Node]:
    """The box as a condition, then ever looser conditions that are shorter to write, at last TRUE."""
    yield clauses_to_tree((item,), fields)
    held = {path: span(c, c) if isinstance(c, OneOf) else c for path, c in item.constraints}
    residuals = sorted(item.residuals, key=lambda residual: len(render(residual)))
    while held or residuals:
        yield clauses_to_tree((make_clause(held, residuals),), fields)
        residuals.pop() if residuals else held.popitem()
    yield TRUE


def _fits(tree: Node) -> bool:
    """Can an upstream broker parse the text of this condition?"""
    text = render(tree)
    if len(text) < _SHORT_CHARACTERS:
        return True
    try:
        parse(text)
    except SelectorLimitError:
        return False
    return True
