"""The audit's selectors: SQL where that is exact, the reference evaluator where it is not."""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.audit.ledger_samples import SELECTORS, make_case
from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.spark.audit import plan as audit_plan
from tidemark.spark.audit.ledger_lines import lookup
from tidemark.spark.audit.ledgers import LedgerSubscription
from tidemark.spark.audit.selectors import (
    SeenFields,
    SelectorGroup,
    decide,
    paths,
    selector_groups,
    topic_condition,
    translated,
)


def selector_group(where: str, topic: str = "trades") -> SelectorGroup:
    return SelectorGroup(0, topic, where, (0,))


def test_a_selector_on_fields_of_one_type_each_is_translated() -> None:
    seen = SeenFields({("price",): ["double"], ("qty",): ["long"]})
    assert translated(selector_group("price > 5 AND qty = 1"), seen) == (
        "topic = 'trades' AND (nanvl(`value_0_double`, CAST(NULL AS DOUBLE)) > CAST(5L AS DOUBLE)"
        " AND `value_1_long` = 1L)"
    )


@pytest.mark.parametrize("kinds", [[], ["long", "double"], ["other"], ["string"], ["long", "other"]])
def test_a_field_without_one_type_that_fits_is_left_to_the_evaluator(kinds: list[str]) -> None:
    assert translated(selector_group("price > 5"), SeenFields({("price",): kinds})) is None


def test_a_header_is_no_field_of_a_ledger() -> None:
    assert translated(selector_group("_topic = 'x'"), SeenFields({("_topic",): ["string"]})) is None


def test_subscribers_who_ask_for_the_same_share_a_group() -> None:
    asked = [("a", "x > 1"), ("b", "x > 1"), ("a", "x > 1"), ("a", "y.z = 2")]
    found = selector_groups(LedgerSubscription(at, f"s{at}", *each, {}) for at, each in enumerate(asked))
    assert [(each.number, each.ledgers) for each in found] == [(0, (0, 2)), (1, (1,)), (2, (3,))]
    assert paths(found) == [("x",), ("y", "z")]


@pytest.mark.parametrize(
    ("pattern", "sql"),
    [
        ("trades", "topic = 'trades'"),
        ("trades.>", "size(split(topic, '[.]')) > 1 AND get(split(topic, '[.]'), 0) = 'trades'"),
        ("*.us", "size(split(topic, '[.]')) = 2 AND get(split(topic, '[.]'), 1) = 'us'"),
        (">", "size(split(topic, '[.]')) > 0"),
    ],
)
def test_a_topic_pattern_is_a_condition_on_levels(pattern: str, sql: str) -> None:
    assert topic_condition(pattern) == sql


@settings(derandomize=True, deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_what_is_left_is_decided_as_the_evaluator_decides(seed: int) -> None:
    lines = next(iter(make_case(seed, Random(seed)).publishers.values()))
    left = [SelectorGroup(number, "*.>", where, (0,)) for number, where in enumerate(SELECTORS)]
    texts = [json.dumps(line["fields"]) if "fields" in line else None for line in lines]
    topics = [line.get("topic") for line in lines]
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(topics, pa.string()), "fields": texts})
    (decided,) = decide([batch], left, "decided")
    for line, found in zip(lines, decided["decided"].to_pylist(), strict=True):
        assert found == [
            each.number
            for each in left
            if "fields" in line
            and TopicPattern.parse(each.topic).matches(line["topic"])
            and evaluate(parse(each.where), lambda path, line=line: lookup(line["fields"], path)) is True  # type: ignore[misc]
        ]


def test_names_of_pubends_and_braces_cannot_break_out_of_the_queries() -> None:
    subscription = LedgerSubscription(0, "s", "t", "", {"it's {ordered} `x`": 5})
    query = audit_plan.expected([SelectorGroup(0, "t", "", (0,))], [subscription])
    assert "{" not in query
    assert "it's" not in query
