"""Reading a range from a broker that lets history go, and from an archive: each event once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import EventsLostError, TimedOutError
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.source import losses, reading
from tidemark.spark.source.archived import NoArchive, ReleasedHistory
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.source.reading import DamageFinder, LostRange, RangeReader
from tidemark.ticks import TICK_MIN
from tidemark.ticks.tick import Range
from tidemark.wire.answers import EventsReached
from tidemark.wire.frames import Fetched


def batch(ticks: list[int]) -> EventBatch | None:
    if not ticks:
        return None
    builder = BatchBuilder()
    for tick in ticks:
        builder.add(Shape("t", 1), str(tick).encode())
    made = builder.build()
    made.fill_ticks(np.array(ticks, np.int64))
    return made


class FakeBroker:
    """A log of single ticks. `steps` are what it has lost before each answer."""

    #: is it of a version that counts events for readers?
    counts = True

    def __init__(self, ticks: list[int], steps: list[int], per_answer: int, damaged: list[Range]) -> None:
        self.ticks, self.steps, self.per_answer, self.damaged = ticks, steps, per_answer, damaged
        self.lost = TICK_MIN

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        assert (pattern, selector) == ("t", "x > 1")
        assert bytes_max > 0
        if self.steps:
            self.lost = max(self.lost, self.steps.pop(0))
        there = [t for t in self.ticks if max(base, self.lost) < t <= upto]
        there = [t for t in there if not any(low < t <= high for low, high in self.damaged)]
        taken = there[: self.per_answer]
        reached = upto if len(taken) == len(there) else taken[-1]
        reached = max(reached, min(self.lost, upto))
        holes = [(max(low, base, self.lost), min(high, reached)) for low, high in self.damaged]
        return Fetched(
            1, pubend, base, reached, self.lost, batch(taken), tuple(h for h in holes if h[0] < h[1])
        )

    def reach(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, events: int
    ) -> EventsReached | None:
        """As brokers count: one answer's worth, but nothing of an answer with holes."""
        if not self.counts:
            return None
        found = self.fetch(pubend, base, upto, pattern, selector, bytes_max=1)
        if found.lost > base or found.damaged:
            return EventsReached(base, 0, False)
        ticks = [] if found.batch is None else found.batch.ticks.tolist()
        if len(ticks) >= events:
            return EventsReached(ticks[events - 1], events, True)
        return EventsReached(found.upto, len(ticks), True)


class FakeArchive:
    """Has everything up to a tick but for some ranges."""

    def __init__(self, ticks: list[int], upto: int, missing: list[Range]) -> None:
        self.ticks, self.upto, self.missing = ticks, upto, missing

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:  # noqa: ARG002
        cut = [*self.missing, (self.upto, upto)]
        cut = sorted((max(low, base), min(high, upto)) for low, high in cut)
        found: list[Range] = []
        for low, high in cut:
            low = max(low, found[-1][1]) if found else low
            if low < high:
                found.append((low, high))
        return found

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
        assert (pubend, pattern) == ("p", "t")
        gone = self.gaps(pubend, base, upto)
        for tick in self.ticks:
            if base < tick <= upto and not any(low < tick <= high for low, high in gone):
                made = batch([tick])
                assert made is not None
                yield made


def without_nines(found: EventBatch) -> tuple[EventBatch | None, list[Range]]:
    """An event at a tick of which 9 is the last digit stands for one that cannot be decoded."""
    damaged = found.ticks % 10 == 9
    kept = None if damaged.all() else found.take(~damaged)
    return kept, [(tick - 1, tick) for tick in found.ticks[damaged].tolist()]


def reader(
    broker: FakeBroker, archive: ReleasedHistory, sound: DamageFinder = lambda each: (each, ())
) -> RangeReader:
    return RangeReader(broker, archive, TopicSelector("t", "x > 1"), lambda each: each, sound)


def test_events_that_cannot_be_decoded_are_lost_wherever_they_come_from() -> None:
    broker, archive = FakeBroker([3, 9, 12, 19, 29], [10], 5, []), FakeArchive([3, 9], 10, [])
    found = [
        (item.base, item.upto) if isinstance(item, LostRange) else item.ticks.tolist()
        for item in reader(broker, archive, without_nines).read(TickRange("p", 0, 30))
    ]
    assert found == [[3], (8, 9), [12], (18, 19), (28, 29)]


def read(broker: FakeBroker, archive: ReleasedHistory, base: int, upto: int) -> tuple[list[int], list[Range]]:
    """Ticks in the order they came, and what is lost; both in the order of ticks."""
    ticks: list[int] = []
    gaps: list[Range] = []
    at = base
    for item in reader(broker, archive).read(TickRange("p", base, upto)):
        first, last = (
            (item.base + 1, item.upto) if isinstance(item, LostRange) else (item.ticks[0], item.ticks[-1])
        )
        assert at < first <= last
        at = last
        if isinstance(item, LostRange):
            gaps.append((item.base, item.upto))
        else:
            ticks += item.ticks.tolist()
    return ticks, gaps


RANGES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 8)).map(lambda r: (r[0], r[0] + r[1])), max_size=3
)


