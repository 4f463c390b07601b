"""What windows, backlogs and caches count is what they take, for single events and for large batches."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidemark.broker.effects import AppendEvents, RecoveredPubend, SyncLog
from tidemark.broker.publishing.logged_sizes import LoggedSizes
from tidemark.broker.publishing.pubend import Pubend, PubendPolicy
from tidemark.broker.streams.window import CUTS_BYTES_MAX, PIECE_BYTES, Cuts, Window
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.node.disk.backlog import Backlog
from tidemark.wire.frames import Publish


def bytes_of(count: int, size: int = 60, publishers: int = 1) -> bytes:
    """The bytes of a batch, as they come from a socket."""
    builder = BatchBuilder()
    for number in range(count):
        builder.add(Shape("trades", 7), bytes(size), publisher=f"desk {number % publishers}")
    return bytes(builder.build().data)


def taken(work: Callable[[], Any]) -> tuple[Any, int]:
    """Returns what `work` returns, and the bytes of memory that are still held afterwards."""
    work()  # what is made once and kept by modules
    tracemalloc.start()
    made = work()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, held


@pytest.mark.parametrize(
    ("count", "batches", "publishers"), [(1, 2_000, 1), (2, 1_000, 1), (1_000, 10, 1), (2_000, 4, 2_000)]
)
def test_a_batch_counts_for_what_it_takes(count: int, batches: int, publishers: int) -> None:
    data = bytes_of(count, publishers=publishers)

    def arrive() -> list[EventBatch]:
        made = [EventBatch.parse(bytearray(data)) for _ in range(batches)]
        for each in made:
            each.prelude("shape"), each.message_starts, each.message_ends
        return made

    made, held = taken(arrive)
    counted = sum(each.held_bytes for each in made)
    assert held * 0.8 < counted < held * 2


@pytest.mark.parametrize(("count", "batches"), [(1, 6_000), (40, 300), (2_000, 6)])
def test_a_window_counts_for_what_it_takes_and_single_events_for_little_more_than_many(
    count: int, batches: int
) -> None:
    data = bytes_of(count)

    def learn() -> Window:
        window = Window(64 << 20, floor=0)
        for number in range(batches):
            batch = EventBatch.parse(bytearray(data))
            batch.count_ticks(1 + number * count)
            window.learn(number * count, (number + 1) * count, batch)
        return window

    window, held = taken(learn)
    assert held * 0.8 < window.bytes < held * 2
    assert window.bytes < 4 * batches * count * 84
    everything = window.events(0, batches * count)
    assert everything is not None
    assert everything.ticks.tolist() == list(range(1, batches * count + 1))


def test_what_waits_for_the_disk_counts_for_what_it_takes() -> None:
    data = bytes_of(1)

    class Nowhere:
        def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
            """Nothing is durable, so nothing is passed on."""

        def tell_lost(self, lost: int) -> None:
            """Nothing is let go."""

    def publish() -> tuple[Backlog, Pubend, list[Any]]:
        turn, backlog, effects = Turn(), Backlog(), []
        pubend = Pubend("p", RecoveredPubend(), PubendPolicy(), turn, Nowhere())
        for number in range(2_000):
            frame = Publish("p", "desk", number + 1, EventBatch.parse(bytearray(data)))
            pubend.received(7, frame)
            pubend.log()
            pubend.settle()
            turn.log.flush()
            made = turn.out.take()
            backlog.put(made)
            effects += [each for each in made if isinstance(each, AppendEvents | SyncLog)]
        return backlog, pubend, [effects, turn]

    (backlog, _, _), held = taken(publish)
    assert held * 0.8 < backlog.bytes < held * 2


def test_what_is_remembered_of_logged_batches_is_small() -> None:
    sizes, held = taken(lambda: LoggedSizes((tick, 100) for tick in range(1, 10_001)))
    assert held < 40 * 10_000
    sizes.append(10_001, 50)
    assert sizes.bytes == 1_000_050
    assert sizes.beyond(1_000_050) is None
    assert sizes.beyond(1_000_049) == 1
    assert sizes.beyond(999_850) == 2
    sizes.lose(9_999)
    assert (sizes.bytes, sizes.beyond(0), sizes.beyond(60)) == (150, 10_001, 10_000)


def test_selections_of_a_piece_are_bounded_by_the_memory_they_take() -> None:
    batch = EventBatch.parse(bytearray(bytes_of(2_000, size=PIECE_BYTES // 2_000)))
    cuts = Cuts(batch)
    for number in range(40):
        rows = np.delete(np.arange(batch.count), number)
        assert cuts.take(rows) is cuts.take(rows)
    assert sum(each.held_bytes for each in cuts._parts.values()) <= CUTS_BYTES_MAX + 2 * PIECE_BYTES


def test_a_large_dictionary_is_kept_by_nobody_but_its_batch() -> None:
    def arrive() -> None:
        for number in range(5):
            builder = BatchBuilder()
            for name in range(1_000):
                builder.add(Shape("trades", 7), b"", publisher=f"{number} {name}")
            EventBatch.parse(bytearray(builder.build().data))

    _, held = taken(arrive)
    assert held < 50_000
