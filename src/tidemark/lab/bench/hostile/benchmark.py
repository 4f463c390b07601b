"""Hostile: what a well-behaved publisher and subscriber notice of clients that want to stop the broker.

One broker process. The well-behaved client is measured alone, then beside each attack, then beside all of
them together. It must get every event, once and in order; the broker must go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles
from time import sleep

from tidemark.lab.bench.hostile.attacks import ATTACKS
from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.processes.process_numbers import peak_resident_bytes

#: What a well-behaved client may notice of all attacks together.
P99_MS = 50.0
#: What the broker may hold, all attacks together: its queues, windows and input have bounds (docs/limits.md).
RSS_MIB = 1_024
ALONE = "alone"
TOGETHER = "all together"
NOTES = (
    "a publisher and a subscriber that behave, in one process; attackers in another, with a lower priority",
    "done: how often the attack did what it is named for, refusals included",
)


@dataclass(frozen=True, slots=True)
class HostileEffort:
    """How much is measured."""

    #: the name of a set of sizes in `AttackerRole`
    sizes: str
    events: int
    rate: float
    #: attacks go on for so long before it is measured, and the broker has so long to recover afterwards
    warm_seconds: float
    attacks: tuple[str, ...] = tuple(ATTACKS)


FULL = HostileEffort("full", 1_000, 100.0, 2.0)
QUICK = HostileEffort("quick", 200, 100.0, 0.5)
TINY = HostileEffort("tiny", 5, 100.0, 0.0)


def sections(effort: HostileEffort) -> Iterator[Section]:
    """Yields a section for each attack; AssertionError when an event is missing, repeated or out of order."""
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync")
        neighbour = testbed.worker("neighbour", url=broker.url)
        neighbour.ask("measure", events=min(effort.events, 50), rate=effort.rate)
        yield Section(f"hostile clients, sync on {filesystem()}", _alone(neighbour, effort), notes=NOTES)
        for name in effort.attacks:
            yield Section(f"beside: {name}", _beside(testbed, broker, neighbour, effort, (name,)))
        yield Section(TOGETHER, _beside(testbed, broker, neighbour, effort, effort.attacks))


def _alone(neighbour: WorkerProcess, effort: HostileEffort) -> list[Measurement]:
    return _percentiles(ALONE, _measured(neighbour, effort))


def _beside(
    testbed: BenchTestbed,
    broker: BenchBroker,
    neighbour: WorkerProcess,
    effort: HostileEffort,
    attacks: tuple[str, ...],
) -> list[Measurement]:
    case = attacks[0] if len(attacks) == 1 else TOGETHER
    attacker = testbed.worker("attacker", url=broker.url, sizes=effort.sizes)
    attacker.ask("begin", names=attacks)
    sleep(effort.warm_seconds)
    found = _measured(neighbour, effort)
    done = attacker.ask("end")
    testbed.end(attacker)
    sleep(effort.warm_seconds)
    assert broker.process.poll() is None, f"the broker has ended: {case}"
    peak = peak_resident_bytes(broker.process.pid) / (1 << 20)
    return [
        *_percentiles(case, found, Goal("<", P99_MS)),
        Measurement(case, "broker's peak memory so far", peak, "MiB", Goal("<", RSS_MIB)),
        *(Measurement(case, f"done: {name}", times, "times") for name, times in done.items()),
    ]


def _measured(neighbour: WorkerProcess, effort: HostileEffort) -> dict[str, list[int]]:
    neighbour.request("measure", events=effort.events, rate=effort.rate)
    found: dict[str, list[int]] = neighbour.answer(effort.events / effort.rate + 150)
    return found


def _percentiles(case: str, found: dict[str, list[int]], goal: Goal | None = None) -> list[Measurement]:
    measurements = []
    for what, nanoseconds in found.items():
        cuts = quantiles(nanoseconds, n=100, method="inclusive")
        measurements += [
            Measurement(case, f"{what}, p50", cuts[49] / 1e6, "ms"),
            Measurement(case, f"{what}, p99", cuts[98] / 1e6, "ms", goal),
        ]
    return measurements
