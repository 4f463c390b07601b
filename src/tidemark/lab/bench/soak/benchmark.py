"""Soak: a fixed rate for minutes or hours, while the broker is killed and subscribers come and go.

Latency counts from the time at which an event should have been sent (no coordinated omission), up to the
99.99th percentile, once for all events and once without those around a kill or a return. Memory and files of
the broker are looked at all the time. At the end each subscriber must have got exactly its events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from time import monotonic, monotonic_ns, sleep

import numpy as np

from tidemark.lab.bench.processes.harness import (
    BenchBroker,
    BenchTestbed,
    WorkerProcess,
    directory_bytes,
    filesystem,
)
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.soak.latency_histogram import percentile
from tidemark.lab.bench.system.fanout import KINDS
from tidemark.lab.processes.broker_start import free_port
from tidemark.lab.processes.process_numbers import resident_bytes

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "longest": 1.0}
#: Seconds after a kill or a return that do not count as calm.
AFTERMATH_SECONDS = 5.0
#: The longest that everybody may take for the rest, once publishing has ended.
REST_SECONDS = 45.0
#: Longer runs have slices of more than a second, so that their number has a bound.
SLICES_MAX = 3_600
MINUTES_MAX = 24 * 60
NOTES = (
    "latency from when an event was due, not from when it was sent; the client at both ends",
    "calm: without the slices of time in which the broker was killed or a subscriber came back",
    "memory and files: medians of the first and the last fifth of the run",
)


@dataclass(frozen=True, slots=True)
class SoakEffort:
    """How much is measured."""

    seconds: float
    rate: float = 1_000.0
    subscribers: int = 8
    #: seconds from a kill of the broker to the next, and from a leave of a subscriber to the next
    kill_seconds: float = 60.0
    leave_seconds: float = 25.0
    #: how long a subscriber is away
    away_seconds: float = 2.0
    look_seconds: float = 0.5

    @property
    def slice_seconds(self) -> float:
        """Seconds of a slice of time."""
        return float(max(1, ceil(self.seconds / SLICES_MAX)))


FULL = SoakEffort(300.0)
QUICK = SoakEffort(12.0, kill_seconds=5.0, leave_seconds=8.0, away_seconds=1.0)


def lasting(minutes: float) -> SoakEffort:
    """Returns the effort of a run of some minutes."""
    return SoakEffort(60.0 * min(minutes, MINUTES_MAX))


@dataclass
class Watch:
    """What was seen of the broker over time."""

    resident: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    disk: list[int] = field(default_factory=list)
    #: seconds from a kill until the broker listens again
    restarts: list[float] = field(default_factory=list)
    #: from when to when the run was disturbed, in seconds since its beginning
    disturbed: list[tuple[float, float]] = field(default_factory=list)

    def look(self, broker: BenchBroker) -> None:
        """Note what the broker has now."""
        self.resident.append(resident_bytes(broker.process.pid))
        self.descriptors.append(len(os.listdir(f"/proc/{broker.process.pid}/fd")))
        self.files.append(sum(path.is_file() for path in Path(broker.directory).rglob("*")))
        self.disk.append(directory_bytes(broker.directory))

    def calm_slices(self, slices: int, slice_seconds: float) -> list[int]:
        """Returns the slices of time that no disturbance touches."""
        return [
            number
            for number in range(slices)
            if not any(
                began < (number + 1) * slice_seconds and ended > number * slice_seconds
                for began, ended in self.disturbed
            )
        ]


def sections(effort: SoakEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a subscriber got anything but its events."""
    with BenchTestbed() as testbed:
        yield from _Soak(testbed, effort).run()


