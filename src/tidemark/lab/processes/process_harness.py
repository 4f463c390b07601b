"""ProcessHarness: brokers, publishers and subscribers as processes, with their ledgers, in one directory.

Every process that a harness started ends with the harness. A process that was killed can be started again and
finds its state: a broker its data directory and its port, a publisher and a subscriber their ledgers.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from tidemark.lab.processes.broker_start import listening_address, set_arguments, wait_until
from tidemark.lab.processes.ledger import Audit, audit
from tidemark.spark.audit.ledgers import SQLITE
from tidemark.storage.disk.atomic_file import replace_path

#: The longest that any method here waits: only a failure takes so long, also where much else runs.
PATIENCE_SECONDS = 300.0
#: A process that is told to end with its harness, and does not within this time, is killed.
GOODBYE_SECONDS = 10.0
POLL_SECONDS = 0.02
#: An archive looks for events this often.
ARCHIVE_INTERVAL = "500ms"
#: The suffix of the file with the number of events that a publisher may publish.
ALLOWED = ".allowed"


class ManagedProcess:
    """A process that may be killed, paused and started again. A start begins a new life."""

    #: the module that Python runs, and its standard input
    module = "tidemark.lab.processes.client_processes"
    stdin = subprocess.DEVNULL

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        #: arguments of every life
        self.arguments = list(arguments)
        #: a command that runs the command, such as one that changes the clock or the network
        self.wrapper: list[str] = []
        self.environment: Mapping[str, str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the last life."""
        assert self._process is not None
        return self._process.pid

    def start(self, *more: str) -> None:
        """Start a life, with additional arguments."""
        assert not self.is_running
        command = [*self.wrapper, sys.executable, "-m", self.module, *self.arguments, *more]
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdin=self.stdin, stdout=said, stderr=said, env=self.environment
            )

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the process ends by itself; returns its exit code, or raises AssertionError."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end: {self.last_line}") from None

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """Send SIGSTOP: the process stands still."""
        self.signal(signal.SIGSTOP)

    @property
    def is_paused(self) -> bool:
        """Whether the process stands still by SIGSTOP, its own or somebody else's."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def resume(self) -> None:
        """Send SIGCONT: the process goes on."""
        self.signal(signal.SIGCONT)

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """Make sure that the process has ended, by SIGKILL if it must be."""
        if self.is_running:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGTERM)
            try:
                self.wait(GOODBYE_SECONDS)
            except AssertionError:
                self.kill()

    @property
    def last_line(self) -> str:
        """The last line of the log, or an empty text."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else ""


