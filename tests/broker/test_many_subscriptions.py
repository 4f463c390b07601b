"""What many subscriptions of one client cost: a bounded amount in each stimulus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.desk import Desk, batch, told
from tidemark.broker.config import ClientLimits
from tidemark.broker.effects import ClientCame, Woken
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.sessions import CHECKED_MAX, LEAVING_MAX
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.selector_fit import NAMES_MAX
from tidemark.matching.audience import LOOKED_AT_MAX
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.wire.frames import Answer, Ask, Publish, Refused, Subscribe, Subscribed, Topic, Unsubscribe

MANY = 500


def desk(limits: ClientLimits | None = None) -> Desk:
    made = Desk(client_limits=limits or ClientLimits())
    made.declare()
    made.pass_time(0.2)
    return made


def subscribe(at: Desk, client: int, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        at.say(client, Subscribe(f"s{number}", "t", f"n = {number}", False, 1_000))


def test_the_first_event_does_not_pay_for_all_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    add = Matcher.add

    def counted(self: Matcher, subscriber: int, selector: Selector) -> None:
        added.append(subscriber)
        add(self, subscriber, selector)

    monkeypatch.setattr(Matcher, "add", counted)
    at = desk()
    subscribe(at, 1, MANY)
    assert len(added) == MANY
    at.pass_time(0.2)
    at.finish(at.say(50, Publish("p", "me", 1, batch(0, values=(7,)))))
    assert len(added) == MANY


def test_the_subscriptions_of_a_client_that_is_gone_end_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = desk()
    subscribe(at, 1, MANY)
    left: list[str] = []
    leave = Host.leave

    def counted(self: Host, subscription: HostedSubscription) -> None:
        left.append(subscription.name)
        leave(self, subscription)

    monkeypatch.setattr(Host, "leave", counted)
    at.gone(1)
    at.do(2, Subscribe("other", "t", "", False, 1_000))
    assert left == [], "nobody's frame waits for it"
    while len(left) < MANY:
        before = len(left)
        assert at.broker.next_wake() <= at.now, "the broker wants to be woken at once"
        at.give(Woken())
        assert 0 < len(left) - before <= LEAVING_MAX
    assert at.broker.next_wake() > at.now
    assert not any(at.broker.hosts(f"s{number}") for number in range(MANY))


def test_a_name_that_is_about_to_be_free_can_be_taken() -> None:
    at = desk()
    subscribe(at, 1, MANY)
    at.gone(1)
    subscribed = at.do(2, Subscribe(f"s{MANY - 1}", "t", "", False, 1_000))
    assert isinstance(subscribed[0], Subscribed)
    at.pass_time(1)
    assert at.broker.hosts(f"s{MANY - 1}")


def test_a_client_is_refused_more_subscriptions_than_its_limit() -> None:
    at = desk(ClientLimits(subscriptions=2))
    subscribe(at, 1, 2)
    (refused,) = told(at.say(1, Subscribe("third", "t", "", False, 1_000)), 1)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.name) == ("limit", "third")
    assert "limits.subscriptions" in refused.reason
    assert at.broker.counters["limits_refused"] == 1
    assert isinstance(at.do(2, Subscribe("third", "t", "", False, 1_000))[0], Subscribed)


def test_a_client_is_refused_more_new_topics_than_its_limit() -> None:
    at = desk(ClientLimits(topics=1))
    assert isinstance(at.do(1, Topic("a", True, ()))[0], Topic)
    (refused,) = told(at.say(1, Topic("b", True, ())), 1)
    assert isinstance(refused, Refused)
    assert refused.code == "limit"
    assert "limits.topics" in refused.reason
    assert isinstance(at.do(1, Topic("a", True, ()))[0], Topic), "a topic that is there is no new one"
    at.gone(1)
    assert isinstance(at.do(1, Topic("b", True, ()))[0], Topic)


def test_a_client_is_refused_more_selectors_that_no_index_finds_than_its_limit() -> None:
    at = desk(ClientLimits(scans=2))
    for number, selector in enumerate(("n <> 1", "n <> 2")):
        assert isinstance(at.do(1, Subscribe(f"s{number}", "t", selector, False, 1_000))[0], Subscribed)
    (refused,) = told(at.say(1, Subscribe("third", "t", "n <> 3", False, 1_000)), 1)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.name) == ("limit", "third")
    assert "limits.scans" in refused.reason
    assert isinstance(at.do(1, Subscribe("third", "t", "n <> 3 AND n > 1", False, 1_000))[0], Subscribed)
    (refused,) = told(at.say(1, Subscribe("fourth", "t", "n LIKE", False, 1_000)), 1)
    assert isinstance(refused, Refused)
    assert refused.code == "selector"
    at.do(1, Unsubscribe("s0"))
    assert isinstance(at.do(1, Subscribe("fourth", "t", "n <> 3", False, 1_000))[0], Subscribed)
    assert isinstance(at.do(2, Subscribe("other", "t", "n <> 3", False, 1_000))[0], Subscribed)


def test_those_who_waited_for_a_topic_are_checked_a_few_at_a_time() -> None:
    at = desk()
    for number in range(MANY):
        at.do(1, Subscribe(f"s{number}", f"new.{number % 2}", f"x = {number}", False, 1_000))
    refused: list[str] = []
    assert not told(at.finish(at.say(2, Topic("new.1", False, ("[n: int]",)))), 1), "nobody's frame waits"
    at.now += 60_000
    effects = at.finish(at.give(Woken()))
    while True:
        told_now = [each.name for each in told(effects, 1) if isinstance(each, Refused)]
        assert len(told_now) <= CHECKED_MAX
        refused += told_now
        if at.broker.next_wake() > at.now:
            break
        effects = at.finish(at.give(Woken()))
    assert sorted(refused) == sorted(f"s{number}" for number in range(1, MANY, 2))


def from_address(at: Desk, address: str, *clients: int) -> None:
    for client in clients:
        at.give(ClientCame(client, None, address))


def is_taken(at: Desk, client: int, name: str) -> bool:
    """Subscribe; returns whether the broker has not refused it."""
    return not any(isinstance(each, Refused) for each in at.do(client, Subscribe(name, "t", "", False, 1)))


def test_an_address_has_a_limit_of_subscriptions_and_another_address_has_its_own() -> None:
    at = desk(ClientLimits(subscriptions=3, address_times=2))
    from_address(at, "10.0.0.1", 1, 2, 3)
    from_address(at, "10.0.0.2", 4)
    for number, client in enumerate((1, 1, 2, 2, 3, 3)):
        subscribe(at, client, 1, first=number)
    answers = at.do(3, Subscribe("one more", "t", "", False, 1_000))
    assert [each.code for each in answers if isinstance(each, Refused)] == ["limit"]
    assert "this address has 6, which is 2 times" in str(answers)
    assert any(isinstance(each, Subscribed) for each in at.do(4, Subscribe("other", "t", "", False, 1_000)))
    at.finish(at.gone(1))
    assert any(
        isinstance(each, Subscribed) for each in at.do(3, Subscribe("one more", "t", "", False, 1_000))
    )


def test_clients_of_this_machine_count_each_by_itself() -> None:
    at = desk(ClientLimits(subscriptions=1, address_times=1))
    for client in range(1, 6):
        assert is_taken(at, client, f"s{client}")


def test_an_address_has_a_limit_of_selectors_that_no_index_can_find() -> None:
    at = desk(ClientLimits(scans=1, address_times=2))
    at.do(99, Topic("texts", False, ("[text: string]",)))
    from_address(at, "10.0.0.1", 1, 2, 3)
    found = []
    for client in (1, 2, 3):
        name = f"scan {client}"
        answers = at.do(client, Subscribe(name, "texts", "text LIKE '%x'", False, 1_000))
        found.append([each.reason for each in answers if isinstance(each, Refused)])
    assert found[:2] == [[], []]
    assert "this address has 2" in found[2][0]
    assert "limits.scans" in found[2][0]


def test_an_address_has_a_limit_of_new_topics() -> None:
    at = desk(ClientLimits(topics=2, address_times=2))
    from_address(at, "10.0.0.1", 1, 2, 3)
    answers = [
        at.do(client, Topic(f"new{number}", False, ("[n: int]",)))
        for number, client in enumerate((1, 1, 2, 2, 3))
    ]
    refused = [each for given in answers for each in given if isinstance(each, Refused)]
    assert [each.name for each in refused] == ["new4"]
    assert "this address has declared 4" in refused[0].reason


def many_topics(at: Desk, count: int) -> None:
    for number in range(count):
        at.do(1, Topic(f"t{number}.a.b", False, ("[n: int]",)))


class CountedTopics(dict[str, Any]):
    """The topics by name; counts how often all were gone through."""

    gone_through = 0

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        self.gone_through += 1
        return super().__iter__()

    def values(self) -> Any:
        """Go through the topics."""
        self.gone_through += 1
        return super().values()


def counted_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of topics that are compared with patterns from now on."""
    names: list[str] = []
    following, matches = TopicPattern._following, TopicPattern.matches

    def noted(self: TopicPattern, name: str) -> str | None:
        names.append(name)
        return following(self, name)

    def noted_too(self: TopicPattern, topic: str) -> bool:
        names.append(topic)
        return matches(self, topic)

    monkeypatch.setattr(TopicPattern, "_following", noted)
    monkeypatch.setattr(TopicPattern, "matches", noted_too)
    return names


