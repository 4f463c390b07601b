"""StopwatchRole: a subscriber that compares the time in each event with its own, on the same clock."""

from __future__ import annotations

from time import monotonic_ns

from tidemark.client.client import Client, connect
from tidemark.client.events import Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.lab.bench.system.load import TOPIC


class StopwatchRole:
    """The role of a worker that measures latency with the client, one event after the other."""

    def __init__(self, counters: str, url: str) -> None:  # noqa: ARG002  (every worker is given the counters)
        self._url = url
        self._next = 0

    async def open(self) -> None:
        """Connect and subscribe."""
        self._client: Client = await connect(self._url, client="bench stopwatch")
        self._subscription: Subscription[Event] = await self._client.subscribe(TOPIC, durable="stopwatch")

    async def measure(self, events: int) -> list[int]:
        """Returns nanoseconds from publishing to arrival, for each of the next `events` events."""
        taken: list[int] = []
        for number in range(self._next, self._next + events):
            event = await anext(self._subscription)
            now = monotonic_ns()
            assert isinstance(event, Event), f"a gap before event {number}"
            assert event["n"] == number, f"event {event['n']} in place of {number}"
            taken.append(now - event["sent"])
        self._next += events
        return taken
