"""Console: what an open console, a tail and a thousand browsers cost a loaded broker, and what others notice.

One broker process, a load, one well-behaved client, and a console process whose overview and tail are open.
In every other phase the console is stopped (SIGSTOP), so that it asks nothing: an open console goes on asking
for a while after the last look. Phases of both kinds take turns, and what is said of a difference is the
median of its pairs, so that a few moments in which the machine did something else do not count.

What a console asks does not depend on the load: a tail reads at most so many bytes a second. So the cost is
measured under a light load, a batch a second that fills the tail, where a broker uses little else, and is
then told as a share of what the broker uses under the full load. The difference under the full load is told
beside it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from signal import SIGCONT, SIGSTOP
from statistics import median, quantiles
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep
from urllib.parse import urlsplit
from urllib.request import urlopen

from tidemark import sync
from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed, WorkerProcess, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

#: An open console with a tail may add so much to the broker's CPU, in per cent of what it uses without it.
COST_PERCENT = 1.0
NOTES = (
    "load: the events of `tidemark pub --generate --rate`, at the rate of the effort",
    "looking: the overview every 2 s and a tail of everything, in phases that take turns with nobody looking",
    "added: the median of all pairs of phases; its standard error is that of a median",
)


@dataclass(frozen=True, slots=True)
class ConsoleEffort:
    """How much is measured."""

    #: pairs of phases under each load, and the seconds of one phase
    pairs: int
    seconds: float
    #: events a second of the light load, in one batch, and of the full one, and of the client that is timed
    light: int
    load: int
    rate: float
    browsers: int


FULL = ConsoleEffort(20, 2.5, 2_000, 20_000, 100.0, 1_000)
QUICK = ConsoleEffort(3, 2.0, 2_000, 5_000, 100.0, 100)
TINY = ConsoleEffort(1, 0.5, 100, 200, 50.0, 5)


def sections(effort: ConsoleEffort) -> Iterator[Section]:
    """Yield what looking costs, and what a crowd does; AssertionError if an event is missing or repeated."""
    with BenchTestbed() as testbed:
        broker = testbed.broker("sync")
        neighbour = testbed.worker("neighbour", url=broker.url)
        neighbour.ask("measure", events=20, rate=effort.rate)
        _declare(broker.url)
        with _Console(broker.url) as console:
            with _LightLoad(broker.url, effort.light):
                light = _pairs(console, effort, lambda: _idle_phase(broker, effort))
            with _Load(broker.url, effort.load):
                full = _pairs(console, effort, lambda: _phase(broker, neighbour, effort))
                yield Section(f"an open console, sync on {filesystem()}", _looking(light, full), notes=NOTES)
                yield Section("a crowd", _crowd(broker, neighbour, console, effort))


@dataclass(slots=True)
class _Phase:
    #: share of a core
    cpu: float
    #: nanoseconds until each event of the neighbour was delivered
    taken: list[int]


#: A phase in which nobody looks, and one in which somebody does.
_Pair = tuple[_Phase, _Phase]


def _phase(broker: BenchBroker, neighbour: WorkerProcess, effort: ConsoleEffort) -> _Phase:
    pid = broker.process.pid
    before, began = cpu_seconds_exact(pid), monotonic()
    found = neighbour.ask("measure", events=max(5, int(effort.seconds * effort.rate)), rate=effort.rate)
    return _Phase((cpu_seconds_exact(pid) - before) / (monotonic() - began), found["delivered"])


def _idle_phase(broker: BenchBroker, effort: ConsoleEffort) -> _Phase:
    """A phase in which nobody else publishes."""
    pid = broker.process.pid
    before, began = cpu_seconds_exact(pid), monotonic()
    sleep(effort.seconds)
    return _Phase((cpu_seconds_exact(pid) - before) / (monotonic() - began), [])


def _pairs(console: _Console, effort: ConsoleEffort, phase: Callable[[], _Phase]) -> list[_Pair]:
    found: list[_Pair] = []
    with _Looker(console.url):
        sleep(min(2.0, effort.seconds))
        for turn in range(effort.pairs):
            # Each kind comes first in every other turn, so that a machine that becomes slower harms both.
            phases = {}
            for is_looked_at in (turn % 2 == 1, turn % 2 == 0):
                console.pause(not is_looked_at)
                phases[is_looked_at] = phase()
            console.pause(False)
            found.append((phases[False], phases[True]))
    return found


def _looking(light: list[_Pair], full: list[_Pair]) -> list[Measurement]:
    core, core_error = _added(light, lambda phase: phase.cpu)
    cpu = median(before.cpu for before, _ in full)
    difference, error = _added(full, lambda phase: phase.cpu)
    nobody, somebody = "nobody looks", "somebody looks"
    found = [
        Measurement(
            nobody,
            "the broker's CPU, light load",
            100 * median(before.cpu for before, _ in light),
            "% of a core",
        ),
        Measurement(somebody, "added to it", 100 * core, "% of a core"),
        Measurement(somebody, "standard error of what is added", 100 * core_error, "% of a core"),
        Measurement(nobody, "the broker's CPU, full load", 100 * cpu, "% of a core"),
        Measurement(somebody, "added, as a share of that", 100 * core / cpu, "%", Goal("<", COST_PERCENT)),
        Measurement(somebody, "difference under the full load", 100 * difference / cpu, "%"),
        Measurement(somebody, "standard error of the difference", 100 * error / cpu, "%"),
    ]
    for name, of in (("p50", _p50), ("p99", _p99)):
        later, later_error = _added(full, of)
        found += [
            Measurement(nobody, f"delivered, {name}", median(of(before) for before, _ in full), "ms"),
            Measurement(somebody, f"delivered, {name}", median(of(after) for _, after in full), "ms"),
            Measurement(somebody, f"added to the {name}", later, "ms"),
            Measurement(somebody, f"standard error of what is added to the {name}", later_error, "ms"),
        ]
    return found


def _p50(phase: _Phase) -> float:
    return median(phase.taken) / 1e6


def _p99(phase: _Phase) -> float:
    return quantiles(phase.taken, n=100, method="inclusive")[98] / 1e6


def _added(pairs: list[_Pair], of: Callable[[_Phase], float]) -> tuple[float, float]:
    """The median of what looking adds in each pair, and its standard error; 0 if there is one pair only.

    The spread is taken from the median deviation, as if the differences were normal without their outliers.
    """
    differences = [of(after) - of(before) for before, after in pairs]
    middle = median(differences)
    spread = 1.4826 * median(abs(each - middle) for each in differences)
    return middle, 1.2533 * spread / sqrt(len(differences))


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
        Measurement("none", "delivered, p99", _p99(alone), "ms"),
        Measurement(case, "delivered, p99", _p99(beside), "ms"),
        Measurement(case, "the broker's CPU", 100 * beside.cpu, "% of a core"),
    ]


def _declare(url: str) -> None:
    declared = ("topic", "create", "load", "--schema", "[n: long, text: string]", "--broker", url)
    subprocess.run([sys.executable, "-m", "tidemark", *declared], check=True, capture_output=True)


class _LightLoad:
    """Events in one batch a second, more of them than a tail reads."""

    def __init__(self, url: str, events: int) -> None:
        self._url = url
        self._events = events
        self._is_over = Flag()
        self._thread = Thread(target=self._publish, daemon=True)

    def __enter__(self) -> _LightLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _publish(self) -> None:
        rows = [{"n": n, "text": "x" * 40} for n in range(self._events)]
        with sync.connect(self._url) as client:
            while not self._is_over.wait(1.0):
                client.publish_many("load", rows)


class _Load:
    """A steady load in a process of its own: the command line's publisher."""

    def __init__(self, url: str, rate: int) -> None:
        self._command = [
            *(sys.executable, "-m", "tidemark"),
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

    def pause(self, is_paused: bool) -> None:
        """Have the process stand still, or go on."""
        self._process.send_signal(SIGSTOP if is_paused else SIGCONT)

    def __exit__(self, *_: object) -> None:
        self.pause(False)
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
