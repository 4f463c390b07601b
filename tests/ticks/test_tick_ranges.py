"""RangeSet against a set of single ticks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.ticks import TICK_MAX, TICK_MIN, Range, RangeSet, union, within

LAST = 24
ranges = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda ends: (min(ends), max(ends)))
steps = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "remove_upto"]), ranges), max_size=12)


def members(base: int, upto: int) -> set[int]:
    return set(range(base + 1, upto + 1))


def runs(ticks: set[int]) -> list[Range]:
    """The maximal runs of consecutive ticks."""
    starts = [tick for tick in sorted(ticks) if tick - 1 not in ticks]
    stops = [tick for tick in sorted(ticks) if tick + 1 not in ticks]
    return [(start - 1, stop) for start, stop in zip(starts, stops, strict=True)]


def apply(steps: list[tuple[str, Range]]) -> tuple[RangeSet, set[int]]:
    """A RangeSet and a set after the same steps; the answers of every step are compared."""
    actual, model = RangeSet(), set[int]()
    for step, (base, upto) in steps:
        asked = members(base, upto)
        if step == "add":
            assert actual.add(base, upto) == runs(asked - model)
            model |= asked
        elif step == "remove":
            assert actual.remove(base, upto) == runs(asked & model)
            model -= asked
        else:
            actual.remove_upto(upto)
            model = {tick for tick in model if tick > upto}
        assert list(actual) == runs(model)
    return actual, model


@settings(derandomize=True, deadline=None, max_examples=300)
@given(steps, ranges)
def test_a_range_set_answers_like_a_set_of_ticks(steps: list[tuple[str, Range]], asked: Range) -> None:
    actual, model = apply(steps)
    base, upto = asked
    assert actual.gaps(base, upto) == runs(members(base, upto) - model)
    for most in (1, 2, 3):
        gaps = actual.gaps(base, upto)
        together = [(gaps[most - 1][0], gaps[-1][1])] if len(gaps) >= most else []
        reached = [(first, upto if gaps[most:] else last) for first, last in together]
        assert actual.few_gaps(base, upto, most) == gaps[: most - 1] + reached
    assert actual.parts(base, upto) == runs(members(base, upto) & model)
    assert actual.covers(base, upto) == (members(base, upto) <= model)
    assert actual.end_of_run(base) == max(end for end in range(base, LAST + 1) if members(base, end) <= model)
    universe = range(-1, LAST + 3)
    assert [actual.contains(tick) for tick in universe] == [tick in model for tick in universe]
    assert actual.ticks() == len(model)
    assert len(actual) == len(runs(model))
    assert actual.span == ((min(model) - 1, max(model)) if model else None)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(steps, steps)
def test_sets_combine_like_sets_of_ticks(one: list[tuple[str, Range]], two: list[tuple[str, Range]]) -> None:
    (a, a_model), (b, b_model) = apply(one), apply(two)
    assert list(a.union(b)) == runs(a_model | b_model)
    assert list(a.intersection(b)) == runs(a_model & b_model)
    assert list(a.difference(b)) == runs(a_model - b_model)
    assert (a == b) == (a_model == b_model)
    assert (list(a), list(b)) == (runs(a_model), runs(b_model)), "combining changes neither"


def test_a_copy_changes_by_itself() -> None:
    original = RangeSet([(0, 5)])
    twin = original.copy()
    twin.add(7, 9)
    assert (list(original), list(twin)) == ([(0, 5)], [(0, 5), (7, 9)])


def test_touching_ranges_are_one() -> None:
    assert RangeSet([(0, 5), (9, 12), (5, 9)]) == RangeSet([(0, 12)])


def test_all_of_time_fits() -> None:
    everything = RangeSet([(TICK_MIN, TICK_MAX)])
    assert [everything.contains(tick) for tick in (TICK_MIN, TICK_MIN + 1, TICK_MAX)] == [False, True, True]
    assert everything.ticks() == 2**64 - 1
    assert everything.remove(0, 1) == [(0, 1)]
    assert list(everything) == [(TICK_MIN, 0), (1, TICK_MAX)]


def test_a_range_set_prints_its_ranges_and_has_no_hash() -> None:
    assert repr(RangeSet([(0, 5), (7, 9)])) == "RangeSet((0, 5], (7, 9])"
    assert RangeSet() != "RangeSet()"
    with pytest.raises(TypeError, match="unhashable"):
        hash(RangeSet())


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(ranges, max_size=8), ranges)
def test_the_union_of_ranges_and_their_parts_have_the_same_ticks_as_sets(
    several: list[Range], asked: Range
) -> None:
    ticks = set().union(*(members(*each) for each in several))
    assert union(several) == runs(ticks)
    assert union(within(several, *asked)) == runs(ticks & members(*asked))


def test_a_union_leaves_out_what_ends_before_it_begins() -> None:
    assert union([(5, 3), (7, 9), (9, 9), (1, 2)]) == [(1, 2), (7, 9)]


def test_parts_within_a_range_stay_as_many_as_the_ranges_that_reach_into_it() -> None:
    assert within([(0, 4), (4, 6), (9, 12)], 2, 10) == [(2, 4), (4, 6), (9, 10)]
