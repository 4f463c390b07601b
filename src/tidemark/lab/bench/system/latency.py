"""Latency: from the call of publish() to the event in the hands of a durable subscriber, both in Python.

200 events a second, one at a time. Publisher, broker and subscriber are three processes on one clock. The
subscriber must get every event, once and in order. The Python baseline (`python_baseline.py`)
is measured in turns with it, at the same pace. In two cases the broker has a processor to itself, in
one of them with `broker.latency = "low"`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

from tidemark.lab.bench.processes.harness import BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.steps import step_sections

EVENTS_A_SECOND = 200
P50_MS = 0.8
P99_MS = 2.0
NOTES = (
    "the client at both ends, the subscriber takes event by event; bare fdatasync is from the same run",
    "the baseline: a server in Python that appends, syncs and passes on what it gets, and nothing else",
)
BARE_SYNCS = 300


@dataclass(frozen=True, slots=True)
class LatencyCase:
    """How one case is run."""

    durability: str
    #: the broker and the baseline have the first processor to themselves, their clients the others
    is_alone: bool = False
    #: the value of `broker.latency`
    latency: str = "normal"

    def __str__(self) -> str:
        alone = ", a processor to itself" if self.is_alone else ""
        return f"{self.durability} on {filesystem()}{alone}{', low' if self.latency == 'low' else ''}"


@dataclass(frozen=True, slots=True)
class LatencyEffort:
    """How much is measured."""

    cases: tuple[LatencyCase, ...]
    #: rounds of `events` events, and as many of the baseline; the first round is not counted
    rounds: int
    events: int
    #: number of events whose steps in the broker are timed
    stepped: int


FULL = LatencyEffort(
    (
        LatencyCase("sync"),
        LatencyCase("os"),
        LatencyCase("sync", is_alone=True),
        LatencyCase("sync", is_alone=True, latency="low"),
    ),
    7,
    500,
    1_000,
)
QUICK = LatencyEffort((LatencyCase("sync"), LatencyCase("sync", is_alone=True, latency="low")), 3, 200, 100)


def sections(effort: LatencyEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when an event is missing, repeated or out of order."""
    for case in effort.cases:
        if case.is_alone and len(os.sched_getaffinity(0)) < 2:
            continue  # there is nowhere else for the others to be
        with BenchTestbed() as testbed:
            yield Section(
                f"latency at {EVENTS_A_SECOND} events/s", _measured(testbed, case, effort), notes=NOTES
            )
    yield from step_sections(effort.stepped)


def _measured(testbed: BenchTestbed, case: LatencyCase, effort: LatencyEffort) -> list[Measurement]:
    broker = testbed.broker(case.durability, **{"broker.latency": case.latency})
    publisher = testbed.worker("publish", url=broker.url)
    stopwatch = testbed.worker("stopwatch", url=broker.url)
    server = testbed.worker(
        "baseline server", path=str(testbed.path / "baseline"), durability=case.durability
    )
    port = server.ask("port")
    baseline = (
        testbed.worker("baseline publisher", port=port),
        testbed.worker("baseline stopwatch", port=port),
    )
    if case.is_alone:
        first, *others = sorted(os.sched_getaffinity(0))
        for process in (broker, server):
            process.run_on({first})
        for process in (publisher, stopwatch, *baseline):
            process.run_on(set(others))
    ours: list[int] = []
    least: list[int] = []
    for number in range(effort.rounds):
        found = _round(publisher, stopwatch, effort.events), _round(*baseline, effort.events)
        if number:
            ours += found[0]
            least += found[1]
    bare = median(publisher.ask("one_by_one", events=BARE_SYNCS, directory=str(testbed.path))["bare"]) / 1e6
    goals = (Goal("<=", P50_MS), Goal("<=", P99_MS)) if case.durability == "sync" else (None, None)
    return [
        *_percentiles(str(case), ours, goals),
        Measurement(str(case), "bare fdatasync, p50", bare, "ms"),
        *_percentiles(f"baseline, {case}", least, (None, None)),
    ]


def _round(publisher: WorkerProcess, stopwatch: WorkerProcess, events: int) -> list[int]:
    """Returns nanoseconds from publishing to arrival of each event."""
    stopwatch.request("measure", events=events)
    publisher.ask("paced", rate=EVENTS_A_SECOND, events=events)
    taken: list[int] = stopwatch.answer()
    return taken


def _percentiles(
    case: str, nanoseconds: list[int], goals: tuple[Goal | None, Goal | None]
) -> Iterator[Measurement]:
    of_hundred = quantiles(nanoseconds, n=100)
    yield Measurement(case, "p50", of_hundred[49] / 1e6, "ms", goals[0])
    yield Measurement(case, "p99", of_hundred[98] / 1e6, "ms", goals[1])
    yield Measurement(case, "longest", max(nanoseconds) / 1e6, "ms")
