"""Commands of the data pipeline: the archive and its state."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tidemark.admin.numbers import NOTHING, show_bytes, show_seconds, show_time
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import JSON, duration
from tidemark.cli.output import emit, table, visible_values
from tidemark.cli.pipeline.audit import audit
from tidemark.cli.pipeline.backfill import backfill
from tidemark.cli.pipeline.options import BROKERS, MASTER, PATH
from tidemark.cli.pipeline.report import report
from tidemark.cli.pipeline.upkeep import erase, verify
from tidemark.cli.pipeline.versions import versions
from tidemark.cli.watching.screen import watch
from tidemark.errors import ConfigError, TidemarkError
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.spark.archive.compaction import ArchiveRetention
    from tidemark.spark.archive.status import ArchiveStatus
    from tidemark.spark.reports import EngineStarted, PipelineReport
    from tidemark.spark.stores.folder import Folder


@click.group()
def pipeline() -> None:
    """The data pipeline on Spark: the archive, how it is doing, and the audit."""


pipeline.add_command(audit)
pipeline.add_command(backfill)
pipeline.add_command(erase)
pipeline.add_command(verify)
pipeline.add_command(report)
pipeline.add_command(versions)


LOG = click.option(
    "--log",
    "level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Say what happens as log lines on standard error, as brokers do.",
)
LOG_FORMAT = click.option(
    "--log-format", default="auto", type=click.Choice(["auto", "text", "json"]), hidden=True
)
ATTACHED = click.option("--attached", is_flag=True, hidden=True, help="End when standard input is closed.")


@pipeline.command()
@PATH
@click.option("--once", is_flag=True, help="Stop when all that there is has been archived.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "spark", "light"]),
    default="auto",
    show_default=True,
    envvar="TIDEMARK_ARCHIVE_ENGINE",
    show_envvar=True,
    help="What writes it: a streaming query of Spark, or a plain process.",
)
@click.option(
    "--interval", type=duration, default="5s", show_default=True, help="How often it looks for new events."
)
@click.option(
    "--retain",
    metavar="AGE|SIZE",
    help="Keep history of this age or size: 90d, 500GB; all by default.",
)
@click.option(
    "--versions",
    "kept_versions",
    metavar="AGE",
    type=duration,
    default="1h",
    show_default=True,
    help="For how long the tables can be read as they were.",
)
@click.option(
    "--serve/--no-serve",
    "is_serving",
    default=True,
    show_default=True,
    help="Also give brokers back what they do not have any more.",
)
@MASTER
@LOG
@LOG_FORMAT
@ATTACHED
@BROKERS
@JSON
def archive(
    path: Folder,
    once: bool,
    engine: str,
    interval: float,
    retain: str | None,
    kept_versions: float,
    is_serving: bool,
    master: str,
    level: str | None,
    log_format: str,
    attached: bool,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Archive the events of all pubends of brokers in Delta tables of Parquet; Ctrl-C stops it.

    `tidemark up` runs this by itself. It goes on where it was, after a crash too: every event is archived
    once. The brokers are told how far it got, and let go only what is archived if their setting
    retention.archive is true. A second process on the same directory refuses to start. With --json a line
    for the engine that runs and one for each round.

    The engine is a Structured Streaming query where Spark is installed and 2 GiB of memory are free, and
    otherwise a plain process. Both write the same rows, and each goes on where the other one ended.

    Subscribers that come back from beyond what brokers still hold, or start in the past, get what they want
    from here, too: all that come together in one scan.

    \b
    tidemark pipeline archive
    tidemark pipeline archive --path /var/lib/tidemark/archive --retain 365d
    tidemark pipeline archive --engine spark --master spark://head:7077
    tidemark pipeline archive --broker tidemark://east:7676 --broker tidemark://west:7676
    tidemark pipeline archive --once --json
    """
    from tidemark.cli.pipeline.archive_log import ArchiveLog, log
    from tidemark.node.logs import configure
    from tidemark.node.process.parent import end_with_input
    from tidemark.spark.archive.compaction import ArchiveRetention
    from tidemark.spark.pipeline import run_archive

    kept = replace(ArchiveRetention() if retain is None else _retained(retain), versions=kept_versions)
    if level is not None:
        configure(level, log_format)
    with Interrupts() as interrupts:
        if attached:
            end_with_input()
        try:
            run_archive(
                urls,
                path,
                tell=_emit if as_json else ArchiveLog() if level is not None else _tell,
                sleep=interrupts.sleep,
                engine=engine,
                interval=interval,
                once=once,
                retain=kept,
                master=master,
                serve=is_serving,
            )
        except TidemarkError as error:
            if level is None:
                raise
            log.error("cannot archive", reason=str(error))
            sys.exit(1)


