"""Quotas in the core: connections and subscriptions are refused, publishing waits, what is held is let go."""

from __future__ import annotations

from tests.broker.desk import Desk, batch, told
from tidemark.access.document import AccessDocument
from tidemark.broker.effects import AccessChanged, ClientCame, ClientGone, Effect, RefuseClient
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    ClientFrame,
    Deliver,
    Gap,
    Publish,
    Published,
    Refused,
    Subscribe,
    Topic,
    Unsubscribe,
)

RULES = """
[users.alice]
roles = ["reader"]
[users.bob]
roles = ["free"]
[users.paula]
roles = ["writer"]
[users.pete]
roles = ["writer"]
[roles.reader]
subscribe = ["t"]
durable = ["{user}.*"]
quota = { connections = 2, subscriptions = 2, held_bytes = 200 }
[roles.free]
subscribe = ["t"]
durable = ["{user}.*"]
[roles.writer]
publish = ["t"]
declare = ["t"]
publisher = ["desk"]
quota.publish_events = 10
"""
DOCUMENT = AccessDocument.parse(RULES, 1)
#: What is owed is counted this often, unless a broker is configured otherwise.
PERIOD_US = 5_000_000
ALICE, BOB, PAULA, OTHER, THIRD = range(1, 6)


def come(at: Desk, client: int, name: str) -> list[Effect]:
    principal = DOCUMENT.principal(name)
    assert principal is not None
    return at.give(ClientCame(client, principal))


def desk() -> Desk:
    made = Desk(access=DOCUMENT)
    for client, name in ((ALICE, "alice"), (BOB, "bob"), (PAULA, "paula")):
        come(made, client, name)
    made.do(PAULA, Topic("t", False, ("[n: int]",)))
    made.pass_time(0.2)
    return made


def subscribe(name: str, *, durable: bool = True) -> Subscribe:
    return Subscribe(name, "t", "", durable, 100_000)


def publish(at: Desk, first: int, count: int) -> list[Effect]:
    events = batch(*range(first, first + count), values=range(count))
    return at.finish(at.say(PAULA, Publish("p", "desk", first, events))) + at.pass_time(0.3)


def events_in(frames: list[ClientFrame]) -> int:
    return sum(each.batch.count for each in frames if isinstance(each, Deliver) and each.batch is not None)


def refusal(frames: list[ClientFrame]) -> Refused | None:
    return next((each for each in frames if isinstance(each, Refused)), None)


def test_a_connection_too_many_is_turned_away_and_one_less_makes_room() -> None:
    at = desk()
    assert not come(at, OTHER, "alice")
    assert not come(at, OTHER, "alice")  # it has proved anew who it is
    (refused,) = come(at, THIRD, "alice")
    assert isinstance(refused, RefuseClient)
    assert refused.code == "limit"
    assert refused.reason == "'alice' has 2 connections, as many as quota.connections of its roles allows"
    at.gone(THIRD)
    at.gone(OTHER)
    assert not come(at, THIRD, "alice")


def test_a_subscription_too_many_is_refused_with_the_quota_that_it_is_over() -> None:
    at = desk()
    come(at, OTHER, "alice")
    assert refusal(at.do(ALICE, subscribe("alice.1"))) is None
    assert refusal(at.do(OTHER, subscribe("alice.2", durable=False))) is None
    refused = refusal(at.do(OTHER, subscribe("alice.3")))
    assert refused is not None
    assert (refused.code, "quota.subscriptions" in refused.reason) == ("limit", True)
    # One that is there already is no further one, and a durable one counts while it is away.
    assert refusal(at.do(OTHER, subscribe("alice.1"))) is None
    at.gone(OTHER)
    at.pass_time(0.3)
    assert refusal(at.do(ALICE, subscribe("alice.3"))) is None
    refused = refusal(at.do(ALICE, subscribe("alice.4")))
    assert refused is not None
    at.do(ALICE, Unsubscribe("alice.3"))
    assert refusal(at.do(ALICE, subscribe("alice.4"))) is None


