"""Silence is told to many subscribers some at a time, so that nobody waits while all of them are told."""

from __future__ import annotations

from tests.broker.desk import SECOND, Desk, batch, told
from tidemark.broker.effects import Woken
from tidemark.broker.hosting.host import SILENCES_MAX
from tidemark.wire.frames import ClientFrame, Deliver, Publish, Subscribe

MANY = 2 * SILENCES_MAX + 50


def test_many_subscribers_are_told_of_silence_some_in_each_turn() -> None:
    at = Desk()
    at.declare()
    for number in range(MANY):
        at.do(1, Subscribe(f"s{number}", "t", "n < 0", False, 1_000))
    at.pass_time(0.3)
    at.finish(at.say(50, Publish("p", "me", 1, batch(0, values=(1,)))))
    at.pass_time(0.3)
    at.now += 6 * SECOND
    rounds: list[list[ClientFrame]] = []
    while not rounds or at.broker.next_wake() <= at.now:
        rounds.append(told(at.finish(at.give(Woken())), 1))
    silences = [[each.name for each in said if isinstance(each, Deliver)] for said in rounds]
    assert [len(each) for each in silences] == [SILENCES_MAX, SILENCES_MAX, 50]
    assert len({name for each in silences for name in each}) == MANY


def test_who_is_gone_before_its_turn_is_not_told() -> None:
    at = Desk()
    at.declare()
    for number in range(SILENCES_MAX):
        at.do(1, Subscribe(f"s{number}", "t", "n < 0", False, 1_000))
    at.do(2, Subscribe("late", "t", "n < 0", False, 1_000))
    at.pass_time(0.3)
    at.finish(at.say(50, Publish("p", "me", 1, batch(0, values=(1,)))))
    at.pass_time(0.3)
    at.now += 6 * SECOND
    assert len(told(at.finish(at.give(Woken())), 1)) == SILENCES_MAX
    at.gone(2)
    assert told(at.finish(at.give(Woken())), 2) == []
