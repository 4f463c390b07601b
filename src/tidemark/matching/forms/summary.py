"""Summaries: a few subscriptions that cover many, for an upstream broker to forward by.

A summary matches at least what its inputs match, may match more, and has at most `limit` subscriptions. Every
selector in it can be written as text within the parser's limits. The same inputs, in any order, give the same
summary. In steps, each only if there are still too many:

1. what another covers is dropped and lists of values for one field are united: nothing is lost;
2. boxes with the same fields become their hull, those that lose least first;
3. boxes with different fields keep what they share, down to one for each topic pattern;
4. patterns are cut short, down to `>`.
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
from tidemark.matching.forms.covering import Subscription, clauses_under, covers
from tidemark.matching.forms.merging import VALUES_MAX, box_key, collapse, join, signature
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.tree import TRUE, Node
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Path, Type

#: Up to so many are compared each with each; of more only the broadest, and neighbours, with all.
_PAIRWISE_MAX = 128
_BROAD_MAX = 32
_NEIGHBOURS_MAX = 4
#: A text of fewer characters cannot have too many tokens, nor nest deeper than the selectors it came from.
_SHORT_CHARACTERS = 150


class Untyped:
    """The fields of topics that nothing is known of."""

    open = True

    def type_of(self, path: Path) -> Type | None:  # noqa: ARG002  # the protocol's
        return None

    def paths(self) -> Sequence[Path]:
        return ()


UNTYPED = Untyped()


@dataclass(slots=True)
class _Group:
    """Boxes on the same topics. A selector without a normal form is a box with itself as residual."""

    pattern: TopicPattern
    fields: FieldTypes
    #: Sorted by box_key.
    clauses: list[Clause]


class _Box(NamedTuple):
    """One box while boxes are merged."""

    #: Index of its group.
    group: int
    clause: Clause
    #: What all merges that made it cost.
    lost: float = 0.0


def summarise(subscriptions: Iterable[Subscription], limit: int) -> list[Subscription]:
    """At most `limit` subscriptions that cover all of `subscriptions`, sorted by topic pattern and text."""
    assert limit >= 1
    asked = {_text(each): each for each in subscriptions if each.clauses != ()}
    ordered = [asked[text] for text in sorted(asked)]
    groups = _uncovered(_groups(ordered))
    if _count(groups) > limit >= len(ordered) and all(_fits(each.selector) for each in ordered):
        return ordered  # as boxes they are too many, as they came they are not
    if _count(groups) > limit:
        groups = _uncovered(_cut(_merged(groups, limit), limit))
    return sorted((box for group in groups for box in _subscriptions(group)), key=_text)


def _text(subscription: Subscription) -> tuple[str, str]:
    return str(subscription.pattern), render(subscription.selector)


def _count(groups: Sequence[_Group]) -> int:
    return sum(len(group.clauses) for group in groups)


def _groups(ordered: Sequence[Subscription]) -> list[_Group]:
    """The boxes of each topic pattern, united and without those that others of the pattern cover."""
    found: dict[tuple[TopicPattern, int], _Group] = {}
    for each in ordered:
        group = found.setdefault((each.pattern, id(each.fields)), _Group(each.pattern, each.fields, []))
        group.clauses += (Clause((), (each.selector,)),) if each.clauses is None else each.clauses
    for group in found.values():
        group.clauses = _absorbed(unite(group.clauses, VALUES_MAX))
    return list(found.values())


def _absorbed(clauses: Sequence[Clause]) -> list[Clause]:
    """Sorted, without those that another covers, as far as that is found in linear time."""
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
    """Fewer conditions hold more."""
    return len(item.constraints) + len(item.residuals)


def _uncovered(groups: Sequence[_Group]) -> list[_Group]:
    """Without the boxes that a box of a wider topic pattern covers; only the broadest are tried."""
    wide = [
        (index, clause)
        for index, group in enumerate(groups)
        if not group.pattern.is_exact
        for clause in group.clauses
    ]
    wide = sorted(wide, key=lambda item: _breadth(item[1]))[:_BROAD_MAX]
    broad = [(index, _as_it_is(groups[index], clause)) for index, clause in wide]
    left: list[_Group] = []
    for index, group in enumerate(groups):
        # Of two groups on the same pattern only the earlier may cover the later, lest both go.
        wider = [
            clauses_under(other, group.fields) or ()
            for at, other in broad
            if other.pattern.covers(group.pattern) and (other.pattern != group.pattern or at < index)
        ]
        clauses = [each for each in group.clauses if not any(covers(over, (each,)) for over in wider)]
        left += [_Group(group.pattern, group.fields, clauses)] if clauses else []
    return left


def _merged(groups: Sequence[_Group], limit: int) -> list[_Group]:
    """As few boxes as `limit`, or one a group: first boxes of one signature are merged, then any."""
    boxes = [_Box(index, each) for index, group in enumerate(groups) for each in group.clauses]
    boxes = collapse(boxes, limit, lambda box: (box.group, signature(box.clause)), _join)
    boxes = collapse(boxes, limit, lambda box: box.group, _join)
    merged = [_Group(group.pattern, group.fields, []) for group in groups]
    for box in boxes:
        merged[box.group].clauses.append(box.clause)
    for group in merged:
        group.clauses = _absorbed(group.clauses)
    return merged


def _join(a: _Box, b: _Box) -> tuple[float, _Box]:
    """The merge and its priority: what was lost already counts, or one box would swallow all others."""
    cost, joint = join(a.clause, b.clause)
    lost = a.lost + b.lost + cost
    return lost if cost else 0.0, _Box(a.group, joint, lost)


def _cut(groups: Sequence[_Group], limit: int) -> list[_Group]:
    """No more groups than `limit`: patterns that are equal down to some level become that level and `>`."""
    if _count(groups) <= limit:
        return list(groups)
    for depth in range(max(len(group.pattern.levels) for group in groups), -1, -1):
        alike: dict[TopicPattern, list[_Group]] = {}
        for group in groups:
            alike.setdefault(_shortened(group.pattern, depth), []).append(group)
        if len(alike) <= limit:
            break
    return [
        members[0] if len(members) == 1 else _Group(pattern, UNTYPED, [EVERYTHING])
        for pattern, members in alike.items()
    ]


def _shortened(pattern: TopicPattern, depth: int) -> TopicPattern:
    return TopicPattern(pattern.levels[:depth], True) if len(pattern.levels) > depth else pattern


def _as_it_is(group: _Group, clause: Clause) -> Subscription:
    tree = clauses_to_tree((clause,), group.fields)
    return Subscription(group.pattern, tree, group.fields, (clause,))


def _subscriptions(group: _Group) -> Iterator[Subscription]:
    for clause in group.clauses:
        selector = next(tree for tree in _trees(clause, group.fields) if _fits(tree))
        yield Subscription.of(group.pattern, selector, group.fields)


def _trees(item: Clause, fields: FieldTypes) -> Iterator[Node]:
    """The box as a condition, then ever looser ones, shorter to write."""
    yield clauses_to_tree((item,), fields)
    held = {path: span(c, c) if isinstance(c, OneOf) else c for path, c in item.constraints}
    residuals = sorted(item.residuals, key=lambda residual: len(render(residual)))
    while held or residuals:
        yield clauses_to_tree((make_clause(held, residuals),), fields)
        residuals.pop() if residuals else held.popitem()
    yield TRUE


def _fits(tree: Node) -> bool:
    """Can an upstream broker parse it?"""
    text = render(tree)
    if len(text) < _SHORT_CHARACTERS:
        return True
    try:
        parse(text)
    except SelectorLimitError:
        return False
    return True
