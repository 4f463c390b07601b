"""Topic names and patterns, against sets of topics written out."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import TopicError
from tidemark.matching.topics import TOPIC_BYTES_MAX, TopicPattern, parse_topic


def test_a_topic_is_its_levels() -> None:
    assert parse_topic("trades.equity.us") == ("trades", "equity", "us")
    assert parse_topic("Größe-1") == ("Größe-1",)


MALFORMED = ("", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\nb", "a\x00b", "a\x7f", "a\u2003b", "\ud800")
WILD = ("a.*", "a*b", "a.>", ">")
TOO_LONG = ("x" * (TOPIC_BYTES_MAX + 1), "é" * 128)


@pytest.mark.parametrize("name", [*MALFORMED, *WILD, *TOO_LONG])
def test_malformed_topics_are_refused(name: str) -> None:
    with pytest.raises(TopicError):
        parse_topic(name)


def test_the_longest_topic_is_bounded_in_bytes() -> None:
    assert parse_topic("é" * 127 + "x") == ("é" * 127 + "x",)


@pytest.mark.parametrize("text", ["", "a.", "a..>", ">.a", "a.>.b", "a.b>", "a*", "a.*b", "**", "a. >", ">>"])
def test_malformed_patterns_are_refused(text: str) -> None:
    with pytest.raises(TopicError):
        TopicPattern.parse(text)


@pytest.mark.parametrize("text", ["a", "a.b", "*", ">", "a.*.c", "a.>", "*.>"])
def test_patterns_render_as_written(text: str) -> None:
    assert str(TopicPattern.parse(text)) == text


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("trades.>", "trades.equity.us", True),
        ("trades.>", "trades.equity", True),
        ("trades.>", "trades", False),
        ("trades.*", "trades.equity", True),
        ("trades.*", "trades.equity.us", False),
        ("trades.*", "trades", False),
        ("*.equity", "trades.equity", True),
        ("*.equity", "trades.bonds", False),
        (">", "anything.at.all", True),
        ("trades", "trades", True),
        ("trades", "Trades", False),
        ("trades", "trades.equity", False),
    ],
)
def test_matching(pattern: str, topic: str, expected: bool) -> None:
    assert TopicPattern.parse(pattern).matches(topic) is expected


def test_a_pattern_without_wildcards_is_exact() -> None:
    assert TopicPattern.parse("a.b").is_exact
    assert not TopicPattern.parse("a.*").is_exact
    assert not TopicPattern.parse("a.>").is_exact


#: Levels up to one more than any pattern has, and a name (z) that no pattern has: enough to tell sets apart.
TOPICS = [".".join(levels) for length in (1, 2, 3, 4) for levels in product("abz", repeat=length)]
PATTERNS = [
    TopicPattern.parse(".".join((*levels, last)))
    for length in (0, 1, 2)
    for levels in product("ab*", repeat=length)
    for last in "ab*>"
]
SETS = {pattern: frozenset(filter(pattern.matches, TOPICS)) for pattern in PATTERNS}


def test_covers_is_inclusion_of_the_sets_and_intersects_that_they_share_a_topic() -> None:
    for one, other in product(PATTERNS, PATTERNS):
        assert one.covers(other) is (SETS[one] >= SETS[other]), (str(one), str(other))
        assert one.intersects(other) is bool(SETS[one] & SETS[other]), (str(one), str(other))


def test_matching_agrees_with_a_model() -> None:
    def model(levels: list[str], topic: list[str]) -> bool:
        if not levels or not topic:
            return not levels and not topic
        if levels[0] == ">":
            return True
        return levels[0] in ("*", topic[0]) and model(levels[1:], topic[1:])

    for pattern, topic in product(PATTERNS, TOPICS):
        assert pattern.matches(topic) is model(str(pattern).split("."), topic.split("."))


LEVELS = st.sampled_from(["a", "a-", "a/", "ab", "b", "b0", "c"])
NAMES = st.lists(st.lists(LEVELS, min_size=1, max_size=4).map(".".join), unique=True, max_size=40)
WILDCARDS = st.lists(LEVELS | st.just("*"), min_size=1, max_size=4)


@given(NAMES, WILDCARDS, st.booleans())
def test_names_are_found_in_a_sorted_list_as_by_looking_at_each(
    names: list[str], levels: list[str], rest: bool
) -> None:
    pattern = TopicPattern(tuple(levels), rest)
    names.sort()
    assert list(pattern.found_in(names, len(names) + 1)) == [name for name in names if pattern.matches(name)]


def test_names_that_cannot_match_are_passed_over_together() -> None:
    names = sorted(f"{level}.{other}" for level in "abc" for other in range(1_000))
    assert list(TopicPattern.parse("b.*.c").found_in(names, 1_000)) == []
    assert list(TopicPattern.parse("*.7").found_in(names, 10)) == ["a.7", "b.7", "c.7"]
    assert list(TopicPattern.parse("*.none").found_in(names, 10)) == []
    assert list(TopicPattern.parse("*").found_in(names, 10)) == []


def test_only_so_many_names_are_looked_at() -> None:
    names = sorted(f"t{number}.a" for number in range(100))
    assert list(TopicPattern.parse("*.b").found_in(names, 50)) == [None]
    assert list(TopicPattern.parse(">").found_in(names, 2)) == [*names[:2], None]
    assert list(TopicPattern.parse("t7.a").found_in(names, 0)) == ["t7.a"]
