"""The ground of the Spark bench: a broker with events, a Spark session on two cores, and a stopwatch.

The broker is a process of its own; Spark's driver is this one. Everything that is compared runs in turns in
one session; the best of a few repetitions counts, and for ratios the median of many pairs. Beside each time
stands about how much CPU all processes of the run took together.
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

MASTER = "local[2]"
#: Between looks at how much CPU processes have used.
LOOK_SECONDS = 0.1
BATCH_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class SparkEffort:
    """How much is measured."""

    events: int
    repetitions: int
    #: pairs of runs of which a ratio is the median
    pairs: int
    #: micro-batches of which the overhead is taken
    batches: int
    #: events in one of these
    batch_events: int = 1_000


FULL = SparkEffort(2_000_000, 3, 9, 20)
QUICK = SparkEffort(200_000, 1, 3, 6)


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """What the best repetition took: seconds, and CPU seconds of all processes."""

    seconds: float
    cpu_seconds: float


class EventsTotal(NamedTuple):
    """What tells a set of events from any other that differs by mistake."""

    events: int
    different: int
    numbers: int
    checksums: int


@dataclass(frozen=True, slots=True)
class SparkTestbed:
    """What cases run on. The broker keeps all it is given: a durable subscriber is away."""

    testbed: BenchTestbed
    broker: BenchBroker
    spark: SparkSession
    effort: SparkEffort
    #: what all events add up to
    total: EventsTotal

    @property
    def path(self) -> Path:
        """For files of a case; removed with everything else."""
        return self.testbed.path.absolute()

    def read(self, **options: str) -> DataFrame:
        """All events, by a batch read."""
        given = {"broker": self.broker.url, "topic": TOPIC, **options}
        return self.spark.read.format("tidemark").options(**given).load()

    def check(self, frame: DataFrame, what: str) -> None:
        """AssertionError unless the rows are exactly the events."""
        found = summed(frame)
        assert found == self.total, f"{what}: found {found}, expected {self.total}"


@contextmanager
def spark_testbed(effort: SparkEffort) -> Iterator[SparkTestbed]:
    """A broker with events that nobody lets go, and a session."""
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync", **{"retention.archive": "true"})
        total = publish(broker.url, TOPIC, effort.events)
        with _session(testbed.path.absolute() / "spark") as spark:
            yield SparkTestbed(testbed, broker, spark, effort, total)


@contextmanager
def _session(path: Path) -> Iterator[SparkSession]:
    """A session with its files under `path`, unless there is one already, which then goes on."""
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = session("bench", MASTER, **{"spark.local.dir": str(path)})
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def publish(url: str, topic: str, events: int) -> EventsTotal:
    """Events whose payloads are random bytes, which nothing can pack; what they add up to."""
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
    """What the rows of a DataFrame add up to."""
    row = frame.selectExpr("count(*)", "count(DISTINCT n)", "sum(n)", "sum(crc32(payload))").first()
    assert row is not None
    return EventsTotal(*row)


def in_turns(repetitions: int, **cases: Callable[[], object]) -> dict[str, TimeTaken]:
    """Each case once to get warm, then all of them in turns; the best of each."""
    taken: dict[str, list[TimeTaken]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(repetitions):
        for name, case in cases.items():
            taken[name].append(timed(case))
    return {name: min(each, key=lambda one: one.seconds) for name, each in taken.items()}


def timed(case: Callable[[], object]) -> TimeTaken:
    """What one call takes."""
    with CpuMeter() as meter:
        began = monotonic()
        case()
        seconds = monotonic() - began
    return TimeTaken(seconds, meter.seconds)


def in_pairs(pairs: int, ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, TimeTaken]:
    """How fast ours is against theirs, the median over pairs that run one right after the other; and ours."""
    ours()
    theirs()
    ratios: list[float] = []
    taken: list[TimeTaken] = []
    for number in range(pairs):
        # Whoever is second may find things warmer: take turns at it.
        if number % 2:
            mine, other = timed(ours), timed(theirs)
        else:
            other, mine = timed(theirs), timed(ours)
        ratios.append(other.seconds / mine.seconds)
        taken.append(mine)
    return median(ratios), min(taken, key=lambda one: one.seconds)


def to_nowhere(frame: DataFrame) -> Callable[[], None]:
    """Makes every row, with all its columns, and drops it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def rate(case: str, events: int, taken: TimeTaken, unit: str, goal: float | None = None) -> list[Measurement]:
    """Rows or events a second, and the CPU they took."""
    wanted = None if goal is None else Goal(">=", goal)
    return [
        Measurement(case, unit, events / taken.seconds, "/s", wanted),
        Measurement(case, "CPU of all processes, at least", taken.cpu_seconds * 1e6 / events, "s/million"),
    ]


class CpuMeter:
    """CPU of this process and of all that it starts, while the `with` lasts.

    Looked at again and again: Spark's Python workers come and go, and what one has used is in no other
    process's account once it has gone. What it used after the last look is missing, so this is a lower bound.
    """

    def __init__(self) -> None:
        #: (process id, when it started) -> CPU seconds when the process was first seen, and when last seen
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._is_over = Event()
        self._looking = Thread(target=self._look_on, name="cpu meter", daemon=True)

    def __enter__(self) -> CpuMeter:
        # What ran before has used something before; what comes later starts from nothing.
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
        """So far; it never goes back."""
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
