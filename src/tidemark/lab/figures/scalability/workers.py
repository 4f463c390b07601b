"""Figure 5 of the paper on scalability: the work for what comes in is spread over workers, in order.

The paper spreads the messages of one connection over several threads by their publisher. A Tidemark broker
handles everything on one thread, and is spread over processes: several brokers at one place, each with a part
of the subscribers. Order is kept by ticks, whatever the ways are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.real_overlay import RealOverlay
from tidemark.lab.figures.table import Numbers, Table
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

METHOD = """
A broker with six pubends, a publisher at each, and behind it one, two or three broker processes that share
the subscribers, each of which wants a quarter of the events. All clients are in another process. The machine
has two cores, so that no more than two processes work at a time: how many clients the workers would support
on cores of their own is computed from the CPU time of the busiest worker. What subscribers got was checked:
every event once, and in the order of its publisher.
"""
CPU = "cpu"
PUBENDS = tuple(f"p{number + 1}" for number in range(6))
#: How many more clients two workers support than one in the paper ("nearly twice"), and what counts as such.
PAPER_TWO, ROOM = 2.0, 0.2
WARM_SECONDS = 1.5
DIVIDED = (
    "Every worker receives and matches all events that somebody at it wants, which with few subscribers is "
    "most of its work and is not divided: only deliveries are. More subscribers would have to be there."
)


@dataclass(frozen=True, slots=True)
class WorkersEffort:
    """How much is measured."""

    workers: Sequence[int]
    events_a_second: int
    subscribers: int
    seconds: float


FULL = WorkersEffort((1, 2, 3), 480, 240, 4.0)
QUICK = WorkersEffort((1, 2), 60, 4, 0.5)


def cpu_table() -> Table:
    """Returns the table: a row for each worker."""
    return Table(CPU, ("workers", "worker", "subscribers", "delivered", "cpu_s", "seconds"))


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each number of workers."""
    effort, table = QUICK if quick else FULL, cpu_table()
    for count in effort.workers:
        asyncio.run(measured(table, count, effort))
        say(f"{count} workers")
    said = setting(
        events_a_second=effort.events_a_second, subscribers=effort.subscribers, seconds=effort.seconds
    )
    return [table, said]


async def measured(table: Table, workers: int, effort: WorkersEffort) -> None:
    """Measure one number of workers."""
    async with RealOverlay(PUBENDS, [f"w{at + 1}" for at in range(workers)]) as overlay:
        await overlay.populate(effort.subscribers, effort.events_a_second)
        await asyncio.sleep(WARM_SECONDS)
        loop = asyncio.get_running_loop()
        begin, got = loop.time(), [each.got for each in overlay.subscribers]
        used = [cpu_seconds_exact(each.pid) for each in overlay.hosts]
        await asyncio.sleep(effort.seconds)
        seconds = loop.time() - begin
        for host, before in zip(overlay.hosts, used, strict=True):
            mine = [
                each.got - had
                for each, had in zip(overlay.subscribers, got, strict=True)
                if each.url == host.url
            ]
            cpu = cpu_seconds_exact(host.pid) - before
            table.add(workers, host.name, len(mine), sum(mine), cpu, seconds)
        await overlay.finish()


def supported(tables: Tables) -> tuple[Numbers, Numbers]:
    """Returns workers[n], and how many clients so many workers would support on cores of their own."""
    table = tables[CPU]
    counts = np.unique(table.numbers("workers"))
    clients = []
    for count in counts:
        rows = table.where(workers=count)
        busiest = (rows.numbers("cpu_s") / rows.numbers("seconds")).max()
        clients.append(rows.numbers("subscribers").sum() / busiest)
    return counts, np.array(clients)


def _draw(tables: Tables) -> Sequence[Panel]:
    counts, clients = supported(tables)
    return [
        Panel("clients supported", "workers", "clients", [PlotSeries("clients", counts, clients, "marked")])
    ]


def _compare(tables: Tables) -> Sequence[Comparison]:
    counts, clients = supported(tables)
    said = ", ".join(f"{each:,.0f} with {count:.0f}" for count, each in zip(counts, clients, strict=True))
    findings = [
        Comparison(
            "two input queues support nearly twice as many clients as one",
            f"{clients[1] / clients[0]:.2f} times as many: {said}, by the CPU time of the busiest worker",
            bool(clients[1] / clients[0] >= PAPER_TWO * (1 - ROOM)),
            DIVIDED,
        )
    ]
    if len(clients) > 2:
        first, second = clients[1] / clients[0], clients[2] / clients[1]
        findings.append(
            Comparison(
                "a third improves it further, though not as much",
                f"{second:.2f} times as many as two, which support {first:.2f} times as many as one",
                bool(1 < second < first),
                DIVIDED,
            )
        )
    return findings


FIGURE = Figure("figure-5", "Input over several workers", "Scalability, figure 5", _draw, _compare)