@pipeline.command()
@PATH
@MASTER
@LOG
@LOG_FORMAT
@ATTACHED
@BROKERS
@JSON
def serve(
    path: Folder,
    master: str,
    level: str | None,
    log_format: str,
    attached: bool,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Give brokers back from the archive what they do not have any more; Ctrl-C stops it.

    `tidemark pipeline archive` does this by itself; this is for brokers with subscribers that have a process
    of their own for it, beside the one that writes the archive. With --json a line for each scan.

    \b
    tidemark pipeline serve --path /var/lib/tidemark/archive --broker tidemark://east:7676
    """
    from tidemark.cli.pipeline.archive_log import ArchiveLog
    from tidemark.node.logs import configure
    from tidemark.node.process.parent import end_with_input
    from tidemark.spark.pipeline import run_serve

    if level is not None:
        configure(level, log_format)
    with Interrupts() as interrupts:
        if attached:
            end_with_input()
        tell = _emit if as_json else ArchiveLog() if level is not None else _tell
        run_serve(urls, path, tell=tell, sleep=interrupts.sleep, master=master)


def _retained(text: str) -> ArchiveRetention:
    from tidemark.node.config.units import parse_retain
    from tidemark.spark.archive.compaction import ArchiveRetention

    try:
        found = parse_retain(text)
    except ConfigError as error:
        raise click.BadParameter(error.reason, param_hint="--retain") from None
    return ArchiveRetention(None if found.age is None else found.age / 1e6, found.size)


@pipeline.command()
@PATH
@click.option("--offline", is_flag=True, help="Do not ask the brokers how far behind the archive is.")
@click.option("--watch", "is_watched", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--interval", type=duration, default="2s", show_default=True, help="How often, with --watch.")
@BROKERS
@JSON
def status(
    path: Folder, offline: bool, is_watched: bool, interval: float, urls: tuple[str, ...], as_json: bool
) -> None:
    """Show what the archive has and how far it is behind: tables, files, sizes, rates and lag.

    \b
    tidemark pipeline status
    tidemark pipeline status --watch
    tidemark pipeline status --path /var/lib/tidemark/archive --offline
    tidemark pipeline status --json | jq '.pubends[].lag_seconds'
    """
    from tidemark.spark.archive import status as archive_status

    def found() -> ArchiveStatus:
        return archive_status.status(path, None if offline else urls)

    if not is_watched:
        if as_json:
            emit(found().to_json())
        else:
            click.echo(_draw(visible_values(found())))
        return
    with Interrupts() as interrupts:
        if not as_json:
            watch(lambda: _draw(visible_values(found())), interval, interrupts)
            return
        emit(found().to_json())
        while interrupts.sleep(interval):
            emit(found().to_json())


def _emit(report: PipelineReport) -> None:
    emit(report.to_json())


def describe_engine(started: EngineStarted) -> str:
    """The line that says which engine writes the archive, and why."""
    where = f" on {started.master}" if started.engine == "spark" else ""
    return f"engine {started.engine}{where} ({started.reason})" + (f", UI {started.ui}" if started.ui else "")


def _tell(report: PipelineReport) -> None:
    from tidemark.spark.reports import EngineStarted, ScanEnded, Waiting

    took = "" if isinstance(report, Waiting | EngineStarted) else show_seconds(report.seconds)
    if isinstance(report, EngineStarted):
        click.echo(visible(describe_engine(report)))
    elif isinstance(report, Waiting):
        click.echo(f"waiting: {visible(report.waiting)}" if report.waiting else "going on", err=True)
    elif isinstance(report, ScanEnded):
        click.echo(
            f"gave back to {report.recalled:,} subscribers what they asked for, "
            f"of {report.events:,} events read, in {took}"
        )
    else:
        click.echo(f"archived {report.events:,} events, {show_bytes(report.bytes)}, in {took}")


def _draw_engine(found: ArchiveStatus) -> list[str]:
    engine = found.engine
    if engine is None:
        return []
    parts = [f"engine {engine.engine}" + (f" on {engine.master}" if engine.engine == "spark" else "")]
    parts.append(f"batch {engine.batch:,}")
    parts += [f"UI {engine.ui}"] if engine.ui else []
    parts += [f"last error: {engine.error}"] if engine.error else []
    return [", ".join(parts)]


def _draw(found: ArchiveStatus) -> str:
    rate = found.events_per_second
    process = found.process
    lines = [
        f"{click.style(found.path, bold=True)}  "
        + (f"written by process {process}" if process is not None else "no process writes it"),
        *_draw_engine(found),
        f"{found.events:,} events of {show_bytes(found.event_bytes)} archived"
        + (f", {rate:,.0f} a second while at work" if rate else ""),
    ]
    if found.lag_events is not None:
        behind = f"{found.lag_events:,} events behind, {show_seconds(found.lag_seconds)}"
        lines.append(behind if found.lag_events else "not behind")
    lines += [f"{url} does not answer: {reason}" for url, reason in found.away.items()]
    if found.released is not None:
        lines.append(f"nothing up to {show_time(found.released)} is kept")
    tables = table(
        ("TABLE", "EVENTS", "FILES", "SIZE", "COLUMNS"),
        [
            (
                each.root,
                f"{each.events:,}",
                str(each.files),
                show_bytes(each.bytes),
                str(each.columns),
            )
            for each in found.tables
        ],
        right=(1, 2, 3, 4),
    )
    pubends = table(
        ("PUBEND", "LAG", "EVENTS", "ARCHIVED UP TO", "GAPS"),
        [
            (
                each.pubend,
                show_seconds(each.lag_seconds),
                NOTHING if each.lag_events is None else f"{each.lag_events:,}",
                NOTHING if each.covered is None else show_time(each.covered),
                str(len(each.missing)),
            )
            for each in found.pubends
        ],
        right=(1, 2, 4),
    )
    return "\n".join([*lines, "", tables, "", pubends, *_draw_erasures(found)])


def _draw_erasures(found: ArchiveStatus) -> list[str]:
    if not found.erasures:
        return []
    rows = [
        (
            show_time(int(each.asked_at * 1e6)),
            NOTHING if each.asked_by is None else each.asked_by,
            each.topic,
            each.where,
            each.stage,
            f"{each.events:,}",
        )
        for each in found.erasures
    ]
    return ["", table(("ERASURE ASKED", "BY", "TOPIC", "WHERE", "STAGE", "EVENTS"), rows, right=(5,))]
