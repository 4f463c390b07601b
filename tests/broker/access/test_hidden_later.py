"""Fields that are hidden later: what a selector has chosen by them is not told any more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.broker.desk import Desk, told
from tidemark.access.document import AccessDocument
from tidemark.broker.effects import AccessChanged, ClientCame, RefuseClient
from tidemark.message.batches.batch import BatchBuilder, Shape
from tidemark.message.schema import Schema
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Answer, Ask, Deliver, Publish, Published, Refused, Subscribe, Topic

RULES = """
[users.alice]
roles = ["reader"]
[users.paula]
roles = ["writer"]
[users.eye]
roles = ["watcher"]
[roles.reader]
subscribe = ["t"]
durable = ["{user}.*"]
[roles.writer]
publish = ["t"]
declare = ["t"]
[roles.watcher]
monitor = true
"""
RULED = RULES.replace('["{user}.*"]', '["{user}.*"]\nread."t" = "secret <> \'gone\'"')
WHOLE, LEFT = Schema.parse("[n: int, secret: string]"), Schema.parse("[n: int]")
ALICE, PAULA, EYE = range(1, 4)
NAMES = {ALICE: "alice", PAULA: "paula", EYE: "eye"}
PUBLISHER = "publisher-0123456789abcdef"


def hiding(rules: str, version: int = 2) -> AccessDocument:
    """A document that also hides the field `secret` from readers."""
    return AccessDocument.parse(
        rules.replace("[roles.writer]", 'hide."t" = ["secret"]\n[roles.writer]'), version
    )


class Ward(Desk):
    """A broker with a topic whose every third event has `secret = 'ill'`."""

    def __init__(self, rules: str = RULES, *, is_open: bool = False) -> None:
        self.document = AccessDocument.parse(rules, 1)
        super().__init__(access=None if is_open else self.document)
        for client in () if is_open else NAMES:
            self.come(client)
        assert self.do(PAULA, Topic("t", False, (WHOLE.text,)))
        self.pass_time(0.2)
        self.published = 0

    def come(self, client: int) -> None:
        principal = self.document.principal(NAMES[client])
        assert principal is not None
        self.give(ClientCame(client, principal))

    def change(self, document: AccessDocument) -> list[int]:
        """Go by another document; returns the clients that have to come again."""
        self.document = document
        refused = [each for each in self.give(AccessChanged(document)) if isinstance(each, RefuseClient)]
        for each in refused:
            self.gone(each.client)
            self.come(each.client)
        return [each.client for each in refused]

    def publish(self, count: int) -> list[Any]:
        """Publish the next events, one by one; returns what alice is told."""
        found: list[Any] = []
        for n in range(self.published + 1, self.published + 1 + count):
            builder = BatchBuilder()
            secret = "ill" if n % 3 == 0 else "well"
            builder.add(Shape("t", WHOLE.fingerprint), WHOLE.encode({"n": n, "secret": secret}))
            built = builder.build()
            built.fill_ticks(np.zeros(1, np.int64))
            effects = self.finish(self.say(PAULA, Publish("p", PUBLISHER, n, built)))
            assert any(isinstance(each, Published) for each in told(effects, PAULA))
            found += told(effects, ALICE) + told(self.pass_time(0.1), ALICE)
        self.published += count
        return found

    def subscribe(self, selector: str = "", **more: Any) -> list[Any]:
        """Alice subscribes; returns what she is told."""
        frame = Subscribe("alice.s", "t", selector, True, 1 << 20, **more)
        return self.do(ALICE, frame) + told(self.pass_time(0.5), ALICE)

    def mine(self, client: int = ALICE) -> dict[str, Any]:
        """What a client is told of alice's subscription."""
        effects = self.finish(self.say(client, Ask(1, "subscription", json.dumps({"name": "alice.s"}))))
        (answer,) = [each for each in told(effects, client) if isinstance(each, Answer)]
        found: dict[str, Any] = json.loads(answer.payload)
        return found


def numbers(frames: list[Any]) -> list[int]:
    """The numbers of the events in what was delivered without the hidden field."""
    found = []
    for each in frames:
        if isinstance(each, Deliver) and each.batch is not None:
            assert {shape.fingerprint for shape in each.batch.shapes} == {LEFT.fingerprint}
            found += [LEFT.decode(bytes(each.batch.message(row)))["n"] for row in range(each.batch.count)]
    return found


