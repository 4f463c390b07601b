"""`./run demo`: a story on real processes, and the verdict at its end, from nothing but their ledgers.

The audit on Spark gives the verdict, the table and a page with plots. Without Spark there is no archive in
the story, and the single-process audit gives the verdict and the table. The exit code is the verdict's.
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
from tidemark.lab.processes.process_harness import ProcessHarness
from tidemark.spark.audit.report import AuditReport
from tidemark.spark.audit.table import show

EVENTS = 10_000
RATE = 500
REFRESHES_A_SECOND = 8
PAGE = "audit.html"
COMPARING = "Spark compares the ledgers ..."


def run(*, as_json: bool = False, with_spark: bool = True, events: int = EVENTS, rate: float = RATE) -> int:
    """Tell the story; 0 when the ledgers agree that everything arrived exactly once and in order."""
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
    # What the broker lets go the archive has, so nobody may be told of a gap either.
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
    """The story, and what the ledgers say of it."""
    with ExitStack() as ends:
        # Spark starts while the story is told.
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
    """A terminal shows by itself that something happens."""
    if not console.is_terminal:
        console.print(COMPARING)


def _expect_spark() -> None:
    """Before anything starts: is there what the end needs?"""
    from tidemark.spark.engine.java import java_home

    if find_spec("pyspark") is None:
        raise TidemarkError(
            "the audit needs PySpark: pip install 'tidemark[spark]', or tidemark demo --no-spark"
        )
    java_home()


def _leave_ledgers(directory: Path) -> None:
    """Of a story that went well only the ledgers and the page are worth keeping."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == ".log":
            path.unlink()


def _say_what_is_left(directory: Path, console: Console) -> None:
    if (directory / PAGE).exists():
        console.print(f"the report with plots: {directory / PAGE}", soft_wrap=True)
    console.print(
        f"the ledgers, to do the sums again: tidemark pipeline audit --ledgers {directory}", soft_wrap=True
    )


def _drawn(story: Story, console: Console) -> Live | nullcontext[None]:
    """On a terminal the picture stays below the story, and is drawn again all the time."""
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
    """SIGTERM ends it like Ctrl-C does: with all its processes."""

    def stop(_: int, __: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