class ManagedBroker(ManagedProcess):
    """A broker process. Its address is the same in every life."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, *, has_port: bool = False) -> None:
        """`has_port`: the arguments have the address; otherwise the first life finds a free port."""
        super().__init__(name, ["broker", *arguments], log)
        self.address = ""
        self._has_port = has_port

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"tidemark://{self.address}"

    def start(self, *more: str) -> None:
        """Start a life and wait until the broker listens."""
        heard = self.log.stat().st_size if self.log.exists() else 0
        listen = [] if self._has_port else ["--set", f"broker.listen={self.address or '127.0.0.1:0'}"]
        super().start(*listen, *more)
        wait_for(lambda: self._listens(heard), lambda: f"{self.name} does not start: {self.last_line}")

    def _listens(self, heard: int) -> bool:
        if not self.is_running:
            raise AssertionError(f"{self.name} does not start: {self.last_line}")
        address = listening_address(self.log.read_bytes()[heard:])
        self.address = address or self.address
        return address is not None


class ManagedPublisher(ManagedProcess):
    """A publisher process and its ledger."""

    def __init__(self, name: str, ledger: Path, count: int, arguments: Sequence[str]) -> None:
        told = ["publish", "--name", name, "--ledger", str(ledger), "--count", str(count), *arguments]
        super().__init__(name, told, ledger.with_suffix(".log"))
        self.ledger = ledger
        #: number of events that all its lives together publish
        self.count = count

    def allow(self, count: int) -> None:
        """Let the publisher go on up to this number of events, and then wait for more to be allowed.

        The first call comes before the first start; without one the publisher never waits.
        """
        path = self.ledger.with_suffix(ALLOWED)
        if not path.exists():
            self.arguments += ["--allowed", str(path)]
        replace_path(path, str(count).encode())

    @property
    def acknowledged(self) -> int:
        """Number of events whose acknowledgement is in the ledger."""
        return self._count(b'"outcome": "acked"')

    @property
    def intended(self) -> int:
        """Number of events in the ledger, published or about to be."""
        return self._count(b'"what": "publish"')

    def reached(self, acknowledged: int) -> None:
        """Wait until this many events are acknowledged."""
        wait_for(lambda: self.acknowledged >= acknowledged, self._problem_text)

    def _problem_text(self) -> str:
        return f"{self.name} has only {self.acknowledged} acknowledged: {self.last_line}"

    def _count(self, text: bytes) -> int:
        return self.ledger.read_bytes().count(text) if self.ledger.exists() else 0


class ManagedSubscriber(ManagedProcess):
    """A subscriber process and its ledger."""

    def __init__(self, name: str, ledger: Path, where: str, arguments: Sequence[str]) -> None:
        told = ["subscribe", "--name", name, "--ledger", str(ledger), "--where", where, *arguments]
        super().__init__(name, told, ledger.with_suffix(".log"))
        self.ledger = ledger
        self.where = where

        self._lives = 0

    def start(self, *more: str) -> None:
        """Start a life; `ready` waits for its subscription."""
        self._lives = self._count("subscriber") + self._count("returned")
        super().start(*more)

    def ready(self) -> None:
        """Wait until the subscription of the last life has started."""
        wait_for(
            lambda: self._count("subscriber") + self._count("returned") > self._lives, self._problem_text
        )

    def _problem_text(self) -> str:
        return f"{self.name} does not subscribe: {self.last_line}"

    @property
    def consumed(self) -> int:
        """Number of events in the ledger."""
        return self._count("event")

    def consumed_upto(self, tick: int) -> int:
        """Number of events up to a tick in the ledger of a durable subscriber."""
        assert self.ledger.suffix == SQLITE
        with closing(sqlite3.connect(self.ledger)) as database:
            rows = database.execute("SELECT line FROM ledger")
            lines = [json.loads(line) for (line,) in rows]
        return sum(line["what"] == "event" and line["tick"] <= tick for line in lines)

    def _count(self, what: str) -> int:
        if not self.ledger.exists():
            return 0
        text = f'"what": "{what}"'
        if self.ledger.suffix != SQLITE:
            return self.ledger.read_text().count(text)
        with closing(sqlite3.connect(self.ledger)) as database:
            try:
                rows = database.execute("SELECT count(*) FROM ledger WHERE instr(line, ?)", (text,))
                return int(rows.fetchone()[0])
            except sqlite3.OperationalError:  # the table does not exist yet
                return 0


class ManagedArchive(ManagedProcess):
    """`tidemark pipeline archive` as a process: it archives and answers recalls. Its log is JSON."""

    module = "tidemark"
    #: the archive ends when this pipe is closed, and so with its parent
    stdin = subprocess.PIPE

    def __init__(
        self, name: str, path: Path, url: str, log: Path, engine: str, interval: str, master: str | None
    ) -> None:
        told = ["--path", str(path), "--broker", url, "--interval", interval, "--attached", "--json"]
        told += ["--engine", engine, *([] if master is None else ["--master", master])]
        super().__init__(name, ["pipeline", "archive", *told], log)
        self.path = path

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the archive has ended; returns its exit code."""
        code = super().wait(seconds)
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code

    @property
    def archived(self) -> int:
        """Number of events in all rounds that the log tells of."""
        return sum(said["events"] for said in self._said() if "covered" in said)

    @property
    def recalled(self) -> int:
        """Number of recalls that were answered."""
        return sum(said["recalled"] for said in self._said() if "recalled" in said)

    def _said(self) -> list[dict[str, Any]]:
        lines = self.log.read_bytes().splitlines(keepends=True) if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"\n")]


