"""Figure 4 of the paper on scalability: few hot connections among many cold ones.

The paper asks the system about all sockets of a list at every turn, so that cold sockets cost as much as hot
ones, and mends that by a second tier of lists that is asked about less often. The system does that by itself
today: epoll keeps the set of sockets and reports those that are ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.scalability.crowd import Crowd
from tidemark.lab.figures.scalability.variant_broker import UVLOOP
from tidemark.lab.figures.table import Table

METHOD = """
One broker process; ten cold topics with an event every 10 s each and many subscribers; four hot topics with
20 events a second each and few subscribers, as in the paper. All clients are in another process. *poll* is an
event loop that passes one list of all its sockets to the system at every turn; *epoll* is asyncio's usual
event loop; *uvloop* is what brokers run on. The second tier of the paper has no counterpart: with epoll the
cost of a turn does not depend on the sockets that are not ready.
"""
CPU = "cpu"
LISTS = ("poll", "epoll", UVLOOP)
HOT = tuple(f"hot.t{number}" for number in range(4))
COLD = tuple(f"cold.t{number}" for number in range(10))
HOT_RATE, COLD_RATE = 20.0, 0.1


@dataclass(frozen=True, slots=True)
class SocketsEffort:
    """How much is measured."""

    hot: int
    cold: int
    seconds: float
    warm_seconds: float


FULL = SocketsEffort(400, 4_000, 4.0, 1.0)
QUICK = SocketsEffort(4, 10, 0.5, 0.2)


def cpu_table() -> Table:
    """Returns the table: a row for each kind of list, with and without the cold connections."""
    return Table(CPU, ("list", "cold", "seconds", "delivered", "cpu_s", "system_s"))


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure each kind of list without and with cold connections."""
    effort, table = QUICK if quick else FULL, cpu_table()
    for kind in LISTS:
        for cold in (0, effort.cold):
            asyncio.run(measured(table, kind, cold, effort))
            say(f"{kind}, {cold} cold connections")
    return [table, setting(seconds=effort.seconds, hot=effort.hot, cold=effort.cold)]


async def measured(table: Table, kind: str, cold: int, effort: SocketsEffort) -> None:
    """Measure one kind of list once."""
    async with Crowd(loop=kind) as crowd:
        await crowd.subscribe(HOT, effort.hot)
        await crowd.subscribe(COLD, cold)
        await crowd.publish(COLD, COLD_RATE)
        for topic in HOT:
            await crowd.publish([topic], HOT_RATE)
        await asyncio.sleep(effort.warm_seconds)
        loop = asyncio.get_running_loop()
        begin, before = loop.time(), (crowd.got(), crowd.cpu_seconds(), crowd.system_part())
        await asyncio.sleep(effort.seconds)
        seconds, after = loop.time() - begin, (crowd.got(), crowd.cpu_seconds(), crowd.system_part())
        delivered, cpu, system = (late - early for late, early in zip(after, before, strict=True))
        table.add(kind, cold, seconds, delivered, cpu, system)
        crowd.check()


def busy(tables: Tables, kind: str, *, cold: bool) -> float:
    """Returns the part of a core that the broker took."""
    rows = tables[CPU].where(list=kind)
    values = rows.numbers("cpu_s") / rows.numbers("seconds")
    return float(values[rows.numbers("cold") > 0][0] if cold else values[rows.numbers("cold") == 0][0])


def _draw(tables: Tables) -> Sequence[Panel]:
    at = np.arange(1.0, len(LISTS) + 1)
    lines = [
        PlotSeries(label, at, np.array([busy(tables, kind, cold=cold) for kind in LISTS]), "marked")
        for cold, label in ((False, "hot connections only"), (True, "hot and cold connections"))
    ]
    return [Panel("CPU of the broker", ", ".join(LISTS), "part of a core", lines)]


def _compare(tables: Tables) -> Sequence[Comparison]:
    more = {kind: busy(tables, kind, cold=True) - busy(tables, kind, cold=False) for kind in LISTS}
    words = "; ".join(
        f"{kind} {busy(tables, kind, cold=False):.0%} and {busy(tables, kind, cold=True):.0%}"
        for kind in LISTS
    )
    return [
        Comparison(
            "with one tier of lists the cold connections cost much CPU at every turn",
            f"of a core without and with them: {words}",
            more["poll"] > 2 * max(more["epoll"], more[UVLOOP], 0.0),
        ),
        Comparison(
            "where cold connections are looked at less often they cost little",
            f"{more['epoll']:+.1%} of a core with epoll, {more[UVLOOP]:+.1%} with uvloop (as in brokers), "
            f"{more['poll']:+.1%} with poll",
            more[UVLOOP] < 0.1,
        ),
    ]


FIGURE = Figure("figure-4", "Hot and cold connections", "Scalability, figure 4", _draw, _compare)
