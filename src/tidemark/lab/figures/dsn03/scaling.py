"""Figure 4 of DSN'03: more brokers host more subscribers, also while subscribers come and go.

In the paper every broker is a machine of its own, and subscribers are added until it is saturated. Here all
processes share one machine. So each host gets the same load, which saturates nothing, and its capacity is
what it would deliver if a core of its own were always busy: deliveries for each second of its CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.lab.figures.dsn03.figures import PUBENDS
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.real_overlay import LoadSubscriber, RealOverlay
from tidemark.lab.figures.table import Table
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

METHOD = """
One broker with four pubends, and none, one, two or four brokers behind it that host the subscribers; with
none it hosts them itself. All are processes on one machine, all clients are in another process on it. Each
subscriber wants a quarter of the events and holds its token. There are 800 events a second, as in the paper.
Every host has the same number of subscribers, so the load grows with the hosts as in the paper, but no broker
is saturated: the *capacity* of a host is what it delivers for each second of CPU time that it takes, which is
what it would deliver in a second on a core of its own. With four hosts all processes together may fill the
machine's cores: a broker then handles more events at a time, and takes less CPU time for each. *Idle* is the
part of a core that the publisher hosting broker leaves. With disconnections one subscriber after the other is
away for a while, far more often than in the paper (each 5 s in 300 s). What subscribers got was checked:
every event once and in order.
"""
#: name of a layout -> number of brokers behind the one with the pubends
LAYOUTS = {"1 broker": 0, "1 SHB": 1, "2 SHBs": 2, "4 SHBs": 4}
CPU = "cpu"
#: In the paper, from 1 to 4 hosts: 20,000 to 79,200 events a second; and 69,600 of these with disconnections.
PAPER_GROWTH, PAPER_DISCONNECTED = 79.2 / 20, 69.6 / 79.2
#: Idle CPU at the broker of the pubends in the paper, with 1 and with 4 hosts.
PAPER_IDLE = 0.69, 0.59
#: What counts as the same.
ROOM = 0.15
SHARED = (
    "All brokers and clients share the cores of one machine: the more processes there are, the more often "
    "each is woken for little, and its caches are cold. Machines of their own would have to be there."
)
WARM_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class ScalingEffort:
    """How much is measured."""

    events_a_second: int
    subscribers_a_host: int
    seconds: float
    away_seconds: float
    layouts: Sequence[str] = tuple(LAYOUTS)


FULL = ScalingEffort(800, 8, 3.0, away_seconds=0.5)
QUICK = ScalingEffort(80, 2, 0.5, away_seconds=0.1, layouts=("1 broker", "1 SHB"))


def cpu_table() -> Table:
    """Returns the table: a row for each broker of each layout, with and without disconnections."""
    columns = ("layout", "hosts", "away", "broker", "is_host", "cpu_s", "seconds", "delivered", "catchups")
    return Table(CPU, columns)


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure every layout without and with disconnections."""
    effort, table = QUICK if quick else FULL, cpu_table()
    for layout in effort.layouts:
        for away in (False, True):
            asyncio.run(measured(table, layout, effort, away=away))
            say(f"{layout}, {'with' if away else 'without'} disconnections")
    said = setting(
        events_a_second=effort.events_a_second,
        subscribers_a_host=effort.subscribers_a_host,
        seconds=effort.seconds,
        away_for_seconds=effort.away_seconds,
    )
    return [table, said]


async def measured(table: Table, layout: str, effort: ScalingEffort, *, away: bool) -> None:
    """Measure one layout once."""
    behind = LAYOUTS[layout]
    async with RealOverlay(PUBENDS, [f"shb{at + 1}" for at in range(behind)]) as overlay:
        hosts = len(overlay.hosts)
        await overlay.populate(effort.subscribers_a_host * hosts, effort.events_a_second)
        await asyncio.sleep(WARM_SECONDS)
        got = [each.got for each in overlay.subscribers]
        loop = asyncio.get_running_loop()
        begin, used = loop.time(), {each.name: cpu_seconds_exact(each.pid) for each in overlay.brokers}
        returns = await _disconnections(overlay.subscribers, effort, hosts) if away else 0
        await asyncio.sleep(max(0.0, begin + effort.seconds - loop.time()))
        seconds = loop.time() - begin
        for broker in overlay.brokers:
            cpu = cpu_seconds_exact(broker.pid) - used[broker.name]
            mine = [
                each.got - before
                for each, before in zip(overlay.subscribers, got, strict=True)
                if each.url == broker.url
            ]
            is_host = int(broker in overlay.hosts)
            table.add(
                layout,
                hosts,
                int(away),
                broker.name,
                is_host,
                cpu,
                seconds,
                sum(mine),
                returns if mine else 0,
            )
        await overlay.finish()


