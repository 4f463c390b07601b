"""Catching up: 40 durable subscribers were away for 40,000 events and return together, under live load.

From the broker's memory, and from its disk after it was started again. Nothing may be lost or repeated. What
lies on disk while they are away is measured too: see `storage`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from tidemark.lab.bench.processes.harness import Bed, all_of, events_a_frame, filesystem, wait_until
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.fanout import KINDS, subscribing
from tidemark.lab.bench.system.storage import measured_storage

DELIVERIES_A_SECOND = 1.5e6
LIVE_EVENTS_A_SECOND = 800
#: The live load runs for so long before and after.
LIVE_SECONDS = 0.3
BATCH_EVENTS = 400
NOTES = (
    "from the first connection until everybody has all that was missed; live events are counted too",
    "restarted: the broker was started again meanwhile; quarter: each wants a quarter of the events",
)


@dataclass(frozen=True, slots=True)
class Case:
    """How it is run."""

    durability: str
    style: str
    quarter: bool = False
    restarted: bool = False

    def __str__(self) -> str:
        extra = (", quarter" if self.quarter else "") + (", restarted" if self.restarted else "")
        return f"{self.durability} on {filesystem()}, {self.style}{extra}"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    cases: tuple[Case, ...]
    subscribers: int
    events: int
    #: batches of so many events are what is measured on disk, and how many of these
    storage_batches: tuple[int, ...]
    storage_events: int


FULL = Effort(
    (
        Case("sync", "lean"),
        Case("sync", "lean", quarter=True),
        Case("sync", "lean", restarted=True),
        Case("sync", "client"),
        Case("os", "lean"),
    ),
    40,
    40_000,
    (1, 8, 100),
    100_000,
)
QUICK = Effort((Case("sync", "lean"), Case("os", "client", quarter=True)), 40, 8_000, (8, 100), 20_000)


def bench_catchup(effort: Effort) -> Iterator[Section]:
    """The sections of the bench; AssertionError when a subscriber got anything else than it should."""
    for batch in effort.storage_batches:
        with Bed() as bed:
            events = effort.storage_events if batch > 1 else effort.storage_events // 5
            yield measured_storage(bed, batch, events, effort.subscribers)
    for case in effort.cases:
        with Bed() as bed:
            title = f"{effort.subscribers} subscribers return after {effort.events:,} events"
            yield Section(title, _measured(bed, case, effort), notes=NOTES)


def _measured(bed: Bed, case: Case, effort: Effort) -> list[Measurement]:
    broker = bed.broker(case.durability)
    publisher = bed.worker("publish", url=broker.url, kinds=KINDS)
    workers = subscribing(bed, effort.subscribers, case.style, quarter=case.quarter)
    all_of(workers, "come", url=broker.url)
    all_of(workers, "leave")
    publisher.ask("fixed", events=effort.events, batch_events=BATCH_EVENTS)
    if case.restarted:
        bed.end(broker)
        broker = bed.broker(case.durability)
        publisher.ask("reopen", url=broker.url)
    publisher.tell("paced", rate=LIVE_EVENTS_A_SECOND)
    sleep(LIVE_SECONDS)
    began, before, cpu = monotonic(), bed.board.delivered, broker.cpu_seconds
    for worker in workers:
        worker.tell("come", url=broker.url, missed=effort.events)
    assert wait_until(lambda: bed.board.caught_up == effort.subscribers), "not all caught up in time"
    taken, delivered = monotonic() - began, bed.board.delivered - before
    used = broker.cpu_seconds - cpu
    for worker in workers:
        worker.hear()
    sleep(LIVE_SECONDS)
    bed.board.stop()
    found = all_of(workers, "check", events=publisher.hear())
    is_goal = case.durability == "sync" and not case.quarter and not case.restarted
    goal = Goal(">=", DELIVERIES_A_SECOND) if is_goal else None
    return [
        Measurement(str(case), "deliveries", delivered / taken, "/s", goal),
        Measurement(str(case), "all caught up after", taken, "s"),
        Measurement(str(case), "broker CPU", used * 1e6 / delivered, "s/million"),
        Measurement(str(case), "events a delivery frame", events_a_frame(found), "events"),
    ]