class ProcessHarness:
    """`with ProcessHarness(directory) as harness:` ends every process that the harness started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.publishers: list[ManagedPublisher] = []
        self.subscribers: list[ManagedSubscriber] = []
        self._brokers: list[ManagedBroker] = []
        self._archives: list[ManagedArchive] = []

    def __enter__(self) -> ProcessHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in (*self.subscribers, *self.publishers, *self._archives, *self._brokers):
            part.end()

    def broker(self, name: str = "broker", **settings: str) -> ManagedBroker:
        """Returns a broker with these settings (`limits__ping="1s"`), not started yet."""
        given = {
            "broker.name": name,
            "storage.data_dir": str(self.directory / name),
            "http.listen": "",
            "log.format": "json",
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        arguments = set_arguments(given)
        part = ManagedBroker(
            name, arguments, self.directory / f"{name}.log", has_port="broker.listen" in given
        )
        self._brokers.append(part)
        return part

    def placed_broker(self, name: str, topology: Path) -> ManagedBroker:
        """Returns a broker of a topology file, not started yet."""
        arguments = ["--config", str(topology), "--broker", name, "--set", "log.format=json"]
        part = ManagedBroker(name, arguments, self.directory / f"{name}.log", has_port=True)
        self._brokers.append(part)
        return part

    def archive(
        self,
        url: str,
        name: str = "archive",
        engine: str = "light",
        interval: str = ARCHIVE_INTERVAL,
        master: str | None = None,
    ) -> ManagedArchive:
        """Returns the archive of a broker, not started yet; `master` is for the engine `spark`."""
        log = self.directory / f"{name}.log"
        part = ManagedArchive(name, self.directory / name, url, log, engine, interval, master)
        self._archives.append(part)
        return part

    def publisher(self, name: str, url: str, count: int, *arguments: str) -> ManagedPublisher:
        """Returns a publisher of `count` events, not started yet."""
        ledger = self.directory / f"{name}.publisher.jsonl"
        part = ManagedPublisher(name, ledger, count, ["--url", url, *arguments])
        self.publishers.append(part)
        return part

    def subscriber(
        self, name: str, url: str, where: str = "", *arguments: str, durable: bool = True
    ) -> ManagedSubscriber:
        """Returns a subscriber, not started yet."""
        ledger = self.directory / f"{name}.subscriber{SQLITE if durable else '.jsonl'}"
        part = ManagedSubscriber(name, ledger, where, ["--url", url, *arguments])
        self.subscribers.append(part)
        return part

    def subscribe(self) -> None:
        """Start all subscribers together and wait until their subscriptions have started."""
        for part in self.subscribers:
            part.start()
        for part in self.subscribers:
            part.ready()

    def audit(self) -> Audit:
        """Returns the audit of the ledgers as they are now."""
        publishers = [part.ledger for part in self.publishers if part.ledger.exists()]
        return audit(publishers, [part.ledger for part in self.subscribers])

    def settled(self, seconds: float = PATIENCE_SECONDS) -> Audit:
        """Returns the audit as soon as nothing is lost in it, or the last one when the time is over."""
        until = monotonic() + seconds
        while True:
            began = monotonic()
            found = self.audit()
            if not found.total("lost") or monotonic() >= until:
                return found
            # An audit reads all ledgers: most of the time belongs to the processes that write them.
            sleep(max(10 * POLL_SECONDS, 4 * (monotonic() - began)))


def wait_for(
    condition: Callable[[], bool], problem: Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until the condition holds; raises AssertionError with the problem if it does not in time."""
    if not wait_until(condition, seconds, POLL_SECONDS):
        raise AssertionError(problem())
