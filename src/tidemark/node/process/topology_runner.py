"""The topology runner: all processes of a topology on one machine, started and stopped together.

It is for trying a topology out; in earnest each machine runs its own brokers. A process that is killed or
fails is started again while the others go on, after a wait (`restart_delay`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from tidemark.node.clock import Clock
from tidemark.node.config.loading import processes_of
from tidemark.node.config.units import HostPort
from tidemark.node.logs import Log, configure
from tidemark.node.process.process import NOT_STARTED
from tidemark.node.process.restart_delay import RestartDelay
from tidemark.node.process.supervised_process import SupervisedGroup
from tidemark.node.workers.front import Front

#: How often the processes are checked, and how long they may take to stop before they are killed.
LOOK_SECONDS = 0.1
STOP_SECONDS_MAX = 30.0
#: A process that lived this long counts as healthy: the wait before its next start is short again.
LONG_LIFE_SECONDS = 30.0
DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 30.0
log = Log("topology")


class BrokerProcess:
    """One process with one or more brokers, which is kept running."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        files: Sequence[int] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """Start `command`, which inherits the open `files`; `name` is for the log."""
        self.name = name
        self.command = list(command)
        self.files = files
        self._delay = RestartDelay(DELAY_SECONDS, DELAY_SECONDS_MAX, LONG_LIFE_SECONDS, clock)
        self._starts = 0
        #: the process has ended and its next start is not due yet
        self._is_waiting = False
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._delay.started()
        self._is_waiting = False
        # In a group of its own: Ctrl-C at the terminal reaches this process alone, which passes it on once.
        self.process = subprocess.Popen(self.command, process_group=0, pass_fds=self.files)

    @property
    def is_over(self) -> bool:
        """The process has ended and is not started again: its brokers were removed from the overlay."""
        return self.process.poll() == 0

    def look(self) -> bool:
        """Start the process again if it has failed and a start is due.

        Returns False if the process could not start the first time that it was tried, for which starting it
        again is no remedy.
        """
        code = self.process.poll()
        if code is None or code == 0:
            return True
        if self._is_waiting:
            if self._delay.is_over:
                self._start()
            return True
        if code == NOT_STARTED and self._starts == 1:
            return False
        log.warning(
            "has ended and will be started again; the others go on",
            process=self.name,
            code=code,
            in_seconds=self._delay.ended(),
        )
        self._is_waiting = True
        return True


class WorkersFront:
    """The one address of workers, with its acceptor, which is kept running."""

    def __init__(self, address: HostPort, workers: Sequence[str]) -> None:
        """Listen at `address`; ConfigError if that is not possible."""
        self._front = Front(address, workers)
        self.acceptor: BrokerProcess | None = None

    def worker(self, name: str, command: Sequence[str]) -> BrokerProcess:
        """Start a worker, which ends with this process: without an acceptor nobody finds it."""
        number = self._front.of_worker(name)
        more = ["--channel", str(number), "--parent", str(os.getpid())]
        return BrokerProcess(name, [*command, *more], files=(number,))

    def start(self) -> None:
        """Start the acceptor."""
        self.acceptor = BrokerProcess("acceptor", self._front.command(), files=self._front.of_acceptor())

    def look(self, children: Sequence[BrokerProcess]) -> list[BrokerProcess]:
        """Start the acceptor again if that is due, and let it know of workers that are gone for good.

        Returns the acceptor if it could not start, and otherwise nothing.
        """
        assert self.acceptor is not None
        for child in children:
            if child.is_over:
                self._front.removed(child.name)
        self.acceptor.command, self.acceptor.files = self._front.command(), self._front.of_acceptor()
        return [] if self.acceptor.look() else [self.acceptor]

    def stop(self) -> None:
        """Accept nobody any more."""
        if self.acceptor is not None:
            _stop([self.acceptor.process])
            self.acceptor = None
        self._front.close()


def run_topology(
    path: str | Path,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    beside: SupervisedGroup | None = None,
    front: HostPort | None = None,
) -> int:
    """Start every process of a topology file and wait. Returns the exit code for all of them.

    A process that is killed or fails is started again. If one cannot start at all, all are told to end, and
    its exit code is returned. A process whose brokers were removed from the overlay just ends. SIGTERM and
    SIGINT are passed on. `settings` are additional settings: broker -> key -> value. The processes `beside`
    them are started with the brokers and stopped before them. `front` is the one address of workers: an
    acceptor there hands connections over to the processes, of which each has one broker.
    """
    processes = processes_of(path)
    configure("info", "auto")
    workers = None if front is None else WorkersFront(front, list(processes))
    told: list[int] = []

    def tell(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    children: list[BrokerProcess] = []
    try:
        for name, names in processes.items():
            command = _command(path, names, settings or {})
            start = BrokerProcess if workers is None else workers.worker
            children.append(start(name, command))
        if workers is not None:
            workers.start()
        failed: list[BrokerProcess] = []
        while not told and not failed and not all(child.is_over for child in children):
            failed = [child for child in children if not child.look()]
            if workers is not None:
                failed += workers.look(children)
            if beside is not None:
                beside.look()
            time.sleep(LOOK_SECONDS)
        for child in failed:
            log.error("cannot start: stopping the others", process=child.name, code=child.process.returncode)
        if beside is not None:
            beside.stop()
        if workers is not None:
            workers.stop()
        codes = _stop([child.process for child in children])
        return failed[0].process.returncode if failed else codes
    finally:
        if workers is not None:
            workers.stop()
        for child in children:
            child.process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


def _command(
    path: str | Path, brokers: tuple[str, ...], settings: Mapping[str, Mapping[str, str]]
) -> list[str]:
    command = [sys.executable, "-m", "tidemark.node", "--config", str(path)]
    command += [part for name in brokers for part in ("--broker", name)]
    # A setting of a process holds for all of its brokers, so only settings that all of them get are passed.
    shared = set.intersection(*({*settings.get(name, {}).items()} for name in brokers))
    command += [part for key, value in sorted(shared) for part in ("--set", f"{key}={value}")]
    return command


def _stop(processes: list[subprocess.Popen[bytes]]) -> int:
    """Tell all processes that run to end and wait; kill those that do not.

    Returns the first exit code that is not 0 of those that were told, or 0.
    """
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    until = time.monotonic() + STOP_SECONDS_MAX
    for process in running:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("a broker does not stop: killed", pid=process.pid)
            process.kill()
            process.wait()
    return next((process.returncode for process in running if process.returncode), 0)
