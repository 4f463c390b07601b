"""Section 5.2 of DSN'03: JMS auto-acknowledge, where each event of each subscriber is committed at its host.

The more subscribers there are, the more acknowledgements go to disk in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.client.client import Client, connect
from tidemark.client.events import Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.real_overlay import (
    PATIENCE_SECONDS,
    PAYLOAD,
    SCHEMA,
    TOPIC,
    TURN_SECONDS,
    RealOverlay,
)
from tidemark.lab.figures.table import Table
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

METHOD = """
A publisher hosting and a subscriber hosting broker as processes, all clients in another process. Each durable
subscriber wants everything, with the acknowledgement mode `auto`: an event is handed out when the
acknowledgement of the one before is on the host's disk. Events are published as fast as the slowest
subscriber takes them, so the rate is the highest there is. The publisher, all subscribers and both brokers
share the machine's cores: what a client takes for each event is much of the time here, and not in the paper,
where clients had machines of their own and the database was the bottleneck.
"""
RATES = "rates"
#: Events a second to 25 and to 200 subscribers together in the paper.
PAPER = {25: 4_000, 200: 7_600}
GROWTH, ROOM = PAPER[200] / PAPER[25], 0.1
#: The part of a core from which the host itself is what bounds the rate.
BUSY = 0.7
#: Events that the slowest subscriber may lack before more are published.
AHEAD_EVENTS = 16


@dataclass(frozen=True, slots=True)
class AutoEffort:
    """How much is measured."""

    subscribers: Sequence[int]
    seconds: float
    warm_seconds: float


FULL = AutoEffort((25, 200), 5.0, 1.5)
QUICK = AutoEffort((2, 4), 0.5, 0.2)


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure the highest rate for each number of subscribers."""
    effort, table = QUICK if quick else FULL, rates_table()
    for count in effort.subscribers:
        asyncio.run(measured(table, count, effort))
        say(f"{count} subscribers")
    return [table, setting(seconds=effort.seconds, ahead_events=AHEAD_EVENTS)]


def rates_table() -> Table:
    """Returns the table: what was consumed, and what that took at the host."""
    return Table(RATES, ("subscribers", "seconds", "consumed", "host_cpu_s"))


async def measured(table: Table, count: int, effort: AutoEffort) -> None:
    """Measure one number of subscribers."""
    async with RealOverlay(["p1"]) as overlay:
        publisher = await overlay.client(overlay.phb, pubend="p1")
        await publisher.create_topic(TOPIC, SCHEMA)
        consumers = [AutoConsumer(f"s{number}", overlay.shb.url) for number in range(count)]
        try:
            await asyncio.gather(*(each.begin() for each in consumers))
            load = asyncio.create_task(_publish(publisher, consumers))
            await asyncio.sleep(effort.warm_seconds)
            loop = asyncio.get_running_loop()
            begin, before = loop.time(), sum(each.consumed for each in consumers)
            cpu = cpu_seconds_exact(overlay.shb.pid)
            seconds = consumed = 0.0
            # On a machine that is busy with other things, one event may take longer than the measurement.
            while not consumed and seconds < PATIENCE_SECONDS:
                await asyncio.sleep(effort.seconds)
                seconds, consumed = loop.time() - begin, sum(each.consumed for each in consumers) - before
            cpu = cpu_seconds_exact(overlay.shb.pid) - cpu
            table.add(count, seconds, consumed, cpu)
            load.cancel()
            for each in consumers:
                each.check()
        finally:
            await asyncio.gather(*(each.end() for each in consumers))


