"""PeerPublisherRole and PeerStopwatchRole: workers that publish to a peer, and that measure its latency.

Subscribers of peers are in `SubscriberRole`, whose style is then the name of the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, monotonic_ns, perf_counter_ns
from typing import Any

from tidemark.lab.bench.peers.catalogue import PEERS
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.processes.publishing_rate import measure_flow
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.bench.system.load import Load

#: Seconds between looks at the shared counters while there is no room; timers are no finer.
LOOK_SECONDS = 0.001
#: The longest wait for an acknowledgement, or for an event.
PATIENCE_SECONDS = 40.0


class PeerPublisherRole:
    """The role of a worker that publishes. Events are numbered on from request to request."""

    def __init__(self, counters: str, peer: str, url: str, kinds: int) -> None:
        self._counters = SharedCounters(counters)
        self._url = url
        self._publisher = PEERS[peer].publisher(Load(kinds))
        self._next = 0

    async def open(self) -> None:
        """Connect."""
        await self._publisher.open(self._url)

    async def fixed(self, events: int, batch_events: int, under_way: int) -> int:
        """Publish `events` events in batches; returns the number of the next one."""
        last = self._next + events
        await self._pipeline(batch_events, under_way, lambda: self._next < last, lambda: True)
        return self._next

    async def flood(self, batch_events: int, under_way: int, warm: float, seconds: float) -> dict[str, float]:
        """Publish as fast as possible; returns events a second after `warm` seconds, and CPU use."""
        goes_on = lambda: not self._counters.is_over  # noqa: E731  (as short as it gets)
        flow = self._pipeline(batch_events, under_way, goes_on, lambda: True)
        found = await measure_flow(flow, self._counters, warm, seconds)
        return {"rate": found.rate, "events": self._next, "cpu": found.cpu}

    async def fan_out(
        self, batch_events: int, under_way: int, share: int, workers: int, window_events: int
    ) -> int:
        """Publish until the counters say stop; at most `window_events` are on their way to a subscriber."""

        def has_room() -> bool:
            return (self._next - window_events) * share < self._counters.delivered_by(workers)

        goes_on = lambda: not self._counters.is_over  # noqa: E731  (as short as it gets)
        await self._pipeline(batch_events, under_way, goes_on, has_room)
        return self._next

    async def _pipeline(
        self, batch_events: int, under_way: int, goes_on: Callable[[], bool], has_room: Callable[[], bool]
    ) -> None:
        """Publish batches with at most `under_way` events that are not acknowledged."""
        publisher = self._publisher
        while goes_on():
            if not has_room():
                await asyncio.sleep(LOOK_SECONDS)
            elif self._next + batch_events - publisher.acknowledged > under_way:
                await asyncio.wait_for(publisher.change(), PATIENCE_SECONDS)
                self._counters.published = publisher.acknowledged
            else:
                publisher.send(self._next, batch_events)
                self._next += batch_events
        await self._all_acknowledged()

    async def _all_acknowledged(self) -> None:
        while self._publisher.acknowledged < self._next:
            await asyncio.wait_for(self._publisher.change(), PATIENCE_SECONDS)
        assert self._publisher.acknowledged == self._next, "more events are acknowledged than were published"
        self._counters.published = self._next

    async def one_by_one(self, events: int) -> list[int]:
        """Publish events one at a time; returns nanoseconds until the acknowledgement of each."""
        taken = []
        for _ in range(events):
            begin = perf_counter_ns()
            self._publisher.send(self._next, 1)
            self._next += 1
            await self._all_acknowledged()
            taken.append(perf_counter_ns() - begin)
        return taken

    async def paced(self, rate: float, events: int) -> int:
        """Publish `rate` single events a second; returns the number of the next one."""
        begin = monotonic()
        for number in range(events):
            wait = begin + number / rate - monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            self._publisher.send(self._next, 1, monotonic_ns())
            self._next += 1
        await self._all_acknowledged()
        return self._next


class PeerStopwatchRole:
    """The role of a worker that measures how long events of one kind take."""

    def __init__(self, counters: str, peer: str, kinds: int) -> None:  # noqa: ARG002  (told to every worker)
        self._load = Load(kinds)
        self._reader: Any = PEERS[peer].reader(DeliveryRecord("stopwatch", 0), lambda _, __: None)

    async def open(self) -> None:
        """Nothing to do: the subscriber connects on the request `come`."""

    async def come(self, url: str) -> None:
        """Subscribe."""
        self._reader.latencies = []
        await self._reader.come(url)

    async def measured(self, events: int) -> list[int]:
        """Wait for the events `n < events` that are of this kind; returns nanoseconds of each."""
        record: DeliveryRecord = self._reader.record
        expected = self._load.expected(0, 0, events)
        until = monotonic() + PATIENCE_SECONDS
        while record.count < expected.count and record.problem is None and monotonic() < until:
            await asyncio.sleep(0.01)
        problem = record.check(expected)
        assert problem is None, problem
        taken: list[int] = self._reader.latencies
        return taken


ROLES = {"peer publisher": PeerPublisherRole, "peer stopwatch": PeerStopwatchRole}
