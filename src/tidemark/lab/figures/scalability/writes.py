"""Figures 2 and 3 of the paper on scalability: many subscribers, with cut-through writes and without.

Cut-through: what a publisher sends is written to its subscribers where it is handled, and only what a socket
does not take is queued. Otherwise everything is queued first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.scalability.crowd import Crowd
from tidemark.lab.figures.scalability.variant_broker import CUT_THROUGH, QUEUED
from tidemark.lab.figures.table import Table
from tidemark.node.process.open_files import allow_connections

METHOD = """
One broker process, six publishers with a topic each and 25 events a second each, and subscribers of one topic
each, all in another process. A publisher waits for the acknowledgement of each event before the next. With
cut-through the broker writes to a socket where the event is handled; without, it queues everything and writes
when its event loop finds the socket ready. Both run on asyncio's event loop with epoll: the usual one,
uvloop, always cuts through. The paper has 500 to 7,000 subscribers, and so have these runs. But the clients
share the machine's cores with the broker, and with the larger numbers both are overloaded. So there are
smaller numbers too, and how many a broker would support on a core of its own is computed from a straight
line through its CPU time, with the numbers that get the full rate: it is the number at which the core is
full. Each number has two rounds of a few seconds. The paper's runs took 30 minutes each on machines with six
processors.
"""
RATES = "rates"
TOPICS = tuple(f"crowd.t{number}" for number in range(6))
#: Events a second of each topic, the part of it with which a subscriber counts as served, and what counts as
#: twice as many.
RATE, SERVED, TWICE = 25.0, 0.95, 1.5


@dataclass(frozen=True, slots=True)
class CrowdEffort:
    """How much is measured."""

    #: numbers of subscribers; the last ones are too many
    subscribers: Sequence[int]
    seconds: float
    warm_seconds: float
    rounds: int = 1


FULL = CrowdEffort((24, 96, 192, 384, 500, 1_500, 3_000, 7_000), 4.0, 1.0, 2)
QUICK = CrowdEffort((6, 12, 18), 0.5, 0.2)


def rates_table() -> Table:
    """Returns the table: a row for each number of subscribers, with and without cut-through."""
    return Table(
        RATES,
        ("writes", "subscribers", "seconds", "published", "delivered", "cpu_s", "queued_most"),
    )


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each number of subscribers with and without cut-through."""
    effort, table = QUICK if quick else FULL, rates_table()
    # A connection of each subscriber is open in this process too.
    allow_connections(max(effort.subscribers))
    for count in effort.subscribers:
        for turn in range(effort.rounds):
            for writes in (CUT_THROUGH, QUEUED) if turn % 2 else (QUEUED, CUT_THROUGH):
                asyncio.run(measured(table, writes, count, effort))
                say(f"{count} subscribers, {writes}")
    return [table, setting(seconds=effort.seconds, topics=len(TOPICS), events_a_second_and_topic=RATE)]


async def measured(table: Table, writes: str, count: int, effort: CrowdEffort) -> None:
    """Measure one number of subscribers once."""
    async with Crowd(loop="epoll", writes=writes) as crowd:
        await crowd.subscribe(TOPICS, count)
        for topic in TOPICS:
            await crowd.publish([topic], RATE)
        await asyncio.sleep(effort.warm_seconds)
        loop = asyncio.get_running_loop()
        begin, before = loop.time(), (crowd.acknowledged(), crowd.got(), crowd.cpu_seconds())
        await asyncio.sleep(effort.seconds)
        seconds = loop.time() - begin
        after = crowd.acknowledged(), crowd.got(), crowd.cpu_seconds()
        published, delivered, cpu = (late - early for late, early in zip(after, before, strict=True))
        table.add(writes, count, seconds, published, delivered, cpu, crowd.queued_most())
        crowd.check()


