"""A large batch, or one of many topics, is matched and delivered in several turns; publishers do not wait."""

from __future__ import annotations

import pytest

from tests.broker.desk import MORNING, SCHEMA, Desk, batch, told
from tidemark.broker.effects import AppendEvents, ClientFrameReceived, Effect, LogSynced, SyncLog, Woken
from tidemark.broker.hosting import constream as constream_module
from tidemark.broker.hosting.constream import PIECE_BYTES_MAX, PIECE_ROWS_MAX, PIECE_TOPICS_MAX, rows_at_once
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.wire.frames import Deliver, Publish, Published, Subscribe

SUBSCRIBER, PUBLISHER = 1, 2


def desk() -> Desk:
    """A desk with a subscriber that wants everything and has credit for it."""
    made = Desk()
    made.declare()
    made.finish(made.say(SUBSCRIBER, Subscribe("s", ">", "", False, 1 << 20)))
    made.pass_time(0.2)
    return made


def publish(made: Desk, count: int, first: int = 1, topics: int = 1) -> list[Effect]:
    """Publish events and let the log be synced; returns the effects of that turn."""
    builder = BatchBuilder()
    for n in range(count):
        topic = "t" if topics == 1 else f"t{n % topics}"
        builder.add(Shape(topic, SCHEMA.fingerprint), SCHEMA.encode({"n": n % 1_000}))
    effects = made.say(PUBLISHER, Publish("p", "pub", first, builder.build()))
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    return made.give(LogSynced(sync.ticket))


def rows(effects: list[Effect]) -> list[int]:
    """The ticks of the events that the subscriber was told, in order."""
    delivered = [each for each in told(effects, SUBSCRIBER) if isinstance(each, Deliver)]
    return [tick for each in delivered if each.batch is not None for tick in each.batch.ticks.tolist()]


def deliver_all(made: Desk) -> list[list[int]]:
    """Go on until everything is delivered; returns what the subscriber was told in each turn."""
    turns = []
    while made.broker.is_behind:
        made.now += 1
        turns.append(rows(made.broker.deliver(made.now, MORNING + made.now)))
    return turns


def test_a_batch_of_many_events_is_delivered_in_several_turns() -> None:
    made = desk()
    effects = publish(made, 2 * PIECE_ROWS_MAX + 7)
    assert any(isinstance(each, Published) for each in told(effects, PUBLISHER)), "the publisher is answered"
    turns = [rows(effects), *deliver_all(made)]
    assert [len(turn) for turn in turns] == [PIECE_ROWS_MAX, PIECE_ROWS_MAX, 7]
    everything = [tick for turn in turns for tick in turn]
    assert everything == sorted(set(everything))


def test_a_batch_of_many_topics_is_delivered_in_several_turns() -> None:
    made = desk()
    for number in range(3 * PIECE_TOPICS_MAX):
        made.declare(f"t{number}")
    turns = [rows(publish(made, 6 * PIECE_TOPICS_MAX, topics=3 * PIECE_TOPICS_MAX)), *deliver_all(made)]
    assert [len(turn) for turn in turns] == [PIECE_TOPICS_MAX] * 6


def test_what_others_say_meanwhile_does_not_go_on_with_deliveries_but_time_does() -> None:
    made = desk()
    publish(made, 2 * PIECE_ROWS_MAX)
    assert made.broker.next_wake() <= made.now
    assert rows(made.say(3, Subscribe("other", "none", "", False, 1))) == []
    assert made.broker.is_behind
    assert len(rows(made.give(Woken()))) == PIECE_ROWS_MAX
    assert not made.broker.is_behind


def test_what_is_published_meanwhile_comes_after_what_is_not_delivered_yet() -> None:
    made = desk()
    first = rows(publish(made, PIECE_ROWS_MAX + 1))
    assert rows(publish(made, 1, first=PIECE_ROWS_MAX + 2)) == []
    everything = first + [tick for turn in deliver_all(made) for tick in turn]
    assert everything == sorted(set(everything))
    assert len(everything) == PIECE_ROWS_MAX + 2


def test_what_was_published_is_given_to_the_log_before_what_is_durable_is_delivered() -> None:
    made = desk()
    broker, now = made.broker, made.now
    effects = made.say(PUBLISHER, Publish("p", "pub", 1, batch(1, 2)))
    (sync,) = [each for each in effects if isinstance(each, SyncLog)]
    assert (
        broker.hear(ClientFrameReceived(PUBLISHER, Publish("p", "pub", 3, batch(3))), now, MORNING + now)
        == []
    )
    heard = broker.hear(LogSynced(sync.ticket), now, MORNING + now)
    assert [each.sequence for each in told(heard, PUBLISHER) if isinstance(each, Published)] == [2]
    appended = broker.append()
    assert [type(each) for each in appended] == [AppendEvents, SyncLog]
    settled = broker.settle()
    assert len(rows(settled)) == 2
    assert not any(isinstance(each, AppendEvents | SyncLog) for each in settled)


LONG = Schema.parse("[text: string]")


def long_batch(sizes: list[int]) -> EventBatch:
    """A batch of events with texts of these sizes."""
    builder = BatchBuilder()
    for size in sizes:
        builder.add(Shape("t", LONG.fingerprint), LONG.encode({"text": "x" * size}))
    return builder.build()


@pytest.mark.parametrize(
    ("sizes", "rows_found"),
    [
        ([10], 1),
        ([PIECE_BYTES_MAX * 2, 10], 1),
        ([PIECE_BYTES_MAX // 4] * 8, 3),
        ([1] * (PIECE_ROWS_MAX + 5), PIECE_ROWS_MAX),
    ],
)
def test_a_piece_has_a_bound_in_bytes_and_rows_and_at_least_one_event(
    sizes: list[int], rows_found: int
) -> None:
    assert rows_at_once(long_batch(sizes)) == rows_found


def test_small_batches_that_became_durable_together_are_delivered_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constream_module, "PIECE_ROWS_MAX", 100)
    made = desk()
    assert len(rows(publish(made, 99))) == 99
    assert not made.broker.is_behind
