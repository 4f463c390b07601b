"""The query that writes the archive: started, watched, and started again after a failure.

Spark keeps its checkpoint in `_archive/checkpoint`, or in a temporary directory of this machine if the
archive is in an object store, which Spark itself need not know. What is archived is decided by the archive's
own commits and state, so the checkpoint may be lost, damaged or older than the state: a batch that Spark runs
again finds that its events are archived. A checkpoint with which the query cannot start is set aside.

A broker that is away does not end the query. What else fails ends it; then it is started again, after a
pause, and fails for good when it has failed FAILURES_MAX times without a batch in between.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemark.errors import (
    DiskFullError,
    NotConnectedError,
    StorageError,
    StoreAwayError,
    TidemarkError,
    TimedOutError,
)
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.part import PartResult
from tidemark.spark.archive.plan import RoundPart
from tidemark.spark.archive.state import FOLDER, Round, has_state
from tidemark.spark.archive_query.batch import written
from tidemark.spark.engine.plain_errors import own_error_text
from tidemark.spark.engine.session import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "tidemark archive"
CHECKPOINT = "checkpoint"
#: How Spark is set up for the query. It runs day and night, so it keeps little of what has been.
SETTINGS = {
    "spark.ui.enabled": "true",
    # Any free port; `tidemark pipeline status` says which.
    "spark.ui.port": "0",
    "spark.driver.memory": "768m",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # A single process writes the checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}
#: How long to wait before the query is started again, and how often idle brokers are looked at.
RETRY_SECONDS = 5.0
FAILURES_MAX = 10
#: After so many failures without a batch, the checkpoint is taken to be the reason.
_CHECKPOINT_FAILURES = 2
_STOP_SECONDS = 8.0
_PASSING = (NotConnectedError, TimedOutError, DiskFullError, StoreAwayError)
_log = logging.getLogger("tidemark.archive")


class ArchiveQuery:
    """The streaming query that writes one archive, for the length of a `with` block."""

    def __init__(
        self,
        archive: Archive,
        spark: SparkSession,
        urls: Sequence[str],
        *,
        interval: float,
        once: bool = False,
    ) -> None:
        """With `once` the query ends when it has archived what there was when it began."""
        self._archive = archive
        self._spark = spark
        self._urls = tuple(urls)
        self._interval = interval
        self._once = once
        self._query: Any = None
        #: batches that have ended and were not taken yet
        self._ended: list[Round] = []
        #: what is wrong just now; "" if nothing is
        self.problem = ""
        #: what went wrong last
        self.last_error = ""
        #: held while a batch, or a look at the brokers, uses the connections of the archive
        self._using = Lock()
        self._cause: BaseException | None = None
        self._failures = 0
        self._start_at = 0.0
        self._looked = 0.0
        mounted = archive.path.mounted
        self._temporary = tempfile.mkdtemp(prefix="tidemark-checkpoint-") if mounted is None else None

    def __enter__(self) -> ArchiveQuery:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._query is not None:
            with suppress(Exception):
                self._query.stop()
        # A commit that is under way is waited for.
        if self._using.acquire(timeout=_STOP_SECONDS):
            self._using.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def address(self) -> str:
        """Of the web interface of Spark; "" if there is none."""
        return str(self._spark.sparkContext.uiWebUrl or "")

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps its checkpoint."""
        folder = self._archive.path.mounted
        above = Path(folder) / FOLDER if folder is not None else Path(self._temporary or "")
        return above / CHECKPOINT

    @property
    def is_done(self) -> bool:
        """Has a query that runs `once` archived all there was?"""
        return self._once and not self._query.isActive and self._query.exception() is None

    def taken(self) -> list[Round]:
        """The batches that have ended since this was last called."""
        ended, self._ended = self._ended, []
        return ended

    def look(self) -> None:
        """See how the query is doing, and start it again if it has failed.

        Raises TidemarkError if it fails again and again, or cannot go on at all.
        """
        if self._query is None:
            if time.monotonic() >= self._start_at:
                self._start()
        elif not self._query.isActive and not self.is_done:
            self._failed(self._query.exception())
        elif time.monotonic() >= self._looked + RETRY_SECONDS and self._using.acquire(blocking=False):
            try:
                self._look_at_brokers()
            finally:
                self._using.release()

    def _start(self) -> None:
        from tidemark.spark.archive_query.source import FORMAT, source_of

        self._cause = None
        self._spark.dataSource.register(source_of(self._archive.path))
        rows = self._spark.readStream.format(FORMAT).option("broker", ",".join(self._urls)).load()
        writer = rows.writeStream.queryName(NAME).foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self._query = (
            writer.trigger(availableNow=True)
            if self._once
            else writer.trigger(processingTime=f"{max(1, round(self._interval * 1000))} milliseconds")
        ).start()

    def _batch(self, frame: DataFrame, _: int) -> None:
        """One micro-batch; Spark calls this in a thread of its own."""
        try:
            with self._using:
                ended = self._archive.take(lambda part: self._written(frame, part))
        except BaseException as error:
            self._cause = error
            raise
        self._failures = 0
        self.problem = "; ".join(self._archive.away.values())
        if ended is not None:
            self._ended.append(ended)

    def _written(self, frame: DataFrame, part: RoundPart) -> PartResult:
        return written(frame, part, self._archive.state.covered)

    def _look_at_brokers(self) -> None:
        """Between batches: brokers that were restarted are told how far the archive has got."""
        self._looked = time.monotonic()
        try:
            self._archive.tell_pubends()
            self.problem = "; ".join(self._archive.away.values())
        except _PASSING as error:
            self.problem = str(error)
        self.last_error = self.problem or self.last_error

    def _failed(self, error: BaseException | None) -> None:
        cause, self._query = self._cause, None
        text = str(cause) if isinstance(cause, TidemarkError) else "the query has ended"
        if error is not None and not isinstance(cause, TidemarkError):
            text = own_error_text(error) or reason_of(str(error))
        is_away = isinstance(cause, StoreAwayError) or self._store_is_away()
        # However long a store is away, it may return.
        self._failures += 0 if is_away and not self._once else 1
        self.last_error = self.problem = text
        if isinstance(cause, TidemarkError) and (self._once or not isinstance(cause, _PASSING)):
            raise cause
        if self._once or self._failures >= FAILURES_MAX:
            raise TidemarkError(f"the query of the archive fails: {text}") from error
        _log.warning("the query of the archive has failed and is started again: %s", text)
        if self._failures == _CHECKPOINT_FAILURES and not isinstance(cause, _PASSING):
            self._set_checkpoint_aside()
        self._start_at = time.monotonic() + RETRY_SECONDS

    def _store_is_away(self) -> bool:
        """Does the store not answer? A source that fails in Spark's planning does not say why in a way that
        can be asked for.
        """
        try:
            has_state(self._archive.path)
        except StoreAwayError:
            return True
        except StorageError:
            return False
        return False

    def _set_checkpoint_aside(self) -> None:
        """Begin with a new checkpoint: what is archived is known without it."""
        with suppress(FileNotFoundError):
            self.checkpoint.rename(self.checkpoint.with_name(f"{CHECKPOINT}.{time.time_ns()}"))
            _log.warning("the checkpoint of the query is set aside; the archive knows how far it has got")
