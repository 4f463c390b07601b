"""`./run demo`: a story on real processes, and an audit of their ledgers at the end.

The audit on Spark makes a table and a page with plots. Without Spark the story has no archive, and the audit
in one process makes the table. The exit code is 0 only if the audit finds no fault.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from tidemark.errors import TidemarkError
from tidemark.lab.demo.archived_story import ArchivedStory
from tidemark.lab.demo.spark_audit import SparkAuditProcess
from tidemark.lab.demo.story import Story
from tidemark.lab.processes.process_harness import ALLOWED, ProcessHarness
from tidemark.spark.audit.report import AuditReport
from tidemark.spark.audit.table import show

EVENTS = 10_000
#: Trades a second. Without Spark the story is told in less than half a minute; with Spark it goes on for as
#: long as the archive needs to be seen at work.
RATE = 800
RATE_WITH_SPARK = 500
REFRESHES_A_SECOND = 8
PAGE = "audit.html"
COMPARING = "Spark compares the ledgers ..."


def run(
    *, as_json: bool = False, with_spark: bool = True, events: int = EVENTS, rate: float | None = None
) -> int:
    """Play the story; returns 0 when the ledgers show that everything arrived exactly once and in order."""
    rate = rate or (RATE_WITH_SPARK if with_spark else RATE)
    console = Console(stderr=as_json, highlight=False)
    if with_spark:
        _expect_spark()
    directory = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    try:
        with _ended_by_signal():
            report = _told(directory, console, with_spark, events, rate)
    except AssertionError as error:
        console.print(f"[red]{escape(str(error))}[/]\nwhat everybody wrote is in {directory}", soft_wrap=True)
        return 1
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory, ignore_errors=True)
        raise
    # The archive has everything that the broker releases, so no subscriber may be told of a gap either.
    is_right = (
        report.is_clean and report.published == report.acknowledged == events and not report.total("gaps")
    )
    if as_json:
        print(json.dumps({**report.as_dict(), "ok": is_right, "ledgers": str(directory)}))
    else:
        show(report, console)
    if is_right:
        console.print("[green]every subscriber got every trade it asked for, exactly once and in order")
        _leave_ledgers(directory)
    else:
        console.print("[red]NOT exactly once")
    _say_what_is_left(directory, console)
    return 0 if is_right else 1


def _told(directory: Path, console: Console, with_spark: bool, events: int, rate: float) -> AuditReport:
    """Play the story; returns the audit of its ledgers."""
    with ExitStack() as ends:
        # Spark starts while the story is played.
        audit_process = (
            ends.enter_context(SparkAuditProcess(directory / "audit_process.log")) if with_spark else None
        )
        with ProcessHarness(directory) as harness:
            story = (ArchivedStory if with_spark else Story)(harness, console, events, rate)
            with _drawn(story, console):
                story.tell()
        if audit_process is None:
            return harness.audit().report()
        console.print("\n[bold]The audit, on Spark[/]")
        with console.status(COMPARING):
            return audit_process.audit(directory, directory / PAGE, lambda: _still(console))


def _still(console: Console) -> None:
    """Say that the audit still runs; on a terminal a spinner shows that already."""
    if not console.is_terminal:
        console.print(COMPARING)


def _expect_spark() -> None:
    """Raise TidemarkError before anything starts if Spark or Java is missing."""
    from tidemark.spark.engine.java import java_home

    if find_spec("pyspark") is None:
        raise TidemarkError(
            "the audit needs PySpark: pip install 'tidemark[spark]', or tidemark demo --no-spark"
        )
    java_home()


def _leave_ledgers(directory: Path) -> None:
    """Remove everything but the ledgers and the page."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix in (".log", ALLOWED):
            path.unlink()


def _say_what_is_left(directory: Path, console: Console) -> None:
    if (directory / PAGE).exists():
        console.print(f"the report with plots: {directory / PAGE}", soft_wrap=True)
    console.print(
        f"the ledgers, to do the sums again: tidemark pipeline audit --ledgers {directory}", soft_wrap=True
    )


def _drawn(story: Story, console: Console) -> Live | nullcontext[None]:
    """On a terminal, a picture below the story that is drawn again all the time; otherwise nothing."""
    if not console.is_terminal:
        return nullcontext()
    return Live(
        get_renderable=story.picture,
        console=console,
        refresh_per_second=REFRESHES_A_SECOND,
        transient=True,
    )


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Within this context SIGTERM raises SystemExit, so that all processes are ended."""

    def stop(_: int, __: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
