"""The jobs of the pipeline, as the command line runs them.

`run_archive` writes the archive, `run_serve` gives brokers back from it what they have released; both run
until they are stopped.

A job waits out what passes by itself, a broker that is away or a full disk, and reports that once. Everything
else ends the job with one clear error. The session of Spark starts when a large round or scan needs it and
ends when nothing has used it for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

from tidemark.errors import DiskFullError, NotConnectedError, TimedOutError
from tidemark.spark.archive.archive import SMALL_ROUND_BYTES_MAX, Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.state import Round
from tidemark.spark.connections import urls_of
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.spark.reports import ReportTaker, RoundEnded, Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_SECONDS = 1.0
#: How often the archive looks for a broker that was away, or for space on a disk that was full.
RETRY_SECONDS = 5.0
#: A session that nothing has used for so long is ended: it takes half a gigabyte of memory.
SPARK_IDLE_SECONDS = 60.0
_PASSING = (NotConnectedError, TimedOutError, DiskFullError)


def run_archive(
    broker: str | Sequence[str],
    path: Path,
    *,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    interval: float = INTERVAL_SECONDS,
    once: bool = False,
    retain: ArchiveRetention | None = None,
    master: str = "local[*]",
    serve: bool = False,
) -> None:
    """Archive until `sleep` returns False; or, with `once`, until everything the brokers have is archived.

    `tell` gets a report of each round, of what is waited for, and of the end of waiting. With `serve`,
    brokers also get back from the archive what they have released, with a report of each scan. With `once`,
    raises NotConnectedError if a broker is away.
    """
    spark = _IdleEndingSession(master)
    deep = _deep(broker, path, spark, tell) if serve and not once else nullcontext()
    with spark, Archive(broker, path, sessions=spark.lent, retain=retain) as archive, deep as serving:
        problem = ""
        while True:
            if serving is not None:
                serving.check()
            reported, done = problem, None
            try:
                done = archive.round()
                problem = "; ".join(archive.away.values())
            except _PASSING as error:
                if once:
                    raise
                archive.disconnect()
                problem = str(error)
            if problem != reported:
                tell(Waiting(problem))
            if done is not None:
                tell(RoundEnded(**asdict(done), covered=dict(archive.state.covered)))
            elif once and not problem:
                return
            elif once:
                raise NotConnectedError(problem)
            spark.end_if_idle()
            if not sleep(_pause(done, once, problem, interval)):
                return


def run_serve(
    broker: str | Sequence[str],
    path: Path,
    *,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    master: str = "local[*]",
) -> None:
    """Give brokers back from the archive what they have released, until `sleep` returns False."""
    spark = _IdleEndingSession(master)
    with spark, _deep(broker, path, spark, tell) as serving:
        while sleep(INTERVAL_SECONDS):
            assert serving is not None
            serving.check()
            spark.end_if_idle()


def _deep(
    broker: str | Sequence[str], path: Path, spark: _IdleEndingSession, tell: ReportTaker
) -> AbstractContextManager[DeepThread | None]:
    return DeepThread(DeepService(urls_of(broker), path, sessions=spark.lent, tell=tell))


def _pause(done: Round | None, once: bool, problem: str, interval: float) -> float:
    if done is None:
        return RETRY_SECONDS if problem else interval
    # A backlog is worked off without a pause.
    return 0.0 if once or done.bytes > SMALL_ROUND_BYTES_MAX // 2 else interval


class _IdleEndingSession:
    """A Spark session that starts when it is first used and ends when it has not been used for a while."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: SparkSession | None = None
        self._used = 0.0
        #: threads that are using the session just now
        self._users = 0
        self._lock = Lock()

    def __enter__(self) -> _IdleEndingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def session(self) -> SparkSession:
        """The session, which is started if there is none."""
        from tidemark.spark.engine.session import session

        with self._lock:
            self._used = time.monotonic()
            if self._session is None:
                self._session = session("tidemark archive", self._master)
            return self._session

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """The session, for a `with` block in any thread, in which it does not end. A `SessionLender`."""
        with self._lock:
            self._users += 1
        try:
            yield self.session()
        finally:
            with self._lock:
                self._users -= 1
                self._used = time.monotonic()

    def end_if_idle(self) -> None:
        """End the session if nothing has used it for SPARK_IDLE_SECONDS."""
        with self._lock:
            is_idle = not self._users and time.monotonic() - self._used > SPARK_IDLE_SECONDS
            if is_idle:
                self._end()

    def _end(self) -> None:
        if self._session is not None:
            from tidemark.spark.engine.session import end

            end(self._session)
            self._session = None
