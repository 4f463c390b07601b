"""The log of an archive that runs beside brokers: lines like theirs, and few."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemark.node.logs import Log
from tidemark.spark.reports import EngineStarted, PipelineReport, RoundEnded, ScanEnded, Waiting

#: How often rounds are summed up in one line.
SUM_SECONDS = 60.0
log = Log("archive")


class ArchiveLog:
    """Takes the reports of `run_archive` and `run_serve`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = float("-inf")
        self._rounds = self._events = self._bytes = 0

    def __call__(self, report: PipelineReport) -> None:
        """Log a report, or add a round to what is logged from time to time."""
        match report:
            case EngineStarted():
                log.info(
                    "engine", engine=report.engine, reason=report.reason, master=report.master, ui=report.ui
                )
            case Waiting(""):
                log.info("goes on")
            case Waiting(reason):
                log.warning("waiting", reason=reason)
            case ScanEnded():
                log.info(
                    "gave back",
                    recalls=report.recalled,
                    events_read=report.events,
                    waves=report.waves,
                    seconds=round(report.seconds, 3),
                )
            case RoundEnded():
                self._add(report)

    def _add(self, ended: RoundEnded) -> None:
        self._rounds += 1
        self._events += ended.events
        self._bytes += ended.bytes
        log.debug("archived", events=ended.events, seconds=round(ended.seconds, 3))
        if self._clock() >= self._said_at + SUM_SECONDS:
            log.info("archived", events=self._events, bytes=self._bytes, rounds=self._rounds)
            self._said_at = self._clock()
            self._rounds = self._events = self._bytes = 0