@pytest.mark.parametrize("pattern", ["*.none.*", "*.*.none", "t1.a.*.*", "*.*.*.*.>", "*.none.>"])
@pytest.mark.parametrize("selector", ["", "n = 1"])
def test_a_subscription_with_wildcards_looks_at_few_names(
    pattern: str, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = desk(ClientLimits(topics=10_000))
    many_topics(at, 3 * NAMES_MAX)
    at.registry.topics = topics = CountedTopics(at.registry.topics)
    names = counted_names(monkeypatch)
    assert isinstance(at.do(2, Subscribe("s", pattern, selector, False, 1_000))[0], Subscribed)
    assert len(names) <= 2 * NAMES_MAX + LOOKED_AT_MAX
    assert topics.gone_through == 0


def test_who_waits_for_a_topic_is_compared_only_with_those_that_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = desk(ClientLimits(topics=10_000))
    many_topics(at, NAMES_MAX // 2)
    for number in range(2 * CHECKED_MAX):
        at.do(2, Subscribe(f"s{number}", "*.*.*.*", "x = 1", False, 1_000))
    at.do(3, Subscribe("other", "*.*.*.*.*", "x = 1", False, 1_000))
    names = counted_names(monkeypatch)
    effects = at.say(1, Topic("some.thing", False, ("[n: int]",)))
    assert names == ["some.thing"] * len(names), "what has come is compared, and nothing else"
    effects = at.finish(effects) + at.pass_time(0.3)
    assert names == ["some.thing"] * len(names)
    effects = at.finish(at.say(1, Topic("a.b.c.d", False, ("[n: int]",)))) + at.pass_time(0.3)
    refused = [each.name for each in told(effects, 2) if isinstance(each, Refused)]
    assert sorted(refused) == sorted(f"s{number}" for number in range(2 * CHECKED_MAX))
    assert told(effects, 3) == []


def test_many_topics_that_come_together_find_who_waits_for_one_of_them() -> None:
    at = desk(ClientLimits(topics=10_000))
    for number in range(3):
        at.do(2, Subscribe(f"s{number}", ("*.a.b", "t7.a.b", "*.b")[number], "x = 1", False, 1_000))
    effects = [
        each for number in range(100) for each in at.say(1, Topic(f"t{number}.a.b", False, ("[n: int]",)))
    ]
    effects = at.finish(effects) + at.pass_time(0.3)
    assert sorted(each.name for each in told(effects, 2) if isinstance(each, Refused)) == ["s0", "s1"]


def test_a_page_of_topics_costs_what_is_on_it() -> None:
    at = desk(ClientLimits(topics=10_000))
    many_topics(at, 500)
    at.registry.topics = topics = CountedTopics(at.registry.topics)
    (answer,) = at.do(1, Ask(1, "topics", '{"limit": 10, "after": "t3.a.b"}'))
    assert isinstance(answer, Answer)
    found = json.loads(answer.payload)
    assert [each["topic"] for each in found["items"]][:2] == ["t30.a.b", "t300.a.b"]
    assert topics.gone_through == 0


def durable(at: Desk, client: int, name: str, selector: str = "n = 1") -> list[Any]:
    """Subscribe durably; returns the refusals."""
    answers = at.do(client, Subscribe(name, "t", selector, True, 1_000))
    return [each for each in answers if isinstance(each, Refused)]


def test_a_broker_has_a_limit_of_durable_subscriptions_whoever_is_connected() -> None:
    at = desk(ClientLimits(durable=3))
    for client in range(1, 4):
        assert not durable(at, client, f"s{client}")
        at.gone(client)
    (refused,) = durable(at, 4, "one more")
    assert (refused.code, refused.name) == ("limit", "one more")
    assert "limits.durable_subscriptions" in refused.reason
    assert at.broker.counters["limits_refused"] == 1
    assert not at.broker.hosts("one more")
    assert not durable(at, 4, "s1"), "one that is there comes back"
    assert not durable(at, 4, "s1", "n = 2"), "also with another selector"
    assert is_taken(at, 4, "passing")
    at.do(4, Unsubscribe("s2"))
    assert not durable(at, 4, "one more")


def test_a_broker_has_a_limit_of_bytes_of_the_selectors_of_durable_subscriptions() -> None:
    long = "n = 1 OR n = 2"
    at = desk(ClientLimits(durable_selector_bytes=2 * len("t" + long) + 5))
    assert not durable(at, 1, "a", long)
    assert not durable(at, 1, "b", long)
    (refused,) = durable(at, 2, "c")
    assert (refused.code, refused.name) == ("limit", "c")
    assert "limits.durable_selectors" in refused.reason
    assert [each.code for each in durable(at, 1, "a", "n = 3")] == ["limit"], "the one before is still needed"
    at.gone(1)
    assert not durable(at, 2, "a", long), "who comes back is not refused"
    at.do(2, Unsubscribe("b"))
    assert not durable(at, 2, "c", "n = 3")


def test_what_durable_subscriptions_are_together_is_counted_right_through_changes_and_ends() -> None:
    at = desk()
    for number in range(5):
        durable(at, 1, f"s{number}", f"n = {number}")
        durable(at, 1, f"s{number}", f"n > {number}")
    at.pass_time(1)
    totals = at.broker._host.durables
    assert totals.subscriptions == 5
    assert totals.selector_bytes >= 5 * len("tn > 0")
    for number in range(5):
        at.do(1, Unsubscribe(f"s{number}"))
    assert (totals.subscriptions, totals.selector_bytes) == (0, 0)
