"""Acknowledgements: what is saved when, and what a host holds because of that."""

from __future__ import annotations

from functools import partial

import pytest

from tests.broker.parts import AtStream, registry
from tidemark.broker.effects import ChopPfs, CommitTables, Effect, SaveReleased
from tidemark.broker.hosting.acknowledgements import SAVED_MAX, Acknowledgements
from tidemark.broker.hosting.constream import Constream
from tidemark.broker.hosting.host_state import HostState
from tidemark.broker.hosting.subscription import HostedSubscription, SelectorPeriod
from tidemark.matching.audience import Audience
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_MAX, CheckpointToken


class At:
    """The acknowledgements of a host with the pubend `p`, delivered and synced up to 100."""

    def __init__(self) -> None:
        at = AtStream(is_hosted=True)
        self.turn = at.turn
        self.state = HostState(Audience(registry()))
        self.constream = self.state.constreams["p"] = Constream(at.stream)
        self.constream.begin(100)
        self.heard: list[str] = []
        self.acknowledgements = Acknowledgements(self.state, at.turn, self)

    def released(self, subscription: HostedSubscription) -> None:
        """The listener: more of a subscriber's acknowledgements is on disk."""
        self.heard.append(subscription.name)

    def subscriber(self, number: int, *, start: int | None = 10, durable: bool = True) -> HostedSubscription:
        since = {} if start is None else {"p": start}
        made = HostedSubscription(
            number, f"s{number}", durable, [SelectorPeriod(TopicSelector("t", ""), since=since)]
        )
        made.released = dict(since)
        self.state.subscriptions[number] = made
        return made

    def acknowledge(self, subscription: HostedSubscription, tick: int) -> None:
        subscription.acknowledge(CheckpointToken({"p": tick}))
        self.acknowledgements.note(subscription)

    def save(self) -> list[Effect]:
        self.acknowledgements.save_all()
        return self.turn.out.take()

    def commit(self) -> None:
        self.turn.tables.flush()
        (effect,) = self.turn.out.take()
        assert isinstance(effect, CommitTables)
        self.turn.tables.synced(effect.ticket)

    def minima(self) -> tuple[int, int] | None:
        return self.acknowledgements.minima("p")


def saved(number: int, tick: int) -> SaveReleased:
    return SaveReleased(number, CheckpointToken({"p": tick}))


# Saving.


def test_what_durable_subscribers_acknowledge_is_saved_together_and_once() -> None:
    at = At()
    first, second = at.subscriber(1), at.subscriber(2)
    at.acknowledge(second, 40)
    at.acknowledge(first, 30)
    assert at.save() == [saved(1, 30), saved(2, 40)]
    assert at.save() == []


def test_what_another_subscriber_acknowledges_is_not_saved() -> None:
    at = At()
    passing = at.subscriber(1, durable=False)
    at.acknowledge(passing, 30)
    assert at.save() == []
    assert passing.saved == {"p": 30}


def test_an_acknowledgement_counts_as_saved_only_once_it_is_on_disk() -> None:
    at = At()
    one = at.subscriber(1)
    at.acknowledge(one, 30)
    at.save()
    at.acknowledge(one, 50)  # while the disk is at it
    assert (one.saved, at.heard) == ({}, [])
    at.commit()
    assert (one.saved, at.heard) == ({"p": 30}, ["s1"])


def test_what_is_to_be_confirmed_is_confirmed_after_it_is_on_disk() -> None:
    at = At()
    at.acknowledge(at.subscriber(1), 30)
    at.acknowledgements.save([1], lambda: at.heard.append("done"))
    assert at.turn.out.take() == [saved(1, 30)]
    assert at.heard == []
    at.commit()
    assert at.heard == ["s1", "done"]
    assert at.save() == []


def test_what_was_saved_never_goes_back() -> None:
    at = At()
    one = at.subscriber(1)
    at.acknowledgements.saved(1, CheckpointToken({"p": 50}))
    at.acknowledgements.saved(1, CheckpointToken({"p": 40}))
    assert one.saved == {"p": 50}


def test_a_subscriber_that_is_gone_is_neither_saved_nor_told_of() -> None:
    at = At()
    one = at.subscriber(1)
    at.acknowledge(one, 30)
    at.save()
    at.acknowledge(one, 40)
    del at.state.subscriptions[1]
    at.acknowledgements.forget(one)
    at.commit()
    assert at.heard == []
    assert at.save() == []


# What is held.


def test_a_host_without_subscribers_holds_nothing() -> None:
    assert At().minima() == (TICK_MAX, TICK_MAX)


def test_how_far_a_host_is_is_not_known_before_it_has_delivered_anything() -> None:
    at = At()
    at.subscriber(1)
    at.constream.synced = None
    assert at.minima() is None


