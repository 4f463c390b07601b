"""Covering is sound on every event tried, and finds what a person would expect it to find."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.matching.selector_strategies import (
    FIELDS,
    TYPES,
    Event,
    SimpleFields,
    events,
    leaves,
    matches,
    trees,
)
from tidemark.matching.forms.covering import TopicInterest, covers, covers_interest, covers_selector
from tidemark.matching.forms.normal import normalise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import And, Node, Or
from tidemark.matching.topics import TopicPattern
from tidemark.message.types import BOOLEAN, DOUBLE, LONG, STRING, Dynamic, Path, Type

NARROW: dict[Path, Type] = {
    path: TYPES[path] for path in (("i",), ("l",), ("d",), ("s",), ("z",), ("m",), ("t",))
}
LOOSE: dict[Path, Type] = {("z",): Dynamic(), ("i",): LONG, ("s",): STRING, ("b",): BOOLEAN}


def related(types: Any) -> SearchStrategy[tuple[Node, Node]]:
    """Pairs of which the first is likely, but not sure, to cover the second."""
    small = trees(types, max_leaves=3)
    return st.one_of(
        st.tuples(leaves(types), leaves(types)),
        st.tuples(small, small, small).map(lambda three: (Or(three[:2]), And((three[1], three[2])))),
        st.tuples(small, small).map(lambda two: (two[0], And(two))),
        st.tuples(small, small),
    )


@settings(derandomize=True, deadline=None, max_examples=130)
@given(related(NARROW), st.lists(events(NARROW), min_size=5, max_size=20))
def test_no_event_matches_the_covered_selector_and_not_the_covering_one(
    pair: tuple[Node, Node], some: list[Event]
) -> None:
    wide, narrow = pair
    if covers_selector(wide, narrow, FIELDS):
        note("covered")
        assert all(matches(wide, event) for event in some if matches(narrow, event))


@settings(derandomize=True, deadline=None, max_examples=130)
@given(
    leaves(LOOSE),
    leaves(LOOSE),
    st.lists(events(LOOSE), min_size=10, max_size=30),
)
def test_covering_holds_for_fields_of_unknown_type(wide: Node, narrow: Node, some: list[Event]) -> None:
    unknown = SimpleFields({}, is_open=True)
    if covers_selector(wide, narrow, unknown):
        note("covered")
        assert all(matches(wide, event) for event in some if matches(narrow, event))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(trees(), trees())
def test_a_selector_covers_itself_and_what_it_is_part_of(a: Node, b: Node) -> None:
    mine, both = normalise(a, FIELDS), normalise(And((a, b)), FIELDS)
    if mine is not None:
        assert covers(mine, mine)
        assert both is None or len(mine) > 1 or covers(mine, both)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("i > 10", "i > 20"),
        ("i > 10", "i IN (11, 12)"),
        ("i > 10.5", "i >= 12"),
        ("i IS NOT NULL", "i < 5"),
        ("i IS NOT NULL", "i <> 5"),
        ("i IS NOT NULL", "i + j > 5"),
        ("i IN (1, 2, 3)", "i BETWEEN 1 AND 2"),
        ("s LIKE 'a%'", "s LIKE 'ab%'"),
        ("s LIKE 'a%'", "s = 'abc' AND i = 1"),
        ("s LIKE '%b%'", "s IN ('abc', 'b')"),
        ("i <> 5", "i > 5"),
        ("i <> 5", "i IN (1, 2)"),
        ("i <> 5", "i NOT IN (4, 5, 6)"),
        ("i NOT IN (4, 5)", "i > 7"),
        ("i NOT IN (4, 5)", "i NOT IN (5, 6, 4)"),
        ("t <> TIMESTAMP '2024-01-01'", "t > TIMESTAMP '2024-06-01'"),
        ("t <> TIMESTAMP '2024-01-01'", "t = TIMESTAMP '2024-06-01'"),
        ("i + j > 10", "i + j > 20"),
        ("i + j > 10", "i + j BETWEEN 11 AND 12"),
        ("i + j NOT BETWEEN 3 AND 5", "i + j = 7"),
        ("z > 10", "z > 20"),
        ("z <> 'a'", "z > 'b'"),
        ("z IN (1, 2, 3)", "z = 2"),
        ("i > 10 OR s = 'a'", "s = 'a' AND d > 1"),
        ("i > 10 OR i < 0", "i > 20 OR i < -3 OR i = 11"),
        ("i > 5 OR i < 3", "i IN (1, 9)"),
        ("TRUE", "s LIKE '%x_'"),
        ("i = 1", "FALSE"),
        ("m <> 0.1", "m > 0.1"),
    ],
)
def test_the_first_covers_the_second(wide: str, narrow: str) -> None:
    assert covers_selector(Selector.parse(wide, FIELDS), parse(narrow), FIELDS)
    if narrow not in ("FALSE",):
        assert not covers_selector(parse(narrow), parse(wide), FIELDS)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("i > 20", "i > 10"),
        ("i > 10", "i >= 10"),
        ("i > 10 AND s = 'a'", "i > 20"),
        ("i < 5 OR i >= 5", "TRUE"),
        ("i IS NOT NULL", "i NOT BETWEEN j AND 5 OR j IS NULL"),
        ("j IS NOT NULL", "i NOT BETWEEN j AND 5"),
        ("j IS NOT NULL", "i + 1 NOT BETWEEN j AND 5"),
        ("z > 9007199254740993", "z > 9007199254740992.0"),
        ("z > 1.0", "z > 1"),
        ("z = 5", "z IN (5, 6)"),
        ("i <> 5", "i > 4"),
        ("l <> 9007199254740992.0", "l >= 9007199254740993"),
        ("i IS NULL", "i = 1"),
        ("i > 5 OR i < 3", "i IN (1, 4)"),
        ("i > 5 OR i < 3", "i IN (4, 9)"),
    ],
)
def test_the_first_does_not_cover_the_second(wide: str, narrow: str) -> None:
    assert not covers_selector(parse(wide), parse(narrow), FIELDS)


def test_without_a_normal_form_only_equal_trees_cover() -> None:
    wide = " AND ".join(f"(i = {n} OR s <> '{n}' OR d <> {n})" for n in range(12))
    assert normalise(parse(wide), FIELDS) is None
    assert covers_selector(parse(wide), parse(wide), FIELDS)
    assert covers_selector(parse("TRUE"), parse(wide), FIELDS)
    assert covers_selector(parse(wide), parse("FALSE"), FIELDS)
    assert not covers_selector(parse("d > 1 OR i IS NOT NULL"), parse(wide), FIELDS)


def subscription(pattern: str, text: str, fields: SimpleFields = FIELDS) -> TopicInterest:
    return TopicInterest.of(TopicPattern.parse(pattern), parse(text), fields)


def test_a_subscription_covers_by_topic_and_selector() -> None:
    narrow = subscription("trades.equity.us", "i > 20")
    assert covers_interest(subscription("trades.>", "i > 10"), narrow)
    assert not covers_interest(subscription("trades.*", "i > 10"), narrow)
    assert not covers_interest(subscription("trades.>", "i > 30"), narrow)
    assert covers_interest(subscription("other", "i = 1"), subscription("trades", "FALSE"))


def test_a_wide_pattern_is_read_with_the_types_of_the_narrow_one() -> None:
    wide = subscription("trades.>", "x > 4.5", SimpleFields({("x",): Dynamic()}))
    longs = subscription("trades.a", "x >= 5", SimpleFields({("x",): LONG}))
    doubles = subscription("trades.b", "x >= 5", SimpleFields({("x",): DOUBLE}))
    assert covers_interest(wide, longs)
    assert covers_interest(wide, doubles)
    assert covers_interest(subscription("trades.>", "x >= 5", SimpleFields({("x",): LONG})), doubles)
    assert not covers_interest(doubles, wide)
    five = subscription("trades.>", "x >= 5", SimpleFields({("x",): LONG}))
    assert not covers_interest(five, subscription("trades.b", "x > 4.5", SimpleFields({("x",): DOUBLE})))
