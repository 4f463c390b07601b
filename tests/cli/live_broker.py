"""A broker in a process of its own, started by the command line; and the command line in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from click.testing import CliRunner

from tests.waiting import PATIENCE_SECONDS
from tidemark.cli import main

COMMAND = (sys.executable, "-c", "from tidemark.cli import main; main()")


class Spoken:
    """The lines a process prints, with a bound on how long to wait for each."""

    def __init__(self, *arguments: str, command: Sequence[str] = COMMAND, **options: Any) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            **options,
        )
        self._lines: Queue[str] = Queue()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def line(self) -> str:
        """The next line that the process prints; "" after the last one."""
        return self._lines.get(timeout=PATIENCE_SECONDS)

    def end(self, number: int) -> tuple[int, list[str]]:
        """Send a signal; returns the exit code and the lines that were printed since."""
        self.process.send_signal(number)
        try:
            lines = list(iter(self.line, ""))
        except Empty:
            self.process.kill()
            raise
        finally:
            code = self.close()
        return code, lines

    def close(self) -> int:
        """Wait for the end of the process, or kill it; returns its exit code."""
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._thread.join(PATIENCE_SECONDS)
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextmanager
def running_broker(directory: Path, *options: str) -> Iterator[dict[str, Any]]:
    """What a broker says when it is ready; `options` are further ones of `tidemark up`."""
    broker = Spoken(
        "up", "--no-pipeline", "--json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
        "--data-dir", str(directory), "--set", "thresholds.silence=50ms", "--set", "thresholds.save=20ms",
        *options,
    )  # fmt: skip
    try:
        yield json.loads(broker.line())
    finally:
        broker.process.terminate()
        broker.close()


class Tidemark:
    """The command line against one broker."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run a command, whose exit code must be `code`; returns what it printed."""
        done = CliRunner(env={"TIDEMARK_BROKER": self.url}).invoke(main, arguments, input=stdin)
        assert done.exit_code == code, done.output
        assert "Traceback" not in done.output
        return done.output

    def json(self, *arguments: str, stdin: str = "", code: int = 0) -> list[Any]:
        """Run a command with --json; returns the JSON of each line that it printed."""
        return [json.loads(line) for line in self(*arguments, "--json", stdin=stdin, code=code).splitlines()]
