"""Summaries cover every input, keep to their limit and do not depend on the order of the inputs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.selector_strategies import TYPES, Event, SimpleFields, events, matches, trees
from tidemark.matching.forms.covering import TopicInterest, covers_interest
from tidemark.matching.forms.merging import VALUES_MAX
from tidemark.matching.forms.normal import normalise
from tidemark.matching.forms.summary import summarise
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.topics import TopicPattern
from tidemark.message.types import DOUBLE, LONG, STRING, Path, Type

SMALL: dict[Path, Type] = {path: TYPES[path] for path in (("i",), ("d",), ("s",), ("b",), ("t",), ("z",))}
FIELDS = SimpleFields(SMALL)
TOPICS = ("a", "b", "a.x", "a.y", "b.x", "a.x.deep")
PATTERNS = (*TOPICS, "a.*", "*.x", "a.>", "*.*.>")


def subscription(pattern: str, text: str, fields: SimpleFields = FIELDS) -> TopicInterest:
    return TopicInterest.of(TopicPattern.parse(pattern), parse(text), fields)


def summary(limit: int, *asked: tuple[str, str]) -> list[tuple[str, str]]:
    """The summary of (pattern, selector) pairs, as such pairs."""
    return written(summarise([subscription(*pair) for pair in asked], limit))


def written(subscriptions: list[TopicInterest]) -> list[tuple[str, str]]:
    return [(str(each.pattern), render(each.selector)) for each in subscriptions]


def subscriptions() -> st.SearchStrategy[list[TopicInterest]]:
    one = st.builds(
        lambda pattern, tree: TopicInterest.of(TopicPattern.parse(pattern), tree, FIELDS),
        st.sampled_from(PATTERNS),
        trees(SMALL, max_leaves=3),
    )
    return st.lists(one, max_size=10)


def gets(subscription: TopicInterest, topic: str, event: Event) -> bool:
    return subscription.pattern.matches(topic) and matches(subscription.selector, event)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(subscriptions(), st.integers(1, 6), st.lists(events(SMALL), min_size=5, max_size=10), st.randoms())
def test_whatever_an_input_gets_the_summary_gets(
    asked: list[TopicInterest], limit: int, some: list[Event], shuffler: random.Random
) -> None:
    short = summarise(asked, limit)
    assert len(short) <= limit
    for topic in TOPICS:
        for event in some:
            if any(gets(each, topic, event) for each in asked):
                assert any(gets(each, topic, event) for each in short)
    shuffled = list(asked)
    shuffler.shuffle(shuffled)
    assert written(summarise(shuffled, limit)) == written(short)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(subscriptions(), st.integers(1, 6))
def test_every_clause_of_an_input_is_covered_by_one_of_the_summary(
    asked: list[TopicInterest], limit: int
) -> None:
    short = summarise(asked, limit)
    for each in asked:
        for clause in each.clauses or ():
            part = TopicInterest(each.pattern, each.selector, each.fields, (clause,))
            assert any(covers_interest(wide, part) for wide in short)
    for wide in short:
        assert parse(render(wide.selector)) == wide.selector
        assert wide.clauses == normalise(wide.selector, wide.fields)


def test_what_another_covers_is_dropped() -> None:
    asked = [("a.>", "i > 10"), ("a.x", "i > 20"), ("a.x", "i > 10 AND b"), ("a", "i > 10"), ("b", "FALSE")]
    assert summary(9, *asked) == [("a", "i >= 11"), ("a.>", "i >= 11")]


def test_values_of_one_field_are_united_without_loss() -> None:
    asked = [("a", f"s = '{letter}' AND i > 3") for letter in "xyz"]
    assert summary(9, *asked) == [("a", "i >= 4 AND s IN ('x', 'y', 'z')")]


def test_the_pair_that_loses_least_is_merged_first() -> None:
    asked = [("a", f"d BETWEEN {low} AND {low + 1}") for low in (0, 10, 11.5, 100)]
    merged = [
        ("a", "d BETWEEN 0.0 AND 1.0"),
        ("a", "d BETWEEN 10.0 AND 12.5"),
        ("a", "d BETWEEN 100.0 AND 101.0"),
    ]
    assert summary(3, *asked) == merged
    assert summary(1, *asked) == [("a", "d BETWEEN 0.0 AND 101.0")]


def test_boxes_of_different_fields_keep_what_they_share() -> None:
    asked = [("a", "i > 5 AND s = 'x' AND z = 1"), ("a", "i > 7 AND b AND z = 1"), ("b", "b")]
    assert summary(2, *asked) == [("a", "i >= 6 AND z = 1"), ("b", "b")]
    assert summary(2, ("a", "i > 5"), ("a", "b"), ("b", "b")) == [("a", "TRUE"), ("b", "b")]


def test_too_many_patterns_are_cut_short() -> None:
    asked = [(f"{first}.{second}", "i = 1") for first in "ab" for second in "xyz"]
    assert summary(3, *asked, ("c.x", "b")) == [("a.>", "TRUE"), ("b.>", "TRUE"), ("c.x", "b")]
    assert summary(2, *asked, ("c.x", "b")) == [(">", "TRUE")]
    assert summary(1, ("a", "b"), ("a.>", "b")) == [(">", "TRUE")]


def test_a_selector_without_a_normal_form_is_kept_as_it_is() -> None:
    text = " AND ".join(f"(i = {n} OR s <> '{n}' OR d <> {n})" for n in range(12))
    fields = SimpleFields({("i",): LONG, ("s",): STRING, ("d",): DOUBLE})
    asked = [subscription("a", text, fields), subscription("a", "i = 3", fields)]
    assert asked[0].clauses is None
    assert written(summarise(asked, 5)) == [("a", text), ("a", "i = 3")]
    assert written(summarise(asked, 1)) == [("a", "TRUE")]


def test_a_few_subscriptions_of_many_clauses_stay_whole() -> None:
    asked = [("a", "i = 1 OR b OR s LIKE 'x%'"), ("a", "i = 2 AND d > 1 OR NOT b")]
    assert summary(2, *asked) == sorted(asked)


def test_a_list_that_grows_too_long_becomes_a_range() -> None:
    asked = [("a", f"i = {value}") for value in range(0, VALUES_MAX * 3, 3)]
    assert len(summary(1, *asked)[0][1].split(",")) == VALUES_MAX
    assert summary(1, *asked, ("a", "i = -5")) == [("a", f"i BETWEEN -5 AND {VALUES_MAX * 3 - 3}")]


def test_long_lists_are_cut_into_selectors_that_can_be_parsed() -> None:
    asked = [subscription("a", f"s = '{'x' * 80}{n:03}'") for n in range(VALUES_MAX * 3)]
    for limit in (1, 2, 3, 50):
        short = summarise(asked, limit)
        assert len(short) <= limit
        for each in short:
            assert parse(render(each.selector)) == each.selector
        assert all(any(covers_interest(wide, each) for wide in short) for each in asked)


def test_a_covered_box_is_found_among_thousands() -> None:
    asked = [("a", f"i = {n} AND d > {n % 7}") for n in range(2000)]
    assert summary(100, *asked, ("a", "i >= 0 AND d > -1")) == [("a", "d > -1.0 AND i >= 0")]


@cache
def thousands() -> list[TopicInterest]:
    source = random.Random(7)
    texts = [
        f"s = 'n{source.randrange(300)}' AND d > {source.randrange(50)}"
        if source.random() < 0.6
        else f"d BETWEEN {low} AND {low + 2} AND s LIKE 'p{source.randrange(90)}%'"
        for low in source.choices(range(1000), k=2000)
    ]
    return [subscription(source.choice(PATTERNS), text) for text in texts]


@pytest.mark.parametrize("limit", [1, 8, 64, 5000])
def test_thousands_of_subscriptions_are_covered_within_the_limit(limit: int) -> None:
    short = summarise(thousands(), limit)
    assert len(short) <= limit
    for each in random.Random(7).sample(thousands(), 100):
        assert any(covers_interest(wide, each) for wide in short)


def test_fields_typed_differently_under_one_pattern_are_kept_apart() -> None:
    longs, texts = SimpleFields({("v",): LONG}), SimpleFields({("v",): STRING})
    asked = [subscription("a", text, longs) for text in ("v = 1", "v = 2")]
    asked.append(subscription("a", "v > 'x'", texts))
    assert written(summarise(asked, 2)) == [("a", "v > 'x'"), ("a", "v IN (1, 2)")]
    assert written(summarise(asked, 1)) == [("a", "TRUE")]


def test_the_summary_is_the_same_in_every_process() -> None:
    script = """if True:
        from tidemark.matching.forms.covering import TopicInterest
        from tidemark.matching.forms.summary import summarise
        from tidemark.matching.selectors.parser import parse
        from tidemark.matching.selectors.render import render
        from tidemark.matching.topics import TopicPattern
        from tidemark.message.schema import Schema
        pattern = TopicPattern.parse("a")
        fields = Schema.parse("[s: string, d: double, z: string, b: boolean]")
        names = [f"n{n * 7919 % 500}" for n in range(300)]
        texts = [f"s IN ('{a}', 'x{a}') AND d > {len(a)} OR z <> '{a}' AND b" for a in names]
        asked = [TopicInterest.of(pattern, parse(text), fields) for text in texts]
        for limit in (5, 400):
            print(*(f"{each.pattern} {render(each.selector)}" for each in summarise(asked, limit)))
    """
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True
        )
        for seed in "12"
    ]
    assert runs[0].stdout == runs[1].stdout
    assert b"IN (" in runs[0].stdout
