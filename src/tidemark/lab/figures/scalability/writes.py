"""Figures 2 and 3 of the paper on scalability: many subscribers, with cut-through writes and without.

Cut-through: what a publisher sends is written to its subscribers where it is handled, and only what a socket
does not take is queued. Otherwise everything is queued first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.scalability.crowd import Crowd
from tidemark.lab.figures.scalability.variant_broker import CUT_THROUGH, QUEUED
from tidemark.lab.figures.table import Table

METHOD = """
One broker process, six publishers with a topic each and 25 events a second each, and subscribers of one topic
each, all in another process. A publisher waits for the acknowledgement of each event before the next. With
cut-through the broker writes to a socket where the event is handled; without, it queues everything and writes
when its event loop finds the socket ready. Both run on asyncio's event loop with epoll: the usual one,
uvloop, always cuts through. The clients share the machine's two cores with the broker, so rates fall as soon
as both are busy, whoever is the slower one; the CPU time of the broker for each event that it delivers says
what the broker needs. The paper's runs took 30 minutes each on machines with six processors.
"""
RATES = "rates"
TOPICS = tuple(f"crowd.t{number}" for number in range(6))
#: Events a second of each topic, and the part of it that still counts as supported.
RATE, SUPPORTED = 25.0, 0.95


@dataclass(frozen=True, slots=True)
class CrowdEffort:
    """How much is measured."""

    subscribers: Sequence[int]
    seconds: float
    warm_seconds: float


FULL = CrowdEffort((500, 1_500, 3_000, 7_000), 3.0, 1.0)
QUICK = CrowdEffort((6, 12), 0.5, 0.2)


def rates_table() -> Table:
    """Returns the table: a row for each number of subscribers, with and without cut-through."""
    return Table(
        RATES,
        ("writes", "subscribers", "seconds", "published", "delivered", "cpu_s", "queued_begin", "queued_end"),
    )


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each number of subscribers with and without cut-through."""
    effort, table = QUICK if quick else FULL, rates_table()
    for count in effort.subscribers:
        for writes in (CUT_THROUGH, QUEUED):
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
        begin_queued = await crowd.queued_bytes()
        begin, before = loop.time(), (crowd.acknowledged(), crowd.got(), crowd.cpu_seconds())
        await asyncio.sleep(effort.seconds)
        seconds = loop.time() - begin
        after = crowd.acknowledged(), crowd.got(), crowd.cpu_seconds()
        queued = await crowd.queued_bytes()
        published, delivered, cpu = (late - early for late, early in zip(after, before, strict=True))
        table.add(writes, count, seconds, published, delivered, cpu, begin_queued, queued)
        crowd.check()


def _draw(tables: Tables) -> Sequence[Panel]:
    rates, queues, costs = [], [], []
    for writes in (CUT_THROUGH, QUEUED):
        rows = tables[RATES].where(writes=writes)
        count, seconds = rows.numbers("subscribers"), rows.numbers("seconds")
        got = rows.numbers("delivered") / seconds / count
        rates.append(PlotSeries(f"received by each subscriber, {writes}", count, got, "marked"))
        said = rows.numbers("published") / seconds / len(TOPICS)
        rates.append(PlotSeries(f"published to each topic, {writes}", count, said, "marked"))
        grown = (rows.numbers("queued_end") - rows.numbers("queued_begin")) / seconds / 1e3
        queues.append(PlotSeries(writes, count, grown, "marked"))
        cost = rows.numbers("cpu_s") / rows.numbers("delivered").clip(min=1) * 1e6
        costs.append(PlotSeries(writes, count, cost, "marked"))
    return [
        Panel("rates (figure 2)", "subscribers", "events a second", rates),
        Panel("growth of the output queues (figure 3)", "subscribers", "kB a second", queues),
        Panel("CPU of the broker", "subscribers", "us an event delivered", costs),
    ]


def supported(tables: Tables, writes: str) -> float:
    """Returns the most subscribers that got nearly all events; 0 if none did."""
    rows = tables[RATES].where(writes=writes)
    got = rows.numbers("delivered") / rows.numbers("seconds") / rows.numbers("subscribers")
    enough = rows.numbers("subscribers")[got >= RATE * SUPPORTED]
    return float(max(enough, default=0))


def _compare(tables: Tables) -> Sequence[Comparison]:
    most = {writes: supported(tables, writes) for writes in (CUT_THROUGH, QUEUED)}
    cut, queued = (tables[RATES].where(writes=each) for each in (CUT_THROUGH, QUEUED))
    costs = [
        float(rows.numbers("cpu_s").sum() / max(1.0, rows.numbers("delivered").sum()) * 1e6)
        for rows in (cut, queued)
    ]
    said, got = (cut.numbers(each)[-1] / cut.numbers("seconds")[-1] for each in ("published", "delivered"))
    said, got = said / len(TOPICS), got / cut.numbers("subscribers")[-1]
    most_queued = [max(rows.numbers("queued_end")) / 1e3 for rows in (cut, queued)]
    return [
        Comparison(
            "with cut-through twice as many subscribers get 25 events a second: 3,000 against 1,500",
            f"{most[CUT_THROUGH]:,.0f} against {most[QUEUED]:,.0f} of those tried. A delivery takes "
            f"{costs[0]:.1f} against {costs[1]:.1f} us of CPU at the broker",
            most[CUT_THROUGH] >= 2 * most[QUEUED] > 0,
            "Both ways write to a socket once for an event; they differ by a call of the system that says "
            "which sockets are ready, once a turn for all of them, which took longer in the paper. Clients "
            "and broker share the machine's cores, so that neither gets as far as on machines of its own.",
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
            f"at most {most_queued[1]:,.0f} kB are queued without, {most_queued[0]:,.0f} kB with cut-through",
            most_queued[1] > most_queued[0],
            "What is queued is written within the same turn of the event loop, so that queues are empty "
            "whenever they are looked at, unless a socket takes no more.",
        ),
    ]


FIGURE = Figure("figure-2-3", "Cut-through writes", "Scalability, figures 2 and 3", _draw, _compare)
