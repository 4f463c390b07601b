"""PublisherRole: a worker that publishes through the client in the ways that benchmarks measure."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic, monotonic_ns, perf_counter_ns
from typing import Any

from tidemark.client.client import Client, connect
from tidemark.lab.bench.processes.publishing_rate import measure_flow
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.bench.system.load import PAYLOAD, SCHEMA, TOPIC, Batches, Load

#: Calls of publish() in a turn of the event loop, and events that may be unacknowledged.
TURN_EVENTS = 500
UNDER_WAY_EVENTS_MAX = 30_000
#: Batches that may be unacknowledged when whole batches are published.
UNDER_WAY_BATCHES_MAX = 16
#: Seconds between looks at the shared counters while there is no room; timers are no finer.
LOOK_SECONDS = 0.001
#: Bytes written before a bare sync: about what an event takes in a log.
BARE_BYTES = 330


class PublisherRole:
    """The role of a worker that publishes. Events are numbered on from request to request."""

    def __init__(self, counters: str, url: str, kinds: int = 4) -> None:
        self._counters = SharedCounters(counters)
        self._url = url
        self._load = Load(kinds)
        self._next = 0

    async def open(self) -> None:
        """Connect and declare the topic."""
        self._client: Client = await connect(self._url, client="bench publisher")
        await self._client.create_topic(TOPIC, SCHEMA)

    async def reopen(self, url: str) -> None:
        """Connect to a broker at another address."""
        await self._client.close(0)
        self._url = url
        await self.open()

    async def fixed(self, events: int, batch_events: int) -> int:
        """Publish `events` events in batches as fast as they are acknowledged; returns the next number."""
        batches = Batches(self._load, batch_events)
        last = self._next + events
        await self._pipeline(batches, lambda: self._next < last, lambda: True)
        return self._next

    async def fan_out(self, batch_events: int, share: int, workers: int, window_events: int) -> int:
        """Publish batches until the counters say stop; each event goes to `share` subscribers.

        At most `window_events` are on their way to the slowest worker, so that no subscriber falls so far
        behind that it has to catch up. Returns the number of the next event.
        """
        counters = self._counters

        def has_room() -> bool:
            return (self._next - window_events) * share < counters.delivered_by(workers)

        await self._pipeline(Batches(self._load, batch_events), lambda: not counters.is_over, has_room)
        return self._next

    async def _pipeline(
        self, batches: Batches, goes_on: Callable[[], bool], has_room: Callable[[], bool]
    ) -> None:
        under_way: set[asyncio.Task[Any]] = set()
        while goes_on():
            if not has_room():
                await asyncio.sleep(LOOK_SECONDS)
                continue
            under_way.add(asyncio.create_task(self._batch(batches)))
            await asyncio.sleep(0)
            if len(under_way) >= UNDER_WAY_BATCHES_MAX:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*under_way)

    async def _batch(self, batches: Batches) -> None:
        batch = batches.batch(self._next)
        self._next += batches.events
        self._sent(await self._client.publish_batch(batch), batches.events)

    def _sent(self, ticks: list[int | None], events: int) -> None:
        assert len(ticks) == events
        assert ticks[0] is not None
        assert ticks[-1] == ticks[0] + events - 1, "a batch has consecutive ticks"
        self._counters.published += events

    async def flood(self, way: str, batch_events: int, warm: float, seconds: float) -> dict[str, float]:
        """Publish as fast as possible; returns events a second after `warm` seconds, and CPU use."""
        found = await measure_flow(self._flows(way, batch_events), self._counters, warm, seconds)
        return {"rate": found.rate, "events": self._next, "seconds": found.seconds, "cpu": found.cpu}

    def _flows(self, way: str, batch_events: int) -> Awaitable[None]:
        if way == "publish_batch":
            goes_on = lambda: not self._counters.is_over  # noqa: E731  (as short as it gets)
            return self._pipeline(Batches(self._load, batch_events), goes_on, lambda: True)
        return self._many(batch_events) if way == "publish_many" else self._each()

    async def _many(self, events: int) -> None:
        """Call publish_many, two calls at a time."""

        async def lane() -> None:
            while not self._counters.is_over:
                first, self._next = self._next, self._next + events
                self._sent(await self._client.publish_many(TOPIC, self._events(first, events)), events)

        await asyncio.gather(lane(), lane())

    async def _each(self) -> None:
        """Call publish() for each event, without waiting for each acknowledgement."""
        waiting: list[asyncio.Future[int | None]] = []
        while not self._counters.is_over:
            events = self._events(self._next, TURN_EVENTS)
            waiting += [self._client.publish(TOPIC, event) for event in events]
            self._next += TURN_EVENTS
            await asyncio.sleep(0)
            if len(waiting) >= UNDER_WAY_EVENTS_MAX:
                half = len(waiting) // 2
                self._counters.published += len(await asyncio.gather(*waiting[:half]))
                del waiting[:half]
        self._counters.published += len(await asyncio.gather(*waiting))

    def _events(self, first: int, count: int) -> list[dict[str, Any]]:
        numbers = range(first, first + count)
        kinds = self._load.kinds_between(first, first + count).tolist()
        return [
            {"n": number, "kind": kind, "sent": 0, "payload": PAYLOAD}
            for number, kind in zip(numbers, kinds, strict=True)
        ]

    async def one_by_one(self, events: int, directory: str) -> dict[str, list[int]]:
        """Publish events one at a time, then make as many bare syncs; returns nanoseconds of each."""
        return {"publish": await self._round(events), "bare": bare_round(Path(directory) / "bare", events)}

    async def _round(self, events: int) -> list[int]:
        taken = []
        for event in self._events(self._next, events):
            begin = perf_counter_ns()
            await self._client.publish(TOPIC, event)
            taken.append(perf_counter_ns() - begin)
        self._next += events
        return taken

    async def paced(self, rate: float, events: int | None = None) -> int:
        """Publish `rate` single events a second, until there were `events` or the counters say stop."""
        self._counters.stop(is_over=False)
        waiting: set[asyncio.Future[int | None]] = set()
        begin, first = monotonic(), self._next
        while not self._counters.is_over and (events is None or self._next - first < events):
            wait = begin + (self._next - first) / rate - monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            event = self._load.event(self._next)
            event["sent"] = monotonic_ns()
            future = self._client.publish(TOPIC, event)
            waiting.add(future)
            future.add_done_callback(waiting.discard)
            self._next += 1
            self._counters.published += 1
        await asyncio.gather(*waiting)
        return self._next


def bare_round(path: Path, syncs: int) -> list[int]:
    """Append to a file and sync it, again and again; returns nanoseconds of each."""
    taken, data = [], bytes(BARE_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(syncs):
            begin = perf_counter_ns()
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            taken.append(perf_counter_ns() - begin)
    finally:
        os.close(descriptor)
    return taken
