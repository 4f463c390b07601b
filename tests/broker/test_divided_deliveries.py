"""A large batch, or one of many topics, is matched and delivered in several turns; publishers do not wait."""

from __future__ import annotations

import pytest

from tests.broker.desk import MORNING, SCHEMA, Desk, batch, told
from tidemark.broker.effects import AppendEvents, ClientFrameReceived, Effect, LogSynced, SyncLog, Woken
from tidemark.broker.hosting import constream as constream_module
from tidemark.broker.hosting import delivery as delivery_module
from tidemark.broker.hosting.constream import (
    PIECE_BYTES_MAX,
    PIECE_ROWS_MAX,
    PIECE_TOPICS_MAX,
    TURN_DELIVERIES_MAX,
    Ration,
    rows_at_once,
)
from tidemark.broker.hosting.host import HostPolicy
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.wire.frames import Deliver, Publish, Published, Subscribe, Unsubscribe, Unsubscribed

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


def crowd(made: Desk, count: int, selectors: int = 1) -> list[str]:
    """Let one client have so many subscriptions, with so many selectors; returns their names."""
    made.declare()
    names = [f"s{number}" for number in range(count)]
    for number, name in enumerate(names):
        selector = f"n >= {number % selectors}" if selectors > 1 else ""
        made.finish(made.say(SUBSCRIBER, Subscribe(name, "t", selector, False, 1 << 40)))
    made.pass_time(0.2)
    return names


def names_told(effects: list[Effect]) -> list[str]:
    """The subscriptions that were told events, in order."""
    frames = [each for each in told(effects, SUBSCRIBER) if isinstance(each, Deliver)]
    return [each.name for each in frames if each.batch is not None]


def turns_of(made: Desk, effects: list[Effect]) -> list[list[str]]:
    """Go on until everything is delivered; returns who was told events in each turn."""
    turns = [names_told(effects)]
    while made.broker.is_behind:
        made.now += 1
        turns.append(names_told(made.broker.deliver(made.now, MORNING + made.now)))
    return turns


def test_one_event_for_many_subscribers_is_delivered_in_several_turns() -> None:
    made = Desk()
    names = crowd(made, 2 * TURN_DELIVERIES_MAX + 3)
    effects = publish(made, 1)
    assert any(isinstance(each, Published) for each in told(effects, PUBLISHER)), "the publisher is answered"
    turns = turns_of(made, effects)
    assert len(turns) == 3
    assert max(map(len, turns)) <= TURN_DELIVERIES_MAX
    assert [name for turn in turns for name in turn] == names


def test_a_turn_of_subscribers_who_want_other_rows_has_a_bound_in_copied_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery_module, "DELIVERY_COPIED_BYTES", 64)
    made = Desk()
    names = crowd(made, 50, selectors=50)
    turns = turns_of(made, publish(made, 200))
    assert [name for turn in turns for name in turn] == names
    assert len(turns) >= 5


def test_finding_out_who_wants_which_rows_is_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "DELIVERY_LINES", 1)
    made = Desk()
    names = crowd(made, 100, selectors=50)
    turns = turns_of(made, publish(made, 50))
    assert len(turns) > 3
    assert sorted(name for turn in turns for name in turn) == sorted(names)


def test_who_leaves_or_comes_while_an_event_is_on_its_way_is_told_nothing_wrong() -> None:
    made = Desk()
    names = crowd(made, 2 * TURN_DELIVERIES_MAX)
    first = publish(made, 1)
    frames = told(made.say(SUBSCRIBER, Unsubscribe(names[-1])), SUBSCRIBER)
    assert any(isinstance(each, Unsubscribed) for each in frames)
    assert names_told(made.say(SUBSCRIBER, Subscribe("new", "t", "", False, 1 << 40))) == []
    turns = turns_of(made, first)
    assert [name for turn in turns for name in turn] == names[:-1]
    made.pass_time(0.2)
    turns = turns_of(made, publish(made, 1, first=2))
    assert sorted(name for turn in turns for name in turn) == sorted([*names[:-1], "new"])


def test_a_durable_subscriber_that_returns_while_an_event_is_on_its_way_is_told_it_once() -> None:
    made = Desk()
    crowd(made, TURN_DELIVERIES_MAX)
    made.finish(made.say(7, Subscribe("d", "t", "", True, 1 << 20)))
    made.pass_time(0.2)
    first = publish(made, 1)
    assert told(first, 7) == []
    told_again = told(made.finish(made.say(8, Subscribe("d", "t", "", True, 1 << 20))), 8)
    told_again += told(made.pass_time(0.5), 8)
    assert len([each for each in told_again if isinstance(each, Deliver) and each.batch is not None]) == 1


def test_silence_is_not_told_to_who_has_still_to_be_told_of_an_event() -> None:
    made = Desk(host_policy=HostPolicy(silence=0))
    names = crowd(made, TURN_DELIVERIES_MAX + 1)
    effects = publish(made, 1)
    while made.broker.is_behind:
        effects += made.give(Woken())
    frames = [each for each in told(effects, SUBSCRIBER) if isinstance(each, Deliver)]
    last = [each for each in frames if each.name == names[-1] and each.upto > each.base]
    assert last[0].batch is not None


def test_the_pubend_that_went_on_last_waits_for_the_others() -> None:
    ration = Ration()
    ration.begin()
    assert ration.may_go_on("a")
    ration.deliveries = 0
    assert not ration.may_go_on("a")
    assert not ration.may_go_on("b")
    assert list(ration.finish()) == ["b", "a"]
