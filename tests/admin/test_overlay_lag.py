"""What is owed to whom, whichever broker of an overlay is asked, and over restarts."""

from __future__ import annotations

from pathlib import Path

from tests.live_node import OverlayNodes, live_node
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import admin, sync
from tidemark.admin import SubscriptionLag, TopicDemand


def owed(url: str) -> dict[str, tuple[str | None, int, bool]]:
    """Subscription -> its broker, how many events it is owed, and whether it has bytes and an age too."""
    with admin.connect(url) as client:
        found = admin.overlay_lag(client, like=url)
    assert not found.silent
    return {each.name: (each.broker, each.owed_events, _has_all(each)) for each in found.lags}


def _has_all(lag: SubscriptionLag) -> bool:
    assert lag.is_exact
    assert (lag.owed_bytes > 0) == bool(lag.lag_seconds) == (lag.owed_events > 0)
    return lag.owed_events > 0


def test_every_broker_tells_what_all_brokers_owe(tmp_path: Path) -> None:
    nodes = OverlayNodes(tmp_path, "east", "west")
    try:
        for name, where in (("east", "n > 2"), ("west", "n > 4")):
            with sync.connect(nodes.url(name)) as tm:
                tm.create_topic("t", "[n: int]")
                with tm.subscribe("t", where=where, durable=f"of-{name}") as sub:
                    eventually(lambda sub=sub: {"east", "west"} <= set(sub.checkpoint))  # type: ignore[misc]
        with sync.connect(nodes.url("west")) as tm:
            tm.publish_many("t", [{"n": n} for n in range(10)])
        expected = {"of-east": ("east", 7, True), "of-west": ("west", 5, True)}
        eventually(lambda: owed(nodes.url("east")) == expected)
        assert owed(nodes.url("west")) == expected
        with admin.connect(nodes.url("west")) as client:
            like = nodes.url("west")
            assert admin.topic_demand(client, "t", like=like) == TopicDemand(("of-east", "of-west"), 12)
            assert admin.topic_demand(client, "other", like=like) == TopicDemand((), 0)
        nodes.stop("west")
        with admin.connect(nodes.url("east")) as client:
            assert list(admin.overlay_lag(client, like=nodes.url("east")).silent) == ["west"]
    finally:
        nodes.close()


def test_what_is_owed_is_counted_after_a_restart_and_with_a_changed_selector(tmp_path: Path) -> None:
    with live_node(tmp_path) as node:
        with sync.connect(node.url) as tm:
            tm.create_topic("t", "[n: int]")
            with tm.subscribe("t", where="n > 4", durable="s") as sub:
                tm.publish_many("t", [{"n": n} for n in range(10)])
                sub.next(PATIENCE_SECONDS)
            with tm.subscribe("t", where="n > 8", durable="s", ack="client"):
                tm.publish_many("t", [{"n": n} for n in range(10)])
            expected = {"s": ("tidemark", 4 + 1, True)}
            eventually(lambda: owed(node.url) == expected)
            text = node.metrics("/metrics/subscriptions")
            assert 'tidemark_lag_events{subscription="s"} 5.0' in text
            assert 'tidemark_lag_bytes{subscription="s"}' in text
            assert 'tidemark_lag_seconds{subscription="s"}' in text
        node.stop()
        node.start()
        assert owed(node.url) == expected
        with sync.connect(node.url) as tm, tm.subscribe("t", where="n > 8", durable="s") as sub:
            assert [event["n"] for _, event in zip(range(5), sub, strict=False)] == [6, 7, 8, 9, 9]
        eventually(lambda: owed(node.url) == {"s": ("tidemark", 0, False)})
