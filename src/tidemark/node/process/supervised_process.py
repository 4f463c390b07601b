"""SupervisedProcess: another process that runs beside a broker and ends with it.

The process is started again when it ends, after a wait (`restart_delay`). Its standard input is a pipe from
the broker process: when that closes, because of a crash too, the process must end by itself (see `parent` for
the other way).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from tidemark.node.clock import Clock
from tidemark.node.logs import Log
from tidemark.node.process.restart_delay import RestartDelay

#: How often the owner should call `look`.
LOOK_SECONDS = 0.25
#: A process that lived this long counts as healthy: the wait before its next start is short again.
LONG_LIFE_SECONDS = 60.0
DELAY_SECONDS = 1.0
DELAY_SECONDS_MAX = 60.0
#: How long the process may take to end when told to. Then it is killed, which must be safe for it.
STOP_SECONDS_MAX = 10.0
log = Log("companion")


class SupervisedProcess:
    """A command that is kept running. Its owner calls `look` every LOOK_SECONDS, and `stop` at the end."""

    def __init__(self, name: str, command: Sequence[str], *, clock: Clock = time.monotonic) -> None:
        """`name` is for the log. The first `look` starts the command."""
        self.name = name
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._delay = RestartDelay(DELAY_SECONDS, DELAY_SECONDS_MAX, LONG_LIFE_SECONDS, clock)

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return None if self._process is None else self._process.pid

    def look(self) -> None:
        """Start the process if a start is due; if it has ended, plan its next start."""
        if self._process is None:
            if self._delay.is_over:
                self._start()
        elif (code := self._process.poll()) is not None:
            self._ended(code)

    def stop(self) -> None:
        """Tell the process to end, wait at most STOP_SECONDS_MAX, then kill it. It is not started again."""
        process, self._process = self._process, None
        self._delay.never()
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
        self._delay.started()
        try:
            # In a group of its own: Ctrl-C at the terminal reaches this process alone, which passes it on
            # once.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
            )
        except OSError as error:
            log.error("cannot be started", process=self.name, reason=str(error))
            self._delay.ended()

    def _ended(self, code: int) -> None:
        assert self._process is not None
        _close(self._process)
        self._process = None
        delay = self._delay.ended()
        log.warning("has ended and will be started again", process=self.name, code=code, in_seconds=delay)


class SupervisedGroup:
    """Several supervised processes that are looked after and stopped together."""

    def __init__(self, *processes: SupervisedProcess) -> None:
        self._processes = processes

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the processes."""
        return tuple(process.name for process in self._processes)

    def look(self) -> None:
        """Look after each process."""
        for process in self._processes:
            process.look()

    def stop(self) -> None:
        """Stop all, the last one first."""
        for process in reversed(self._processes):
            process.stop()


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
