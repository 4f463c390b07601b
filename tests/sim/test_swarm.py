"""Whole simulated networks under faults; `./run sim` runs as many more as one likes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidemark.sim.actors import ViolationError
from tidemark.sim.oracle import judge
from tidemark.sim.swarm import Run, run_seed

#: Small worlds with crashes, cut links, lost and repeated frames, clocks that jump, slow subscribers.
SEEDS = (1, 3, 9, 11, 13, 17, 18, 22, 27, 50)

#: Seeds that found a bug once, and what it was.
REGRESSIONS = {
    0: "a recovered host at the pubend's own broker could never learn what lay before the pubend's position",
    6: "a publisher's second batch was taken before its first, which then looked like a repetition",
    7: "a subscriber was started by silence of an older interest that nothing had been left out of",
    8: "a host that had never synced its PFS forgot how far its subscribers were",
    68: "late word that nobody was behind a link undid word that somebody was, and events were let go",
    2040: "a pubend whose clock had gone back was silent about its silence, and nobody could start",
    87: "after a link came back, word that nobody was there was repeated although somebody had come",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_under_faults(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", REGRESSIONS, ids=lambda seed: f"{seed}: {REGRESSIONS[seed]}")
def test_a_seed_that_once_failed_stays_mended(seed: int) -> None:
    run_seed(seed)


def test_every_promise_is_kept_in_calm_worlds() -> None:
    for seed in (1, 9, 13):
        run_seed(seed, faults=False)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(11) == run_seed(11)


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    program = "from tidemark.sim.swarm import run_seed; print(run_seed(9).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def finished() -> Run:
    run = Run(3)
    run.execute()
    return run


def test_the_oracle_notices_an_event_that_is_missing() -> None:
    run = finished()
    ledger = next(
        each for subscriber in run.world.subscribers for each in subscriber.ledger.values() if each.events
    )
    del ledger.events[0]
    with pytest.raises(ViolationError, match="is missing"):
        judge(run.world)


def test_the_oracle_notices_an_event_that_came_twice() -> None:
    run = finished()
    ledger = next(
        each for subscriber in run.world.subscribers for each in subscriber.ledger.values() if each.events
    )
    ledger.events.append(ledger.events[-1])
    with pytest.raises(ViolationError, match="out of order or twice"):
        judge(run.world)


def test_the_oracle_notices_an_acknowledged_event_that_is_not_on_disk() -> None:
    run = finished()
    run.world.publishers[0].acknowledged += 1_000
    with pytest.raises(ViolationError, match="not on disk"):
        judge(run.world)
