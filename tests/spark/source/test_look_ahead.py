"""The end of a batch is looked for while the batch before is read, and is the end that it has anyway."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from tests.live_node import LiveNode
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.errors import NotConnectedError
from tidemark.spark.options import source_options
from tidemark.spark.source.look_ahead import BatchEnd, LookAhead
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.ticks import CheckpointToken


def at(tick: int) -> CheckpointToken:
    return CheckpointToken({"main": tick})


class Counter:
    """A batch ends after as many ticks as it may have events, and at the newest tick at the latest."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.asked: list[int] = []
        self.may_answer = Event()
        self.may_answer.set()
        self.closed = Event()
        self.error: Exception | None = None

    def bounded(
        self, start: CheckpointToken, ceiling: CheckpointToken | None, events_max: int
    ) -> BatchEnd | None:
        assert self.may_answer.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        first = start["main"]
        self.asked.append(first)
        last = min(first + events_max, self.newest, self.newest if ceiling is None else ceiling["main"])
        return BatchEnd(at(last), {}, last == first + events_max) if last > first else None

    def close(self) -> None:
        self.closed.set()


def test_an_end_that_was_looked_for_is_there_once() -> None:
    counter = Counter(100)
    ahead = LookAhead(lambda: counter)
    assert ahead.taken(at(0), None, 10) is None
    ahead.begin(at(0), None, 10)
    found = ahead.taken(at(0), None, 10)
    assert found is not None
    assert found.token == at(10)
    assert ahead.taken(at(0), None, 10) is None
    assert counter.asked == [0]


@pytest.mark.parametrize(
    ("start", "ceiling", "events"), [(at(1), None, 10), (at(0), at(50), 10), (at(0), None, 9)]
)
def test_the_end_of_another_batch_is_not_taken(
    start: CheckpointToken, ceiling: CheckpointToken | None, events: int
) -> None:
    ahead = LookAhead(lambda: Counter(100))
    ahead.begin(at(0), None, 10)
    assert ahead.taken(start, ceiling, events) is None


def test_a_batch_that_was_not_full_is_looked_for_again() -> None:
    """More events may have come since."""
    ahead = LookAhead(lambda: Counter(15))
    ahead.begin(at(10), None, 10)
    assert ahead.taken(at(10), None, 10) is None
    ahead.begin(at(15), None, 10)
    assert ahead.taken(at(15), None, 10) is None


def test_an_error_is_left_to_whoever_asks_for_the_batch() -> None:
    counter = Counter(100)
    counter.error = NotConnectedError("away")
    ahead = LookAhead(lambda: counter)
    ahead.begin(at(0), None, 10)
    assert ahead.taken(at(0), None, 10) is None
    counter.error = None
    ahead.begin(at(0), None, 10)
    assert ahead.taken(at(0), None, 10) is not None


@pytest.mark.parametrize("is_busy", [True, False])
def test_closing_waits_for_nothing_and_disconnects(is_busy: bool) -> None:
    counter = Counter(100)
    ahead = LookAhead(lambda: counter)
    ahead.begin(at(0), None, 10)
    assert ahead.taken(at(0), None, 10) is not None
    if is_busy:
        counter.may_answer.clear()
        ahead.begin(at(10), None, 10)
    ahead.close()
    assert counter.closed.is_set() != is_busy
    counter.may_answer.set()
    assert counter.closed.wait(PATIENCE_SECONDS)
    ahead.begin(at(20), None, 10)
    assert ahead.taken(at(20), None, 10) is None


def test_batches_of_a_planner_tile_what_there_is_and_what_comes(tmp_path: Path) -> None:
    node = LiveNode(tmp_path, retention__archive="true")
    with closing(node), sync.connect(node.url) as client:
        client.create_topic("news", "[n: int]")
        ticks = [client.publish("news", {"n": n}) for n in range(7)]
        options = source_options({"broker": node.url, "topic": "news"})
        planner = Planner(SourceScan(options, topic_columns_of(options)))
        try:
            start = planner.initial()
            first = planner.latest(start, 3)
            second = planner.latest(first, 3)
            assert [first["main"], second["main"]] == [ticks[2], ticks[5]]
            # One event was left when the third batch was looked for; now there are four.
            ticks += [client.publish("news", {"n": n}) for n in range(7, 10)]
            third = planner.latest(second, 3)
            assert third["main"] == ticks[8]
            assert planner.latest(third, 3)["main"] >= (ticks[9] or 0)
        finally:
            planner.close()
