"""DSN'03, section 5, on real processes: the latency of an event over five hops, and the share of logging."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from tidemark.client.client import Client
from tidemark.client.events import Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.lab.bench.processes.harness import DIRECTORY
from tidemark.lab.bench.processes.publishers import bare_round
from tidemark.lab.figures.dsn03.hops import HOPS, PAPER_LOGGING_MS, PAPER_MS
from tidemark.lab.figures.estimates import quantile
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.real_overlay import PATIENCE_SECONDS, PAYLOAD, TOPIC, TURN_SECONDS, RealOverlay
from tidemark.lab.figures.table import Numbers, Table

METHOD = """
A chain of six broker processes on one machine, with a publisher at the first and a subscriber of everything
at each, all clients in another process: the event crosses none to five links, which are sockets of this
machine. Publisher and subscribers share a clock. *Logging* is what the publisher waits for its
acknowledgement, which the broker sends when the event is on disk, so the way of the client there and back is
part of it. Beside it, a record of about the same size is written to a file on the same disk and synced, half
of the times before the events and half of them after. What subscribers got was checked: every event once and
in order.
"""
SCHEMA = "[n: long, sent: double, payload: bytes]"
LATENCIES, LOGGING, SYNCS = "latencies", "logging", "syncs"
PUBEND = "p"
HALF, MOST = 0.5, 0.99


@dataclass(frozen=True, slots=True)
class HopsEffort:
    """How much is measured."""

    events_a_second: float
    seconds: float
    warm_seconds: float
    #: how often a file is synced before the events, and again after them
    syncs: int


FULL = HopsEffort(50, 15.0, 2.0, 100)
QUICK = HopsEffort(20, 1.0, 0.2, 5)


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Publish at a steady rate; every latency, every acknowledgement and every sync is a row."""
    effort = QUICK if quick else FULL
    latencies, logging, syncs = (
        Table(LATENCIES, ("hops", "ms")),
        Table(LOGGING, ("ms",)),
        Table(SYNCS, ("ms",)),
    )
    asyncio.run(_measured(latencies, logging, syncs, effort))
    say(f"{effort.seconds:g} seconds")
    said = setting(events_a_second=effort.events_a_second, seconds=effort.seconds, hops=HOPS)
    return [latencies, logging, syncs, said]


async def _measured(latencies: Table, logging: Table, syncs: Table, effort: HopsEffort) -> None:
    async with RealOverlay([PUBEND], [f"b{hop}" for hop in range(1, HOPS + 1)], is_chain=True) as overlay:
        publisher = await overlay.client(overlay.phb, pubend=PUBEND)
        await publisher.create_topic(TOPIC, SCHEMA)
        ends = [_FarEnd(latencies, hop) for hop in range(HOPS + 1)]
        for end, broker in zip(ends, overlay.brokers, strict=True):
            await end.come(await overlay.client(broker))
        try:
            await asyncio.to_thread(_sync, syncs, effort.syncs)
            count = await _publish(publisher, ends, logging, effort)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(end.got < count for end in ends):
                    for end in ends:
                        end.check()
                    await asyncio.sleep(TURN_SECONDS)
            await asyncio.to_thread(_sync, syncs, effort.syncs)
        finally:
            for end in ends:
                await end.leave()


def _sync(syncs: Table, count: int) -> None:
    with TemporaryDirectory(prefix="tidemark-lab-", dir=os.environ.get(DIRECTORY, ".")) as directory:
        for taken in bare_round(Path(directory) / "file", count):
            syncs.add(taken / 1e6)


async def _publish(publisher: Client, ends: Sequence[_FarEnd], logging: Table, effort: HopsEffort) -> int:
    """Publish at the rate; returns how many events there were. Those of the beginning are not counted."""
    warm, count = (round(effort.events_a_second * each) for each in (effort.warm_seconds, effort.seconds))
    for end in ends:
        end.counts_from = warm
    due, under_way = perf_counter(), []
    for number in range(warm + count):
        due += 1 / effort.events_a_second
        await asyncio.sleep(max(0.0, due - perf_counter()))
        sent = perf_counter()
        future = publisher.publish(TOPIC, {"n": number, "sent": sent, "payload": PAYLOAD})
        if number >= warm:
            future.add_done_callback(partial(_acknowledged, logging, sent))
        under_way.append(future)
    await asyncio.gather(*under_way)
    return warm + count


