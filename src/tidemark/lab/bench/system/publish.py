"""Publishing: as fast as one publisher can without waiting for each event, and one event at a time.

The broker keeps everything for a durable subscriber that is away. It returns at the end and checks that every
event is there, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from tidemark.lab.bench.peers.catalogue import TIDEMARK
from tidemark.lab.bench.processes.harness import (
    BenchProcess,
    BenchTestbed,
    WorkerProcess,
    events_a_frame,
    filesystem,
)
from tidemark.lab.bench.report import Goal, Measurement, Section

EVENTS_A_SECOND = 400_000
#: The goals for batches of at most so many events.
SMALL_BATCH = 100
SMALL_EVENTS_A_SECOND = 600_000
SMALL_CPU_SECONDS_A_MILLION = 1.2
BEYOND_BARE_SYNC_MS = 0.2
#: Events in a round of publishing one at a time.
ROUND = 50
#: The way to publish of a client on a bare socket, and the events that it has under way.
BARE = "bare socket"
UNDER_WAY_EVENTS = 1_000
NOTES = (
    "250-byte events; publish_batch takes batches that are ready, publish_many and publish encode dicts; a "
    f"bare socket sends ready frames with at most {UNDER_WAY_EVENTS:,} events under way, to the broker and "
    "then to the baseline, a server in Python that appends, syncs and acknowledges the same bytes",
    "one at a time, in turns: publish() until its acknowledgement; 330 bytes appended and fdatasync; and the "
    "baseline, which is a server in Python that does nothing else",
)


@dataclass(frozen=True, slots=True)
class PublishCase:
    """A way to publish."""

    durability: str
    way: str
    batch: int

    def __str__(self) -> str:
        many = f" of {self.batch:,}" if self.way != "publish" else ""
        return f"{self.durability} on {filesystem()}, {self.way}{many}"


@dataclass(frozen=True, slots=True)
class PublishEffort:
    """How much is measured."""

    cases: tuple[PublishCase, ...]
    warm_seconds: float
    seconds: float
    #: rounds of ROUND events, as many bare syncs and events of the baseline; the first is not counted
    rounds: int


FULL = PublishEffort(
    (
        PublishCase("sync", "publish_batch", 2_000),
        PublishCase("sync", "publish_batch", 400),
        PublishCase("sync", "publish_batch", 100),
        PublishCase("sync", BARE, 100),
        PublishCase("sync", "publish_many", 2_000),
        PublishCase("sync", "publish", 1),
        PublishCase("os", "publish_batch", 2_000),
    ),
    0.5,
    1.5,
    20,
)
QUICK = PublishEffort(
    (
        PublishCase("sync", "publish_batch", 2_000),
        PublishCase("sync", BARE, 100),
        PublishCase("os", "publish", 1),
    ),
    0.3,
    0.5,
    6,
)


def sections(effort: PublishEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when an event is missing or there twice."""
    for case in effort.cases:
        with BenchTestbed() as testbed:
            yield Section("one publisher, pipelined", _pipelined(testbed, case, effort), notes=NOTES[:1])
    for durability in dict.fromkeys(case.durability for case in effort.cases):
        with BenchTestbed() as testbed:
            yield Section(
                "one publisher, one event at a time",
                _one_by_one(testbed, durability, effort),
                notes=NOTES[1:],
            )


