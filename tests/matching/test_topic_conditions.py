"""`_topic MATCHES`: one truth for all events of a topic, and what it leaves out is not checked."""

from __future__ import annotations

import pytest

from tests.matching.numbered_events import batch
from tests.matching.test_audience import known, matches
from tidemark.errors import SelectorError, SelectorSyntaxError
from tidemark.matching.audience import Audience
from tidemark.matching.selectors.parser import parse
from tidemark.matching.selectors.render import render
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.topic_conditions import for_pattern, for_topic
from tidemark.matching.selectors.tree import FALSE, TRUE, FieldRef, TopicMatches
from tidemark.matching.topics import TopicPattern
from tidemark.message.schema import Schema

TRADES = Schema.parse("[price: double]")
ORDERS = Schema.parse("[qty: int]")
EITHER = "_topic MATCHES 'trades.>' AND price > 10 OR _topic MATCHES 'orders.>' AND qty > 5"


def test_it_is_parsed_and_rendered_with_its_pattern() -> None:
    assert parse("_topic MATCHES 'a.>'") == TopicMatches("a.>")
    assert parse("_topic not matches 'a.*'") == TopicMatches("a.*", negated=True)
    for text in ("_topic MATCHES 'a.>'", "NOT _topic NOT MATCHES 'it''s'", EITHER):
        assert render(parse(text)) == text


def test_a_field_may_still_be_called_matches() -> None:
    assert parse("matches").__class__ is FieldRef
    assert render(parse("matches = 5 AND a.matches < matches")) == "matches = 5 AND a.matches < matches"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("_topic MATCHES 5", "a topic pattern in single quotes"),
        ("price MATCHES 'a'", "MATCHES compares the header `_topic`"),
        ("_topic MATCHES 'a..b'", "joined by single dots"),
        ("_topic MATCHES 'a.>.b'", "only be the whole last level"),
    ],
)
def test_what_it_cannot_compare_is_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(SelectorSyntaxError, match=reason):
        parse(text)


def test_what_a_topic_cannot_reach_is_not_held_against_its_fields() -> None:
    assert render(Selector.parse(EITHER, TRADES, "trades.us").tree) == "price > 10"
    assert render(Selector.parse(EITHER, ORDERS, "orders.us").tree) == "qty > 5"
    assert Selector.parse(EITHER, ORDERS, "others").tree == FALSE
    with pytest.raises(SelectorError, match="there is no field `price`"):
        Selector.parse(EITHER, ORDERS, "trades.us")


def test_without_a_topic_it_is_refused() -> None:
    with pytest.raises(SelectorError, match="MATCHES needs a topic"):
        Selector.parse(EITHER, TRADES)


def test_a_literal_that_was_written_does_not_hide_a_mistake() -> None:
    with pytest.raises(SelectorError, match="there is no field `prize`"):
        Selector.parse("TRUE OR prize > 5 OR _topic MATCHES 'b'", TRADES, "a")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("_topic MATCHES 'a.>'", TRUE),
        ("_topic NOT MATCHES 'a.>'", FALSE),
        ("NOT _topic MATCHES 'a.>'", FALSE),
        ("_topic MATCHES 'b' OR NOT (_topic MATCHES 'a.*' AND _topic MATCHES '>')", FALSE),
        ("_topic MATCHES 'a.>' AND n > 1", parse("n > 1")),
        ("_topic MATCHES 'b' AND n > 1", FALSE),
        ("(_topic MATCHES 'b' OR n > 1) AND m < 2", parse("n > 1 AND m < 2")),
        ("n > 1 AND NOT (_topic MATCHES 'b' AND m < 2)", parse("n > 1")),
    ],
)
def test_the_truth_of_a_topic_takes_its_place(text: str, tree: object) -> None:
    assert for_topic(parse(text), "a.b") == tree


def test_a_tree_without_it_stays_the_same_object() -> None:
    tree = parse("a > 1 AND NOT (b OR c = 2)")
    assert for_topic(tree, "a") is tree
    assert for_pattern(tree, TopicPattern.parse(">")) is tree


def test_for_a_pattern_it_is_decided_only_where_all_its_topics_agree() -> None:
    tree = parse("_topic MATCHES 'a.>' AND n > 1")
    assert for_pattern(tree, TopicPattern.parse("a.b.*")) == parse("n > 1")
    assert for_pattern(tree, TopicPattern.parse("b.>")) == FALSE
    assert for_pattern(tree, TopicPattern.parse("*.b")) is None


def test_an_audience_asks_each_topic_for_what_concerns_it() -> None:
    audience = Audience(known("t.a", "t.b", "u"))
    audience.add(1, ">", "_topic MATCHES 't.*' AND n > 2 OR _topic MATCHES 'u' AND n > 5 AND missing IS NULL")
    assert matches(audience, batch(2, 3, 6, topic="t.a")) == {(1,): [1, 2]}
    assert matches(audience, batch(2, 3, 6, topic="u")) == {}
