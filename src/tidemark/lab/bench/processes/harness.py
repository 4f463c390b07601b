"""The processes of a system benchmark: a broker, workers that publish or subscribe, and their directory.

Every process that a benchmark starts ends with it, on any exit. Numbers about a process come from /proc.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from types import FrameType, TracebackType
from typing import Any

from tidemark.lab.bench.processes.broker_process import PROFILE
from tidemark.lab.bench.processes.shared_counters import SharedCounters
from tidemark.lab.processes import broker_start
from tidemark.lab.processes.broker_start import listening_address, set_arguments
from tidemark.lab.processes.process_numbers import ProcessStat, resident_bytes

#: Environment variable: where data directories are made, by default the working directory. Not in memory.
DIRECTORY = "TIDEMARK_BENCH_DIR"
#: The longest that any method here waits, also where much else runs; longer than a worker waits for events.
PATIENCE_SECONDS = 300.0
GOODBYE_SECONDS = 5.0
POLL_SECONDS = 0.002


class TooSlowError(AssertionError):
    """Something did not happen within the time that a benchmark waits for it."""


@dataclass(frozen=True, slots=True)
class MeasuredDeliveries:
    """What was delivered while it was measured."""

    seconds: float
    delivered: int
    #: CPU time of each process that was measured
    cpu_seconds: list[float]

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return self.delivered / self.seconds


class BenchProcess:
    """A Python process with a pipe to its standard input and from its standard output."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        said: Path,
        *,
        environment: Mapping[str, str] | None = None,
        is_silent: bool = False,
    ) -> None:
        """`said` is the file for its standard error, and if it `is_silent` for its standard output too.

        `environment` is added to that of this process.
        """
        self.said = said
        with said.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=stderr if is_silent else subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=is_silent,
            )

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all threads, in the kernel too."""
        return ProcessStat(self.process.pid).cpu_seconds

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        return resident_bytes(self.process.pid)

    def run_on(self, processors: set[int]) -> None:
        """Let all threads of the process run on these processors only."""
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            os.sched_setaffinity(int(thread), processors)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()

    def end(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end in time."""
        self.process.terminate()
        try:
            self.process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.forget()

    def forget(self) -> None:
        """Close the pipes of a process that was told to end or killed, and wait for its end."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait()

    def fail(self, what: str) -> AssertionError:
        """Returns the error to raise when the process fails, with the last line of its standard error."""
        last = self.said.read_text(errors="replace").strip().splitlines()[-1:]
        return AssertionError(f"{what} {' '.join(last)}".strip())


class BenchBroker(BenchProcess):
    """A broker process; `url` is set once it listens."""

    def __init__(self, directory: Path, durability: str, **more: str) -> None:
        """`more` are settings, as `**{"retention.archive": "true"}`."""
        self.directory = directory
        settings = {
            "storage.data_dir": str(directory),
            "storage.durability": durability,
            "broker.listen": "127.0.0.1:0",
            "http.listen": "",
            "log.format": "json",
            **more,
        }
        said = directory.with_suffix(".log")
        self._before = said.stat().st_size if said.exists() else 0
        super().__init__("tidemark.lab.bench.processes.broker_process", set_arguments(settings), said)
        self.url = ""

    def wait(self) -> None:
        """Wait until the broker listens; AssertionError if it does not."""
        if not wait_until(self._is_ready):
            raise self.fail("the broker does not start:")

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise self.fail("the broker does not start:")
        address = listening_address(self.said.read_bytes()[self._before :])
        if address is not None:
            self.url = f"tidemark://{address}"
        return address is not None

    @property
    def disk_bytes(self) -> int:
        """Bytes of all files of the data directory: of each its size or its blocks, whichever is more."""
        return directory_bytes(self.directory)


class WorkerProcess(BenchProcess):
    """A process that carries out requests, to publish or subscribe; `worker.py` is its other end."""

    def __init__(self, role: str, arguments: dict[str, Any], said: Path) -> None:
        super().__init__("tidemark.lab.bench.processes.worker", [role, json.dumps(arguments)], said)
        self._heard = b""
        self._is_ready = False

    def ask(self, what: str, **arguments: Any) -> Any:
        """Send a request and wait; returns the answer."""
        self.request(what, **arguments)
        return self.answer()

    def request(self, what: str, **arguments: Any) -> None:
        """Send a request; `answer` returns its result later."""
        self.wait()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the worker is ready for requests."""
        if not self._is_ready:
            self._is_ready = True
            self.answer(seconds)

    def answer(self, seconds: float = PATIENCE_SECONDS) -> Any:
        """Returns the next answer; AssertionError if the worker reports a fault, ends, or does not answer."""
        assert self.process.stdout is not None
        descriptor, until = self.process.stdout.fileno(), monotonic() + seconds
        while b"\n" not in self._heard:
            if not select.select([descriptor], [], [], max(0.0, until - monotonic()))[0]:
                raise TooSlowError(str(self.fail(f"a worker did not answer within {seconds:g} s:")))
            data = os.read(descriptor, 1 << 16)
            if not data:
                raise self.fail("a worker has ended:")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        answer = json.loads(line)
        if "wrong" in answer:
            raise AssertionError(answer["wrong"])
        return answer["answer"]


