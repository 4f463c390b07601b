"""Worlds whose brokers keep what was published from the log for a while: no promise is broken by that."""

from __future__ import annotations

from itertools import count

import pytest

from tidemark.broker.broker import Broker
from tidemark.broker.effects import AppendEvents, Effect, LogSynced, Stimulus
from tidemark.broker.hearing import may_settle_later
from tidemark.sim.swarm.swarm import run_seed


@pytest.mark.parametrize(("profile", "seed"), [("swarm", 174), ("crashes", 9), ("hostile", 4)])
def test_every_promise_is_kept_by_brokers_that_give_the_log_later_what_was_published(
    profile: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear, settle = Broker.hear, Broker.settle
    may_hold: dict[Broker, bool] = {}
    held: set[Broker] = set()
    turns = count()
    logged_later: list[AppendEvents] = []

    def whole(broker: Broker) -> list[Effect]:
        effects = settle(broker)
        if broker in held:
            held.discard(broker)
            logged_later.extend(each for each in effects if isinstance(each, AppendEvents))
        return effects

    def heard(broker: Broker, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        may_hold[broker] = may_settle_later(stimulus) or isinstance(stimulus, LogSynced)
        before = whole(broker) if broker in held and not may_hold[broker] else []
        return before + hear(broker, stimulus, now, wall)

    def settled(broker: Broker) -> list[Effect]:
        if may_hold[broker] and next(turns) % 3:
            held.add(broker)
            return settle(broker, is_log_held=True)
        return whole(broker)

    monkeypatch.setattr(Broker, "hear", heard)
    monkeypatch.setattr(Broker, "settle", settled)
    assert run_seed(seed, profile=profile).violation is None
    assert len(logged_later) > 10, "something was held"
