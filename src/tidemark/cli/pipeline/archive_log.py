"""What the archive says when it runs beside brokers: log lines like theirs, and few."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from tidemark.node.logs import Log

#: What was archived is summed up this often.
SUM_SECONDS = 60.0
log = Log("archive")


class ArchiveLog:
    """Takes what `run_archive` tells."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = float("-inf")
        self._rounds = self._events = self._bytes = 0

    def __call__(self, said: Mapping[str, Any]) -> None:
        """A round has ended, or it waits for something, or no more."""
        if said.get("waiting"):
            log.warning("waiting", reason=said["waiting"])
        elif "waiting" in said:
            log.info("goes on")
        elif "recalled" in said:
            log.info(
                "gave back",
                recalls=said["recalled"],
                events_read=said["events"],
                waves=said["waves"],
                seconds=round(said["seconds"], 3),
            )
        else:
            self._add(said)

    def _add(self, said: Mapping[str, Any]) -> None:
        self._rounds += 1
        self._events += said["events"]
        self._bytes += said["bytes"]
        log.debug("archived", events=said["events"], seconds=round(said["seconds"], 3))
        if self._clock() >= self._said_at + SUM_SECONDS:
            log.info("archived", events=self._events, bytes=self._bytes, rounds=self._rounds)
            self._said_at = self._clock()
            self._rounds = self._events = self._bytes = 0


def end_with_input() -> None:
    """End this process, in order, when whoever holds its standard input is gone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="tidemark input", daemon=True).start()
