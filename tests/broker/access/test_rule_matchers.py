"""Rules over batches: the short way gives the answers of the index, whatever a batch is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemark.broker.access.rule_matchers import CONDITIONS_MAX, RuleMatchers
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema

SCHEMA = Schema.parse("[account: string, n: int]")
OTHER = Schema.parse("[account: string, n: int, more: string?]")
RULES = (
    "account = 'desk' AND n >= 5",
    "n < 3 OR account LIKE 'd%'",
    "NOT n = 4",
    "missing = 1",
    "account = 7",
    "_topic = 't'",
    "more IS NULL",
    "n >",
)
#: These read a header, fit no event, or are no conditions: they have no form for single events.
NOT_ALONE = ("_topic = 't'", "missing = 1", "account = 7", "n >")


def registry() -> Registry:
    made = Registry()
    made.declare("t", SCHEMA)
    made.declare("t", OTHER)
    made.declare("u", SCHEMA)
    return made


def batch(*rows: tuple[str, Schema, str, int]) -> EventBatch:
    builder = BatchBuilder()
    for topic, schema, account, n in rows:
        builder.add(Shape(topic, schema.fingerprint), schema.encode({"account": account, "n": n}))
    return builder.build()


def damaged() -> EventBatch:
    """A batch whose third message is none of its schema."""
    whole = batch(*(("t", SCHEMA, "desk", n) for n in range(10)))
    data = bytearray(whole.data)
    place = len(data) - len(whole.body) + int(whole.message_starts[2])
    data[place : place + 4] = b"\xff" * 4
    return EventBatch.parse(data)


BATCHES = {
    "alike": batch(*(("t", SCHEMA, "desk", n) for n in range(10))),
    "of many sizes": batch(*(("t", SCHEMA, "d" * n, n) for n in range(10))),
    "of two schemas": batch(("t", SCHEMA, "desk", 7), ("t", OTHER, "desk", 7), ("t", OTHER, "x", 2)),
    "of two topics": batch(("t", SCHEMA, "desk", 7), ("u", SCHEMA, "desk", 7), ("t", SCHEMA, "x", 2)),
    "damaged": damaged(),
    "alone": batch(("t", SCHEMA, "desk", 7)),
    "not known from the third on": batch(
        ("t", SCHEMA, "desk", 7),
        ("t", SCHEMA, "x", 1),
        ("t", Schema.parse("[account: string, n: long]"), "a", 1),
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_rule_chooses_what_a_subscription_with_it_would_get(name: str) -> None:
    known, events = registry(), BATCHES[name]
    rules = RuleMatchers(known, 4)
    for rule in RULES:
        audience = Audience(known)
        audience.add(1, "t", rule)
        unknown = audience.unknown_from(events)
        part = events if unknown is None else events.slice(0, unknown)
        for _ in range(2):
            found = rules.chosen("t", rule, events)
            assert found[0] == unknown, rule
            assert found[1].tolist() == audience.chosen(1, part).tolist(), rule


def test_a_rule_goes_by_the_schemas_of_today() -> None:
    known = Registry()
    known.declare("t", SCHEMA)
    rules, events = RuleMatchers(known, 4), batch(("t", SCHEMA, "a", 1), ("t", SCHEMA, "b", 2))
    assert not rules.chosen("t", "more IS NULL", events)[1].any(), "there is no such field"
    known.declare("t", OTHER)
    assert rules.chosen("t", "more IS NULL", events)[1].all()


def test_what_was_read_for_the_rule_is_read_once_and_ticks_are_those_of_the_log() -> None:
    known, events = registry(), BATCHES["alike"]
    rules, reader = RuleMatchers(known, 4), known.topics["t"].reader
    rules.chosen("t", RULES[0], events)
    assert reader.columns(events) is reader.columns(events)
    assert ("account",) in reader.columns(events)._columns
    events = batch(*(("t", SCHEMA, "desk", n) for n in range(10)))
    rules.chosen("t", "_tick = 0 AND n >= 0", events)
    events.fill_ticks(np.arange(100, 110))
    ticks: Any = reader.columns(events).column(("_tick",)).values
    assert ticks.tolist() == [*range(100, 110)]


def test_the_rules_of_very_many_users_are_kept_up_to_a_bound() -> None:
    rules, events = RuleMatchers(registry(), 4), BATCHES["alike"]
    for number in range(CONDITIONS_MAX + 10):
        assert not rules.chosen("t", f"account = 'user-{number}'", events)[1].any()
    assert len(rules._conditions) == CONDITIONS_MAX


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("schema", [SCHEMA, OTHER])
@pytest.mark.parametrize("n", [2, 4, 7])
def test_an_event_alone_is_held_against_a_rule_as_one_of_many_is(rule: str, schema: Schema, n: int) -> None:
    rules, alone = RuleMatchers(registry(), 8), batch(("t", schema, "desk", n))
    for _ in range(2):  # made, and found again
        allowed = rules.allows("t", rule, alone)
        assert (allowed is None) is (rule in NOT_ALONE)
        assert bool(allowed) is bool(rules.chosen("t", rule, alone)[1][0]) or rule in NOT_ALONE


def test_an_event_alone_takes_a_closer_look_if_its_schema_is_not_known_or_it_is_damaged() -> None:
    rules = RuleMatchers(registry(), 8)
    assert rules.allows("t", "n = 4", batch(("t", SCHEMA, "desk", 4))) is True
    assert rules.allows("v", "n = 4", batch(("v", SCHEMA, "desk", 4))) is None
    assert rules.allows("u", "n = 4", batch(("u", OTHER, "desk", 4))) is None
    builder = BatchBuilder()
    builder.add(Shape("t", SCHEMA.fingerprint), b"x")
    assert rules.allows("t", "n = 4", builder.build()) is None
