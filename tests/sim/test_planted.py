"""Bugs planted on purpose are found, each by the promise it breaks, in a world that is fine without it."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tidemark.broker.publishing.pubend import Pubend
from tidemark.sim.command import find_planted
from tidemark.sim.swarm.hunt import HuntResult, hunt
from tidemark.sim.swarm.planted import BUGS, planted
from tidemark.sim.swarm.report import describe_hunts, render_hunts
from tidemark.sim.swarm.swarm import SeedOutcome, try_seed

#: bug -> a small world that finds it; `./run sim --planted NAME` finds others when worlds have changed
FINDS = {
    "ack-before-sync": 7,
    "no-dedup": 115,
    "knowledge-before-sync": 7,
    "first-in-a-row": 1,
    "forget-lease": 37,
    "cut-at-bad-record": 25,
    "expire-early": 7,
    "stale-cache": 8,
    "trust-tables": 16,
    "filter-in-doubt": 20,
    "answer-before-version": 9,
    "reroute-skips": 0,
    "release-by-arrival": 33,
    "no-fencing": 9,
    "release-past-moving": 16,
    "silence-goes": 1,
    "unknown-released": 3,
    "raise-overtakes": 3,
    "hold-skipped": 16,
    "window-in-doubt": 3,
    "merged-in-part": 49,
    "nack-once": 7,
    "fetch-storm": 0,
    "start-at-a-moment": 3,
    "change-at-a-moment": 14,
    "rewind": 42,
    "tell-and-catch-up": 0,
    "memory-in-doubt": 3,
    "join-early": 1,
    "others-rows": 49,
    "deliver-expired": 4,
    "token-in-memory": 6,
    "hole-is-silence": 42,
    "old-creation": 115,
    "left-forgotten": 114,
    "left-open": 3,
    "catchup-unruled": 0,
    "archive-unruled": 4,
    "move-unruled": 7,
    "restart-unruled": 49,
    "old-rules-overtake": 0,
    "hidden-in-catchup": 0,
    "hidden-in-selectors": 0,
    "names-of-others": 0,
    "quota-forgotten": 28,
    "held-for-ever": 5,
}


@cache
def without_a_bug(seed: int, profile: str) -> SeedOutcome:
    """What comes of a world without a bug; several bugs are looked for in the same world."""
    return try_seed(seed, profile)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    seed, profile = FINDS[bug], BUGS[bug].profile
    violation = try_seed(seed, profile, bug).violation
    assert violation is not None
    assert BUGS[bug].is_noticed_by(violation), violation
    assert without_a_bug(seed, profile).violation is None


def test_a_bug_is_gone_when_it_is_not_planted_any_more() -> None:
    before = Pubend._when_durable
    with planted("ack-before-sync"):
        assert Pubend._when_durable is not before
    assert Pubend._when_durable is before


@pytest.mark.slow
def test_a_hunt_says_how_many_seeds_it_took() -> None:
    hunted = hunt("unknown-released", 2, 10)
    assert hunted.seed is not None
    assert hunted.seeds == hunted.seed - 1 > 1
    assert BUGS["unknown-released"].is_noticed_by(hunted.violation)


def test_a_hunt_that_finds_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    # One world, in which nothing expires.
    assert find_planted(["deliver-expired"], 2, 1, "calm", 1, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["planted"][0]["seed"] is None


def test_a_table_of_hunts_names_what_was_noticed_and_what_was_not() -> None:
    hunts = [HuntResult("rewind", "swarm", 3, 2, "it went back"), HuntResult("no-dedup", "swarm", 500)]
    shown = render_hunts(hunts)
    assert "seed 2: it went back" in shown
    assert "NOT FOUND" in shown
    assert [each["seeds"] for each in describe_hunts(hunts)["planted"]] == [3, 500]
