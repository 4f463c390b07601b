"""A named publisher goes from one broker process to another that is linked to it, judged by what arrives."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, bounded, until
from tidemark.cli import main
from tidemark.client.client import Client
from tidemark.client.events import Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.errors import TimedOutError
from tidemark.lab.processes.process_harness import ManagedBroker, ProcessHarness

pytestmark = pytest.mark.chaos

#: Events that are under way when the broker is killed, and at each later broker.
EVENTS = 300


class Pair:
    """Two brokers that are linked, each with a pubend of its own."""

    def __init__(self, harness: ProcessHarness) -> None:
        self._ports = free_ports(2)
        self.file = harness.directory / "pair.toml"
        self.write(self.file)
        self.east: ManagedBroker = harness.placed_broker("east", self.file)
        self.west: ManagedBroker = harness.placed_broker("west", self.file)
        self.east.start()
        self.west.start()

    def write(self, file: Path, draining: str = "") -> None:
        places = zip(("east", "west"), self._ports, strict=True)
        brokers = [
            f'[brokers.{name}]\ncell = "{name}s"\nlisten = "127.0.0.1:{port}"\npubends = ["of-{name}"]\n'
            + ("draining = true\n" if name == draining else "")
            for name, port in places
        ]
        file.write_text("".join(brokers) + '[bundles.both]\ncells = ["easts", "wests"]\n')

    @property
    def url(self) -> str:
        return f"tidemark://{self.east.address},{self.west.address}"


def publish(tm: Client, first: int, count: int = EVENTS) -> list[asyncio.Future[int | None]]:
    numbers = range(first, first + count)
    return [tm.publish("t", {"n": n}, sequence=n, timeout=PATIENCE_SECONDS) for n in numbers]


async def taken(sub: Subscription[Event]) -> Event:
    event = await sub.next(PATIENCE_SECONDS)
    assert event is not None
    return event


def judge(events: list[Event]) -> Counter[str]:
    """Every event came once, in the order of each pubend; returns how many came from each."""
    assert sorted(event["n"] for event in events) == list(range(1, len(events) + 1))
    for pubend in {event.pubend for event in events}:
        here = [event["n"] for event in events if event.pubend == pubend]
        assert all(a < b for a, b in pairwise(here))
    return Counter(event.pubend for event in events)


@bounded
async def test_a_publisher_whose_broker_is_killed_goes_on_at_another_once_that_one_can_tell_what_it_has(
    harness: ProcessHarness,
) -> None:
    pair = Pair(harness)
    async with (
        tidemark.connect(pair.url, publisher="orders") as tm,
        tidemark.connect(pair.west.url) as reader,
    ):
        assert tm.broker == "east"
        await tm.create_topic("t", "[n: int]")
        async with reader.subscribe("t", durable="all") as sub:
            await until(lambda: {*sub.checkpoint} == {"of-east", "of-west"})
            under_way = publish(tm, 1)
            await under_way[EVENTS // 3]
            # Some events are logged and not acknowledged now, and some are not logged.
            pair.east.kill()
            await until(lambda: tm.is_connected and tm.broker == "west")
            under_way += publish(tm, EVENTS + 1)
            with pytest.raises(TimedOutError):
                await tm.publish("t", {"n": 2 * EVENTS + 1}, sequence=2 * EVENTS + 1, timeout=0.5)
            assert not under_way[-1].done()  # only the east knows which events it has
            pair.east.start()
            await asyncio.gather(*under_way)
            assert tm.broker == "west"

            # The broker that it went to is drained, and the publisher goes back.
            wanted = harness.directory / "drained.toml"
            pair.write(wanted, draining="west")
            applied = await asyncio.to_thread(
                CliRunner().invoke, main, ["topology", "apply", str(wanted), "--yes"]
            )
            assert applied.exit_code == 0, applied.output
            await asyncio.gather(*publish(tm, 2 * EVENTS + 2))
            assert tm.broker == "east"
            events = [await taken(sub) for _ in range(3 * EVENTS + 1)]
            assert await sub.next(0.2) is None
    found = judge(events)
    assert found["of-east"] > EVENTS
    assert found["of-west"] > EVENTS
