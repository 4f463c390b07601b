"""Covering: does one selector match all that another matches?

The functions return True only when that is certain: an upstream broker that forwards for `a` alone then loses
nothing for `b`. A clause covers another when its box contains the other's box and its residuals follow from
the other's constraints and residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemark.matching.forms.clause_algebra import covers_clause, make_clause
from tidemark.matching.forms.clauses import EVERYTHING, Clause, OneOf, Value
from tidemark.matching.forms.normal import normalise
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import Node
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.columns import FieldTypes
from tidemark.message.types import Path


@dataclass(frozen=True, slots=True)
class TopicInterest:
    """What a broker asks of its upstream: the events of some topics for which a selector is true."""

    pattern: TopicPattern
    selector: Node
    #: The types of the fields of every topic that the pattern matches; a field whose type differs between
    #: those topics has no static type here. A snapshot: when a schema changes a field's type, the owner of
    #: the interest makes a new one.
    fields: FieldTypes = field(compare=False, repr=False)
    #: normalise(selector, fields)
    clauses: tuple[Clause, ...] | None = field(compare=False, repr=False)

    @classmethod
    def of(cls, pattern: TopicPattern, selector: Node, fields: FieldTypes) -> TopicInterest:
        """The interest in these topics and this selector, with the selector's normal form."""
        return cls(pattern, selector, fields, normalise(selector, fields))


def covers(a: Sequence[Clause], b: Sequence[Clause]) -> bool:
    """Does every event in a clause of `b` lie in one of `a`? Both are normal forms over the same fields."""
    return all(_covers_one(a, narrow) or _covers_pieces(a, narrow) for narrow in b)


def covers_selector(a: Selector | Node, b: Selector | Node, fields: FieldTypes) -> bool:
    """Does `a` match every event that `b` matches?"""
    wide = a.tree if isinstance(a, Selector) else a
    narrow = b.tree if isinstance(b, Selector) else b
    return wide == narrow or _covers_normal(normalise(wide, fields), normalise(narrow, fields))


def covers_interest(a: TopicInterest, b: TopicInterest) -> bool:
    """Does `a` match every event, of every topic, that `b` matches?"""
    if b.clauses == ():
        return True
    if not a.pattern.covers(b.pattern):
        return False
    return a.selector == b.selector or _covers_normal(clauses_under(a, b.fields), b.clauses)


def clauses_under(interest: TopicInterest, fields: FieldTypes) -> tuple[Clause, ...] | None:
    """The normal form of the interest's selector for events of topics with these fields; None if it has none.

    An interest in `trades.>` knows less of its fields than one in `trades.equity.us`. On the events of
    `trades.equity.us` both selectors mean what they mean by that topic's types.
    """
    if interest.fields is fields or interest.clauses == (EVERYTHING,):
        return interest.clauses
    return normalise(interest.selector, fields)


def _covers_normal(a: Sequence[Clause] | None, b: Sequence[Clause] | None) -> bool:
    """`covers` for selectors that may lack a normal form, of which little is known then."""
    if a is None or b is None:
        return b == () or a == (EVERYTHING,)
    return covers(a, b)


def _covers_one(a: Sequence[Clause], narrow: Clause) -> bool:
    return any(covers_clause(wide, narrow) for wide in a)


def _covers_pieces(a: Sequence[Clause], narrow: Clause) -> bool:
    """Is each value that `narrow` lists for some field covered by a clause of `a`?

    So `i > 5 OR i < 3` covers `i IN (1, 9)`, though neither clause does.
    """
    if len(a) < 2:
        return False
    lists = ((path, held.values) for path, held in narrow.constraints if isinstance(held, OneOf))
    return any(all(_covers_one(a, _piece(narrow, path, value)) for value in values) for path, values in lists)


def _piece(whole: Clause, path: Path, value: Value) -> Clause:
    return make_clause({**dict(whole.constraints), path: OneOf(frozenset((value,)))}, whole.residuals)
