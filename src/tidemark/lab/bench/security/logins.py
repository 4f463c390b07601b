"""Logins: what clients that are connected notice while somebody tries wrong passwords, one after the other.

The attacker comes from many addresses and with many names, so that no bound on failures stops it. It is
measured how long events take to a client with a rule of its own, before and beside the attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles
from time import sleep

from tidemark.lab.bench.processes.harness import BenchTestbed
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.security.benchmark import RATE, Side, Way, make_files, side_of

GUESSING_TIMES = 2.0
PRINCIPALS = 10
ACCOUNTS = Way("accounts", True, False)
NOTES = ("the times of a client that is connected, before and while the logins fail; in one run",)


@dataclass(frozen=True, slots=True)
class LoginsEffort:
    """How many logins fail, and how many events are timed at once."""

    wrong_logins: int
    timed: int


FULL = LoginsEffort(100_000, 500)
QUICK = LoginsEffort(2_000, 200)
TINY = LoginsEffort(30, 5)


def sections(effort: LoginsEffort) -> Iterator[Section]:
    """Yields the section; AssertionError when somebody gets anything but its own events."""
    with BenchTestbed() as testbed:
        side = side_of(testbed, ACCOUNTS, make_files(testbed.path, PRINCIPALS), PRINCIPALS)
        yield Section("wrong passwords", [*_guessed(testbed, side, effort)], notes=NOTES)


def _guessed(testbed: BenchTestbed, side: Side, effort: LoginsEffort) -> Iterator[Measurement]:
    """Measure connected clients alone, then until so many wrong logins have failed."""
    guesser = testbed.worker("guessing", url=side.broker.url)
    guesser.ask("failed")
    alone = [each for _ in range(4) for each in side.clients.ask("latency", events=effort.timed, rate=RATE)]
    guesser.ask("begin", logins=effort.wrong_logins)
    beside: list[int] = []
    while (failed := guesser.ask("failed")) < effort.wrong_logins:
        beside += side.clients.ask("latency", events=effort.timed, rate=RATE)
        sleep(0.01)
    beside = beside or alone
    case = f"{effort.wrong_logins:,} wrong logins"
    before, after = _p99(alone), _p99(beside)
    yield Measurement(case, "failed", float(failed), "logins")
    yield Measurement(case, "latency alone, p99", before / 1e6, "ms")
    yield Measurement(case, "latency beside, p99", after / 1e6, "ms")
    yield Measurement(case, "latency, p99", after / before, "times alone", Goal("<=", GUESSING_TIMES))


def _p99(nanoseconds: list[int]) -> float:
    return quantiles(nanoseconds, n=100)[98]
