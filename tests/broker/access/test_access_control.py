"""Access in the core: what each principal may do and see, live, in catch-up, in bulk, and as rules change."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from tests.broker.desk import Desk, batch, told
from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.effects import AccessChanged, ClientCame, RefuseClient, SaveSubscription
from tidemark.broker.turn import Turn
from tidemark.message.registry import Registry
from tidemark.node.admin import ProcessAdmin
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import RIGHTS
from tidemark.wire.frames import (
    Ack,
    Answer,
    Ask,
    ClientFrame,
    Credit,
    Deliver,
    Describe,
    Fetch,
    Fetched,
    Offer,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
    Unsubscribe,
    Unsubscribed,
)

RULES = """
[users.alice]
roles = ["reader"]
claims = { most = 5 }
[users.bob]
roles = ["reader"]
[users.paula]
roles = ["writer"]
[users.ops]
roles = ["operator"]
[users.eye]
roles = ["watcher"]
[users.lake]
roles = ["lake"]
[roles.reader]
subscribe = ["t"]
durable = ["{user}.*", "shared"]
read."t" = "n <= :claims.most"
[roles.writer]
publish = ["t"]
declare = ["t", "u"]
publisher = ["desk"]
write."t" = "n < 100"
[roles.operator]
administer = true
[roles.watcher]
monitor = true
[roles.lake]
pipeline = true
"""
DOCUMENT = AccessDocument.parse(RULES, 1)
ALICE, BOB, PAULA, OPS, EYE, LAKE, NOBODY = range(1, 8)
NAMES = {ALICE: "alice", BOB: "bob", PAULA: "paula", OPS: "ops", EYE: "eye", LAKE: "lake"}


def come(at: Desk, client: int, document: AccessDocument = DOCUMENT) -> None:
    principal = document.principal(NAMES[client])
    assert principal is not None
    at.give(ClientCame(client, principal))


def desk() -> Desk:
    made = Desk(access=DOCUMENT)
    for client in NAMES:
        come(made, client)
    assert made.do(PAULA, Topic("t", False, ("[n: int]",)))
    made.pass_time(0.2)
    return made


def subscribe(name: str = "alice.s", selector: str = "", *, pattern: str = "t", **more: Any) -> Subscribe:
    return Subscribe(name, pattern, selector, True, 10_000, **more)


def publish(at: Desk, *values: int, client: int = PAULA, publisher: str = "desk", topic: str = "t") -> Any:
    at.sequence = getattr(at, "sequence", 1)  # type: ignore[attr-defined]  # how far this desk has got
    frame = Publish("p", publisher, at.sequence, batch(*range(len(values)), values=values, topic=topic))  # type: ignore[attr-defined]
    effects = at.finish(at.say(client, frame))
    if any(isinstance(each, Published) for each in told(effects, client)):
        at.sequence += len(values)  # type: ignore[attr-defined]
    return effects


def values(frames: list[ClientFrame]) -> list[int]:
    """The values of n in what was delivered."""
    found: list[int] = []
    for frame in frames:
        if isinstance(frame, Deliver | Fetched) and frame.batch is not None:
            found += [each % 1_000 for each in _ns(frame.batch)]
    return found


def _ns(events: Any) -> list[int]:
    from tests.broker.desk import SCHEMA

    return [SCHEMA.decode(bytes(events.message(row)))["n"] for row in range(events.count)]


def reason(frames: list[ClientFrame]) -> str:
    refused = next(frame for frame in frames if isinstance(frame, Refused))
    assert refused.code == "denied"
    return refused.reason


def test_a_subscriber_gets_what_its_rule_chooses_and_no_more() -> None:
    at = desk()
    assert not [each for each in at.do(ALICE, subscribe(selector="n > 1")) if isinstance(each, Refused)]
    at.pass_time(0.3)
    assert values(told(publish(at, 1, 4, 5, 6), ALICE)) == [4, 5]


def test_a_returning_subscriber_gets_what_its_rule_chose_while_it_was_away() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    at.gone(ALICE)
    publish(at, 4, 6)
    at.pass_time(0.3)
    come(at, ALICE)
    effects = at.finish(at.say(ALICE, subscribe())) + at.pass_time(0.3)
    assert values(told(effects, ALICE)) == [4]


def test_a_rule_that_was_tightened_holds_for_what_matched_before() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    at.gone(ALICE)
    publish(at, 2, 4)
    at.pass_time(0.3)
    tighter = AccessDocument.parse(RULES.replace("most = 5", "most = 3"), 2)
    at.give(AccessChanged(tighter))
    come(at, ALICE, tighter)
    effects = at.finish(at.say(ALICE, subscribe())) + at.pass_time(0.3)
    assert values(told(effects, ALICE)) == [2]
    effects = publish(at, 1, 4) + at.pass_time(0.3)
    assert values(told(effects, ALICE)) == [1]


def asked_of(at: Desk, client: int, name: str) -> Any:
    """What a client is told of a subscription."""
    effects = at.finish(at.say(client, Ask(1, "subscription", json.dumps({"name": name}))))
    (answer,) = [each for each in told(effects, client) if isinstance(each, Answer)]
    return json.loads(answer.payload)


def test_what_one_is_owed_tells_nothing_of_events_that_one_may_not_see_any_more() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    at.gone(ALICE)
    publish(at, 2, 4)
    at.pass_time(0.3)
    come(at, ALICE)
    assert asked_of(at, ALICE, "alice.s")["pubends"]["p"]["owed_events"] == 2
    tighter = AccessDocument.parse(RULES.replace("most = 5", "most = 3"), 2)
    at.give(AccessChanged(tighter))
    at.gone(ALICE)
    come(at, ALICE, tighter)
    for _ in range(2):
        mine = asked_of(at, ALICE, "alice.s")["pubends"]["p"]
        assert (mine["owed_events"], mine["owed_bytes"], mine["lag_us"], mine["is_exact"]) == (
            0,
            0,
            None,
            False,
        )
        come(at, EYE, tighter)
        assert asked_of(at, EYE, "alice.s")["pubends"]["p"]["owed_events"] == 2, (
            "who monitors sees the broker"
        )
        at.do(ALICE, replace(subscribe(), credit=0))
        at.pass_time(0.3)


def test_the_selector_that_one_is_shown_names_no_field_that_is_hidden() -> None:
    rules = RULES.replace("[roles.reader]", '[roles.reader]\nhide."t" = ["n"]')
    document = AccessDocument.parse(rules, 1)
    at = Desk(access=document)
    for client in NAMES:
        come(at, client, document)
    at.do(PAULA, Topic("t", False, ("[n: int, m: int]",)))
    at.pass_time(0.2)
    at.do(ALICE, subscribe(selector="m > 1"))
    assert asked_of(at, ALICE, "alice.s")["selector"] == "m > 1"
    assert "n <= 5" in asked_of(at, EYE, "alice.s")["selector"]


def test_a_tightened_rule_holds_at_once_for_those_who_are_connected() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    at.pass_time(0.3)
    effects = at.give(AccessChanged(AccessDocument.parse(RULES.replace("most = 5", "most = 3"), 2)))
    refused = [each for each in effects if isinstance(each, RefuseClient)]
    assert [(each.client, each.code) for each in refused] == [(ALICE, "access")]
    at.gone(ALICE)
    assert not told(publish(at, 4), ALICE)


def test_a_document_that_says_nothing_new_of_a_client_leaves_it_alone() -> None:
    at = desk()
    changed = AccessDocument.parse(RULES + '[users.zoe]\nroles = ["reader"]\n', 2)
    assert not [each for each in at.give(AccessChanged(changed)) if isinstance(each, RefuseClient)]


@pytest.mark.parametrize("claim", ["true", "false", "7"])
def test_a_claim_that_becomes_a_truth_is_another_claim(claim: str) -> None:
    """In Python, True is equal to 1: the client would go on under the rule with the number."""
    at = Desk(access=AccessDocument.parse(RULES.replace("most = 5", "most = 1"), 1))
    at.give(ClientCame(ALICE, Principal("alice", {"most": 1})))
    changed = AccessDocument.parse(RULES.replace("most = 5", f"most = {claim}"), 2)
    effects = at.give(AccessChanged(changed))
    assert [each.client for each in effects if isinstance(each, RefuseClient)] == [ALICE]


def test_a_token_with_a_truth_in_place_of_a_number_is_of_another_principal() -> None:
    assert Principal("alice", {"most": 1}) != Principal("alice", {"most": True})
    assert Principal("alice", {"most": 1}) == Principal("alice", {"most": 1})
    assert len({Principal("alice", {"most": each}) for each in (1, True, 1.0)}) == 3


def test_a_client_that_proves_anew_with_other_claims_has_to_come_again() -> None:
    at = desk()
    at.do(ALICE, subscribe())
    assert not at.give(ClientCame(ALICE, Principal("alice", {"most": 5})))
    (gone,) = at.give(ClientCame(ALICE, Principal("alice", {"most": 2})))
    assert isinstance(gone, RefuseClient)
    assert (gone.client, gone.code) == (ALICE, "access")


def test_a_user_that_is_removed_may_do_nothing_any_more() -> None:
    at = desk()
    without = AccessDocument.parse(RULES.replace('[users.bob]\nroles = ["reader"]', ""), 2)
    effects = at.give(AccessChanged(without))
    assert [each.client for each in effects if isinstance(each, RefuseClient)] == [BOB]
    assert "may not" in reason(at.do(BOB, Describe("t")))


def test_a_missing_claim_and_a_missing_grant_are_refused_with_what_is_missing() -> None:
    at = desk()
    assert reason(at.do(BOB, subscribe("bob.s"))) == "'bob' may not read any topic of 't'"
    assert "'alice' may not read any topic of 'u'" in reason(at.do(ALICE, subscribe(pattern="u")))
    assert "durable subscription named 'bob.s'" in reason(at.do(ALICE, subscribe("bob.s")))


def test_bulk_reads_go_by_the_same_rule() -> None:
    at = desk()
    publish(at, 4, 6)
    fetch = Fetch(1, "p", 0, 2**60, ">", "", 1_000)
    assert values(at.do(ALICE, fetch)) == [4]
    assert values(at.do(LAKE, fetch)) == [4, 6]
    assert "may not read any topic" in reason(at.do(PAULA, fetch))


def test_events_are_published_only_as_rules_and_names_allow() -> None:
    at = desk()
    assert "publish event 1 of the batch: n < 100" in reason(told(publish(at, 5, 100, 200), PAULA))
    assert "under the name 'other'" in reason(told(publish(at, 5, publisher="other"), PAULA))
    assert "publish to the topic 't'" in reason(
        told(publish(at, 5, client=ALICE, publisher="publisher-0123456789abcdef"), ALICE)
    )
    assert [type(each) for each in told(publish(at, 5, 99), PAULA)] == [Published]


def test_an_event_alone_is_held_against_the_rule_however_often_others_were_allowed() -> None:
    at = desk()
    for _ in range(3):
        assert [type(each) for each in told(publish(at, 5), PAULA)] == [Published]
    assert "publish event 0 of the batch: n < 100" in reason(told(publish(at, 100), PAULA))
    assert "under the name 'other'" in reason(told(publish(at, 5, publisher="other"), PAULA))
    assert "publish to the topic 'u'" in reason(told(publish(at, 5, topic="u"), PAULA))
    assert "publish to the topic 't'" in reason(
        told(publish(at, 5, client=ALICE, publisher="publisher-0123456789abcdef"), ALICE)
    )
    assert [type(each) for each in told(publish(at, 99), PAULA)] == [Published]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("n < 100", "n < 3", "publish event 0 of the batch: n < 3"),
        ('publisher = ["desk"]', "publisher = []", "under the name 'desk'"),
        ('publish = ["t"]', 'publish = ["v"]', "publish to the topic 't'"),
    ],
)
def test_an_event_alone_is_held_against_the_document_of_today(before: str, after: str, why: str) -> None:
    at = desk()
    assert [type(each) for each in told(publish(at, 5), PAULA)] == [Published]
    changed = AccessDocument.parse(RULES.replace(before, after), 2)
    at.give(AccessChanged(changed))
    come(at, PAULA, changed)
    assert why in reason(told(publish(at, 5), PAULA))


def test_a_durable_subscription_belongs_to_who_made_it() -> None:
    at = desk()
    done = at.say(ALICE, subscribe("shared"))
    done += at.finish(done.copy()) + at.pass_time(0.3)
    saved = [each for each in done if isinstance(each, SaveSubscription)]
    assert saved[-1].owner == "alice"
    richer = AccessDocument.parse(RULES.replace("[users.bob]", "[users.bob]\nclaims = { most = 9 }"), 2)
    at.give(AccessChanged(richer))
    at.gone(BOB)
    come(at, BOB, richer)
    assert reason(at.do(BOB, subscribe("shared"))).endswith("belongs to another user: choose another name")
    assert [each for each in at.do(BOB, Unsubscribe("shared")) if isinstance(each, Refused)]
    at.gone(ALICE)
    assert [each for each in at.do(BOB, Unsubscribe("shared")) if isinstance(each, Refused)]
    assert any(isinstance(each, Unsubscribed) for each in at.do(OPS, Unsubscribe("shared")))


def test_a_subscription_of_before_there_were_accounts_is_touched_by_those_who_may_have_its_name() -> None:
    at = Desk()
    at.declare()
    at.do(NOBODY, subscribe("alice.s"))
    at.gone(NOBODY)
    at.give(AccessChanged(DOCUMENT))
    for client in NAMES:
        come(at, client)
    asked = Ask(1, "subscription", '{"name": "alice.s"}')
    for client in (BOB, PAULA):
        (refused,) = at.do(client, Unsubscribe("alice.s"))
        assert isinstance(refused, Refused), "it would end for good, with all that its subscriber is owed"
        assert refused.code == "unknown"
        assert [type(each) for each in at.do(client, asked)] == [Refused]
    assert [type(each) for each in at.do(ALICE, asked)] == [Answer]
    assert any(isinstance(each, Unsubscribed) for each in at.do(ALICE, Unsubscribe("alice.s")))


def test_nobody_who_has_not_proved_who_it_is_may_do_anything() -> None:
    at = desk()
    frames: tuple[ClientFrame, ...] = (
        subscribe(),
        Describe("t"),
        Topic("t", False, ("[n: int]",)),
        Fetch(1, "p", 0, 5, ">", "", 1_000),
        Offer(5),
        Ask(1, "topics"),
        Unsubscribe("shared"),
        Ack((("alice.s", CheckpointToken()),), 1),
        Credit("alice.s", 5),
        Publish("p", "desk", 1, batch(1)),
    )
    for frame in frames:
        assert "log in first" in reason(at.do(NOBODY, frame))


@pytest.mark.parametrize(
    ("what", "allowed"),
    [
        ("topics", {ALICE, BOB, PAULA, OPS, EYE, LAKE}),
        ("subscriptions", {OPS, EYE, LAKE}),
        ("hosts", {OPS, EYE, LAKE}),
        ("archived", {OPS, LAKE}),
        ("seek", {OPS}),
        ("select", {OPS}),
        ("remove", {OPS}),
        ("forget_host", {OPS}),
        ("unheard of", {OPS}),
    ],
)
def test_a_question_is_answered_for_those_who_may_ask_it(what: str, allowed: set[int]) -> None:
    at = desk()
    for client in NAMES:
        found = at.do(client, Ask(1, what))
        is_denied = any(isinstance(each, Refused) and each.code == "denied" for each in found)
        assert is_denied != (client in allowed)


def test_topics_and_subscriptions_of_others_are_not_told() -> None:
    at = desk()
    at.do(PAULA, Topic("u", False, ("[n: int]",)))
    at.do(ALICE, subscribe())
    at.pass_time(0.3)

    def asked(client: int, what: str, **arguments: Any) -> Any:
        found = next(iter(at.do(client, Ask(1, what, json.dumps(arguments)))))
        return json.loads(found.payload) if isinstance(found, Answer) else found

    assert [each["topic"] for each in asked(ALICE, "topics")] == ["t"]
    assert [each["topic"] for each in asked(EYE, "topics")] == ["t", "u"]
    assert asked(ALICE, "subscription", name="alice.s")["name"] == "alice.s"
    assert asked(BOB, "subscription", name="alice.s").code == "unknown"
    publish(at, 5)
    at.pass_time(5)
    (shown,), (whole,) = asked(ALICE, "pubends"), asked(EYE, "pubends")
    assert (shown["bytes"], shown["publishers"]) == (0, 0)
    assert whole["bytes"] > 0
    # When the last event came is not told; that there may be some is, or a reader would ask for none.
    assert whole["last_event"] < whole["position"]
    assert shown["last_event"] == shown["position"]


def test_the_pipeline_alone_offers_to_answer_recalls() -> None:
    at = desk()
    assert "keep the archive" in reason(at.do(ALICE, Offer(5)))
    assert not at.do(LAKE, Offer(5))


def test_an_open_broker_asks_nobody() -> None:
    at = Desk()
    at.declare()
    at.pass_time(0.2)
    at.do(1, subscribe())
    at.pass_time(0.3)
    assert values(told(publish(at, 6, client=50), 1)) == [6]


def test_a_frame_that_is_not_known_to_be_harmless_is_denied() -> None:
    control = AccessControl(DOCUMENT, Registry(), Turn())
    control.came(1, Principal("lake", {}, ("lake",)))
    for kind in get_args(ClientFrame):
        if kind in (Ack, Credit, Unsubscribe, Publish, Subscribe, Fetch, Describe, Topic, Offer, Ask):
            continue
        if kind.__name__ == "Recalled":
            continue
        frame = object.__new__(kind)
        assert isinstance(control.checked(1, frame), Refused)


def test_every_question_says_who_may_ask_it() -> None:
    broker = desk().broker
    of_core = broker._admin.known
    node = SimpleNamespace(runtime=SimpleNamespace(broker=broker))
    of_process = ProcessAdmin(cast(Any, node)).known
    assert {"status", "propose", "config"} <= of_process
    assert {"topics", "remove"} <= of_core
    assert of_core | of_process == RIGHTS.keys()
    assert not of_core & of_process
    assert {*RIGHTS.values()} == {"everyone", "monitor", "pipeline", "administer"}


def test_a_passing_subscription_of_another_user_keeps_no_owner_out_of_its_name() -> None:
    richer = AccessDocument.parse(RULES.replace("[users.bob]", "[users.bob]\nclaims = { most = 9 }"), 2)
    at = desk()
    at.give(AccessChanged(richer))
    at.gone(BOB)
    come(at, BOB, richer)
    assert at.do(BOB, Subscribe("alice.s", "t", "", False, 1_000))
    effects = at.finish(at.say(ALICE, subscribe("alice.s"))) + at.pass_time(0.3)
    assert any(isinstance(each, Subscribed) for each in told(effects, ALICE))
    assert not [each for each in told(effects, BOB) if isinstance(each, Refused)], (
        "that is told to nobody else"
    )
    effects = publish(at, 1) + at.pass_time(0.3)
    assert [values(told(effects, each)) for each in (ALICE, BOB)] == [[1], [1]]
    at.gone(BOB)
    at.gone(ALICE)


@pytest.mark.parametrize("pattern", ["u", "none", "u.>"])
def test_a_selector_tells_nothing_of_topics_that_one_may_not_see(pattern: str) -> None:
    at = desk()
    at.do(PAULA, Topic("u", False, ("[salary: int]",)))
    for selector in ("", "salary > 5", "salari > 5", "salary LIKE 'x%'"):
        told_to = reason(at.do(ALICE, subscribe(selector=selector, pattern=pattern)))
        assert told_to == f"'alice' may not read any topic of {pattern!r}"


def test_a_pattern_over_all_topics_is_judged_by_those_that_one_may_see() -> None:
    at = desk()
    at.do(PAULA, Topic("u", False, ("[salary: int]",)))
    (refused,) = at.do(ALICE, subscribe(selector="salary > 5", pattern="*"))
    assert isinstance(refused, Refused)
    assert refused.code == "selector"
    assert "no field `salary`" in refused.reason
    (refused,) = at.do(ALICE, subscribe(selector="salari > 5", pattern="*"))
    assert isinstance(refused, Refused)
    assert "salary" not in refused.reason


def test_a_pattern_without_a_topic_that_one_may_see_is_taken_whatever_else_there_is() -> None:
    at = Desk(access=DOCUMENT)
    for client in NAMES:
        come(at, client)
    at.do(PAULA, Topic("u", False, ("[salary: int]",)))
    assert any(
        isinstance(each, Subscribed) for each in at.do(ALICE, subscribe(selector="n > 1", pattern="*"))
    )
