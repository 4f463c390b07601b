"""The jobs of the pipeline, as the command line runs them.

`run_archive` writes the archive, `run_serve` gives brokers back from it what they have released; both run
until they are stopped.

A job waits out what passes by itself, a broker or an object store that is away, or a full disk, and reports
that once. Everything else ends the job with one clear error. With the engine `spark` the archive is a
streaming query, and its session lives as long as the job. With the engine `light` the session of Spark starts
when a large round or scan needs it and ends when nothing has used it for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

from tidemark.errors import DiskFullError, NotConnectedError, StoreAwayError, TimedOutError
from tidemark.spark.archive.archive import SMALL_ROUND_BYTES_MAX, Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.state import Round
from tidemark.spark.archive_query import query
from tidemark.spark.archive_query.choice import chosen_engine
from tidemark.spark.archive_query.maintenance_thread import MaintenanceThread
from tidemark.spark.archive_query.query import ArchiveQuery
from tidemark.spark.connections import urls_of
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.spark.engine_report import EngineReporter
from tidemark.spark.locations import Place
from tidemark.spark.reports import EngineStarted, ReportTaker, RoundEnded, Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_SECONDS = 1.0
#: How often the process looks how the query is doing.
LOOK_SECONDS = 0.5
#: How often the archive looks for a broker that was away, or for space on a disk that was full.
RETRY_SECONDS = 5.0
#: A session that nothing has used for so long is ended: it takes half a gigabyte of memory.
SPARK_IDLE_SECONDS = 60.0
_PASSING = (NotConnectedError, TimedOutError, DiskFullError, StoreAwayError)


def run_archive(
    broker: str | Sequence[str],
    path: Place,
    *,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    engine: str = "light",
    interval: float = INTERVAL_SECONDS,
    once: bool = False,
    retain: ArchiveRetention | None = None,
    master: str = "local[*]",
    serve: bool = False,
) -> None:
    """Archive until `sleep` returns False; or, with `once`, until everything the brokers have is archived.

    `engine` is `spark`, `light` or `auto`. `tell` gets a report of the engine, of each round, of what is
    waited for, and of the end of waiting. With `serve`, brokers also get back from the archive what they have
    released, with a report of each scan. With `once`, raises NotConnectedError if a broker is away.
    """
    choice = chosen_engine(engine, master)
    is_spark = choice.engine == "spark"
    spark = _IdleEndingSession(master, query.SETTINGS if is_spark else {})
    deep = _deep(broker, path, spark, tell) if serve and not once else nullcontext()
    merging = spark.lent if is_spark else None
    with (
        spark,
        Archive(broker, path, sessions=spark.lent, retain=retain, merging=merging) as archive,
        EngineReporter(urls_of(broker), path, choice.engine, master) as reporter,
        deep as serving,
    ):
        if is_spark:
            with spark.lent() as session:
                ui = str(session.sparkContext.uiWebUrl or "")
                reporter.ui = ui
                tell(EngineStarted("spark", choice.reason, master, ui))
                job = ArchiveQuery(archive, session, urls_of(broker), interval=interval, once=once)
                _run_query(job, archive, reporter, serving, tell, sleep, once)
            return
        tell(EngineStarted("light", choice.reason, master, ""))
        _run_light(archive, spark, reporter, serving, tell, sleep, interval, once)


def _run_query(
    job: ArchiveQuery,
    archive: Archive,
    reporter: EngineReporter,
    serving: DeepThread | None,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    once: bool,
) -> None:
    """Run the streaming query, and maintenance beside it."""
    if once:
        archive.tell_pubends()
        if archive.away:
            raise NotConnectedError("; ".join(archive.away.values()))
    problem = ""
    with MaintenanceThread(archive.maintenance) as maintenance, job:
        while True:
            if serving is not None:
                serving.check()
            maintenance.check()
            job.look()
            if job.problem != problem:
                problem = job.problem
                tell(Waiting(problem))
            is_done = job.is_done
            for done in job.taken():
                maintenance.changed()
                tell(RoundEnded(**asdict(done), covered=dict(archive.state.covered)))
            reporter.report(archive, job.last_error)
            if is_done or not sleep(LOOK_SECONDS):
                return


def _run_light(
    archive: Archive,
    spark: _IdleEndingSession,
    reporter: EngineReporter,
    serving: DeepThread | None,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    interval: float,
    once: bool,
) -> None:
    """Make rounds in this process."""
    problem = last_error = ""
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
        last_error = problem or last_error
        if problem != reported:
            tell(Waiting(problem))
        if done is not None:
            tell(RoundEnded(**asdict(done), covered=dict(archive.state.covered)))
        reporter.report(archive, last_error)
        if done is None and once:
            if problem:
                raise NotConnectedError(problem)
            return
        spark.end_if_idle()
        if not sleep(_pause(done, once, problem, interval)):
            return


def run_serve(
    broker: str | Sequence[str],
    path: Place,
    *,
    tell: ReportTaker,
    sleep: Callable[[float], bool],
    master: str = "local[*]",
) -> None:
    """Give brokers back from the archive what they have released, until `sleep` returns False."""
    spark = _IdleEndingSession(master, {})
    with spark, _deep(broker, path, spark, tell) as serving:
        while sleep(INTERVAL_SECONDS):
            assert serving is not None
            serving.check()
            spark.end_if_idle()


def _deep(
    broker: str | Sequence[str], path: Place, spark: _IdleEndingSession, tell: ReportTaker
) -> AbstractContextManager[DeepThread | None]:
    return DeepThread(DeepService(urls_of(broker), path, sessions=spark.lent, tell=tell))


def _pause(done: Round | None, once: bool, problem: str, interval: float) -> float:
    if done is None:
        return RETRY_SECONDS if problem else interval
    # A backlog is worked off without a pause.
    return 0.0 if once or done.bytes > SMALL_ROUND_BYTES_MAX // 2 else interval


class _IdleEndingSession:
    """A Spark session that starts when it is first used and ends when it has not been used for a while."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._master = master
        self._settings = settings
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
                self._session = session("tidemark archive", self._master, **self._settings)
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
