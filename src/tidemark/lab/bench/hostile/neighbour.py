"""NeighbourRole: a well-behaved publisher and subscriber, which measure what others let them notice."""

from __future__ import annotations

import asyncio
from time import monotonic, monotonic_ns

from tidemark.client.client import Client, connect
from tidemark.client.events import Event
from tidemark.client.subscribing.subscription import Subscription

TOPIC = "neighbour.events"
SCHEMA = "[n: long, sent: long]"
#: The longest wait for the last events of a measurement.
PATIENCE_SECONDS = 120.0


class NeighbourRole:
    """The role of a worker that publishes at a steady pace and receives every event that it publishes."""

    def __init__(self, counters: str, url: str) -> None:  # noqa: ARG002  (every worker is given the counters)
        self._url = url
        self._next = 0

    async def open(self) -> None:
        """Connect twice and subscribe."""
        self._publisher: Client = await connect(self._url, client="neighbour, publishing")
        await self._publisher.create_topic(TOPIC, SCHEMA)
        self._subscriber: Client = await connect(self._url, client="neighbour, subscribing")
        self._subscription: Subscription[Event] = await self._subscriber.subscribe(TOPIC, durable="neighbour")

    async def measure(self, events: int, rate: float) -> dict[str, list[int]]:
        """Publish `events` events at `rate` a second.

        Returns nanoseconds until the acknowledgement, and until the delivery, of each. AssertionError if an
        event is missing, repeated or out of order.
        """
        first, self._next = self._next, self._next + events
        receiving = asyncio.create_task(self._receive(first, events))
        acknowledged: list[int] = []
        waiting: set[asyncio.Task[None]] = set()
        began = monotonic()
        for number in range(first, first + events):
            wait = began + (number - first) / rate - monotonic()
            await asyncio.sleep(max(0.0, wait))
            waiting.add(asyncio.create_task(self._publish(number, acknowledged)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*waiting)
            return {"acknowledged": acknowledged, "delivered": await receiving}

    async def _publish(self, number: int, taken: list[int]) -> None:
        sent = monotonic_ns()
        await self._publisher.publish(TOPIC, {"n": number, "sent": sent})
        taken.append(monotonic_ns() - sent)

    async def _receive(self, first: int, events: int) -> list[int]:
        taken: list[int] = []
        for number in range(first, first + events):
            event = await anext(self._subscription)
            now = monotonic_ns()
            assert isinstance(event, Event), f"a gap before event {number}"
            assert event["n"] == number, f"event {event['n']} in place of {number}"
            taken.append(now - event["sent"])
        return taken
