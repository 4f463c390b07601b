"""SparkAuditProcess: the audit on Spark as a process of its own, started before it is needed.

A JVM takes seconds to start and writes messages that do not belong on the screen. So the process starts while
the story is played, and has its own log. It sees nothing but the directory of the ledgers, as
`tidemark pipeline audit --ledgers DIR` does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from tidemark.node.process.parent import end_with_parent
from tidemark.spark.audit.report import AuditReport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: The longest time for an audit, a cold start included.
VERDICT_SECONDS_MAX = 600.0
#: Seconds between calls of `meanwhile` while the audit runs.
NEWS_SECONDS = 5.0
GOODBYE_SECONDS = 10.0


class SparkAuditProcess:
    """`with SparkAuditProcess(log) as process:` ends the process, and Spark with it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        context = get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_sit, args=(theirs, log), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> SparkAuditProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The process ends when the pipe does.
        self._ours.close()
        self._process.join(GOODBYE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def audit(self, ledgers: Path, html: Path, meanwhile: Callable[[], None] = lambda: None) -> AuditReport:
        """Audit the ledgers in a directory and write a page; returns the report.

        Raises AssertionError if there is no report. `meanwhile` is called now and then until there is one.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            self._ours.send((ledgers, html))
        try:
            answer = self._ours.recv() if self._waited(meanwhile) else "it takes too long"
        except (EOFError, ConnectionResetError):
            answer = "it has ended"
        if not isinstance(answer, AuditReport):
            raise AssertionError(f"no audit: {answer} (see {self._log})")
        return answer

    def _waited(self, meanwhile: Callable[[], None]) -> bool:
        """Wait; returns False if the process neither answers nor ends in time."""
        until = monotonic() + VERDICT_SECONDS_MAX
        while not self._ours.poll(NEWS_SECONDS):
            if monotonic() > until:
                return False
            meanwhile()
        return True


def _sit(connection: Connection, log: Path) -> None:
    """The body of the process: start Spark, then audit once when asked."""
    end_with_parent(signal.SIGKILL)
    with log.open("ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    # Imported only here: the parent process need not load Spark.
    from tidemark.errors import TidemarkError
    from tidemark.spark.engine.session import session

    try:
        spark = session("tidemark demo")
        audit_when_asked(spark, connection)
        spark.stop()
    except TidemarkError as error:
        connection.send(str(error))


def audit_when_asked(spark: SparkSession, connection: Connection) -> None:
    """Make Spark ready, audit once when a directory and a page are named, and send the report.

    Returns without an audit if the other end of the connection is closed.
    """
    from tidemark.spark.audit.audit import audit
    from tidemark.spark.audit.html import page
    from tidemark.spark.audit.ledgers import gather

    # The first job with Python workers is slow, whatever it does.
    spark.range(1).mapInArrow(_same, "id bigint").count()
    with suppress(EOFError):
        ledgers, html = connection.recv()
        report = audit(spark, gather(ledgers))
        html.write_text(page(report), encoding="utf-8")
        connection.send(report)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches
