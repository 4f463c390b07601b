"""Engines for Spark from the pip package, on this machine: a standalone cluster, a Spark Connect server.

They serve to try a job that must not run in one process. Every process listens on a free port of the loopback
address, and ends, executors included, with the `with` block that started it or with this process.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from tidemark.errors import TidemarkError
from tidemark.node.process.parent import end_with_parent
from tidemark.spark.engine.java import java_home

#: A Java virtual machine takes seconds to start, and much longer where several start at once.
START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05
_LAST_LINES = 5

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master (\S+)")
_CONNECT = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
#: Without the REST server, which would need a port of its own.
_MASTER_OPTIONS = "-Dspark.master.rest.enabled=false"


@contextmanager
def standalone(path: Path, workers: int = 1, cores: int = 2, memory: str = "1g") -> Iterator[str]:
    """Starts a standalone cluster with its files under `path`; yields the URL of the master."""
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = _Daemon(path / "master.log", "org.apache.spark.deploy.master.Master", here)
        url = stack.enter_context(master).said(_MASTER)
        size = ("--cores", str(cores), "--memory", memory)
        started = [
            stack.enter_context(
                _Daemon(
                    path / f"worker-{number}.log",
                    "org.apache.spark.deploy.worker.Worker",
                    (*here, *size, "--work-dir", str(path / f"work-{number}"), url),
                )
            )
            for number in range(workers)
        ]
        for worker in started:
            worker.said(_WORKER)
        yield url


@contextmanager
def connect_server(path: Path, master: str = "local[2]", **conf: str) -> Iterator[str]:
    """Starts a Spark Connect server whose jobs run on `master`; yields its URL, for `--remote`."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(path / "warehouse"),
        **conf,
    }
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ("--class", server, "--master", master, *given, "spark-internal")
    with _Daemon(path / "connect.log", "org.apache.spark.deploy.SparkSubmit", arguments) as daemon:
        yield f"sc://127.0.0.1:{daemon.said(_CONNECT)}"


@contextmanager
def local_cluster(workers: int = 2, cores: int = 1, memory_mb: int = 1024) -> Iterator[str]:
    """Yields the master URL of a cluster that the driver starts itself, with one process for each executor.

    Such a cluster leaves the logs of its executors in the installed package, which all clusters of this
    machine share. The last of those that run at a time removes them: the executors of the others work there.
    """
    import pyspark

    work = Path(pyspark.__file__).parent / "work"
    work.mkdir(exist_ok=True)
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield f"local-cluster[{workers},{cores},{memory_mb}]"
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for left in work.glob("app-*"):
                    shutil.rmtree(left, ignore_errors=True)


class _Daemon:
    """A Java process of Spark's, in a process group of its own."""

    def __init__(self, log: Path, name: str, arguments: Sequence[str]) -> None:
        import pyspark

        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER_OPTS": _MASTER_OPTIONS,
            # Otherwise the start script looks for a Python to ask where Spark is.
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
        }
        start = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        command = [sys.executable, "-m", "tidemark.lab.processes.engines", start, name, *arguments]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=log.parent,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> _Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def said(self, pattern: re.Pattern[str]) -> str:
        """Waits until the log matches and returns the first group.

        Raises TidemarkError with the last lines of the log if the process ends before.
        """
        deadline = monotonic() + START_SECONDS_MAX
        while monotonic() < deadline and self._process.poll() is None:
            found = pattern.search(self._log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            sleep(_POLL_SECONDS)
        last = self._log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise TidemarkError(f"{self._process.args!r} does not start: {' | '.join(last)}")

    def _signal(self, number: signal.Signals) -> None:
        # The whole process group: it contains the executors of a worker.
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


if __name__ == "__main__":
    end_with_parent(signal.SIGTERM)  # this holds for the command too, which takes this process over
    os.execv(sys.argv[1], sys.argv[1:])
