"""A companion: a process of its own that runs beside brokers and ends with them.

It is started again when it ends, later each time that it did not live long. Who started it holds its standard
input open: when that closes, because of a crash too, the companion ends by itself.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence

from tidemark.node.logs import Log

#: How often whoever has a companion should look after it.
LOOK_SECONDS = 0.25
#: One that lived this long has not failed at once.
LONG_LIFE_SECONDS = 60.0
DELAY_SECONDS = 1.0
DELAY_SECONDS_MAX = 60.0
#: What it may take to finish what it has begun; it is killed then, which must be safe.
STOP_SECONDS_MAX = 10.0
log = Log("companion")


class SupervisedProcess:
    """One process, and its successors."""

    def __init__(
        self, name: str, command: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._command = list(command)
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._start_at = clock()
        self._delay = DELAY_SECONDS

    @property
    def pid(self) -> int | None:
        """Of the process that runs."""
        return None if self._process is None else self._process.pid

    def look(self) -> None:
        """Start it if it is time to; note that it has ended."""
        if self._process is None:
            if self._clock() >= self._start_at:
                self._start()
        elif (code := self._process.poll()) is not None:
            self._ended(code)

    def stop(self) -> None:
        """Tell it to end and wait for that, for a bounded time."""
        process, self._process = self._process, None
        self._start_at = float("inf")
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            log.warning("does not stop: killed", process=self.name, pid=process.pid)
            process.kill()
            process.wait()
        finally:
            _close(process)

    def _start(self) -> None:
        self._started = self._clock()
        try:
            # In a group of its own: the terminal's Ctrl-C comes to us alone, and we pass it on once.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
            )
        except OSError as error:
            log.error("cannot be started", process=self.name, reason=str(error))
            self._later()

    def _ended(self, code: int) -> None:
        assert self._process is not None
        _close(self._process)
        self._process = None
        if self._clock() - self._started >= LONG_LIFE_SECONDS:
            self._delay = DELAY_SECONDS
        log.warning(
            "has ended and will be started again", process=self.name, code=code, in_seconds=self._delay
        )
        self._later()

    def _later(self) -> None:
        self._start_at = self._clock() + self._delay
        self._delay = min(2 * self._delay, DELAY_SECONDS_MAX)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
