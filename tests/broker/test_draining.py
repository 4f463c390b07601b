"""Draining: a broker that is to be taken away takes nothing new from publishers, and says where to go."""

from __future__ import annotations

from tests.broker.desk import Desk, batch, told
from tidemark.broker.effects import AppendEvents, DrainNotice, RoutesChanged, SendClient
from tidemark.wire.frames import ClientFrame, Publish, Published, Refused

NOTICE = DrainNotice("'b' is being drained: go to tidemark://other:1", ("other:1",))


def drain(at: Desk, notice: DrainNotice | None = NOTICE) -> None:
    at.finish(at.give(RoutesChanged(at.broker.config.layout, drain_notice=notice)))


def publish(sequence: int) -> Publish:
    return Publish("p", "me", sequence, batch(0))


def codes(frames: list[ClientFrame]) -> list[str]:
    return [each.code if isinstance(each, Refused) else type(each).__name__ for each in frames]


def test_a_drained_broker_turns_new_events_away_with_its_notice() -> None:
    at = Desk()
    at.declare()
    drain(at)
    refused = Refused("publish", "me", "draining", NOTICE.reason, ("other:1",))
    assert at.say(1, publish(1)) == [SendClient(1, refused)]
    assert at.broker.counters["publishes_refused"] == 1


def test_a_drained_broker_still_acknowledges_what_it_has_logged() -> None:
    at = Desk()
    at.declare()
    (first,) = at.do(1, publish(1))
    drain(at)
    assert at.do(1, publish(1)) == [first]
    assert isinstance(first, Published)


def test_events_on_their_way_to_the_disk_are_acknowledged_before_anything_is_turned_away() -> None:
    at = Desk()
    at.declare()
    taken = at.say(1, publish(1))
    assert any(isinstance(each, AppendEvents) for each in taken)
    drain(at)
    assert at.say(1, publish(2)) == []
    assert codes(told(at.finish(taken), 1)) == ["Published", "draining"]


def test_a_broker_that_is_drained_no_more_takes_events_again() -> None:
    at = Desk()
    at.declare()
    drain(at)
    drain(at, None)
    assert codes(at.do(1, publish(1))) == ["Published"]


def test_a_broker_that_starts_while_it_is_drained_takes_nothing_new() -> None:
    at = Desk(drain_notice=NOTICE)
    at.declare()
    assert codes(at.do(1, publish(1))) == ["draining"]
