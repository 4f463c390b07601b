"""The jobs of the pipeline, as the command line runs them: archive for ever, give back what brokers do
not have any more, and say how it goes.

What passes by itself is waited out and said once: a broker that is away, a disk that is full. Everything else
ends the job with one clear error.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemark import sync
from tidemark.errors import DiskFullError, NotConnectedError, TimedOutError
from tidemark.spark.archive.archive import SMALL_ROUND_BYTES_MAX, Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.archive.state import FOLDER, Round
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.deep.service import DeepService
from tidemark.spark.deep.thread import DeepThread
from tidemark.storage.disk.real_disk import LOCK
from tidemark.ticks import TICK_MIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_SECONDS = 1.0
#: A broker, or space on the disk, is looked for this often.
RETRY_SECONDS = 5.0
#: A person waits for the status; and so much is looked at to say how many events are not archived.
STATUS_CONNECT_SECONDS = 3.0
COUNTED_BYTES = 1 << 20
#: A Spark that nobody has used for so long is ended: it takes half a gigabyte.
SPARK_IDLE_SECONDS = 60.0
_PASSING = (NotConnectedError, TimedOutError, DiskFullError)

#: Says what happened, as something that JSON can hold.
Tell = Callable[[Mapping[str, Any]], None]


def run_archive(
    broker: str | Sequence[str],
    path: Path,
    *,
    tell: Tell,
    sleep: Callable[[float], bool],
    interval: float = INTERVAL_SECONDS,
    once: bool = False,
    retain: ArchiveRetention | None = None,
    master: str = "local[*]",
    serve: bool = False,
) -> None:
    """Archive until `sleep` says to stop; or, with `once`, until all that is there is archived.

    Tells of each round, of what it waits for, {"waiting": reason}, and that it does no more, {"waiting": ""}.
    With `serve` the brokers get back from it what they do not have any more; each scan is told of, too.
    """
    spark = _IdleEndingSession(master)
    deep = _deep(broker, path, spark, tell) if serve and not once else nullcontext()
    with spark, Archive(broker, path, session=spark.session, retain=retain) as archive, deep as serving:
        problem = ""
        while True:
            if serving is not None:
                serving.check()
            said, done = problem, None
            try:
                done = archive.round()
                problem = "; ".join(archive.away.values())
            except _PASSING as error:
                if once:
                    raise
                archive.disconnect()
                problem = str(error)
            if problem != said:
                tell({"waiting": problem})
            if done is not None:
                tell({**asdict(done), "covered": dict(archive.state.covered)})
            elif once and not problem:
                return
            elif once:
                raise NotConnectedError(problem)
            spark.rest()
            if not sleep(_pause(done, once, problem, interval)):
                return


def run_serve(
    broker: str | Sequence[str],
    path: Path,
    *,
    tell: Tell,
    sleep: Callable[[float], bool],
    master: str = "local[*]",
) -> None:
    """Give brokers back what they do not have any more, until `sleep` says to stop."""
    spark = _IdleEndingSession(master)
    with spark, _deep(broker, path, spark, tell) as serving:
        while sleep(INTERVAL_SECONDS):
            assert serving is not None
            serving.check()
            spark.rest()


def _deep(
    broker: str | Sequence[str], path: Path, spark: _IdleEndingSession, tell: Tell
) -> AbstractContextManager[DeepThread | None]:
    return DeepThread(DeepService(urls_of(broker), path, sessions=spark.lent, tell=tell))


def _pause(done: Round | None, once: bool, problem: str, interval: float) -> float:
    if done is None:
        return RETRY_SECONDS if problem else interval
    # A backlog is worked off without a pause.
    return 0.0 if once or done.bytes > SMALL_ROUND_BYTES_MAX // 2 else interval


class _IdleEndingSession:
    """A session that is there while there is much to do."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: SparkSession | None = None
        self._used = 0.0
        #: how many use it just now, on threads of their own
        self._users = 0
        self._lock = Lock()

    def __enter__(self) -> _IdleEndingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def session(self) -> SparkSession:
        """The session; started if need be."""
        from tidemark.spark.engine.session import session

        with self._lock:
            self._used = time.monotonic()
            if self._session is None:
                self._session = session("tidemark archive", self._master)
            return self._session

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """The session, for another thread, which it does not end under."""
        with self._lock:
            self._users += 1
        try:
            yield self.session()
        finally:
            with self._lock:
                self._users -= 1
                self._used = time.monotonic()

    def rest(self) -> None:
        """End it if it has not been used for long."""
        with self._lock:
            is_idle = not self._users and time.monotonic() - self._used > SPARK_IDLE_SECONDS
            if is_idle:
                self._end()

    def _end(self) -> None:
        if self._session is not None:
            from tidemark.spark.engine.session import end

            end(self._session)
            self._session = None


