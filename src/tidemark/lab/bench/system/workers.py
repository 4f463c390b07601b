"""Workers: the fan-out behind one address with 1, 2 and 4 workers, and what all their processes use.

One publisher and 100 durable subscribers connect to the one address, and the acceptor spreads them. The
publisher's worker passes its events on to the others, which match and deliver them to their own subscribers.
CPU is that of all processes of `tidemark up --workers N` together: what a worker more costs, and what its
core brings.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark import sync
from tidemark.errors import NotConnectedError
from tidemark.lab.bench.processes.harness import (
    GOODBYE_SECONDS,
    BenchProcess,
    BenchTestbed,
    all_of,
    filesystem,
    measure_deliveries,
    wait_until,
)
from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.bench.system.fanout import KINDS, WINDOW_EVENTS, subscribing
from tidemark.lab.processes.process_numbers import ProcessStat, resident_bytes
from tidemark.node.config.units import HostPort
from tidemark.node.workers.layout import PORT_STEP, own_address
from tidemark.wire.answers import LINKS

#: Where ports are looked for: below those that the system gives to whoever wants any.
PORTS = range(20_000, 32_000, 100)
NOTES = (
    "250-byte events; lean subscribers in 2 processes, each with a connection and a quarter of the events",
    "CPU: of all workers, the acceptor and the process that starts them",
)


@dataclass(frozen=True, slots=True)
class WorkersEffort:
    """How much is measured."""

    counts: tuple[int, ...]
    batches: tuple[int, ...]
    subscribers: int
    warm_seconds: float
    seconds: float


FULL = WorkersEffort((1, 2, 4), (2_000, 400), 100, 1.0, 4.0)
QUICK = WorkersEffort((1, 2), (2_000,), 20, 0.5, 1.0)


class WorkersProcess(BenchProcess):
    """`tidemark up --workers N`, with all its processes."""

    def __init__(self, directory: Path, count: int) -> None:
        port = _free_port(count)
        self.count = count
        self.url = f"tidemark://127.0.0.1:{port}"
        front = HostPort("127.0.0.1", port)
        self._own = [f"tidemark://{own_address(front, number)}" for number in range(1, count + 1)]
        arguments = ["up", "--workers", str(count), "--no-pipeline", "--console", "", "--json"]
        arguments += ["--listen", str(front), "--data-dir", str(directory)]
        super().__init__("tidemark", arguments, directory.with_suffix(".log"), is_silent=True)

    def wait(self) -> None:
        """Wait until all workers listen and are linked; AssertionError if they do not."""
        if not wait_until(self._is_ready):
            raise self.fail("the workers do not start:")

    def _is_ready(self) -> bool:
        try:
            for url in self._own:
                with sync.connect(url) as client:
                    if not all(link.is_up for link in client.ask(LINKS)):
                        return False
        except NotConnectedError:
            return False
        return True

    @property
    def _processes(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(pid) for task in tasks for pid in task.read_text().split())]

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all processes."""
        return sum(ProcessStat(pid).cpu_seconds for pid in self._processes)

    @property
    def rss_bytes(self) -> int:
        """Resident memory of all processes."""
        return sum(resident_bytes(pid) for pid in self._processes)

    def kill(self) -> None:
        """End all processes: those that the killed one has started would go on."""
        self.process.terminate()
        try:
            self.process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            super().kill()


def sections(effort: WorkersEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a subscriber got anything but its events."""
    for batch in effort.batches:
        found: list[Measurement] = []
        for count in effort.counts:
            with BenchTestbed() as testbed:
                found += _measured(testbed, count, batch, effort)
        title = f"fan-out to {effort.subscribers} subscribers behind one address, batches of {batch:,}"
        yield Section(title, found, notes=NOTES)


def _measured(testbed: BenchTestbed, count: int, batch: int, effort: WorkersEffort) -> list[Measurement]:
    brokers = WorkersProcess(testbed.path / "data", count)
    testbed.add(brokers)
    brokers.wait()
    publisher = testbed.worker("publish", url=brokers.url, kinds=KINDS)
    workers = subscribing(testbed, effort.subscribers, "lean", quarter=True, pubends=count)
    all_of(workers, "come", url=brokers.url)
    share = effort.subscribers // KINDS
    window = {"workers": len(workers), "window_events": WINDOW_EVENTS}
    publisher.request("fan_out", batch_events=batch, share=share, **window)
    assert wait_until(lambda: testbed.counters.delivered > 0), "nothing is delivered"
    flow = measure_deliveries(testbed.counters, [brokers], effort.warm_seconds, effort.seconds)
    (used,) = flow.cpu_seconds
    all_of(workers, "check", events=publisher.answer())
    case = f"sync on {filesystem()}, batches of {batch:,}, {count} worker{'s' if count > 1 else ''}"
    return [
        Measurement(case, "deliveries", flow.rate, "/s"),
        Measurement(case, "CPU of all workers", used * 1e6 / max(flow.delivered, 1), "s/million"),
        Measurement(case, "CPU an event", used * 1e6 * share / max(flow.delivered, 1), "us"),
        Measurement(case, "workers busy", used / flow.seconds, "cores"),
        Measurement(case, "memory of all", brokers.rss_bytes / 1e6, "MB"),
    ]


def _free_port(count: int) -> int:
    """Return a port such that it and the others of so many workers are free."""
    for port in PORTS:
        front = HostPort("127.0.0.1", port)
        wanted = [port, *(own_address(front, number).port for number in range(1, count + 1))]
        wanted += [port + 1 + PORT_STEP * number for number in range(count)]
        if all(map(_is_free, wanted)):
            return port
    raise AssertionError("there are no free ports for the workers")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
