"""History: memory and start of a broker that keeps a long history for 10,000 durable subscribers, all away.

Events are published in steps. In the first ones the window of recent events and the caches fill. What the
broker's memory grows by in the last step is what an event of history costs for as long as it is kept; the
index of a log and of the PFS should be all of it. Then the broker is killed, and it is measured how long the
next start takes. At the end some subscribers return and check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, all_of, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.fanout import subscribing

MEGABYTES = 400.0
START_SECONDS = 5.0
#: For how many events the goal is; what is measured for fewer is scaled up to it.
GOAL_EVENTS = 100_000_000
KINDS = 100
BATCH_EVENTS = 2_000
#: Longer than the intervals at which the PFS and the tables are written.
SETTLE_SECONDS = 3.0
#: The longest that publishing a step of the history, or the return, may take.
PATIENCE_SECONDS = 900.0
NOTES = (
    "memory: the resident set, files of the disk that are mapped not counted; each wants one event in 100",
    "bytes an event: in the last step of the history; scaled: with 100 million events",
)


@dataclass(frozen=True, slots=True)
class HistoryEffort:
    """How much is measured."""

    subscribers: int
    #: events published by the end of each step
    steps: tuple[int, ...]
    #: subscribers that return at the end
    returning: int


FULL = HistoryEffort(10_000, (1_000_000, 10_000_000, 40_000_000, 100_000_000), 4)
QUICK = HistoryEffort(1_000, (50_000, 100_000, 200_000), 20)


def sections(effort: HistoryEffort) -> Iterator[Section]:
    """Yields the section; AssertionError when a subscriber that returns gets anything but its events."""
    with BenchTestbed() as testbed:
        yield from _measured(testbed, effort)


def _measured(testbed: BenchTestbed, effort: HistoryEffort) -> Iterator[Section]:
    broker = testbed.broker("os")
    case = f"os on {filesystem()}"
    publisher = testbed.worker("publish", url=broker.url, kinds=KINDS)
    returning = subscribing(testbed, effort.returning, "lean", quarter=True, kinds=KINDS)
    others = subscribing(
        testbed,
        effort.subscribers - effort.returning,
        "lean",
        quarter=True,
        kinds=KINDS,
        first=effort.returning,
    )
    for workers in (returning, others):
        all_of(workers, "come", PATIENCE_SECONDS, url=broker.url)
        all_of(workers, "leave", PATIENCE_SECONDS)
    for worker in others:
        testbed.end(worker)
    found: list[Measurement] = []
    held: list[int] = []
    published = 0
    for upto in effort.steps:
        publisher.request("fixed", events=upto - published, batch_events=BATCH_EVENTS)
        published = publisher.answer(PATIENCE_SECONDS)
        sleep(SETTLE_SECONDS)
        held.append(_anonymous_bytes(broker))
        found.append(Measurement(case, f"memory after {published:,} events", held[-1] / 1e6, "MB"))
    an_event = (held[-1] - held[-2]) / (effort.steps[-1] - effort.steps[-2])
    scaled = held[-1] + an_event * (GOAL_EVENTS - effort.steps[-1])
    disk = broker.disk_bytes / published
    testbed.kill(broker)
    began, broker = monotonic(), testbed.broker("os")
    started = monotonic() - began
    cpu = broker.cpu_seconds
    sleep(SETTLE_SECONDS)
    again = _anonymous_bytes(broker)
    found += [
        Measurement(case, "memory, each event", an_event, "bytes/event"),
        Measurement(case, f"memory, scaled to {GOAL_EVENTS:,}", scaled / 1e6, "MB", Goal("<=", MEGABYTES)),
        Measurement(case, "on disk", disk, "bytes/event"),
        Measurement(case, "start after a kill", started, "s", Goal("<=", START_SECONDS)),
        Measurement(case, "CPU of that start", cpu, "s"),
        Measurement(case, "memory after that start", again / 1e6, "MB"),
    ]
    title = f"{effort.subscribers:,} durable subscribers away, {effort.steps[-1]:,} events of history"
    yield Section(title, found, notes=NOTES)
    began = monotonic()
    all_of(returning, "come", PATIENCE_SECONDS, url=broker.url)
    all_of(returning, "check", PATIENCE_SECONDS, events=published)
    taken = [Measurement(case, "until all have all of theirs", monotonic() - began, "s")]
    yield Section(f"{effort.returning} of them return after that start", taken)


def _anonymous_bytes(broker: BenchBroker) -> int:
    """Returns the memory of the broker that is not of files."""
    with open(f"/proc/{broker.process.pid}/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssAnon"].split()[0]) << 10
