"""Latency: from the call of publish() to the event in the hands of a durable subscriber, both in Python.

200 events a second, one at a time. Publisher, broker and subscriber are three processes on one clock. The
subscriber must get every event, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.lab.bench.harness import Bed, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section

EVENTS_A_SECOND = 200
P50_MS = 0.6
P99_MS = 3.0
NOTES = ("the client at both ends, the subscriber takes event by event; bare fdatasync is from the same run",)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    durabilities: tuple[str, ...]
    warm_events: int
    events: int
    #: of 50 bare syncs each
    rounds: int


FULL = Effort(("sync", "os"), 400, 3_000, 6)
QUICK = Effort(("sync", "os"), 50, 400, 2)


def bench_latency(effort: Effort) -> Iterator[Section]:
    """The sections of the bench; AssertionError when an event is missing, repeated or out of order."""
    for durability in effort.durabilities:
        with Bed() as bed:
            yield Section(
                f"latency at {EVENTS_A_SECOND} events/s", _measured(bed, durability, effort), notes=NOTES
            )


def _measured(bed: Bed, durability: str, effort: Effort) -> list[Measurement]:
    broker = bed.broker(durability)
    publisher = bed.worker("publish", url=broker.url)
    stopwatch = bed.worker("stopwatch", url=broker.url)
    events = effort.warm_events + effort.events
    stopwatch.tell("measure", warm=effort.warm_events, events=events)
    publisher.ask("paced", rate=EVENTS_A_SECOND, events=events)
    found = stopwatch.hear()
    bare = publisher.ask("one_by_one", rounds=effort.rounds, directory=str(bed.path))["bare"]
    case = f"{durability} on {filesystem()}"
    is_sync = durability == "sync"
    return [
        Measurement(case, "p50", found["p50"], "ms", Goal("<", P50_MS) if is_sync else None),
        Measurement(case, "p99", found["p99"], "ms", Goal("<", P99_MS) if is_sync else None),
        Measurement(case, "longest", found["max"], "ms"),
        Measurement(case, "bare fdatasync, p50", bare, "ms"),
    ]
