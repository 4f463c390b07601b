"""Hidden fields in the core: live, in catch-up, in bulk reads, in what topics are said to be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.desk import Desk, told
from tidemark.access.document import AccessDocument
from tidemark.broker.access.hiding import Hiding
from tidemark.broker.effects import AccessChanged, ClientCame, Effect, RefuseClient
from tidemark.message.batches import hidden_fields
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.wire.frames import (
    Answer,
    Ask,
    ClientFrame,
    Deliver,
    Describe,
    Fetch,
    Fetched,
    Publish,
    Refused,
    Subscribe,
    Topic,
)

TRADE = Schema.parse("[symbol: string, price: int, party: string?]")
LEFT = Schema.parse("[symbol: string, price: int]")
RULES = """
[users.alice]
roles = ["reader"]
[users.anna]
roles = ["reader"]
[users.bob]
roles = ["auditor"]
[users.desk]
roles = ["reader", "writer"]
[users.lake]
roles = ["reader", "lake"]
[roles.reader]
subscribe = ["trades.>", "open.>"]
durable = ["*"]
hide."trades.>" = ["party"]
hide."open.>" = ["party"]
[roles.auditor]
subscribe = [">"]
durable = ["*"]
[roles.writer]
publish = ["trades.>", "open.>"]
declare = ["trades.>", "open.>"]
publisher = ["desk"]
[roles.lake]
pipeline = true
"""
DOCUMENT = AccessDocument.parse(RULES, 1)
ALICE, ANNA, BOB, DESK, LAKE = range(1, 6)
NAMES = {ALICE: "alice", ANNA: "anna", BOB: "bob", DESK: "desk", LAKE: "lake"}


def come(at: Desk, client: int, document: AccessDocument = DOCUMENT) -> None:
    principal = document.principal(NAMES[client])
    assert principal is not None
    at.give(ClientCame(client, principal))


def desk(document: AccessDocument = DOCUMENT) -> Desk:
    made = Desk(access=document)
    for client in NAMES:
        come(made, client, document)
    made.do(DESK, Topic("trades.eu", False, (TRADE.text,)))
    made.pass_time(0.2)
    return made


def publish(at: Desk, *events: dict[str, Any], first: int = 1, topic: str = "trades.eu") -> list[Effect]:
    builder = BatchBuilder()
    for event in events:
        builder.add(Shape(topic, TRADE.fingerprint), TRADE.encode(event), publisher="desk")
    return at.finish(at.say(DESK, Publish("p", "desk", first, builder.build()))) + at.pass_time(0.3)


def trade(symbol: str, price: int = 1, party: str | None = "secret") -> dict[str, Any]:
    return {"symbol": symbol, "price": price, "party": party}


def subscribe(selector: str = "", *, name: str = "s", pattern: str = "trades.>") -> Subscribe:
    return Subscribe(name, pattern, selector, True, 100_000)


def batches(frames: list[ClientFrame]) -> list[EventBatch]:
    return [each.batch for each in frames if isinstance(each, Deliver | Fetched) and each.batch is not None]


def symbols(frames: list[ClientFrame], schema: Schema = LEFT) -> list[str]:
    """The symbols of what was delivered, in this schema and without a trace of any party but for TRADE."""
    found = []
    for batch in batches(frames):
        assert {batch.shapes[at].fingerprint for at in batch.prelude("shape")} == {schema.fingerprint}
        assert (b"secret" in bytes(batch.data)) == (schema is TRADE)
        found += [schema.decode(batch.message(row))["symbol"] for row in range(batch.count)]
    return found


def test_a_live_subscriber_gets_events_without_what_is_hidden_from_it() -> None:
    at = desk()
    at.do(ALICE, subscribe(name="a"))
    at.do(BOB, subscribe(name="b"))
    at.pass_time(0.3)
    effects = publish(at, trade("A"), trade("B"))
    assert symbols(told(effects, ALICE)) == ["A", "B"]
    assert symbols(told(effects, BOB), TRADE) == ["A", "B"]


def test_all_who_share_what_is_hidden_share_one_stripped_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    at = desk()
    at.do(ALICE, subscribe(name="a"))
    at.do(ANNA, subscribe(name="n"))
    at.do(DESK, subscribe("price > 5", name="d"))
    at.pass_time(0.3)
    written: list[int] = []
    rewrite = hidden_fields._rewritten

    def counted(batch: EventBatch, hidden: Any) -> EventBatch:
        written.append(batch.count)
        return rewrite(batch, hidden)

    monkeypatch.setattr(hidden_fields, "_rewritten", counted)
    effects = publish(at, trade("A"), trade("B", 9))
    assert written == [2]
    assert symbols(told(effects, ALICE)) == symbols(told(effects, ANNA)) == ["A", "B"]
    assert symbols(told(effects, DESK)) == ["B"]
    assert batches(told(effects, ALICE))[0] is batches(told(effects, ANNA))[0]


def test_a_returning_subscriber_gets_no_hidden_field_of_what_it_missed() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    at.gone(ALICE)
    publish(at, trade("A"), trade("B"))
    come(at, ALICE)
    effects = at.finish(at.say(ALICE, subscribe())) + at.pass_time(0.3)
    assert symbols(told(effects, ALICE)) == ["A", "B"]


def test_a_field_that_is_hidden_later_is_hidden_in_what_matched_before() -> None:
    bare = AccessDocument.parse(RULES.replace('hide."trades.>" = ["party"]\n', ""), 1)
    at = desk(bare)
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    assert symbols(told(publish(at, trade("A")), ALICE), TRADE) == ["A"]
    at.gone(ALICE)
    publish(at, trade("B"), first=2)
    stale = [
        each.client
        for each in at.give(AccessChanged(AccessDocument.parse(RULES, 2)))
        if isinstance(each, RefuseClient)
    ]
    assert stale == [ANNA, DESK, LAKE]
    come(at, ALICE)
    effects = at.finish(at.say(ALICE, subscribe())) + at.pass_time(0.3)
    assert symbols(told(effects, ALICE)) == ["A", "B"]  # A was not acknowledged


def test_a_rule_of_access_looks_at_the_hidden_field() -> None:
    rule = RULES.replace("[roles.auditor]", 'read."trades.>" = "party = \'secret\'"\n[roles.auditor]')
    at = desk(AccessDocument.parse(rule, 1))
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    effects = publish(at, trade("A"), trade("B", party="other"), trade("C", party=None))
    assert symbols(told(effects, ALICE)) == ["A"]


def test_bulk_reads_are_stripped_for_everyone_but_the_pipeline() -> None:
    at = desk()
    publish(at, trade("A"))
    fetch = Fetch(1, "p", 0, 2**60, ">", "", 1_000)
    assert symbols(at.do(ALICE, fetch)) == ["A"]
    assert symbols(at.do(LAKE, fetch), TRADE) == ["A"]


@pytest.mark.parametrize("pattern", ["trades.eu", "trades.>", "trades.none", "open.x", ">"])
def test_a_selector_may_not_name_a_hidden_field_whether_there_is_one_or_not(pattern: str) -> None:
    at = desk()
    for frame in (
        subscribe("party = 'secret'", pattern=pattern),
        Fetch(1, "p", 0, 2**60, pattern, "party IS NULL", 1_000),
    ):
        (refused,) = at.do(ALICE, frame)
        assert isinstance(refused, Refused)
        assert refused.code == "denied"
        assert refused.reason == f"'alice' may not name the field 'party' in a selector of {pattern!r}"


def test_a_wrong_selector_is_answered_without_a_word_of_hidden_fields() -> None:
    at = desk()
    (refused,) = at.do(ALICE, subscribe("parti = 'secret'", pattern="trades.eu"))
    assert isinstance(refused, Refused)
    assert refused.code == "selector"
    assert "no field `parti`" in refused.reason
    assert "party" not in refused.reason
    (refused,) = at.do(BOB, subscribe("parti = 'secret'", pattern="trades.eu"))
    assert isinstance(refused, Refused)
    assert "did you mean `party`" in refused.reason


def test_a_rule_that_does_not_fit_a_topic_is_not_told_to_those_it_closes() -> None:
    rule = RULES.replace("[roles.auditor]", 'read."trades.>" = "clearance > 5"\n[roles.auditor]')
    at = desk(AccessDocument.parse(rule, 1))
    (refused,) = at.do(ALICE, subscribe("price > 1", pattern="trades.eu"))
    assert isinstance(refused, Refused)
    assert "rules of access fit no topic" in refused.reason
    assert "clearance" not in refused.reason


def test_a_topic_is_described_as_its_events_come() -> None:
    at = desk()
    assert at.do(ALICE, Describe("trades.eu")) == [Topic("trades.eu", False, (LEFT.text,))]
    assert at.do(BOB, Describe("trades.eu")) == [Topic("trades.eu", False, (TRADE.text,))]
    # Who publishes writes in the last one, and reads in either.
    assert at.do(DESK, Describe("trades.eu")) == [Topic("trades.eu", False, (LEFT.text, TRADE.text))]
    answer = next(each for each in at.do(ALICE, Ask(1, "topics")) if isinstance(each, Answer))
    assert json.loads(answer.payload)[0]["schemas"] == [LEFT.text]


def test_shapes_of_an_open_topic_are_told_as_their_events_come() -> None:
    at = desk()
    other = Schema.parse("[other: int]")
    at.do(DESK, Topic("open.x", True, (TRADE.text, other.text)))
    at.pass_time(0.2)
    assert at.do(ALICE, Describe("open.x")) == [Topic("open.x", True, (LEFT.text, other.text))]
    asked = Describe("open.x", (LEFT.fingerprint, TRADE.fingerprint))
    assert at.do(ALICE, asked) == [Topic("open.x", True, (LEFT.text,))]
    assert at.do(DESK, asked) == [Topic("open.x", True, (LEFT.text, TRADE.text))]


def test_an_event_of_a_schema_that_is_not_known_is_not_shown() -> None:
    registry = Registry()
    registry.declare("trades.eu", LEFT)
    hiding, hidden = Hiding(registry), (("trades.>", ("party",)),)
    builder = BatchBuilder()
    builder.add(Shape("trades.eu", LEFT.fingerprint), LEFT.encode({"symbol": "A", "price": 1}))
    builder.add(Shape("trades.eu", TRADE.fingerprint), TRADE.encode(trade("B")))
    batch = builder.build()
    batch.count_ticks(1)
    assert hiding.unknown_from(hidden, batch) == 1
    stripped = hiding.stripped(hidden, batch)
    assert stripped is not None
    assert stripped.ticks.tolist() == [1]
    assert hiding.stripped(hidden, batch.slice(1, 2)) is None
