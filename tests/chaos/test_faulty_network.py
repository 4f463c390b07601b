"""Resets, delay and half-open connections between real processes, judged by their ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.ledger_checks import assert_exact, both_gave_up, started
from tests.ports import free_ports
from tidemark.lab.processes.process_harness import ManagedSubscriber, ProcessHarness, wait_for
from tidemark.lab.processes.proxy import Proxy

pytestmark = pytest.mark.chaos

EVENTS = 1_500
PACE = ("--rate", "1500")
#: So slowly that a publisher has not finished when a test gets to disturb it.
SLOWLY = ("--rate", "500")


def test_connections_that_are_reset_in_the_middle_of_frames_lose_and_repeat_nothing(
    harness: ProcessHarness,
) -> None:
    broker = started(harness)
    with Proxy(broker.address) as proxy:
        url = f"tidemark://{proxy.address}"
        harness.subscriber("all", url)
        harness.subscriber("dear", url, "price >= 50")
        harness.subscribe()
        parts = [harness.publisher(f"desk-{fifth}", url, EVENTS // 5, *PACE) for fifth in range(5)]
        for fifth, count in enumerate((10_007, 1_001, 5_003, 7_013), 1):
            before = proxy.resets
            proxy.delay(0.02 * fifth)
            proxy.reset_after(count)
            parts[fifth].start()
            wait_for(lambda before=before: proxy.resets > before, lambda: "nothing passes the proxy")  # type: ignore[misc]
        proxy.heal()
        parts[0].start()
        assert [part.wait() for part in parts] == [0] * 5
        assert_exact(harness.settled(), EVENTS)
        # Everybody the first time, and then at least one of them each time.
        assert proxy.resets >= 6


def test_half_open_connections_are_given_up_and_nothing_is_lost(harness: ProcessHarness) -> None:
    broker = started(harness)
    with Proxy(broker.address) as proxy:
        url, impatient = f"tidemark://{proxy.address}", ("--ping", "0.3")
        subscriber = harness.subscriber("all", url, "", *impatient)
        harness.subscribe()
        publisher = harness.publisher("desk", url, EVENTS, *SLOWLY, *impatient)
        publisher.start()
        for third in (1, 2):
            publisher.reached(third * EVENTS // 3)
            proxy.hold()
            both_gave_up(third, publisher, subscriber)
            proxy.heal()
        assert publisher.wait() == 0
        assert_exact(harness.settled(), EVENTS)


def topology(path: Path, root: str, relay: str, leaf: str) -> Path:
    """root, where events are published; relay; leaf, where subscribers are."""
    path.write_text(
        f"""
[brokers.root]
listen = "{root}"
pubends = ["main"]
[brokers.relay]
listen = "{relay}"
parent = "root"
[brokers.leaf]
listen = "{leaf}"
parent = "relay"
[http]
listen = ""
"""
    )
    return path


@pytest.mark.long
def test_linked_brokers_survive_a_bad_link_and_a_killed_relay(
    harness: ProcessHarness, tmp_path: Path
) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    whole = topology(tmp_path / "whole.toml", *addresses)
    root, leaf = harness.placed_broker("root", whole), harness.placed_broker("leaf", whole)
    root.start()
    with Proxy(root.address) as proxy:
        # The relay calls the root through the proxy.
        relay = harness.placed_broker(
            "relay", topology(tmp_path / "bent.toml", proxy.address, *addresses[1:])
        )
        relay.start()
        leaf.start()
        far = harness.subscriber("far", leaf.url, "price < 70")
        harness.subscriber("near", root.url, "qty > 200")
        harness.subscribe()
        third = EVENTS // 3
        first, second, last = (
            harness.publisher(name, root.url, third, *PACE) for name in ("first", "second", "last")
        )
        first.start()
        arrived(far, third // 2)
        proxy.delay(0.03)
        proxy.reset_after(10_007)
        second.start()
        wait_for(lambda: proxy.resets > 0, lambda: "nothing passes the proxy")
        relay.kill()
        relay.start()
        last.start()
        arrived(far, third)
        assert [part.wait() for part in (first, second, last)] == [0, 0, 0]
        proxy.hold()
        late = harness.publisher("late", root.url, EVENTS // 5)
        late.start()
        assert late.wait() == 0
        # Nobody at the leaf knows yet how much was published: silence of a link is not silence of a pubend.
        assert harness.audit().total("lost") > 0
        proxy.heal()
        assert_exact(harness.settled(), EVENTS + EVENTS // 5)
        assert proxy.resets >= 2


def arrived(part: ManagedSubscriber, count: int) -> None:
    wait_for(lambda: part.consumed >= count, lambda: f"{part.name} has only {part.consumed} events")