def test_who_publishes_too_much_waits_and_loses_nothing() -> None:
    at = desk()
    now = at.now
    assert at.broker.publish_wait(PAULA, now) == 0
    assert [type(each) for each in told(publish(at, 1, 40), PAULA)] == [Published]
    later = at.now
    wait = at.broker.publish_wait(PAULA, later)
    assert 2_000_000 < wait <= 3_000_000
    # Who comes again does not get a new allowance, and nobody else waits.
    at.gone(PAULA)
    come(at, PAULA, "paula")
    assert at.broker.publish_wait(PAULA, later) == wait
    assert at.broker.publish_wait(BOB, later) == 0
    assert at.broker.publish_wait(PAULA, later + wait) == 0
    publish(at, 41, 40)
    assert at.broker.publish_wait(PAULA, at.now) > 0
    at.give(AccessChanged(AccessDocument.parse(RULES.replace("_events = 10", "_events = 1000"), 2)))
    assert at.broker.publish_wait(PAULA, at.now) == 0


def _over(at: Desk) -> None:
    """Alice is away, and is owed more than its quota."""
    at.do(ALICE, subscribe("alice.s"))
    at.pass_time(0.3)
    at.gone(ALICE)
    publish(at, 1, 20)
    at.pass_time(2 * PERIOD_US / 1e6)
    at.pass_time(2 * PERIOD_US / 1e6)


def _came_back(at: Desk) -> list[ClientFrame]:
    come(at, ALICE, "alice")
    return told(at.finish(at.say(ALICE, subscribe("alice.s"))) + at.pass_time(0.5), ALICE)


def test_what_a_durable_subscriber_may_not_make_pubends_hold_becomes_a_gap() -> None:
    at = desk()
    _over(at)
    (status,) = at.broker.describe_pubends()
    assert status.lost is not None
    frames = _came_back(at)
    (gap,) = [each for each in frames if isinstance(each, Gap)]
    assert gap.upto >= (status.last_event or 0)
    assert events_in(frames) == 0
    # From there on it is served as anybody.
    effects = publish(at, 21, 2)
    assert (
        sum(each.batch.count for each in told(effects, ALICE) if isinstance(each, Deliver) and each.batch)
        == 2
    )


def test_what_others_hold_it_still_gets() -> None:
    at = desk()
    at.do(BOB, subscribe("bob.s"))
    at.pass_time(0.3)
    at.gone(BOB)
    _over(at)
    (status,) = at.broker.describe_pubends()
    assert not status.lost or status.lost < status.last_event  # type: ignore[operator]
    frames = _came_back(at)
    assert not [each for each in frames if isinstance(each, Gap)]
    assert events_in(frames) == 20
    delivered = [each for each in frames if isinstance(each, Deliver)]
    # It acknowledges, and holds again what comes then.
    at.do(ALICE, Ack((("alice.s", CheckpointToken({"p": delivered[-1].upto})),), 1))
    at.pass_time(2 * PERIOD_US / 1e6)
    at.gone(ALICE)
    publish(at, 21, 2)
    at.pass_time(2 * PERIOD_US / 1e6)
    frames = _came_back(at)
    assert events_in(frames) == 2


def test_who_leaves_and_comes_again_has_saved_up_nothing_by_that() -> None:
    at = desk()
    at.do(PAULA, Publish("p", "desk", 1, batch(*range(9))))
    assert not at.broker.publish_wait(PAULA, at.now)
    at.give(ClientGone(PAULA))
    come(at, OTHER, "pete")
    at.do(OTHER, Publish("p", "desk", 10, batch(1)))  # now those who are away are looked through
    come(at, THIRD, "paula")
    at.do(THIRD, Publish("p", "desk", 11, batch(*range(9))))
    assert at.broker.publish_wait(THIRD, at.now) > 500_000
