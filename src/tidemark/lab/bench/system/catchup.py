"""Catching up: 40 durable subscribers were away for 40,000 events and return together.

Somebody publishes meanwhile, or nobody does, as in the comparison with other systems. They catch up from the
broker's memory, or from its disk after a restart. Nothing may be lost or repeated.
`storage.py` measures the bytes on disk while they are away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic, sleep

from tidemark.lab.bench.processes.harness import BenchTestbed, all_of, events_a_frame, filesystem, wait_until
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.fanout import KINDS, subscribing
from tidemark.lab.bench.system.storage import measured_storage

DELIVERIES_A_SECOND = 1.5e6
#: The goals where each wants a quarter of the events.
QUARTER_DELIVERIES_A_SECOND = 2.5e6
QUARTER_CPU_SECONDS_A_MILLION = 0.3
LIVE_EVENTS_A_SECOND = 800
#: Seconds of live load before they return and after they have caught up.
LIVE_SECONDS = 0.3
BATCH_EVENTS = 400
NOTES = (
    "from the first connection until everybody has all that was missed; live events are counted too",
    "restarted: the broker was started again meanwhile; quarter: each wants a quarter of the events",
    f"{LIVE_EVENTS_A_SECOND} events a second are published one by one, unless a case has no live load",
    "baseline: a server in Python that sends the same subscribers the same events from memory, and no more",
)


@dataclass(frozen=True, slots=True)
class CatchupCase:
    """How one case is run."""

    durability: str
    style: str
    quarter: bool = False
    restarted: bool = False
    #: somebody publishes while they return
    live: bool = True

    def __str__(self) -> str:
        notes = (("quarter", self.quarter), ("restarted", self.restarted), ("no live load", not self.live))
        extra = "".join(f", {note}" for note, is_so in notes if is_so)
        return f"{self.durability} on {filesystem()}, {self.style}{extra}"


@dataclass(frozen=True, slots=True)
class CatchupEffort:
    """How much is measured."""

    cases: tuple[CatchupCase, ...]
    subscribers: int
    events: int
    #: sizes of the published batches for which the disk is measured, and events in each measurement
    storage_batches: tuple[int, ...]
    storage_events: int


FULL = CatchupEffort(
    (
        CatchupCase("sync", "lean"),
        CatchupCase("sync", "lean", quarter=True),
        CatchupCase("sync", "lean", restarted=True),
        CatchupCase("sync", "lean", quarter=True, restarted=True),
        CatchupCase("sync", "lean", quarter=True, live=False),
        CatchupCase("sync", "lean", quarter=True, restarted=True, live=False),
        CatchupCase("sync", "client"),
        CatchupCase("os", "lean"),
    ),
    40,
    40_000,
    (1, 8, 100),
    100_000,
)
QUICK = CatchupEffort(
    (CatchupCase("sync", "lean"), CatchupCase("os", "client", quarter=True)), 40, 8_000, (8, 100), 20_000
)


def sections(effort: CatchupEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a subscriber got anything but its events."""
    for batch in effort.storage_batches:
        with BenchTestbed() as testbed:
            events = effort.storage_events if batch > 1 else effort.storage_events // 5
            yield measured_storage(testbed, batch, events, effort.subscribers)
    for case in effort.cases:
        with BenchTestbed() as testbed:
            title = f"{effort.subscribers} subscribers return after {effort.events:,} events"
            yield Section(title, _measured(testbed, case, effort), notes=NOTES)
        if case.quarter and not case.restarted and case.live:
            with BenchTestbed() as testbed:
                baseline = _baseline(testbed, replace(case, style="lean"), effort)
                yield Section(title, baseline, notes=NOTES[3:])


def _measured(testbed: BenchTestbed, case: CatchupCase, effort: CatchupEffort) -> list[Measurement]:
    broker = testbed.broker(case.durability)
    publisher = testbed.worker("publish", url=broker.url, kinds=KINDS)
    workers = subscribing(testbed, effort.subscribers, case.style, quarter=case.quarter)
    all_of(workers, "come", url=broker.url)
    all_of(workers, "leave")
    publisher.ask("fixed", events=effort.events, batch_events=BATCH_EVENTS)
    if case.restarted:
        testbed.end(broker)
        broker = testbed.broker(case.durability)
        publisher.ask("reopen", url=broker.url)
    if case.live:
        publisher.request("paced", rate=LIVE_EVENTS_A_SECOND)
    sleep(LIVE_SECONDS)
    began, before, cpu = monotonic(), testbed.counters.delivered, broker.cpu_seconds
    for worker in workers:
        worker.request("come", url=broker.url, missed=effort.events)
    assert wait_until(lambda: testbed.counters.caught_up == effort.subscribers), "not all caught up in time"
    taken, delivered = monotonic() - began, testbed.counters.delivered - before
    used = broker.cpu_seconds - cpu
    for worker in workers:
        worker.answer()
    sleep(LIVE_SECONDS)
    testbed.counters.stop()
    found = all_of(workers, "check", events=publisher.answer() if case.live else effort.events)
    goal, effort_goal = None, None
    if case.durability == "sync" and case.quarter:
        goal = Goal(">=", QUARTER_DELIVERIES_A_SECOND)
        effort_goal = Goal("<=", QUARTER_CPU_SECONDS_A_MILLION)
    elif case.durability == "sync" and not case.restarted:
        goal = Goal(">=", DELIVERIES_A_SECOND)
    return [
        Measurement(str(case), "deliveries", delivered / taken, "/s", goal),
        Measurement(str(case), "all caught up after", taken, "s"),
        Measurement(str(case), "broker CPU", used * 1e6 / delivered, "s/million", effort_goal),
        Measurement(str(case), "events a delivery frame", events_a_frame(found), "events"),
    ]


def _baseline(testbed: BenchTestbed, case: CatchupCase, effort: CatchupEffort) -> list[Measurement]:
    """Measure the same return to a server that only sends."""
    server = testbed.worker("bulk server", path=str(testbed.path / "baseline"), durability=case.durability)
    url = server.ask("url")
    server.ask("hold", events=effort.events)
    workers = subscribing(testbed, effort.subscribers, case.style, quarter=True)
    for worker in workers:
        worker.wait()
    began, cpu = monotonic(), server.cpu_seconds
    for worker in workers:
        worker.request("come", url=url, missed=effort.events)
    assert wait_until(lambda: testbed.counters.caught_up == effort.subscribers), "not all caught up in time"
    taken, used = monotonic() - began, server.cpu_seconds - cpu
    for worker in workers:
        worker.answer()
    found = all_of(workers, "check", events=effort.events)
    delivered = sum(each["deliveries"] for each in found)
    name = f"baseline, {case}"
    return [
        Measurement(name, "deliveries", delivered / taken, "/s"),
        Measurement(name, "server CPU", used * 1e6 / delivered, "s/million"),
        Measurement(name, "events a delivery frame", events_a_frame(found), "events"),
    ]
