"""Console: what an open console, a tail and a thousand browsers cost a loaded broker, and what others notice.

One broker process under a steady load, one well-behaved client, and a console process. Phases with and
without somebody who looks take turns, so that what else the machine does falls on both alike. The cost is the
difference of the broker's CPU time, as a share of what it uses without the console.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import mean, quantiles, stdev
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep
from urllib.parse import urlsplit
from urllib.request import urlopen

from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section

#: An open console with a tail may add so much to the broker's CPU, in per cent of what it uses without it.
COST_PERCENT = 1.0
NOTES = (
    "load: the events of `tidemark pub --generate --rate`, at the rate of the effort",
    "looking: the overview every 2 s and a tail of everything, in phases that take turns with nobody looking",
)


@dataclass(frozen=True, slots=True)
class ConsoleEffort:
    """How much is measured."""

    #: phases of each kind, and the seconds of one
    phases: int
    seconds: float
    #: events a second of the load, and of the client that is timed
    load: int
    rate: float
    browsers: int


FULL = ConsoleEffort(20, 5.0, 20_000, 100.0, 1_000)
QUICK = ConsoleEffort(2, 3.0, 5_000, 100.0, 100)
TINY = ConsoleEffort(1, 0.5, 200, 50.0, 5)


def sections(effort: ConsoleEffort) -> Iterator[Section]:
    """Yield what looking costs, and what a crowd does; AssertionError if an event is missing or repeated."""
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync")
        neighbour = testbed.worker("neighbour", url=broker.url)
        neighbour.ask("measure", events=20, rate=effort.rate)
        with _Load(broker.url, effort.load), _Console(broker.url) as console:
            yield Section(
                f"an open console, sync on {filesystem()}",
                _looking(broker, neighbour, console, effort),
                notes=NOTES,
            )
            yield Section("a crowd", _crowd(broker, neighbour, console, effort))


@dataclass(slots=True)
class _Phase:
    cpu: float
    taken: list[int]


def _phase(broker: BenchBroker, neighbour: WorkerProcess, effort: ConsoleEffort) -> _Phase:
    before, began = broker.cpu_seconds, monotonic()
    found = neighbour.ask("measure", events=max(5, int(effort.seconds * effort.rate)), rate=effort.rate)
    return _Phase((broker.cpu_seconds - before) / (monotonic() - began), found["delivered"])


def _looking(
    broker: BenchBroker, neighbour: WorkerProcess, console: _Console, effort: ConsoleEffort
) -> list[Measurement]:
    without, beside = [], []
    for turn in range(effort.phases):
        # Each kind comes first in every other turn, so that a machine that becomes slower harms both alike.
        for is_looked_at in (turn % 2 == 1, turn % 2 == 0):
            if is_looked_at:
                with _Looker(console.url):
                    beside.append(_phase(broker, neighbour, effort))
            else:
                without.append(_phase(broker, neighbour, effort))
    cpu, more = mean(each.cpu for each in without), mean(each.cpu for each in beside)
    pairs = list(zip(without, beside, strict=True))
    _, error = _mean_and_error([after.cpu - before.cpu for before, after in pairs])
    later, later_error = _mean_and_error([_p99([after]) - _p99([before]) for before, after in pairs])
    goal = Goal("<", COST_PERCENT)
    return [
        Measurement("nobody looks", "the broker's CPU", 100 * cpu, "% of a core"),
        Measurement("somebody looks", "the broker's CPU", 100 * more, "% of a core"),
        Measurement("somebody looks", "added to the broker's CPU", 100 * (more - cpu) / cpu, "%", goal),
        Measurement("somebody looks", "standard error of what is added", 100 * error / cpu, "%"),
        Measurement("nobody looks", "delivered, p99", _p99(without), "ms"),
        Measurement("somebody looks", "delivered, p99", _p99(beside), "ms"),
        Measurement("somebody looks", "added to the p99, phase by phase", later, "ms"),
        Measurement("somebody looks", "standard error of what is added to the p99", later_error, "ms"),
    ]


def _crowd(
    broker: BenchBroker, neighbour: WorkerProcess, console: _Console, effort: ConsoleEffort
) -> list[Measurement]:
    alone = _phase(broker, neighbour, effort)
    with _Crowd(console.url, effort.browsers) as crowd:
        beside = _phase(broker, neighbour, effort)
        opened = crowd.opened
    assert broker.process.poll() is None, "the broker has ended"
    case = f"{effort.browsers:,} browsers"
    return [
        Measurement(case, "streams that were open", opened, "streams"),
        Measurement("none", "delivered, p99", _p99([alone]), "ms"),
        Measurement(case, "delivered, p99", _p99([beside]), "ms"),
        Measurement(case, "the broker's CPU", 100 * beside.cpu, "% of a core"),
    ]


def _mean_and_error(differences: list[float]) -> tuple[float, float]:
    """The mean of what turns have added, and its standard error; 0 if there was one turn only."""
    if len(differences) < 2:
        return mean(differences), 0.0
    return mean(differences), stdev(differences) / sqrt(len(differences))


def _p99(phases: list[_Phase]) -> float:
    taken = [each for phase in phases for each in phase.taken]
    return quantiles(taken, n=100, method="inclusive")[98] / 1e6


class _Load:
    """A steady load in a process of its own: the command line's publisher."""

    def __init__(self, url: str, rate: int) -> None:
        command = [sys.executable, "-m", "tidemark"]
        declared = ("topic", "create", "load", "--schema", "[n: long, text: string]", "--broker", url)
        subprocess.run([*command, *declared], check=True, capture_output=True)
        self._command = [
            *command,
            *("pub", "load", "--generate", "--rate", str(rate), "--count", "1000000000", "--broker", url),
        ]

    def __enter__(self) -> _Load:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        sleep(1.0)
        assert self._process.poll() is None, "the load has ended"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class _Console:
    """A console process."""

    def __init__(self, url: str) -> None:
        self._command = [
            *(sys.executable, "-m", "tidemark", "console", "--json", "--broker", url),
            *("--listen", "127.0.0.1:0"),
        ]

    def __enter__(self) -> _Console:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["url"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class _Looker:
    """Somebody who has the overview and a tail open."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = Flag()
        self._threads = [Thread(target=each, daemon=True) for each in (self._overview, self._tail)]

    def __enter__(self) -> _Looker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _overview(self) -> None:
        while not self._is_over.is_set():
            with urlopen(f"{self._url}/") as page:
                page.read()
            self._is_over.wait(2.0)

    def _tail(self) -> None:
        with urlopen(f"{self._url}/tail/rows?topic=%3E") as stream:
            while not self._is_over.is_set() and stream.readline():
                pass


class _Crowd:
    """Many browsers, each with a stream of its own that brings it little."""

    def __init__(self, url: str, browsers: int) -> None:
        self._address = urlsplit(url)
        self._browsers = browsers
        self.opened = 0
        self._is_ready, self._is_over = Flag(), Flag()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> _Crowd:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        tasks = [asyncio.ensure_future(self._browse(number)) for number in range(self._browsers)]
        while self.opened < self._browsers and not all(task.done() for task in tasks):
            await asyncio.sleep(0.05)
        self._is_ready.set()
        while not self._is_over.is_set():
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _browse(self, number: int) -> None:
        await asyncio.sleep(number * 0.002)
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        path = f"/topics/neighbour.events/events?where=n%3D{number}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\n\r\n".encode())
        try:
            first = await reader.readline()
            assert b"200" in first, first
            while b"retry" not in await reader.readline():
                pass
            self.opened += 1
            while await reader.readline():
                pass
        finally:
            writer.close()
