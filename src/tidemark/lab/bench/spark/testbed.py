"""The testbed of the Spark benchmark: a broker with events, a Spark session on two cores, and timing.

The broker is a process of its own; Spark's driver is this process. Cases that are compared run in turns in
one session. The best of a few repetitions counts, and for ratios the median of many pairs. Beside each time
the report has the approximate CPU time of all processes of the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from tidemark import sync
from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed
from tidemark.lab.bench.report import Goal, Measurement
from tidemark.lab.bench.system.load import PAYLOAD, SCHEMA, TOPIC, Batches, Load, payloads
from tidemark.lab.processes.process_numbers import ProcessStat
from tidemark.spark.engine.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
MASTER = f"local[{CORES}]"
#: Seconds between readings of the CPU time of processes.
LOOK_SECONDS = 0.1
BATCH_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class SparkEffort:
    """How much is measured."""

    events: int
    repetitions: int
    #: number of pairs of runs of whose ratios the median is taken
    pairs: int
    #: number of micro-batches for measuring their overhead
    batches: int
    #: events in such a micro-batch
    batch_events: int = 1_000


FULL = SparkEffort(2_000_000, 3, 9, 20)
QUICK = SparkEffort(200_000, 1, 3, 6)


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """What a repetition took: seconds, and CPU seconds of all processes."""

    seconds: float
    cpu_seconds: float


class EventsTotal(NamedTuple):
    """Sums over a set of events that differ whenever events are missing, repeated or altered."""

    events: int
    different: int
    numbers: int
    checksums: int


@dataclass(frozen=True, slots=True)
class SparkTestbed:
    """What cases run on. The broker keeps all events, since a durable subscriber is away."""

    testbed: BenchTestbed
    broker: BenchBroker
    spark: SparkSession
    effort: SparkEffort
    #: the sums over all published events
    total: EventsTotal

    @property
    def path(self) -> Path:
        """The directory for files of a case, removed at the end."""
        return self.testbed.path.absolute()

    def read(self, **options: str) -> DataFrame:
        """Returns all events, by a batch read."""
        given = {"broker": self.broker.url, "topic": TOPIC, **options}
        return self.spark.read.format("tidemark").options(**given).load()

    def check(self, frame: DataFrame, what: str) -> None:
        """Raise AssertionError unless the rows are exactly the published events."""
        found = summed(frame)
        assert found == self.total, f"{what}: found {found}, expected {self.total}"


@contextmanager
def spark_testbed(effort: SparkEffort) -> Iterator[SparkTestbed]:
    """Yields a testbed with a broker that keeps its events, and a Spark session."""
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync", **{"retention.archive": "true"})
        total = publish(broker.url, TOPIC, effort.events)
        with _session(testbed.path.absolute() / "spark") as spark:
            yield SparkTestbed(testbed, broker, spark, effort, total)


@contextmanager
def _session(path: Path) -> Iterator[SparkSession]:
    """Yields a session with its files under `path`, or the session that exists already, which stays."""
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = session("bench", MASTER, **{"spark.local.dir": str(path)})
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def publish(url: str, topic: str, events: int) -> EventsTotal:
    """Publish events whose payloads are random bytes, which do not compress; returns their sums."""
    load, random = Load(), np.random.default_rng(events)
    batches, checksums = Batches(load, BATCH_EVENTS, topic), 0
    with sync.connect(url) as tm:
        tm.create_topic(topic, SCHEMA)
        tm.subscribe(topic, durable=f"keeper of {topic}").close()
        for first in range(0, events, BATCH_EVENTS):
            batch = batches.batch(first)
            noise = random.bytes(BATCH_EVENTS * len(PAYLOAD))
            payloads(batch)[:] = np.frombuffer(noise, np.uint8).reshape(BATCH_EVENTS, -1)
            checksums += sum(
                map(crc32, (noise[at : at + len(PAYLOAD)] for at in range(0, len(noise), len(PAYLOAD))))
            )
            tm.publish_batch(batch)
    return EventsTotal(events, events, load.expected(None, 0, events).total, checksums)


def summed(frame: DataFrame) -> EventsTotal:
    """Returns the sums over the rows of a DataFrame."""
    row = frame.selectExpr("count(*)", "count(DISTINCT n)", "sum(n)", "sum(crc32(payload))").first()
    assert row is not None
    return EventsTotal(*row)


def in_turns(repetitions: int, **cases: Callable[[], object]) -> dict[str, TimeTaken]:
    """Run each case once to warm up, then all in turns; returns the best repetition of each."""
    taken: dict[str, list[TimeTaken]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(repetitions):
        for name, case in cases.items():
            taken[name].append(timed(case))
    return {name: min(each, key=lambda one: one.seconds) for name, each in taken.items()}


def timed(case: Callable[[], object]) -> TimeTaken:
    """Returns what one call takes."""
    with CpuMeter() as meter:
        began = monotonic()
        case()
        seconds = monotonic() - began
    return TimeTaken(seconds, meter.seconds)


def in_pairs(pairs: int, ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, TimeTaken]:
    """Run pairs of both cases; returns the median of theirs / ours in seconds, and the best of ours."""
    ours()
    theirs()
    ratios: list[float] = []
    taken: list[TimeTaken] = []
    for number in range(pairs):
        # The second of a pair may find warmer caches, so the order alternates.
        if number % 2:
            mine, other = timed(ours), timed(theirs)
        else:
            other, mine = timed(theirs), timed(ours)
        ratios.append(other.seconds / mine.seconds)
        taken.append(mine)
    return median(ratios), min(taken, key=lambda one: one.seconds)


def to_nowhere(frame: DataFrame) -> Callable[[], None]:
    """Returns a function that computes every row with all its columns and drops it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def rate(case: str, events: int, taken: TimeTaken, unit: str, goal: float | None = None) -> list[Measurement]:
    """Returns the measurements of a rate, and of the CPU time of a million."""
    wanted = None if goal is None else Goal(">=", goal)
    return [
        Measurement(case, unit, events / taken.seconds, "/s", wanted),
        Measurement(case, "CPU of all processes, at least", taken.cpu_seconds * 1e6 / events, "s/million"),
    ]


class CpuMeter:
    """CPU time of this process and of all its descendants, within a `with` block.

    It is read again and again: Spark's Python workers come and go, and the time of one that has ended is
    found nowhere else. What a worker used after the last reading is missing, so this is a lower bound.
    """

    def __init__(self) -> None:
        #: (process id, when it started) -> CPU seconds when the process was first seen, and when last seen
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._is_over = Event()
        self._looking = Thread(target=self._look_on, name="cpu meter", daemon=True)

    def __enter__(self) -> CpuMeter:
        # Processes that run already have used CPU time before; later ones start from zero.
        self._look()
        self._first = dict(self._last)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._looking.join()
        self._look()

    @property
    def seconds(self) -> float:
        """CPU seconds so far."""
        return sum(used - self._first.get(process, 0.0) for process, used in self._last.items())

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        stats = _stats()
        family, grew = {os.getpid()}, True
        while grew:
            more = {pid for pid, stat in stats.items() if stat.parent in family} - family
            grew, family = bool(more), family | more
        for pid in family & stats.keys():
            self._last[pid, stats[pid].started] = stats[pid].cpu_seconds


def _stats() -> Mapping[int, ProcessStat]:
    """Process id -> a reading of every process of the machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found[int(path.name)] = ProcessStat(int(path.name))
        except OSError:
            continue  # the process has ended
    return found
