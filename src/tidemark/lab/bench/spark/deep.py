"""Spark bench, deep catch-up: a thousand returning subscribers beside one, and beside a Spark job for each.

Each subscriber wants a thousandth of the events by a selector of its own; an event may be wanted by several.
The one wants a few from all over history, since files that bounds exclude are not read. Another one wants
every event, as many as the thousand together: what it takes is the cost of the events, not of subscribers.
The subscribers take answers at once, so that the pipeline is measured, from the recalls until the last part
of each answer is encoded as for a broker. Each subscriber must have got exactly what it wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING

import numpy as np

from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.spark.archiving import archived
from tidemark.lab.bench.spark.testbed import SparkTestbed, TimeTaken
from tidemark.lab.bench.system.load import TOPIC, Expected, Load, numbers_of, squares
from tidemark.message.batches.batch import EventBatch
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.deep.service import DeepService
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range
from tidemark.wire.codec import encode
from tidemark.wire.frames import Line, Recalled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBSCRIBERS = 1_000
TIMES_MAX = 2.0
#: Number of Spark jobs for one subscriber each from which the time of all of them is extrapolated.
JOBS = 3
#: One event of this many is for a subscriber.
SHARE = 1_000
#: How many events the one subscriber wants; a selector has at most 200 words.
SCATTERED = 50


_LOAD = Load()


class ReturningSubscriber:
    """A recall as the deep service sees it, which takes everything at once and checks what it gets."""

    def __init__(self, number: int, events: int, pubend: str, upto: int) -> None:
        width = events * _LOAD.kinds // SHARE
        self.kind, self.first = number % _LOAD.kinds, number * (events - width) // SUBSCRIBERS
        self.last = self.first + width - 1
        self.pubend = pubend
        self.position, self.upto = TICK_MIN, upto
        self.lines = (Line(TopicSelector(TOPIC, self.selector), TICK_MIN, upto),)
        self.is_over = False
        self.events = 0
        self._total = self._squares = 0
        self._last_tick = TICK_MIN

    @property
    def selector(self) -> str:
        """The selector of this subscriber."""
        return f"kind = {self.kind} AND n BETWEEN {self.first} AND {self.last}"

    def check(self) -> None:
        """Raise AssertionError unless the subscriber got exactly what it wanted."""
        found = Expected(self.events, self._total, self._squares)
        wanted = _LOAD.expected(self.kind, self.first, self.last + 1)
        assert self.is_over, "it waits for something still"
        assert found == wanted, f"{self.selector}: found {found}, expected {wanted}"

    def has_room(self, size: int) -> bool:
        """There is always room."""
        del size
        return True

    async def granted(self) -> None:
        """Credit is granted at once."""

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        """Take the next part of the answer, up to `upto`."""
        assert not gone, f"{gone} is said to be gone"
        assert self.position < upto <= self.upto, "the parts do not go on from each other"
        encode(Recalled(1, self.position, upto, batch))
        if batch is not None:
            assert batch.ticks[0] > self._last_tick, "out of order"
            assert (np.diff(batch.ticks) > 0).all(), "out of order"
            self._last_tick = int(batch.ticks[-1])
            self.events += batch.count
            numbers = numbers_of(batch)
            self._total += int(numbers.sum())
            self._squares += squares(numbers)
        self.position = upto
        self.is_over = upto == self.upto
        return True


#: pubend, upto -> those who return, and want events of the pubend up to that tick
MadeSubscribers = Callable[[str, int], Sequence[ReturningSubscriber]]


class ScatteredSubscriber(ReturningSubscriber):
    """A subscriber who wants events from all over history, so that no file is left out for it alone."""

    def __init__(self, events: int, pubend: str, upto: int) -> None:
        self._numbers = range(0, events, max(1, events // SCATTERED))
        super().__init__(0, events, pubend, upto)

    @property
    def selector(self) -> str:
        """The selector of this subscriber."""
        return f"n IN ({', '.join(map(str, self._numbers))})"

    def check(self) -> None:
        """Raise AssertionError unless the subscriber got exactly what it wanted."""
        wanted = len(self._numbers), sum(self._numbers)
        assert self.is_over, "it waits for something still"
        assert (self.events, self._total) == wanted, f"found {self.events} events, expected {wanted[0]}"


class WholeSubscriber(ReturningSubscriber):
    """A subscriber who wants all events: as many as the thousand together."""

    def __init__(self, events: int, pubend: str, upto: int) -> None:
        super().__init__(0, events, pubend, upto)
        self._wanted = events

    @property
    def selector(self) -> str:
        """The selector of this subscriber: none."""
        return ""

    def check(self) -> None:
        """Raise AssertionError unless the subscriber got exactly what it wanted."""
        found = Expected(self.events, self._total, self._squares)
        wanted = _LOAD.expected(None, 0, self._wanted)
        assert self.is_over, "it waits for something still"
        assert found == wanted, f"everything: found {found}, expected {wanted}"


def returning(events: int) -> dict[str, MadeSubscribers]:
    """Returns who returns in each case: one who wants little, one who wants everything, a thousand."""
    return {
        "1 subscriber": lambda pubend, upto: [ScatteredSubscriber(events, pubend, upto)],
        "1 subscriber who wants everything": lambda pubend, upto: [WholeSubscriber(events, pubend, upto)],
        f"{SUBSCRIBERS:,} subscribers": lambda pubend, upto: [
            ReturningSubscriber(number, events, pubend, upto) for number in range(SUBSCRIBERS)
        ],
    }


def deep(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the section on deep catch-up."""
    path, events = archived(testbed), testbed.effort.events
    cases = returning(events)
    for subscribers in cases.values():
        catch_up(testbed.spark, path, subscribers)
    one, whole, all_ = (
        min(catch_up(testbed.spark, path, subscribers).seconds for _ in range(testbed.effort.repetitions))
        for subscribers in cases.values()
    )
    delivered = SUBSCRIBERS * (events * _LOAD.kinds // SHARE) // _LOAD.kinds
    jobs = sorted(_job(testbed.spark, path, events, number) for number in range(JOBS + 1))[0] * SUBSCRIBERS
    case = f"{SUBSCRIBERS:,} subscribers, {events:,} events"
    yield Section(
        "deep catch-up: one scan for all who return",
        [
            Measurement(f"1 subscriber, {events:,} events", "time", one, "s"),
            Measurement(case, "time", all_, "s"),
            Measurement(case, "time beside one", all_ / one, "x 1 subscriber", Goal("<=", TIMES_MAX)),
            Measurement(f"1 subscriber who wants all of {events:,} events", "time", whole, "s"),
            Measurement(case, "time beside one who wants everything", all_ / whole, "x 1 subscriber"),
            Measurement(case, "events delivered", delivered / all_, "/s"),
            Measurement(case, "speed beside a Spark job for each", jobs / all_, "x (extrapolated)"),
        ],
    )


def catch_up(spark: SparkSession | None, path: Path, made: MadeSubscribers) -> TimeTaken:
    """Returns what it takes until all subscribers have got everything: seconds, and CPU of this process.

    Without `spark`, all is read in this process.
    """
    found = snapshot(path)
    ((pubend, upto),) = found.state.covered.items()
    subscribers = made(pubend, upto)

    @contextmanager
    def sessions() -> Iterator[SparkSession]:
        assert spark is not None
        yield spark

    async def run() -> tuple[TimeTaken, DeepService]:
        service = DeepService([], path, sessions=None if spark is None else sessions)
        serving = asyncio.create_task(service.run())
        await asyncio.sleep(0)
        began, cpu = monotonic(), process_time()
        for each in subscribers:
            service.recalled(each)
        while not all(each.is_over for each in subscribers):
            assert not serving.done(), serving.result()
            await asyncio.sleep(0.005)
        taken = TimeTaken(monotonic() - began, process_time() - cpu)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return taken, service

    taken, service = asyncio.run(run())
    assert service.counters["scans"] == 1, f"{service.counters['scans']} scans"
    for each in subscribers:
        each.check()
    return taken


def _job(spark: SparkSession, path: Path, events: int, number: int) -> float:
    """Returns the seconds of a Spark job that finds and sorts the events of one subscriber."""
    found = snapshot(path)
    wanted = ReturningSubscriber(number, events, "", 1)
    files = [found.location(each).text for some in found.files.values() for each in some]
    frame = spark.read.parquet(*files).where(wanted.selector).orderBy("_tick")
    began = monotonic()
    rows = frame.toArrow()
    seconds = monotonic() - began
    assert rows.num_rows == _LOAD.expected(wanted.kind, wanted.first, wanted.last + 1).count
    return seconds
