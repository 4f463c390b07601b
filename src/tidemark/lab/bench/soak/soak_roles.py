"""SoakPublisherRole and SoakSubscriberRole: clients that keep a rate and measure from when an event was due.

An event carries the time at which it should have been sent, not the one at which it was. So whatever makes
the publisher late, such as a broker that is not there, counts as latency, and is not left out.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import Any

from tidemark.client.client import Client, connect
from tidemark.client.events import Gap
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.bench.processes.subscribers import QUIET_SECONDS, ClientSubscriber
from tidemark.lab.bench.soak.latency_histogram import LatencyHistogram
from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Load, selector
from tidemark.ticks import CheckpointToken

#: The longest that an event waits for a broker that is not there.
TIMEOUT_SECONDS = 120.0
#: Events that may be due at once; what is due beyond them is published in the next turn.
TURN_EVENTS_MAX = 2_000
_NS = 1_000_000_000


class SoakPublisherRole:
    """The role of a worker that publishes at a fixed rate until it is told to stop."""

    def __init__(self, counters: str, url: str, kinds: int, rate: float) -> None:
        self._counters = SharedCounters(counters)
        self._url = url
        self._load = Load(kinds)
        self._rate = rate

    async def open(self) -> None:
        """Connect and declare the topic."""
        self._client: Client = await connect(self._url, client="soak publisher", timeout=TIMEOUT_SECONDS)
        await self._client.create_topic(TOPIC, SCHEMA)

    async def run(self, begin_ns: int) -> int:
        """Publish event `n` at `begin_ns + n / rate`; returns how many were published and acknowledged."""
        waiting: set[asyncio.Future[int | None]] = set()
        problems: list[BaseException] = []

        def acknowledged(future: asyncio.Future[int | None]) -> None:
            waiting.discard(future)
            if (problem := future.exception()) is not None:
                problems.append(problem)

        number = 0
        while not self._counters.is_over and not problems:
            due = int((monotonic_ns() - begin_ns) * self._rate / _NS) + 1
            for each in range(number, min(due, number + TURN_EVENTS_MAX)):
                sent = begin_ns + int(each / self._rate * _NS)
                future = self._client.publish(TOPIC, self._load.event(each, sent))
                waiting.add(future)
                future.add_done_callback(acknowledged)
            number = min(due, number + TURN_EVENTS_MAX)
            self._counters.published = number
            wait = begin_ns / _NS + number / self._rate - monotonic_ns() / _NS
            await asyncio.sleep(max(0.0, wait))
        await asyncio.gather(*waiting)
        assert not problems, f"an event was not published: {problems[0]}"
        return number


class SoakSubscriber(ClientSubscriber):
    """A subscriber through the client that notes how long each event took.

    It holds its checkpoint token, so that it goes on exactly where it was even if it leaves while the broker
    is not there to hear its last acknowledgement.
    """

    histogram: LatencyHistogram
    begin_ns = 0
    slice_ns = _NS
    token: CheckpointToken | None = None

    async def come(self, url: str) -> None:
        """Connect and subscribe, or go on from the token."""
        name, where = self.record.name, selector(self.record.kind)
        self._client = await connect(url, client=name, timeout=TIMEOUT_SECONDS)
        durable = self._client.subscribe(
            TOPIC, where, durable=name, gaps=True, ack="client", checkpoint=self.token
        )
        self._task = asyncio.create_task(self._read(await durable))

    async def _read(self, subscription: Any) -> None:
        record = self.record
        async for batch in subscription.batches():
            now = monotonic_ns()
            if isinstance(batch, Gap):
                record.gap(batch.base, batch.upto)
                continue
            record.add(batch.column("n"), batch.column("kind"))
            self.token = subscription.checkpoint
            sent = batch.column("sent")
            self.histogram.add((sent - self.begin_ns) // self.slice_ns, (now - sent) // 1_000)
            self._delivered(self, len(batch))
            await subscription.ack(self.token)


class SoakSubscriberRole:
    """The role of a worker with durable subscribers, a kind each."""

    def __init__(
        self, counters: str, kinds: int, subscribers: int, slices: int, slice_seconds: float
    ) -> None:
        self._counters = SharedCounters(counters)
        self._load = Load(kinds)
        self._histogram = LatencyHistogram(slices)
        self._subscribers = [
            SoakSubscriber(DeliveryRecord(f"soak-{number}", number % kinds), self._delivered)
            for number in range(subscribers)
        ]
        for each in self._subscribers:
            each.histogram = self._histogram
            each.slice_ns = int(slice_seconds * _NS)

    def _delivered(self, _: Any, events: int) -> None:
        self._counters.add_delivered(0, events)

    async def open(self) -> None:
        """Nothing to do: subscribers connect on the request `come`."""

    async def come(self, url: str, begin_ns: int) -> None:
        """Connect all; slices of time count from `begin_ns`."""
        for each in self._subscribers:
            each.begin_ns = begin_ns
            await each.come(url)

    async def leave(self, number: int) -> None:
        """One subscriber disconnects."""
        await self._subscribers[number].leave()

    async def back(self, number: int, url: str) -> None:
        """One subscriber returns."""
        await self._subscribers[number].come(url)

    async def check(self, events: int, seconds: float) -> int:
        """Wait for the events `n < events`; AssertionError unless each got its own. Returns how many."""
        records = [each.record for each in self._subscribers]
        expected = [self._load.expected(each.kind, 0, events) for each in records]
        until = asyncio.get_running_loop().time() + seconds
        while any(
            each.count < should.count and each.problem is None
            for each, should in zip(records, expected, strict=True)
        ):
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(QUIET_SECONDS)
        for each, should in zip(records, expected, strict=True):
            problem = each.check(should)
            assert problem is None, problem
        return sum(each.count for each in records)

    async def counts(self, slices: list[int] | None = None) -> list[int]:
        """Returns the counts of latencies by bucket, of some slices of time or of all."""
        return [int(each) for each in self._histogram.counts(slices)]


ROLES = {"soak publisher": SoakPublisherRole, "soak subscriber": SoakSubscriberRole}
