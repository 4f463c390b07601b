"""What exactly-once delivery costs a broker in CPU, over best effort (DSN'02): on real processes.

The same load runs in three modes in turns: best effort, exactly once to connected subscribers as in DSN'02,
and exactly once to durable subscribers as in DSN'03. The operating system tells the CPU time of the brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np

from tidemark.lab.figures.dsn02.best_effort_broker import ALL, NOTHING
from tidemark.lab.figures.estimates import median_error, median_interval
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables, setting
from tidemark.lab.figures.real_overlay import RealOverlay
from tidemark.lab.figures.table import Numbers, Table
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

METHOD = """
A publisher hosting and a subscriber hosting broker as processes on one machine for each mode, all of which
run all the time. The same load goes to one mode after the other in short rounds, the order of the modes
rotating, and the CPU time of a round, which the system tells in nanoseconds, is compared with that of best
effort in the same repetition: what else the machine does changes slowly and counts for both. *best effort*:
subscribers that are not durable, and no event log; nothing is written for an event and no thread is woken for
it, and what is lost stays lost. Brokers have no such mode: it is made for this experiment, by leaving out
what they would write. *exactly once*: events are logged, and the log is synced before anything is passed on.
*durable*: besides, subscribers may leave, which takes the PFS and acknowledgements. Whatever recovers lost
frames only works when there are some, so all modes have it. What subscribers got was checked: every event
once and in order.
"""
#: mode -> (what brokers keep, whether subscribers are durable)
MODES = {"best effort": (NOTHING, False), "exactly once": (ALL, False), "durable": (ALL, True)}
BASE = "best effort"
#: The overhead in the paper, and how much more counts as the same.
PAPER, ROOM = 0.04, 0.01
WARM_SECONDS = 0.3
LOGGED = (
    "A record, a sync and a thread that is woken for it are a larger share of what an event takes here than "
    "they were of a message in the paper. With more events in each sync the share is smaller."
)
UNTOLD = "What else ran on the machine has disturbed the pairs more than the modes differ."


@dataclass(frozen=True, slots=True)
class OverheadEffort:
    """How much is measured."""

    events_a_second: int
    subscribers: int
    seconds: float
    repetitions: int


FULL = OverheadEffort(1_000, 20, 1.0, 24)
QUICK = OverheadEffort(100, 4, 0.5, 1)


def measure(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Measure all modes in turns."""
    effort = QUICK if quick else FULL
    table = cpu_table()
    asyncio.run(rounds(table, effort, say))
    said = setting(
        events_a_second=effort.events_a_second,
        subscribers=effort.subscribers,
        seconds=effort.seconds,
        repetitions=effort.repetitions,
    )
    return [table, said]


async def rounds(table: Table, effort: OverheadEffort, say: Callable[[str], None]) -> None:
    """Start the brokers of all modes, and measure one after the other in every repetition."""
    async with AsyncExitStack() as stack:
        overlays: dict[str, RealOverlay] = {}
        for mode, (keeps, are_durable) in MODES.items():
            launch = ("tidemark.lab.figures.dsn02.best_effort_broker", keeps)
            overlays[mode] = await stack.enter_async_context(RealOverlay(["p1"], launch=launch))
            await overlays[mode].populate(effort.subscribers, effort.events_a_second, are_durable=are_durable)
            await overlays[mode].finish()
        modes = list(MODES)
        for repetition in range(effort.repetitions):
            for mode in modes[repetition % len(modes) :] + modes[: repetition % len(modes)]:
                await measured(table, mode, repetition, effort.seconds, overlays[mode])
            say(f"repetition {repetition + 1}")


def cpu_table() -> Table:
    """Returns the table of CPU times of each broker in each repetition of each mode."""
    return Table("cpu", ("mode", "repetition", "broker", "cpu_s", "seconds", "events", "cpu_us_an_event"))


async def measured(table: Table, mode: str, repetition: int, seconds: float, overlay: RealOverlay) -> None:
    """Measure one mode once and add a row for each broker."""
    overlay.publish_again()
    await asyncio.sleep(WARM_SECONDS)
    loop = asyncio.get_running_loop()
    begin, before = loop.time(), overlay.publishers[0].published
    used = [cpu_seconds_exact(broker.pid) for broker in overlay.brokers]
    await asyncio.sleep(seconds)
    took, events = loop.time() - begin, overlay.publishers[0].published - before
    for broker, start in zip(overlay.brokers, used, strict=True):
        cpu = cpu_seconds_exact(broker.pid) - start
        table.add(mode, repetition, broker.name, cpu, took, events, cpu * 1e6 / max(1, events))
    await overlay.finish()


def _costs(tables: Tables, mode: str) -> Numbers:
    """Returns cost[repetition] of an event at both brokers together, in microseconds."""
    table = tables["cpu"].where(mode=mode)
    repetitions, costs = table.numbers("repetition"), table.numbers("cpu_us_an_event")
    return np.array([costs[repetitions == each].sum() for each in np.unique(repetitions)])


def _draw(tables: Tables) -> Sequence[Panel]:
    lines = [
        PlotSeries(mode, np.arange(1.0, len(costs) + 1), costs, "marked")
        for mode in MODES
        for costs in [_costs(tables, mode)]
    ]
    return [Panel("both brokers together", "repetition", "CPU an event (us)", lines)]


def _compare(tables: Tables) -> Sequence[Comparison]:
    base = _costs(tables, BASE)
    findings = []
    for mode, paper in (
        ("exactly once", "exactly-once delivery takes 4% more CPU than best effort, when nothing fails"),
        ("durable", "the same, with subscribers that are durable, which those of the paper were not"),
    ):
        more = _costs(tables, mode) / base - 1
        low, high = median_interval(more)
        ours, theirs = np.median(_costs(tables, mode)), np.median(base)
        said = f"{np.median(more):+.1%} with a standard error of {median_error(more):.1%}: {ours:.0f} us an "
        said += f"event against {theirs:.0f} us; with 95% certainty between {low:+.1%} and {high:+.1%}, from "
        said += f"{len(more)} pairs"
        holds = True if high <= PAPER + ROOM else False if low > PAPER + ROOM else None
        findings.append(Comparison(paper, said, holds, UNTOLD if holds is None else LOGGED))
    return findings


FIGURE = Figure(
    "overhead", "CPU of exactly-once delivery over best effort", "DSN'02, section 4", _draw, _compare
)
