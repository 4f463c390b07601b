"""The `sim` command, as a person or a script calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tidemark.cli import main
from tidemark.sim import command
from tidemark.sim.swarm.swarm import SeedOutcome


def sim(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["sim", *arguments])


def test_sim_runs_seeds_and_says_what_they_met_and_what_they_did_not() -> None:
    shown = sim("--from", "41", "--seeds", "2", "--jobs", "1")
    assert shown.exit_code == 0
    assert "2 of 2 worlds kept every promise" in shown.output
    assert "events logged for publishers" in shown.output
    assert "NEVER MET in 2 worlds" in shown.output


@pytest.mark.slow
def test_sim_prints_one_object_for_scripts() -> None:
    shown = json.loads(
        sim("--from", "5", "--seeds", "1", "--profile", "calm", "--jobs", "1", "--json").output
    )
    assert (shown["profile"], shown["first"], shown["seeds"], shown["failures"]) == ("calm", 5, 1, [])
    assert shown["coverage"]["events_published"]["seeds"] == 1
    assert "fault_crash" not in shown["never"]


def test_a_broken_promise_is_a_line_with_the_command_that_shows_it_and_a_failing_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(first: int, count: int, *, report: Any, **_: Any) -> None:
        for seed in range(first, first + count):
            report(SeedOutcome(seed, violation="it rained" if seed == 8 else None))

    monkeypatch.setattr(command, "run_many", broken)
    shown = sim("--from", "7", "--seeds", "3")
    assert shown.exit_code == 1
    assert "seed 8: it rained" in shown.output
    assert "./run sim --from 8 --seeds 1 --profile swarm --trace" in shown.output
    assert "2 of 3 worlds kept every promise" in shown.output


def test_an_interrupt_ends_with_what_is_known_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(first: int, _count: int, *, report: Any, **_: Any) -> None:
        report(SeedOutcome(first))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_many", interrupted)
    shown = sim("--seeds", "1000")
    assert shown.exit_code == command.INTERRUPTED
    assert "1 of 1 worlds kept every promise" in shown.output


def test_a_trace_tells_what_a_broker_was_told_and_what_it_did() -> None:
    shown = sim("--from", "2", "--profile", "calm", "--trace")
    assert shown.exit_code == 0
    assert " <- ClientFrameReceived(" in shown.output
    assert " -> SendClient(" in shown.output
    assert "seed 2: " in shown.output.splitlines()[-1]


def test_a_trace_of_a_planted_bug_ends_with_what_was_noticed() -> None:
    shown = sim("--from", "51", "--trace", "--planted", "knowledge-before-sync")
    assert shown.exit_code == 1
    assert "which is not durable" in shown.output.splitlines()[-1]


@pytest.mark.slow
def test_one_planted_bug_can_be_looked_for() -> None:
    shown = sim("--planted", "unknown-released", "--from", "3", "--seeds", "5", "--jobs", "1")
    assert shown.exit_code == 0
    assert "who has not reported counts as having released all" in shown.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--planted", "nonsense"), "there is no planted bug 'nonsense'"),
        (("--profile", "nonsense"), "'swarm'"),
        (("--trace", "--seeds", "2"), "one seed"),
        (("--seeds", "0"), "--seeds"),
    ],
)
def test_a_mistake_is_one_clear_message(arguments: tuple[str, ...], reason: str) -> None:
    shown = sim(*arguments)
    assert shown.exit_code == 2
    assert reason in shown.output