async def _disconnections(subscribers: Sequence[LoadSubscriber], effort: ScalingEffort, hosts: int) -> int:
    """One subscriber of each host after the other is away; returns how often each host saw one return."""
    loop = asyncio.get_running_loop()
    end, turn = loop.time() + effort.seconds - 2 * effort.away_seconds, 0
    while loop.time() < end or not turn:
        gone = subscribers[turn % effort.subscribers_a_host * hosts :][:hosts]
        await asyncio.gather(*(each.leave() for each in gone))
        await asyncio.sleep(effort.away_seconds)
        await asyncio.gather(*(each.come() for each in gone))
        await asyncio.sleep(effort.away_seconds)
        turn += 1
    return turn


def capacity(tables: Tables, layout: str, away: int) -> float:
    """Returns how many events a second the hosts of a layout would deliver on a core each."""
    rows = tables[CPU].where(layout=layout, away=away, is_host=1)
    return float((rows.numbers("delivered") / rows.numbers("cpu_s")).sum())


def idle(tables: Tables, layout: str, away: int) -> float:
    """Returns the part of a core that the broker of the pubends leaves."""
    rows = tables[CPU].where(layout=layout, away=away, broker="phb")
    return 1 - float((rows.numbers("cpu_s") / rows.numbers("seconds"))[0])


def _layouts(tables: Tables) -> list[str]:
    return list(dict.fromkeys(tables[CPU].words("layout")))


def _draw(tables: Tables) -> Sequence[Panel]:
    layouts = _layouts(tables)
    at = np.arange(1.0, len(layouts) + 1)
    ways = ((0, "without disconnections"), (1, "with disconnections"))
    return [
        Panel(
            "capacity of all hosts together",
            ", ".join(layouts),
            "events a CPU second",
            [
                PlotSeries(label, at, np.array([capacity(tables, each, away) for each in layouts]), "marked")
                for away, label in ways
            ],
        ),
        Panel(
            "the broker of the pubends",
            ", ".join(layouts),
            "idle part of a core",
            [
                PlotSeries(label, at, np.array([idle(tables, each, away) for each in layouts]), "marked")
                for away, label in ways
            ],
        ),
    ]


def _compare(tables: Tables) -> Sequence[Comparison]:
    layouts = _layouts(tables)
    alone, one, most = layouts[0], layouts[1], layouts[-1]
    hosts = LAYOUTS[most]
    findings = []
    for away, paper in (
        (0, "without disconnections it scales almost linearly: 3.96 times from 1 host to 4"),
        (1, "with disconnections too: 3.95 times"),
    ):
        few, many = capacity(tables, one, away), capacity(tables, most, away)
        said = f"{few:,.0f} events a CPU second with 1 host, {many:,.0f} with {hosts}: {many / few:.2f} times"
        findings.append(Comparison(paper, said, many / few >= hosts * (1 - ROOM), SHARED))
    part = capacity(tables, most, 1) / capacity(tables, most, 0)
    returns = tables[CPU].where(layout=most, away=1, is_host=1)
    often = float((returns.numbers("catchups") / returns.numbers("seconds")).mean())
    findings.append(
        Comparison(
            "with disconnections it is 88% of that without",
            f"{part:.0%}, with {often:.1f} returns a second at each host (about 0.3 in the paper)",
            part >= PAPER_DISCONNECTED - ROOM,
            "Subscribers return far more often here than in the paper, and each return takes CPU time: a "
            "connection, a read of the PFS and what was missed. The share follows from how often that is.",
        )
    )
    before, after = idle(tables, one, 0), idle(tables, most, 0)
    findings.append(
        Comparison(
            "the broker of the pubends is idle 69% with 1 host and 59% with 4: it does little for each host",
            f"{before:.0%} with 1 host, {after:.0%} with {hosts}",
            after >= before - (PAPER_IDLE[0] - PAPER_IDLE[1]) - ROOM / 3,
            "Each host is sent every event in a frame of its own, which takes about as much CPU time as "
            "logging it. With relays in between the broker of the pubends would have fewer neighbours to "
            "send to.",
        )
    )
    single, split = capacity(tables, alone, 0), capacity(tables, one, 0)
    findings.append(
        Comparison(
            "one broker has about the capacity of one host behind another broker: logging takes little CPU",
            f"{single:,.0f} events a CPU second against {split:,.0f}",
            single >= split * (1 - ROOM),
            "With few subscribers a broker, what is delivered is a small part of its work, and logging and "
            "answering publishers the larger one: more subscribers a host would have to be there.",
        )
    )
    return findings


FIGURE = Figure("figure-4", "Peak event rate", "DSN'03, figure 4", _draw, _compare)
