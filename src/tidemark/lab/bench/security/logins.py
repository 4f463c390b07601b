"""Logins: what clients that are connected notice while somebody tries wrong passwords, one after the other.

The attacker comes from many addresses and with many names, so that no bound on failures stops it. It is
measured how long events take to a client with a rule of its own, beside the attack and without it, in turns:
so both meet the same moments of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles

from tidemark.lab.bench.processes.harness import BenchTestbed
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.security.benchmark import COMING_SECONDS_MAX, RATE, Side, Way, make_files, side_of

GUESSING_TIMES = 2.0
PRINCIPALS = 10
ACCOUNTS = Way("accounts", True, False)
NOTES = ("how long events take to clients that are connected, without the logins and beside them, in turns",)


@dataclass(frozen=True, slots=True)
class LoginsEffort:
    """How many logins fail in all and in one turn, and how many events are timed at once."""

    wrong_logins: int
    at_a_time: int
    timed: int


FULL = LoginsEffort(100_000, 2_500, 100)
QUICK = LoginsEffort(2_000, 500, 50)
TINY = LoginsEffort(30, 15, 5)


def sections(effort: LoginsEffort) -> Iterator[Section]:
    """Yields the section; AssertionError when somebody gets anything but its own events."""
    with BenchTestbed() as testbed:
        side = side_of(testbed, ACCOUNTS, make_files(testbed.path, PRINCIPALS), PRINCIPALS)
        side.clients.wait(COMING_SECONDS_MAX)
        yield Section("wrong passwords", [*_guessed(testbed, side, effort)], notes=NOTES)


def _guessed(testbed: BenchTestbed, side: Side, effort: LoginsEffort) -> Iterator[Measurement]:
    """Measure connected clients alone and beside wrong logins in turns, until so many have failed."""
    guesser = testbed.worker("guessing", url=side.broker.url)
    # The first events wait until matchers are made, which is not what is measured.
    side.clients.ask("latency", events=effort.timed, rate=RATE)
    alone: list[int] = []
    beside: list[int] = []
    failed = guesser.ask("failed")
    while failed < effort.wrong_logins:
        before = len(beside)
        guesser.ask("begin", logins=min(effort.at_a_time, effort.wrong_logins - failed))
        due = min(failed + effort.at_a_time, effort.wrong_logins)
        while failed < due:
            beside += side.clients.ask("latency", events=effort.timed, rate=RATE)
            failed = guesser.ask("failed")
        # A third of that: they are timed as evenly over the run, and it takes less long.
        alone += side.clients.ask("latency", events=max(1, (len(beside) - before) // 3), rate=RATE)
    case = f"{effort.wrong_logins:,} wrong logins"
    apart, together = _p99(alone), _p99(beside)
    yield Measurement(case, "failed", float(failed), "logins")
    yield Measurement(case, "latency alone, p99", apart / 1e6, "ms")
    yield Measurement(case, "latency beside, p99", together / 1e6, "ms")
    yield Measurement(case, "latency, p99", together / apart, "times alone", Goal("<=", GUESSING_TIMES))


def _p99(nanoseconds: list[int]) -> float:
    return quantiles(nanoseconds, n=100)[98]