def _acknowledged(logging: Table, sent: float, _: object) -> None:
    logging.add((perf_counter() - sent) * 1e3)


class _FarEnd:
    """A durable subscriber of everything behind so many links, which notes how long each event took."""

    def __init__(self, latencies: Table, hops: int) -> None:
        self._latencies = latencies
        self._hops = hops
        self._task: asyncio.Task[None] | None = None
        self.got = 0
        #: number of the first event that is noted
        self.counts_from = 0

    async def come(self, client: Client) -> None:
        """Subscribe, and wait until the subscription has started."""
        subscription = await client.subscribe(TOPIC, durable=f"after-{self._hops}")
        self._task = asyncio.create_task(self._read(subscription))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while PUBEND not in subscription.checkpoint:
                await asyncio.sleep(TURN_SECONDS)

    async def _read(self, subscription: Subscription[Event]) -> None:
        async for item in subscription.batches():
            now = perf_counter()
            for number, sent in zip(item.column("n").tolist(), item.column("sent").tolist(), strict=True):
                assert number == self.got, f"after {self._hops} hops: {number} instead of {self.got}"
                self.got += 1
                if number >= self.counts_from:
                    self._latencies.add(self._hops, (now - sent) * 1e3)

    def check(self) -> None:
        """Raise what ended its reading, if anything did."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    async def leave(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def _by_hops(tables: Tables, part: float) -> tuple[Numbers, Numbers]:
    """Returns hops[n] and this quantile of the latencies in milliseconds."""
    table = tables[LATENCIES]
    hops = np.unique(table.numbers("hops"))
    return hops, np.array([quantile(table.where(hops=int(each)).numbers("ms"), part) for each in hops])


def _of(tables: Tables, name: str, part: float) -> float:
    return quantile(tables[name].numbers("ms"), part)


def _draw(tables: Tables) -> Sequence[Panel]:
    panels = []
    for word, part in (("p50", HALF), ("p99", MOST)):
        hops, whole = _by_hops(tables, part)
        lines = [PlotSeries("from publisher to subscriber", hops, whole, "marked")]
        for name, label in ((LOGGING, "the publisher's acknowledgement"), (SYNCS, "a bare fdatasync")):
            lines.append(PlotSeries(label, hops, np.full_like(hops, _of(tables, name, part))))
        panels.append(Panel(word, "hops", "ms", lines))
    return panels


def _compare(tables: Tables) -> Sequence[Comparison]:
    hops, half = _by_hops(tables, HALF)
    most = _by_hops(tables, MOST)[1]
    logging, sync = ([_of(tables, name, part) for part in (HALF, MOST)] for name in (LOGGING, SYNCS))
    share, a_hop = logging[0] / half[-1], (half[-1] - half[0]) / (hops[-1] - hops[0])
    return [
        Comparison(
            f"an event takes {PAPER_MS} ms over five hops, and {PAPER_LOGGING_MS} of them are logging",
            f"{half[-1]:.1f} ms (p99 {most[-1]:.1f}), of which the publisher waits {logging[0]:.1f} "
            f"(p99 {logging[1]:.1f}) for its acknowledgement: {share:.0%}; a bare fdatasync takes "
            f"{sync[0]:.2f} (p99 {sync[1]:.2f})",
            bool(share > HALF),
            "A sync is short here, which is better: where nothing takes 44 ms, logging is a small part. The "
            "rest is what six brokers and the clients take, and wait for, on the cores of one machine.",
        ),
        Comparison(
            "because it is logged only once: a hop adds less than logging does",
            f"{a_hop:.2f} ms a hop, {half[0]:.1f} ms without any",
            bool(a_hop < logging[0]),
            "No hop logs, but each wakes another process, which waits for one of the cores. Where a sync is "
            "short, that takes as long as logging: machines of their own would have to be there.",
        ),
    ]


FIGURE = Figure("hops", "Latency over five hops", "DSN'03, section 5", _draw, _compare)