@pytest.mark.parametrize("rules", [RULES, RULED])
def test_what_a_selector_chose_by_a_field_that_is_hidden_now_is_not_told_apart(rules: str) -> None:
    at = Ward(rules)
    at.subscribe("secret = 'ill'")
    at.gone(ALICE)
    at.publish(6)
    at.come(ALICE)
    at.change(hiding(rules))
    at.publish(6)
    frames = at.subscribe()
    assert numbers(frames) == list(range(1, 13)), "the selector of today holds for all that it gets"
    assert numbers(at.publish(3)) == [13, 14, 15]


def test_a_selector_of_long_ago_chooses_nothing_by_a_field_that_is_hidden_now() -> None:
    at = Ward()
    at.subscribe("secret = 'ill'")
    at.gone(ALICE)
    at.publish(6)
    at.come(ALICE)
    at.subscribe("n < 100", token=None)
    at.change(hiding(RULES))
    at.publish(3)
    assert numbers(at.subscribe("n < 100")) == list(range(1, 10))


def test_what_was_acknowledged_before_a_field_was_hidden_does_not_come_again() -> None:
    at = Ward()
    at.subscribe("secret = 'ill'")
    frames = at.publish(3)
    upto = max(each.upto for each in frames if isinstance(each, Deliver))
    at.do(ALICE, Ack((("alice.s", CheckpointToken({"p": upto})),), 1))
    at.publish(3)
    assert at.change(hiding(RULES)) == [ALICE]
    assert numbers(at.subscribe()) == [4, 5, 6]


def test_what_is_owed_by_a_field_that_is_hidden_now_is_not_told() -> None:
    at = Ward()
    at.subscribe("secret = 'ill'")
    at.gone(ALICE)
    at.publish(6)
    at.come(ALICE)
    assert at.mine()["pubends"]["p"]["owed_events"] == 2
    at.change(hiding(RULES))
    for _ in range(3):
        at.publish(1)
        found = at.mine()["pubends"]["p"]
        told_of = found["owed_events"], found["owed_bytes"], found["lag_us"], found["is_exact"]
        assert told_of == (0, 0, None, False)
    assert at.mine(EYE)["pubends"]["p"]["owed_events"] == 3
    assert "secret" not in at.mine()["selector"]


def test_a_live_subscription_by_a_field_that_becomes_hidden_ends_at_once() -> None:
    at = Ward()
    at.subscribe("secret = 'ill'")
    at.document = hiding(RULES)
    refused = [each for each in at.give(AccessChanged(at.document)) if isinstance(each, RefuseClient)]
    assert [(each.client, each.code) for each in refused] == [(ALICE, "access")]
    at.gone(ALICE)
    assert not at.publish(6)
    at.come(ALICE)
    (answer,) = [each for each in at.subscribe("secret = 'ill'") if isinstance(each, Refused)]
    assert (answer.code, answer.reason) == (
        "denied",
        "'alice' may not name the field 'secret' in a selector of 't'",
    )
    assert not at.publish(3)


def test_rules_may_choose_by_a_field_that_they_hide_and_what_they_chose_is_known_still() -> None:
    at = Ward(RULED)
    at.change(hiding(RULED))
    at.subscribe("n > 1")
    at.gone(ALICE)
    at.publish(6)
    at.come(ALICE)
    assert at.mine()["pubends"]["p"]["owed_events"] == 5
    before = at.broker.counters["taken_over"]
    assert numbers(at.subscribe("n > 1")) == [2, 3, 4, 5, 6]
    assert at.broker.counters["taken_over"] == before, "it goes on where it was, from what is in the PFS"


def test_a_subscription_of_before_there_were_accounts_is_told_of_as_ones_own_is() -> None:
    at = Ward(is_open=True)
    at.subscribe("secret = 'ill'")
    at.gone(ALICE)
    at.publish(6)
    at.change(hiding(RULES))
    for client in (ALICE, EYE):
        at.come(client)
    found = at.mine()["pubends"]["p"]
    assert (found["owed_events"], found["owed_bytes"], found["lag_us"]) == (0, 0, None)
    assert at.mine()["selector"] == ""
    assert at.mine(EYE)["pubends"]["p"]["owed_events"] == 2