def test_a_host_holds_the_least_that_a_durable_subscriber_has_saved() -> None:
    at = At()
    first, second = at.subscriber(1, start=10), at.subscriber(2, start=20)
    assert at.minima() == (10, 100)
    at.acknowledge(first, 60)
    at.acknowledge(second, 50)
    assert at.minima() == (10, 100)  # not on disk yet
    at.save()
    at.commit()
    assert at.minima() == (50, 100)


def test_a_host_never_releases_more_than_the_pfs_has_on_disk() -> None:
    at = At()
    one = at.subscriber(1)
    at.acknowledgements.saved(1, CheckpointToken({"p": 900}))
    assert at.minima() == (100, 100)
    assert one.saved == {"p": 900}


def test_subscribers_that_are_not_durable_or_have_not_started_hold_nothing() -> None:
    at = At()
    at.subscriber(1, durable=False)
    at.subscriber(2, start=None)
    assert at.minima() == (100, 100)


def test_what_a_subscriber_held_is_let_go_when_it_is_gone() -> None:
    at = At()
    first, _ = at.subscriber(1, start=10), at.subscriber(2, start=20)
    assert at.minima() == (10, 100)
    del at.state.subscriptions[1]
    at.acknowledgements.forget(first)
    assert at.minima() == (20, 100)


def test_an_acknowledgement_of_a_pubend_that_is_gone_changes_nothing_else() -> None:
    at = At()
    at.subscriber(1)
    at.acknowledgements.saved(1, CheckpointToken({"gone": 7}))
    assert at.minima() == (10, 100)


def test_of_many_acknowledgements_on_disk_a_turn_goes_through_some_and_the_answer_comes_at_the_end() -> None:
    at = At()
    many = [at.subscriber(number) for number in range(1, 2 * SAVED_MAX + 12)]
    for each in many:
        at.acknowledge(each, 60)
    done: list[bool] = []
    at.acknowledgements.save([each.id for each in many], lambda: done.append(True))
    assert sum(isinstance(each, SaveReleased) for each in at.turn.out.take()) == len(many)
    at.commit()
    turns = [len(at.heard)]
    while at.acknowledgements.is_behind:
        assert not done
        assert at.minima() == (10, 100), "until all are gone through, nothing is let go"
        at.acknowledgements.go_on()
        turns.append(len(at.heard))
    assert done == [True]
    assert turns == [SAVED_MAX, 2 * SAVED_MAX, len(many)]
    assert at.minima() == (60, 100)


def test_what_comes_on_disk_meanwhile_takes_the_place_of_what_waits_and_few_are_answered_at_once() -> None:
    at = At()
    many = [at.subscriber(number) for number in range(1, SAVED_MAX + 3)]
    done: list[int] = []
    for tick, some in ((60, many), (70, many), (80, many[:1])):
        for each in some:
            at.acknowledge(each, tick)
        at.acknowledgements.save([each.id for each in some], partial(done.append, tick))
        at.turn.out.take()
        at.commit()
    assert len(at.heard) == SAVED_MAX
    assert done == [80]
    while at.acknowledgements.is_behind:
        at.acknowledgements.go_on()
    assert sorted(set(at.heard)) == sorted(each.name for each in many)
    assert len(at.heard) == SAVED_MAX + len(many)
    assert done == [80, 60, 70]
    assert at.minima() == (70, 100)


def test_who_acknowledges_the_same_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    at = At()
    at.acknowledge(at.subscriber(1), 60)
    at.save()
    at.commit()
    assert at.minima() == (60, 100)
    looked = Acknowledgements._held
    looks: list[str] = []

    def noted(self: Acknowledgements, pubend: str) -> list[int]:
        looks.append(pubend)
        return looked(self, pubend)

    monkeypatch.setattr(Acknowledgements, "_held", noted)
    for tick in (60, 60, 61):
        at.acknowledge(at.state.subscriptions[1], tick)
        at.save()
        at.commit()
        assert at.minima() == (tick, 100)
    assert looks == ["p"]


# The PFS.


def test_the_pfs_is_chopped_as_far_as_everyone_has_released_and_once() -> None:
    at = At()
    at.subscriber(1)
    at.acknowledgements.chop()
    at.acknowledgements.chop()
    assert at.turn.out.take() == [ChopPfs("p", 10)]
    at.acknowledgements.saved(1, CheckpointToken({"p": 70}))
    at.acknowledgements.chop()
    assert at.turn.out.take() == [ChopPfs("p", 70)]


def test_the_pfs_of_a_host_without_subscribers_is_not_chopped() -> None:
    at = At()
    at.acknowledgements.chop()
    assert at.turn.out.take() == []
