"""Latency: from the call of publish() to the event in the hands of a durable subscriber, both in Python.

200 events a second, one at a time. Publisher, broker and subscriber are three processes on one clock. The
subscriber must get every event, once and in order. The Python baseline (`python_baseline.py`, "floor" in the
report) is measured in turns with it, at the same pace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

from tidemark.lab.bench.processes.harness import BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.steps import step_sections

EVENTS_A_SECOND = 200
P50_MS = 0.6
P99_MS = 3.0
NOTES = (
    "the client at both ends, the subscriber takes event by event; bare fdatasync is from the same run",
    "the floor: a server in Python that appends, syncs and passes on what it gets, and nothing else",
)
BARE_SYNCS = 300


@dataclass(frozen=True, slots=True)
class LatencyEffort:
    """How much is measured."""

    durabilities: tuple[str, ...]
    #: rounds of `events` events, and as many of the baseline; the first round is not counted
    rounds: int
    events: int
    #: number of events whose steps in the broker are timed
    stepped: int


FULL = LatencyEffort(("sync", "os"), 7, 500, 1_000)
QUICK = LatencyEffort(("sync", "os"), 3, 200, 100)


def sections(effort: LatencyEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when an event is missing, repeated or out of order."""
    for durability in effort.durabilities:
        with BenchTestbed() as testbed:
            yield Section(
                f"latency at {EVENTS_A_SECOND} events/s", _measured(testbed, durability, effort), notes=NOTES
            )
    yield from step_sections(effort.stepped)


def _measured(testbed: BenchTestbed, durability: str, effort: LatencyEffort) -> list[Measurement]:
    broker = testbed.broker(durability)
    publisher = testbed.worker("publish", url=broker.url)
    stopwatch = testbed.worker("stopwatch", url=broker.url)
    server = testbed.worker("baseline server", path=str(testbed.path / "floor"), durability=durability)
    port = server.ask("port")
    baseline = (
        testbed.worker("baseline publisher", port=port),
        testbed.worker("baseline stopwatch", port=port),
    )
    ours: list[int] = []
    least: list[int] = []
    for number in range(effort.rounds):
        found = _round(publisher, stopwatch, effort.events), _round(*baseline, effort.events)
        if number:
            ours += found[0]
            least += found[1]
    bare = median(publisher.ask("one_by_one", events=BARE_SYNCS, directory=str(testbed.path))["bare"]) / 1e6
    case, is_sync = f"{durability} on {filesystem()}", durability == "sync"
    goals = (Goal("<", P50_MS), Goal("<", P99_MS)) if is_sync else (None, None)
    return [
        *_percentiles(case, ours, goals),
        Measurement(case, "bare fdatasync, p50", bare, "ms"),
        *_percentiles(f"floor, {case}", least, (None, None)),
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