def merged(ranges: list[Range]) -> list[Range]:
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    ticks=st.lists(st.integers(1, 60), unique=True).map(sorted),
    steps=st.lists(st.integers(0, 60), max_size=6).map(sorted),
    archive_upto=st.integers(0, 60),
    missing=RANGES,
    damaged=RANGES,
    per_answer=st.integers(1, 5),
)
def test_each_event_comes_once_or_lies_in_one_gap(
    ticks: list[int],
    steps: list[int],
    archive_upto: int,
    missing: list[Range],
    damaged: list[Range],
    per_answer: int,
) -> None:
    broker = FakeBroker(ticks, steps, per_answer, merged(damaged))
    got, gaps = read(broker, FakeArchive(ticks, archive_upto, merged(missing)), 0, 60)
    assert got == [t for t in ticks if not any(low < t <= high for low, high in gaps)]
    bad = merged([*missing, (archive_upto, 60)])
    for low, high in gaps:
        assert any(a <= low and high <= b for a, b in bad), "a gap only where the archive has nothing"
        assert high <= broker.lost or any(
            a <= low and high <= b for a, b in merged([*damaged, (0, broker.lost)])
        )


def test_only_a_range_that_is_one_answer_without_holes_is_small() -> None:
    def small(broker: FakeBroker, upto: int = 9) -> list[list[int]] | None:
        found = reader(broker, NoArchive()).read_small(TickRange("p", 0, upto), 100)
        return (
            None if found is None else [each.ticks.tolist() for each in found if isinstance(each, EventBatch)]
        )

    assert small(FakeBroker([1, 5, 9], [], 9, [])) == [[1, 5, 9]]
    assert small(FakeBroker([], [], 9, [])) == []
    assert small(FakeBroker([1, 5, 9], [], 2, [])) is None
    assert small(FakeBroker([1, 5, 9], [3], 9, [])) is None
    assert small(FakeBroker([1, 5, 9], [], 9, [(3, 6)])) is None


def test_without_an_archive_what_the_broker_let_go_is_lost() -> None:
    broker = FakeBroker([1, 5, 9], [6], 9, [])
    assert read(broker, NoArchive(), 0, 9) == ([9], [(0, 6)])


def reasons(broker: FakeBroker, archive: ReleasedHistory, *, is_as_of: bool = False) -> list[str]:
    """Why ranges up to 30 are lost."""
    made = reader(broker, archive, without_nines)
    part = TickRange("p", 0, 30)
    found = made.read_archived(part) if is_as_of else made.read(part)
    return [each.why for each in found if isinstance(each, LostRange)]


def test_what_is_lost_says_who_has_lost_it() -> None:
    broker = FakeBroker([1, 5, 9, 12], [6], 30, [(10, 11)])
    assert reasons(broker, NoArchive()) == [
        "the broker has let go what it had up to 6",
        "events cannot be decoded",
        "the log of the broker is damaged there",
    ]
    assert reasons(broker, FakeArchive([1], 6, [(2, 3)]))[0] == "the broker has let go what it had up to 6"
    assert reasons(FakeBroker([], [], 9, []), FakeArchive([9], 20, []), is_as_of=True) == [
        "events cannot be decoded",
        "the archive does not have them",
    ]


@pytest.mark.parametrize(
    ("why", "advice"),
    [
        (
            losses.released_upto(6),
            "Name an archive that has them with the option archive, or set failOnGap to false",
        ),
        (losses.DAMAGED, "Name an archive that has them with the option archive, or set failOnGap to false"),
        (losses.UNDECODABLE, "Set failOnGap to false"),
        (losses.ABSENT, "Set failOnGap to false"),
    ],
)
def test_the_error_says_why_events_are_lost_and_what_helps(why: str, advice: str) -> None:
    error = losses.lost("p", 1, 4, why)
    assert error.reason == f"{why}. {advice} and get a row for each gap"


def test_damage_in_the_middle_is_lost_between_the_events_around_it() -> None:
    broker = FakeBroker([1, 5, 9], [], 9, [(3, 6)])
    assert read(broker, NoArchive(), 0, 9) == ([1, 9], [(3, 6)])


@pytest.mark.parametrize("counts", [True, False])
def test_a_batch_is_bounded_by_events_and_goes_on_where_it_ended(counts: bool) -> None:
    ticks = list(range(10, 200, 10))
    broker = FakeBroker(ticks, [50], 4, [])
    broker.counts = counts
    archive = FakeArchive(ticks, 50, [])
    assert reader(broker, archive).reach(TickRange("p", 0, 200), 3) == (30, 3)
    assert reader(broker, archive).reach(TickRange("p", 30, 200), 7) == (100, 7)
    assert reader(broker, archive).reach(TickRange("p", 100, 200), 99) == (200, 9)


@pytest.mark.parametrize("counts", [True, False])
def test_looking_for_the_end_of_a_batch_ends_somewhere(counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LOOKED_THROUGH_MAX", 2)
    monkeypatch.setattr(reading, "_QUESTIONS_MAX", 2)
    broker = FakeBroker(list(range(1, 100)), [], 5, [])
    broker.counts = counts
    assert reader(broker, NoArchive()).reach(TickRange("p", 0, 99), 50) == (10, 10)


def test_an_archive_that_lets_go_while_it_is_read_is_found_out() -> None:
    class Shrinking(FakeArchive):
        def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
            yield from super().read(pubend, base, upto, pattern)
            self.missing = [(0, 2)]

    with pytest.raises(EventsLostError, match="read again"):
        read(FakeBroker([1, 5], [5], 9, []), Shrinking([1, 5], 5, []), 0, 5)


def test_a_broker_that_has_forgotten_ticks_it_knew_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(FakeBroker):
        def fetch(
            self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
        ) -> Fetched:
            return super().fetch(
                pubend, base, max(base, min(upto, 5)), pattern, selector, bytes_max=bytes_max
            )

    monkeypatch.setattr(reading, "_STALLED_SECONDS_MAX", 0.0)
    with pytest.raises(TimedOutError, match="up to 5 only, not up to 9"):
        read(Forgetful([1, 5], [], 9, []), NoArchive(), 0, 9)