def _draw(tables: Tables) -> Sequence[Panel]:
    rates, queues, loads = [], [], []
    for writes in (CUT_THROUGH, QUEUED):
        rows = tables[RATES].where(writes=writes)
        count, seconds = rows.numbers("subscribers"), rows.numbers("seconds")
        got = rows.numbers("delivered") / seconds / count
        rates.append(PlotSeries(f"received by each subscriber, {writes}", count, got, "marked"))
        said = rows.numbers("published") / seconds / len(TOPICS)
        rates.append(PlotSeries(f"published to each topic, {writes}", count, said, "marked"))
        queues.append(PlotSeries(writes, count, rows.numbers("queued_most") / 1e3, "marked"))
        loads.append(PlotSeries(writes, count, rows.numbers("cpu_s") / seconds, "marked"))
    return [
        Panel("rates (figure 2)", "subscribers", "events a second", rates),
        Panel("most that waited in the output queues (figure 3)", "subscribers", "kB", queues),
        Panel("CPU of the broker", "subscribers", "cores", loads),
    ]


def line_of(tables: Tables, writes: str) -> tuple[float, float]:
    """Returns the cores that a broker takes without subscribers, and for each subscriber at the full rate."""
    rows = tables[RATES].where(writes=writes)
    count, seconds = rows.numbers("subscribers"), rows.numbers("seconds")
    is_served = rows.numbers("delivered") / seconds / count >= RATE * SERVED
    slope, base = np.polyfit(count[is_served], (rows.numbers("cpu_s") / seconds)[is_served], 1)
    return float(base), float(slope)


def supported(tables: Tables, writes: str) -> float:
    """Returns the number of subscribers at the full rate with which a broker fills a core of its own."""
    base, each = line_of(tables, writes)
    return (1.0 - base) / each


def _compare(tables: Tables) -> Sequence[Comparison]:
    most = {writes: supported(tables, writes) for writes in (CUT_THROUGH, QUEUED)}
    times = most[CUT_THROUGH] / most[QUEUED]
    each = [line_of(tables, writes)[1] / RATE * 1e6 for writes in (CUT_THROUGH, QUEUED)]
    cut, queued = (tables[RATES].where(writes=each) for each in (CUT_THROUGH, QUEUED))
    said, got = (cut.numbers(each)[-1] / cut.numbers("seconds")[-1] for each in ("published", "delivered"))
    said, got = said / len(TOPICS), got / cut.numbers("subscribers")[-1]
    most_queued = [max(rows.numbers("queued_most")) / 1e3 for rows in (cut, queued)]
    return [
        Comparison(
            "with cut-through twice as many subscribers get 25 events a second: 3,000 against 1,500",
            f"by the CPU of the broker, a core supports {most[CUT_THROUGH]:,.0f} against "
            f"{most[QUEUED]:,.0f}, {times:.2f} times as many ({TWICE} times or more counts): a delivery "
            f"takes {each[0]:.1f} against {each[1]:.1f} us",
            times >= TWICE,
            "What cut-through saves is a second turn of the event loop and a call of the system for each "
            "socket, which took a larger part of a delivery in the paper.",
        ),
        Comparison(
            "with cut-through the publishers of an overloaded broker are slowed down to what subscribers get",
            f"with the most subscribers {said:.1f} events a second are published to a topic, {got:.1f} got",
            abs(said - got) <= 0.1 * RATE,
            "Subscribers that lag behind have their events in the broker's output queues and in the "
            "kernel's: the measurement is too short for these to be full.",
        ),
        Comparison(
            "without, the output queues of an overloaded broker grow",
            f"at most {most_queued[1]:,.0f} kB wait in them without, {most_queued[0]:,.0f} kB with "
            "cut-through",
            most_queued[1] > most_queued[0],
            "With cut-through a socket that takes no more is the only reason to queue anything.",
        ),
    ]


FIGURE = Figure("figure-2-3", "Cut-through writes", "Scalability, figures 2 and 3", _draw, _compare)
