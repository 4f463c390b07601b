"""Snapshots of a broker: lags in order, rates between two of them, and all of it from a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.samples import pubend, stream, subscription
from tests.live_node import LiveNode, live_node
from tidemark import admin
from tidemark.admin import lags_of, rates_between, recall_of, what_keeps_broker


def test_the_subscription_that_is_furthest_behind_comes_first() -> None:
    lags = lags_of(
        [
            subscription("a", 0),
            subscription("b", None),
            subscription("c", 2_000_000),
            subscription("~", 9, durable=False),
        ]
    )
    assert [(each.name, each.lag_seconds) for each in lags] == [("c", 2.0), ("a", 0.0), ("b", None)]
    assert lags[0].to_json() == {
        "name": "c",
        "connected": True,
        "catching_up": True,
        "recall": None,
        "lag_seconds": 2.0,
        "pubends": {"main": 2.0, "other": None},
        "owed_events": 7,
        "owed_bytes": 700,
        "is_exact": True,
        "broker": None,
        "topic": "t",
    }


@pytest.mark.parametrize("recall", [None, "waiting", "under way"])
def test_a_subscription_that_waits_for_the_archive_says_so(recall: str | None) -> None:
    assert recall_of(subscription("a", 0, recall=recall)) == recall


def test_rates_are_those_of_counters_that_both_snapshots_have() -> None:
    assert rates_between({"a": 10, "b": 1}, {"a": 30, "c": 5}, 2.0) == {"a": 10.0}
    assert rates_between({"a": 10}, {"a": 30}, 0.0) == {}


def test_a_broker_is_empty_when_nobody_needs_what_it_has() -> None:
    followed = stream("orders", "w1")
    assert what_keeps_broker([pubend("orders", last_event=5, lost=5)], [], [followed]) == []
    kept = ["not everybody has the events of orders"]
    assert what_keeps_broker([pubend("orders", last_event=5, lost=4)], [], []) == kept
    assert what_keeps_broker([pubend("orders", last_event=5)], [], []) == kept
    assert what_keeps_broker([], [subscription("audit", 0)], []) == ["the subscription audit is there"]
    assert what_keeps_broker([], [], [followed]) == ["w1 has orders from it"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("admin")) as found:
        yield found


def test_a_program_sees_rates_lags_and_health_of_a_broker(node: LiveNode) -> None:
    with admin.connect(node.url) as client:
        client.create_topic("t", "[n: int]")
        before = admin.take_snapshot(client)
        assert before.rates == {}
        with client.subscribe("t", durable="audit"):
            client.publish("t", {"n": 1})
            after = admin.take_snapshot(client, before)
        assert after.rates["events_published"] > 0
        assert [each.name for each in after.lags] == ["audit"]
        assert [each.pubend for each in after.pubends] == list(after.status.pubends) == ["main"]
        assert [each.topic for each in client.ask(admin.TOPICS)] == ["t"]
        assert client.ask("topics") == [each.to_json() for each in client.ask(admin.TOPICS)]
    assert admin.check_health(node.url).state is admin.HealthState.OK
    assert admin.ask(node.url, admin.CONFIG)[0].key == "broker.name"


def test_rates_begin_anew_with_a_restarted_broker(tmp_path: Path) -> None:
    with live_node(tmp_path) as broker:
        with admin.connect(broker.url) as client:
            before = admin.take_snapshot(client)
        broker.stop()
        broker.start()
        with admin.connect(broker.url) as client:
            after = admin.take_snapshot(client, before)
    assert after.status.incarnation == before.status.incarnation + 1
    assert after.rates == {}


def test_a_single_broker_is_an_overlay_with_nothing_to_change(node: LiveNode) -> None:
    topology = admin.find_topology(["tidemark://127.0.0.1:1", node.url])
    reports = admin.ask_all_brokers(topology, node.url)
    described = admin.describe_overlay(topology, reports, like=node.url)
    (broker,) = described.brokers
    assert broker.url == node.url
    assert broker.activity is not None
    assert broker.activity.state == "running"
    plan = admin.plan_change(topology, node.url)
    assert plan.to_json() == {"version": 0, "changes": [], "steps": []}
    admin.apply_plan(plan, wait_seconds=1.0)
    assert admin.ask_what_keeps_broker("tidemark://127.0.0.1:1") is None