def _pipelined(testbed: BenchTestbed, case: PublishCase, effort: PublishEffort) -> list[Measurement]:
    broker = testbed.broker(case.durability)
    auditor = _auditor(testbed, broker.url)
    found, used = _flooded(testbed, case, effort, broker, broker.url)
    seen = _audit(auditor, broker.url, found["events"])
    is_small = case.batch <= SMALL_BATCH
    # Small batches have their goals for a client that costs little, on two cores that it shares.
    is_goal = case.durability == "sync" and case.way == (BARE if is_small else "publish_batch")
    goal = Goal(">=", SMALL_EVENTS_A_SECOND if is_small else EVENTS_A_SECOND) if is_goal else None
    effort_goal = Goal("<=", SMALL_CPU_SECONDS_A_MILLION) if is_goal and is_small else None
    measured = [
        Measurement(str(case), "events", found["rate"], "/s", goal),
        Measurement(str(case), "broker CPU", used, "s/million events", effort_goal),
        Measurement(str(case), "publisher busy", found["cpu"], "cores"),
        Measurement(str(case), "events a frame, later", seen, "events"),
    ]
    if case.way == BARE:
        path = str(testbed.path / "baseline")
        server = testbed.worker("bulk server", path=path, durability=case.durability)
        least, baseline_used = _flooded(testbed, case, effort, server, server.ask("url"))
        baseline = f"baseline, {case}"
        measured += [
            Measurement(baseline, "events", least["rate"], "/s"),
            Measurement(baseline, "server CPU", baseline_used, "s/million events"),
            Measurement(baseline, "publisher busy", least["cpu"], "cores"),
        ]
    return measured


def _flooded(
    testbed: BenchTestbed, case: PublishCase, effort: PublishEffort, server: BenchProcess, url: str
) -> tuple[dict[str, Any], float]:
    """Publish as fast as possible; returns what the publisher found, and the server's CPU for a million."""
    given: dict[str, Any] = {
        "batch_events": case.batch,
        "warm": effort.warm_seconds,
        "seconds": effort.seconds,
    }
    if case.way == BARE:
        publisher = testbed.worker("peer publisher", peer=TIDEMARK, url=url, kinds=4)
        given["under_way"] = UNDER_WAY_EVENTS
    else:
        publisher = testbed.worker("publish", url=url)
        given["way"] = case.way
    publisher.wait()
    cpu = server.cpu_seconds
    found = publisher.ask("flood", **given)
    return found, (server.cpu_seconds - cpu) * 1e6 / max(found["events"], 1)


def _one_by_one(testbed: BenchTestbed, durability: str, effort: PublishEffort) -> list[Measurement]:
    """Measure publishing, bare syncs and the baseline in turns, so that they meet the same moments."""
    broker = testbed.broker(durability)
    publisher = testbed.worker("publish", url=broker.url)
    auditor = _auditor(testbed, broker.url)
    server = testbed.worker("baseline server", path=str(testbed.path / "baseline"), durability=durability)
    baseline = testbed.worker("baseline publisher", port=server.ask("port"))
    taken: dict[str, list[int]] = {"publish": [], "bare": [], "baseline": []}
    for number in range(effort.rounds):
        found = publisher.ask("one_by_one", events=ROUND, directory=str(testbed.path))
        found["baseline"] = baseline.ask("one_by_one", events=ROUND)
        if number:  # the first round is a warm-up
            for key, nanoseconds in found.items():
                taken[key] += nanoseconds
    _audit(auditor, broker.url, ROUND * effort.rounds)
    publish, bare, least = (median(taken[key]) / 1e6 for key in ("publish", "bare", "baseline"))
    where = f"{durability} on {filesystem()}"
    case, baseline_case = f"{where}, one at a time", f"baseline, {where}, one at a time"
    goal = Goal("<=", BEYOND_BARE_SYNC_MS) if durability == "sync" else None
    return [
        Measurement(case, "publish, p50", publish, "ms"),
        Measurement(case, "bare fdatasync, p50", bare, "ms"),
        Measurement(case, "publish beyond fdatasync", publish - bare, "ms", goal),
        Measurement(baseline_case, "publish, p50", least, "ms"),
        Measurement(baseline_case, "publish beyond fdatasync", least - bare, "ms"),
    ]


def _auditor(testbed: BenchTestbed, url: str) -> WorkerProcess:
    """Start a durable subscriber of everything that connects once and leaves."""
    auditor = testbed.worker("subscribe", worker=0, style="lean", kinds=4, subscribers=[("auditor", None)])
    auditor.ask("come", url=url)
    auditor.ask("leave")
    return auditor


def _audit(auditor: WorkerProcess, url: str, events: int) -> float:
    """Let the subscriber return and check all events; returns the average events in a delivery frame."""
    auditor.ask("come", url=url)
    return events_a_frame([auditor.ask("check", events=events)])