class _Soak:
    """One run."""

    def __init__(self, testbed: BenchTestbed, effort: SoakEffort) -> None:
        self._testbed = testbed
        self._effort = effort
        self._settings = {"broker.listen": f"127.0.0.1:{free_port()}"}
        self._broker = testbed.broker("sync", **self._settings)
        self._watch = Watch()
        self._slices = int(effort.seconds / effort.slice_seconds) + 1
        #: who is away, and when it comes back
        self._away: tuple[int, float] | None = None
        self._leaves = 0

    def run(self) -> Iterator[Section]:
        """Run it all; yields what was found."""
        effort, url = self._effort, self._broker.url
        slices = {"slices": self._slices, "slice_seconds": effort.slice_seconds}
        publisher = self._testbed.worker("soak publisher", url=url, kinds=KINDS, rate=effort.rate)
        subscribers = self._testbed.worker(
            "soak subscriber", kinds=KINDS, subscribers=effort.subscribers, **slices
        )
        publisher.wait()
        begin_ns = monotonic_ns()
        subscribers.ask("come", url=url, begin_ns=begin_ns)
        publisher.request("run", begin_ns=begin_ns)
        self._keep_on(subscribers, begin_ns / 1e9)
        self._testbed.counters.stop()
        lasted = monotonic() - begin_ns / 1e9
        events = publisher.answer(REST_SECONDS)
        deliveries = subscribers.ask("check", events=events, seconds=REST_SECONDS)
        calm = self._watch.calm_slices(self._slices, effort.slice_seconds)
        found = {"all": subscribers.ask("counts"), "calm": subscribers.ask("counts", slices=calm)}
        title = f"{effort.seconds:g} s at {effort.rate:g} events/s, {effort.subscribers} durable subscribers"
        case = f"sync on {filesystem()}"
        yield Section(
            title, [*self._totals(case, events, deliveries, lasted), *_latencies(found)], notes=NOTES
        )
        yield Section("the broker over time", self._over_time(case))

    def _keep_on(self, subscribers: WorkerProcess, begin: float) -> None:
        """Look at the broker, kill it, and have subscribers leave and return, until the time is over."""
        effort = self._effort
        kill, leave = effort.kill_seconds, effort.leave_seconds
        while (now := monotonic() - begin) < effort.seconds:
            is_last = now > effort.seconds - AFTERMATH_SECONDS
            if now >= kill and not is_last:
                self._restart(begin)
                kill += effort.kill_seconds
            elif self._away is not None and now >= self._away[1]:
                self._return(subscribers, begin)
            elif now >= leave and self._away is None and not is_last:
                number = self._leaves % effort.subscribers
                subscribers.ask("leave", number=number)
                self._leaves += 1
                self._away = (number, now + effort.away_seconds)
                leave += effort.leave_seconds
            self._watch.look(self._broker)
            sleep(effort.look_seconds)
        if self._away is not None:
            self._return(subscribers, begin)

    def _restart(self, begin: float) -> None:
        killed = monotonic()
        self._testbed.kill(self._broker)
        self._broker = self._testbed.broker("sync", **self._settings)
        ready = monotonic()
        self._watch.restarts.append(ready - killed)
        self._watch.disturbed.append((killed - begin, ready - begin + AFTERMATH_SECONDS))

    def _return(self, subscribers: WorkerProcess, begin: float) -> None:
        assert self._away is not None
        number, _ = self._away
        self._away = None
        back = monotonic() - begin
        subscribers.ask("back", number=number, url=self._broker.url)
        left = back - self._effort.away_seconds - 2 * self._effort.look_seconds
        self._watch.disturbed.append((left, back + AFTERMATH_SECONDS))

    def _totals(self, case: str, events: int, deliveries: int, lasted: float) -> Iterator[Measurement]:
        yield Measurement(case, "published", events, "events")
        yield Measurement(case, "delivered, exactly once and in order", deliveries, "events")
        yield Measurement(case, "rate kept", events / lasted / self._effort.rate, "of the rate")
        yield Measurement(case, "kills of the broker", len(self._watch.restarts), "")
        yield Measurement(case, "subscribers that left and returned", self._leaves, "")

    def _over_time(self, case: str) -> list[Measurement]:
        watch = self._watch
        fifth = max(1, len(watch.resident) // 5)
        found = []
        for what, numbers, scale, unit in (
            ("memory", watch.resident, 1e6, "MB"),
            ("files", watch.files, 1, "files"),
            ("descriptors", watch.descriptors, 1, ""),
            ("bytes on disk", watch.disk, 1e6, "MB"),
        ):
            found += [
                Measurement(case, f"{what}, first fifth", median(numbers[:fifth]) / scale, unit),
                Measurement(case, f"{what}, last fifth", median(numbers[-fifth:]) / scale, unit),
                Measurement(case, f"{what}, most", max(numbers) / scale, unit),
            ]
        if watch.restarts:
            longest = max(watch.restarts)
            found.append(
                Measurement(case, "from a kill until it listens, longest", longest, "s", Goal("<", 5.0))
            )
        return found


def _latencies(found: dict[str, list[int]]) -> Iterator[Measurement]:
    for what, counts in found.items():
        array = np.array(counts, np.int64)
        yield Measurement(what, "deliveries measured", float(array.sum()), "events")
        for name, part in PARTS.items():
            yield Measurement(what, name, percentile(array, part) / 1e3, "ms")