def status(path: Path, broker: str | Sequence[str] | None) -> dict[str, Any]:
    """How the archive at `path` is doing; how far it is behind, if there are brokers to compare with."""
    taken = snapshot(path)
    state = taken.state
    stored = sum(each.bytes for files in taken.files.values() for each in files)
    pubends, away = _pubends(taken, broker)
    return {
        "path": str(path),
        "process": running(path),
        "events": state.events,
        "event_bytes": state.bytes,
        "files": sum(map(len, taken.files.values())),
        "bytes": stored,
        "released": state.released,
        "last_round": asdict(state.rounds[-1]) if state.rounds else None,
        "events_per_second": _rate(taken),
        "lag_seconds": max(
            (lag for each in pubends if (lag := each["lag_seconds"]) is not None), default=None
        ),
        "lag_events": _sum(each["lag_events"] for each in pubends),
        "away": away,
        "tables": [_table(taken, root) for root in taken.files],
        "pubends": pubends,
    }


def running(path: Path) -> int | None:
    """The process that writes the archive, if one does; 0 if it did not say which it is."""
    try:
        with (path / FOLDER / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = (path / FOLDER / LOCK).read_text().strip()
        return int(holder) if holder.isdecimal() else 0
    except OSError:
        return None
    return None


def _rate(taken: Snapshot) -> float | None:
    """Events a second, while it was at work, over the rounds that are remembered."""
    seconds = sum(each.seconds for each in taken.state.rounds)
    return sum(each.events for each in taken.state.rounds) / seconds if seconds else None


def _table(taken: Snapshot, root: str) -> dict[str, Any]:
    files = taken.files[root]
    return {
        "root": root,
        "files": len(files),
        "bytes": sum(each.bytes for each in files),
        "events": sum(each.rows for each in files),
        "columns": len(taken.layouts[root].schema),
    }


def _pubends(
    taken: Snapshot, broker: str | Sequence[str] | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Of each pubend how far behind the archive is; and the brokers that do not answer."""
    if broker is None:
        return [_pubend(taken, name, None, None) for name in sorted(taken.state.covered)], {}
    brokers = ArchiveBrokers(urls_of(broker), patience=STATUS_CONNECT_SECONDS)
    try:
        there = {each["pubend"]: each for each in _told(brokers)}
        found = [
            _pubend(taken, name, there.get(name), brokers) for name in sorted({*there, *taken.state.covered})
        ]
        return found, brokers.away
    finally:
        brokers.close()


def _told(brokers: ArchiveBrokers) -> list[dict[str, Any]]:
    """What those say that answer; nothing, if none does."""
    try:
        return brokers.pubends()
    except NotConnectedError:
        return []


def _pubend(
    taken: Snapshot, name: str, at: Mapping[str, Any] | None, brokers: ArchiveBrokers | None
) -> dict[str, Any]:
    covered = taken.state.covered.get(name)
    found = {
        "pubend": name,
        "broker": None,
        "covered": covered,
        "last_event": None,
        "archived": None,
        "lag_seconds": None,
        "lag_events": None,
        "missing": [list(each) for each in taken.state.missing.get(name, ())],
    }
    if at is None or brokers is None:
        return found
    known = [tick for tick in (covered, at["lost"]) if tick is not None]
    base = max(known, default=TICK_MIN)
    return found | {
        "broker": at["broker"],
        "last_event": at["last_event"],
        "archived": at["archived"],
        "lag_seconds": _lag(known, at["last_event"]),
        "lag_events": _count(brokers.client(at["broker"]), name, base, at),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _lag(known: Sequence[int], last_event: int | None) -> float | None:
    """Between the last event there is and the last tick that is archived; None if nothing is yet."""
    if last_event is None:
        return 0.0
    return max(0.0, (last_event - max(known)) / 1e6) if known else None


def _count(client: sync.Client, pubend: str, base: int, at: Mapping[str, Any]) -> int:
    """About how many events lie beyond `base`: counted if few, else by the size of the first."""
    last = at["last_event"]
    if last is None or last <= base:
        return 0
    first = client.fetch(pubend, base, at["position"], bytes_max=COUNTED_BYTES)
    if first.batch is None or first.upto >= last:
        return 0 if first.batch is None else first.batch.count
    # Events are taken to come evenly.
    begun = int(first.batch.ticks[0])
    return int(first.batch.count * (last - begun) / max(1, int(first.batch.ticks[-1]) - begun))
