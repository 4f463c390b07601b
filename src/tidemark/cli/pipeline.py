"""Commands of the data pipeline: the archive and its state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import NOTHING, emit, emit_either, show_bytes, show_seconds, show_time, table
from tidemark.cli.talk import Interrupts

ARCHIVE_DEFAULT = "tidemark-archive"

PATH = click.option(
    "--path",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=ARCHIVE_DEFAULT,
    show_default=True,
    envvar="TIDEMARK_ARCHIVE",
    show_envvar=True,
    help="Where the archive is.",
)


@click.group()
def pipeline() -> None:
    """The data pipeline on Spark: the archive, and how it is doing."""


@pipeline.command()
@PATH
@click.option("--once", is_flag=True, help="Stop when all that there is has been archived.")
@click.option("--interval", type=duration, default="1s", show_default=True, help="The wait between rounds.")
@click.option("--retain", type=duration, help="Keep no more than this much history; all, if not given.")
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs, when there is much to do."
)
@BROKER
@JSON
def archive(
    path: Path,
    once: bool,
    interval: float,
    retain: float | None,
    master: str,
    url: str,
    as_json: bool,
) -> None:
    """Archive the events of all pubends of a broker in Delta tables of Parquet; Ctrl-C stops it.

    It goes on where it was, after a crash too: every event is archived once. The broker is told how far it
    got, and lets go only what is archived if its setting retention.archive is true. A second process on the
    same directory refuses to start. With --json a line for each round.

    \b
    tidemark pipeline archive
    tidemark pipeline archive --path /var/lib/tidemark/archive --retain 365d
    tidemark pipeline archive --once --json
    """
    from tidemark.spark.pipeline import run_archive

    with Interrupts() as interrupts:
        run_archive(
            url,
            path,
            tell=emit if as_json else _tell,
            sleep=interrupts.sleep,
            interval=interval,
            once=once,
            retain=retain,
            master=master,
        )


@pipeline.command()
@PATH
@click.option("--offline", is_flag=True, help="Do not ask the broker how far behind the archive is.")
@BROKER
@JSON
def status(path: Path, offline: bool, url: str, as_json: bool) -> None:
    """Show what the archive has and how far it is behind: tables, files, sizes, rates and lag.

    \b
    tidemark pipeline status
    tidemark pipeline status --path /var/lib/tidemark/archive --offline
    tidemark pipeline status --json | jq '.pubends[].lag_seconds'
    """
    from tidemark.spark import pipeline as jobs

    emit_either(jobs.status(path, None if offline else url), _draw, as_json)


def _tell(said: Mapping[str, Any]) -> None:
    if "waiting" in said:
        click.echo(f"waiting: {said['waiting']}", err=True)
    else:
        size = show_bytes(said["bytes"])
        click.echo(f"archived {said['events']:,} events, {size}, in {show_seconds(said['seconds'])}")


def _draw(found: Mapping[str, Any]) -> str:
    rate = found["events_per_second"]
    process = found["process"]
    lines = [
        f"{click.style(found['path'], bold=True)}  "
        + (f"written by process {process}" if process is not None else "no process writes it"),
        f"{found['events']:,} events of {show_bytes(found['event_bytes'])} archived"
        + (f", {rate:,.0f} a second while at work" if rate else ""),
    ]
    if found["released"] is not None:
        lines.append(f"nothing up to {show_time(found['released'])} is kept")
    tables = table(
        ("TABLE", "EVENTS", "FILES", "SIZE", "COLUMNS"),
        [
            (
                each["root"],
                f"{each['events']:,}",
                str(each["files"]),
                show_bytes(each["bytes"]),
                str(each["columns"]),
            )
            for each in found["tables"]
        ],
        right=(1, 2, 3, 4),
    )
    pubends = table(
        ("PUBEND", "LAG", "ARCHIVED UP TO", "GAPS"),
        [
            (
                each["pubend"],
                show_seconds(each["lag_seconds"]),
                NOTHING if each["covered"] is None else show_time(each["covered"]),
                str(len(each["missing"])),
            )
            for each in found["pubends"]
        ],
        right=(1, 3),
    )
    return "\n".join([*lines, "", tables, "", pubends])
