"""Worlds whose brokers do little at a time: that deliveries and answers are divided breaks no promise.

They deliver one event in a turn, or answer one piece for each nack.
"""

from __future__ import annotations

import pytest

from tidemark.broker.hosting import constream
from tidemark.broker.hosting.constream import Ration
from tidemark.broker.streams import answers, window
from tidemark.sim.swarm.swarm import run_seed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("profile", "seed"), [("swarm", 173), ("crashes", 8), ("hostile", 3)])
def test_every_promise_is_kept_by_brokers_that_deliver_one_event_in_a_turn(
    profile: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided: list[str] = []
    may_go_on = Ration.may_go_on

    def noted(self: Ration, pubend: str) -> bool:
        may = may_go_on(self, pubend)
        divided.extend([] if may else [pubend])
        return may

    monkeypatch.setattr(constream, "PIECE_BYTES_MAX", 1)
    monkeypatch.setattr(constream, "PIECE_ROWS_MAX", 1)
    monkeypatch.setattr(constream, "TURN_DELIVERIES_MAX", 1)
    monkeypatch.setattr(Ration, "may_go_on", noted)
    assert run_seed(seed, profile=profile).violation is None
    assert len(divided) > 10, "something was divided"


@pytest.mark.parametrize(("profile", "seed"), [("swarm", 173), ("narrow", 5), ("thin", 3)])
def test_every_promise_is_kept_by_brokers_that_answer_little_for_one_nack(
    profile: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "NACK_BYTES_MAX", 1)
    monkeypatch.setattr(window, "PIECE_BYTES", 1)
    outcome = run_seed(seed, profile=profile)
    assert outcome.violation is None
    assert outcome.coverage["answers_stopped"] > 3, "something was asked for again"
