"""Constraints against their meaning: a set of values, checked by asking for values near every edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidemark.matching.forms.clauses import Absent, Constraint, Interval, OneOf, Present
from tidemark.matching.forms.constraints import admits, contains, hull, intersect, interval, one_of, order_key

#: One pool of values a domain, closely packed so that edges meet.
DOMAINS: tuple[tuple[Any, ...], ...] = (
    tuple(range(-3, 8)),
    (-math.inf, -2.5, 0.0, 0.5, 1.0, 1e300, math.inf),
    tuple(map(Decimal, ("-1", "0", "0.1", "0.10000000000000000000000000000000000001", "2"))),
    ("", "a", "a\x00", "ab", "b", "\U0010ffff"),
    (b"", b"\x00", b"a", b"a\x00", b"b"),
)


def constraints_of(pool: tuple[Any, ...]) -> SearchStrategy[Constraint]:
    """Canonical constraints with constants out of `pool`; integer intervals are closed."""
    ends = st.none() | st.sampled_from([value for value in pool if value not in (math.inf, -math.inf)])
    is_open = st.just(False) if isinstance(pool[0], int) else st.booleans()
    intervals = st.builds(interval, ends, ends, is_open, is_open)
    listed = st.frozensets(st.sampled_from(pool), min_size=1).map(one_of)
    simple = st.sampled_from((Present(), Absent()))
    made: SearchStrategy[Any] = st.one_of(simple, listed, intervals, intervals)
    return made.filter(lambda constraint: constraint is not None)


def pairs() -> SearchStrategy[tuple[Constraint, Constraint, tuple[Any, ...]]]:
    """Two constraints of one domain, and its values with NULL and, where there is one, NaN."""

    @cache
    def of(pool: tuple[Any, ...]) -> SearchStrategy[Any]:
        odd = (None, math.nan) if isinstance(pool[0], float) else (None,)
        return st.tuples(constraints_of(pool), constraints_of(pool), st.just(pool + odd))

    return st.sampled_from(DOMAINS).flatmap(of)


def sampled(test: Callable[..., None]) -> Callable[..., None]:
    return settings(derandomize=True, deadline=None, max_examples=80)(given(pairs())(test))


@sampled
def test_the_intersection_admits_what_both_admit(given: tuple[Constraint, Constraint, Any]) -> None:
    a, b, values = given
    both = intersect(a, b)
    for value in values:
        assert (both is not None and admits(both, value)) == (admits(a, value) and admits(b, value))
    assert both == intersect(b, a)


@sampled
def test_what_contains_another_admits_all_that_it_admits(given: tuple[Constraint, Constraint, Any]) -> None:
    a, b, values = given
    if contains(a, b):
        assert all(admits(a, value) for value in values if admits(b, value))
    both = intersect(a, b)
    assert contains(a, a)
    assert both is None or contains(a, both)


@sampled
def test_containing_is_complete_for_what_sampling_can_tell(given: tuple[Constraint, Constraint, Any]) -> None:
    a, b, _ = given
    if intersect(a, b) == b:
        assert contains(a, b)


@sampled
def test_the_hull_contains_both_sides(given: tuple[Constraint, Constraint, Any]) -> None:
    a, b, values = given
    least = hull(a, b)
    assert least == hull(b, a)
    if least is None:
        assert isinstance(a, Absent) != isinstance(b, Absent)
        return
    assert contains(least, a)
    assert contains(least, b)
    assert all(admits(least, value) for value in values if admits(a, value) or admits(b, value))


@sampled
def test_constraints_on_one_field_can_be_sorted(given: tuple[Constraint, Constraint, Any]) -> None:
    a, b, _ = given
    assert (order_key(a) == order_key(b)) == (a == b)
    assert sorted((a, b), key=order_key) == sorted((b, a), key=order_key)


def test_booleans_listed_in_full_are_presence() -> None:
    assert hull(OneOf(frozenset((True,))), OneOf(frozenset((False,)))) == Present()
    assert one_of(frozenset((0, 1))) == OneOf(frozenset((0, 1)))


def test_listed_integers_contain_the_interval_they_fill() -> None:
    listed = OneOf(frozenset((1, 2, 3, 9)))
    assert contains(listed, Interval(1, 3))
    assert not contains(listed, Interval(1, 4))
    assert not contains(listed, Interval(1, None))
    assert not contains(listed, Interval(1, 2**62))


@pytest.mark.parametrize("other", [OneOf(frozenset(("a",))), Interval("a", None), Interval(None, 2.5)])
def test_nothing_is_claimed_across_domains(other: Constraint) -> None:
    for integers in (OneOf(frozenset((1,))), Interval(0, None), Interval(None, 7)):
        assert not contains(integers, other)
        assert not contains(other, integers)
        assert hull(integers, other) == Present()
