"""Hostile: what a well-behaved publisher and subscriber notice of clients that want to stop the broker.

One broker process. The well-behaved client is measured alone, then beside each attack, then beside all of
them together. It must get every event, once and in order; the broker must go on. A server that nobody attacks
and that only syncs what it gets (`python_baseline`) is measured in the same moments: its percentiles are what
the machine itself adds then, to any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles
from time import sleep

from tidemark.lab.bench.hostile.attacker import ATTACKS
from tidemark.lab.bench.hostile.bare_link import key_file, overlay_settings
from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.processes.process_numbers import peak_resident_bytes

#: What a well-behaved client may notice of all attacks together.
P99_MS = 50.0
#: What the broker may hold, all attacks together: its queues, windows and input have bounds (docs/limits.md).
RSS_MIB = 1_024
ALONE = "alone"
TOGETHER = "all together"
#: What `--case` runs alone, on a fresh broker: the attacks of a case.
CASES: dict[str, tuple[str, ...]] = {name: (name,) for name in ATTACKS} | {TOGETHER: tuple(ATTACKS)}
NOTES = (
    "a publisher and a subscriber that behave, in one process; attackers in another, with a lower priority",
    "done: how often the attack did what it is named for, refusals included",
    "baseline: the same of a bare server that nobody attacks, at the same time; beyond it, the broker's own",
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


FULL = HostileEffort("full", 1_000, 100.0, 2.0)
QUICK = HostileEffort("quick", 200, 100.0, 0.5)
TINY = HostileEffort("tiny", 5, 100.0, 0.0)


def sections(effort: HostileEffort, case: str | None = None) -> Iterator[Section]:
    """Yields a section for each attack, or for one of CASES; AssertionError when what arrived is not exact.

    Exact is: every event once, and in order.
    """
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync", **overlay_settings(testbed.path))
        neighbour = testbed.worker("neighbour", url=broker.url)
        server = testbed.worker("baseline server", path=str(testbed.path / "baseline"), durability="sync")
        baseline = testbed.worker("baseline publisher", port=server.ask("port"))
        measured = Measured(neighbour, baseline, effort)
        neighbour.ask("measure", events=min(effort.events, 50), rate=effort.rate)
        alone = _percentiles(ALONE, measured())
        yield Section(f"hostile clients, sync on {filesystem()}", alone, notes=NOTES)
        for name, attacks in CASES.items() if case is None else [(case, CASES[case])]:
            title = TOGETHER if name == TOGETHER else f"beside: {name}"
            yield Section(title, _beside(testbed, broker, measured, effort, attacks))


@dataclass(frozen=True, slots=True)
class Measured:
    """Measures the well-behaved client and the baseline at the same time."""

    neighbour: WorkerProcess
    baseline: WorkerProcess
    effort: HostileEffort

    def __call__(self) -> dict[str, list[int]]:
        """Return nanoseconds for each event: to its acknowledgement, to its delivery, and of the baseline."""
        events, rate = self.effort.events, self.effort.rate
        self.neighbour.request("measure", events=events, rate=rate)
        self.baseline.request("timed", events=events, rate=rate)
        found: dict[str, list[int]] = self.neighbour.answer(events / rate + 150)
        return found | {"baseline": self.baseline.answer(events / rate + 150)}


def _beside(
    testbed: BenchTestbed,
    broker: BenchBroker,
    measured: Measured,
    effort: HostileEffort,
    attacks: tuple[str, ...],
) -> list[Measurement]:
    case = attacks[0] if len(attacks) == 1 else TOGETHER
    attacker = testbed.worker("attacker", url=broker.url, sizes=effort.sizes, key=str(key_file(testbed.path)))
    attacker.ask("begin", names=attacks)
    sleep(effort.warm_seconds)
    found = measured()
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


def _percentiles(case: str, found: dict[str, list[int]], goal: Goal | None = None) -> list[Measurement]:
    cuts = {what: quantiles(taken, n=100, method="inclusive") for what, taken in found.items()}
    measurements = []
    for what, cut in cuts.items():
        is_baseline = what == "baseline"
        measurements += [
            Measurement(case, f"{what}, p50", cut[49] / 1e6, "ms"),
            Measurement(case, f"{what}, p99", cut[98] / 1e6, "ms", None if is_baseline else goal),
        ]
    beyond = max(0.0, max(cuts[what][98] for what in found if what != "baseline") - cuts["baseline"][98])
    return [*measurements, Measurement(case, "beyond the baseline, p99", beyond / 1e6, "ms")]
