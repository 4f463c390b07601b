"""SubscriberRole: many subscribers in one process, each with its connection and its delivery record.

There are three styles. "client" uses the client of applications, with `batches()` and automatic
acknowledgements. "lean" (`BareSubscriber`) reads frames and does no more with them than its record needs, so
that the broker is measured and not Python at the other end. "parked" (`ParkedSubscriber`) is lean too, and
has a lease instead of a connection while there is no event for it. Subscribers at other systems are lean;
their style is the name of the system (`peers.catalogue`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Protocol

from tidemark.client.client import connect
from tidemark.client.events import Gap
from tidemark.lab.bench.processes.bare_subscriber import BareSubscriber
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.processes.parked_subscriber import ParkedSubscriber
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.bench.system.load import TOPIC, Kind, Load, selector

#: Connections that are being opened at a time.
OPENING_MAX = 64
#: Seconds after the last event in which no further event may come.
QUIET_SECONDS = 0.3
#: Seconds to wait for events, unless this environment variable says otherwise.
PATIENCE = "TIDEMARK_BENCH_PATIENCE_SECONDS"
PATIENCE_SECONDS = 240.0

#: Called with a subscriber and the number of events that it has just got.
Delivered = Callable[["BenchSubscriber", int], None]


class BenchSubscriber(Protocol):
    """A subscriber of any style."""

    record: DeliveryRecord

    async def come(self, url: str) -> None:
        """Connect and subscribe; returns when the subscription has started, or goes on."""

    async def leave(self) -> None:
        """Acknowledge what was consumed, and disconnect."""


class ClientSubscriber:
    """A subscriber through the client of applications."""

    def __init__(self, record: DeliveryRecord, delivered: Delivered) -> None:
        self.record = record
        self._delivered = delivered
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None

    async def come(self, url: str) -> None:
        """Connect and subscribe."""
        self._client = await connect(url, client=self.record.name)
        where, name = selector(self.record.kind), self.record.name
        durable = self._client.subscribe(TOPIC, where, durable=name, gaps=True)
        self._task = asyncio.create_task(self._read(await durable))

    async def _read(self, subscription: Any) -> None:
        record = self.record
        async for batch in subscription.batches():
            if isinstance(batch, Gap):
                record.gap(batch.base, batch.upto)
                continue
            record.add(batch.column("n"), batch.column("kind"))
            self._delivered(self, len(batch))

    async def leave(self) -> None:
        """Disconnect."""
        await self._client.close()
        if self._task is not None:
            await self._task


class SubscriberRole:
    """The role of a worker that subscribes."""

    def __init__(
        self,
        counters: str,
        worker: int,
        style: str,
        kinds: int,
        subscribers: list[tuple[str, Kind]],
        pubends: int = 1,
    ) -> None:
        """`worker` is its slot in the shared counters; `subscribers` has the name and kind of each.

        Lean subscribers have come when they have started at so many `pubends`.
        """
        self._counters = SharedCounters(counters)
        self._worker = worker
        self._load = Load(kinds)
        make = _maker(style)
        self._subscribers: list[BenchSubscriber] = [
            make(DeliveryRecord(name, kind, pubends), self._delivered) for name, kind in subscribers
        ]
        #: kind -> deliveries after which a subscriber has caught up; and the subscribers that have not
        self._missed: dict[Kind, int] = {}
        self._behind: set[BenchSubscriber] = set()

    def _delivered(self, subscriber: BenchSubscriber, events: int) -> None:
        self._counters.add_delivered(self._worker, events)
        if subscriber in self._behind and subscriber.record.count >= self._missed[subscriber.record.kind]:
            self._behind.remove(subscriber)
            self._counters.add_caught_up(self._worker)

    async def open(self) -> None:
        """Nothing to do: subscribers connect on the request `come`."""

    async def come(self, url: str, missed: int = 0) -> None:
        """Connect all; they missed the events `n < missed`, and the counters show how many caught up."""
        if missed:
            kinds = {each.record.kind for each in self._subscribers}
            self._missed = {kind: self._load.expected(kind, 0, missed).count for kind in kinds}
            self._behind = set(self._subscribers)
        turns = asyncio.Semaphore(OPENING_MAX)

        async def one(subscriber: BenchSubscriber) -> None:
            async with turns:
                await subscriber.come(url)

        await asyncio.gather(*map(one, self._subscribers))

    async def leave(self) -> None:
        """Disconnect all."""
        for subscriber in self._subscribers:
            await subscriber.leave()

    async def check(self, events: int) -> dict[str, int]:
        """Wait for the events `n < events`; AssertionError unless each subscriber got exactly its own."""
        expected = {
            kind: self._load.expected(kind, 0, events)
            for kind in {each.record.kind for each in self._subscribers}
        }
        records = [each.record for each in self._subscribers]
        until = asyncio.get_running_loop().time() + float(os.environ.get(PATIENCE, PATIENCE_SECONDS))
        while any(each.count < expected[each.kind].count and each.problem is None for each in records):
            if asyncio.get_running_loop().time() > until:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(QUIET_SECONDS)
        for record in records:
            problem = record.check(expected[record.kind])
            assert problem is None, problem
        return {
            "deliveries": sum(each.count for each in records),
            "frames": sum(each.frames for each in records),
        }


def _maker(style: str) -> Callable[..., BenchSubscriber]:
    styles = {"lean": BareSubscriber, "parked": ParkedSubscriber, "client": ClientSubscriber}
    if style in styles:
        return styles[style]
    # Only here: the other benchmarks need none of the protocols of other systems.
    from tidemark.lab.bench.peers.catalogue import PEERS

    return PEERS[style].reader