class BenchTestbed:
    """What a case runs in: `with BenchTestbed() as testbed:` ends its processes and removes its files."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="tidemark-bench-", dir=os.environ.get(DIRECTORY, ".")))
        self.counters = SharedCounters(self.path / "counters")
        self._processes: list[BenchProcess] = []
        self._before: Any = None

    def __enter__(self) -> BenchTestbed:
        self._before = signal.signal(signal.SIGTERM, _stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            # Killed: their files are removed anyway. Only a profile is written when a process ends in order.
            if PROFILE in os.environ:
                process.end()
            else:
                process.kill()
        for process in self._processes:
            process.forget()
        shutil.rmtree(self.path, ignore_errors=True)
        signal.signal(signal.SIGTERM, self._before)

    def broker(self, durability: str, *, place: str = "data", **settings: str) -> BenchBroker:
        """Start a broker on a data directory of this testbed and wait until it listens."""
        broker = BenchBroker(self.path / place, durability, **settings)
        self._processes.append(broker)
        broker.wait()
        return broker

    def worker(self, role: str, **arguments: Any) -> WorkerProcess:
        """Start a worker with a role; the first request waits until the worker is ready."""
        number = len(self._processes)
        given = {"counters": str(self.path / "counters"), **arguments}
        worker = WorkerProcess(role, given, self.path / f"worker-{number}.log")
        self._processes.append(worker)
        return worker

    def add(self, process: BenchProcess) -> None:
        """Have a process end with this testbed."""
        self._processes.append(process)

    def end(self, process: BenchProcess) -> None:
        """End one process now."""
        self._processes.remove(process)
        process.end()

    def kill(self, process: BenchProcess) -> None:
        """Kill one process now."""
        self._processes.remove(process)
        process.kill()
        process.forget()


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until the condition holds; returns False if it does not within `seconds`."""
    return broker_start.wait_until(condition, seconds, POLL_SECONDS)


def directory_bytes(directory: Path) -> int:
    """Returns the bytes of all files of a directory: of each its size or its blocks, whichever is more."""
    stats = [path.stat() for path in directory.rglob("*") if path.is_file()]
    return sum(max(stat.st_size, stat.st_blocks * 512) for stat in stats)


def all_of(
    workers: list[WorkerProcess], what: str, patience: float = PATIENCE_SECONDS, **arguments: Any
) -> list[Any]:
    """Send one request to several workers at once; returns their answers, each within `patience` seconds."""
    for worker in workers:
        worker.request(what, **arguments)
    return [worker.answer(patience) for worker in workers]


def events_a_frame(checked: list[Any]) -> float:
    """Returns the average number of events in a delivery frame, from the answers of workers to `check`."""
    frames = sum(each["frames"] for each in checked)
    return float(sum(each["deliveries"] for each in checked) / frames) if frames else 0.0


def filesystem() -> str:
    """Returns the type of the file system of the data directories."""
    path = os.path.realpath(os.environ.get(DIRECTORY, "."))
    found = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]


def _stop(_: int, __: FrameType | None) -> None:
    """SIGTERM ends a benchmark as Ctrl-C does: with all its processes and files."""
    raise SystemExit(143)


def measure_deliveries(
    counters: SharedCounters, processes: Sequence[BenchProcess], warm: float, seconds: float
) -> MeasuredDeliveries:
    """Measure for `seconds` after `warm` what flows already, and tell the publishers to stop."""
    sleep(warm)
    began, before, cpu = monotonic(), counters.delivered, [each.cpu_seconds for each in processes]
    sleep(seconds)
    taken, delivered = monotonic() - began, counters.delivered - before
    used = [each.cpu_seconds - start for each, start in zip(processes, cpu, strict=True)]
    counters.stop()
    return MeasuredDeliveries(taken, delivered, used)