class AutoConsumer:
    """A durable subscriber of everything that commits each event; events must come once and in order."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._client = connect(url, client=name, timeout=PATIENCE_SECONDS)
        self._task: asyncio.Task[None] | None = None
        self.consumed = 0

    async def begin(self) -> None:
        """Connect, subscribe, and wait until the pubend's broker has heard of it: before, events pass by."""
        await self._client.open()
        subscription = await self._client.subscribe(TOPIC, durable=self._name, ack="auto")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not subscription.checkpoint:
                await asyncio.sleep(TURN_SECONDS / 10)
        self._task = asyncio.create_task(self._read(subscription))

    async def _read(self, subscription: Subscription[Event]) -> None:
        async for event in subscription:
            assert event["n"] == self.consumed, f"{self._name}: {event['n']} instead of {self.consumed}"
            self.consumed += 1

    def check(self) -> None:
        """Raise what ended its reading, if anything did."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        """Stop and disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close(timeout=0)


async def _publish(publisher: Client, consumers: Sequence[AutoConsumer]) -> None:
    number = 0
    while True:
        slowest = min(each.consumed for each in consumers)
        while number < slowest + AHEAD_EVENTS:
            sent = publisher.publish(TOPIC, {"n": number, "kind": "a", "payload": PAYLOAD})
            # The last ones are not acknowledged when the measurement ends, which is nobody's mistake.
            sent.add_done_callback(lambda done: done.cancelled() or done.exception())
            number += 1
        await asyncio.sleep(TURN_SECONDS / 10)


def rate(tables: Tables, subscribers: float) -> float:
    """Returns the events a second that these subscribers consumed together."""
    rows = tables[RATES].where(subscribers=subscribers)
    return float(rows.numbers("consumed").sum() / rows.numbers("seconds").sum())


def _draw(tables: Tables) -> Sequence[Panel]:
    table = tables[RATES]
    counts = table.numbers("subscribers")
    rates = table.numbers("consumed") / table.numbers("seconds")
    cpu = table.numbers("host_cpu_s") / table.numbers("consumed").clip(min=1) * 1e6
    return [
        Panel(
            "all subscribers together",
            "subscribers",
            "events a second",
            [PlotSeries("consumed", counts, rates, "marked")],
        ),
        Panel("CPU of the host", "subscribers", "us an event", [PlotSeries("CPU", counts, cpu, "marked")]),
    ]


def _compare(tables: Tables) -> Sequence[Comparison]:
    table = tables[RATES]
    few, many = min(table.numbers("subscribers")), max(table.numbers("subscribers"))
    low, high = rate(tables, few), rate(tables, many)
    groups = (table.where(subscribers=few), table.where(subscribers=many))
    cpu, busy = (
        [float(rows.numbers("host_cpu_s").sum() / rows.numbers(each).sum()) for rows in groups]
        for each in ("consumed", "seconds")
    )
    return [
        Comparison(
            "25 subscribers get 4,000 events a second together, 200 get 7,600: 1.9 times as many",
            f"{few:.0f} get {low:,.0f}, {many:.0f} get {high:,.0f}: {high / low:.2f} times; for each second "
            f"of the host's CPU {1 / cpu[0]:,.0f} and {1 / cpu[1]:,.0f}: {cpu[0] / cpu[1]:.2f} times",
            high / low >= GROWTH * (1 - ROOM),
            f"The host, which has one event loop, takes {busy[0]:.0%} of a core with {few:.0f} subscribers "
            f"and {busy[1]:.0%} with {many:.0f}. "
            + (
                "The clients and whatever else ran on the machine had the rest: with a core of its own the "
                "host would go as far as its CPU time says."
                if max(busy) < BUSY
                else "What an acknowledgement takes of the processor counts here, and the disk counted in "
                "the paper. For more events, more hosts would have to share the subscribers."
            ),
        ),
        Comparison(
            "because waiting requests of many subscribers are batched into one transaction",
            f"the host takes {cpu[0] * 1e6:.0f} us of CPU an event with {few:.0f} subscribers, "
            f"{cpu[1] * 1e6:.0f} us with {many:.0f}",
            cpu[1] < cpu[0],
            "Acknowledgements that have come at one time are handled together and share one commit. The "
            "processor, which is what counts here, has to read and answer each of them all the same.",
        ),
    ]


FIGURE = Figure("auto-acknowledge", "JMS auto-acknowledge", "DSN'03, section 5.2", _draw, _compare)
