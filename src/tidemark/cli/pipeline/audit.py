"""The command `tidemark pipeline audit`: compares the ledgers of publishers and subscribers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.cli.options import JSON
from tidemark.cli.output import emit
from tidemark.errors import TidemarkError
from tidemark.message.visible import visible_lines

if TYPE_CHECKING:
    from tidemark.spark.audit.report import AuditReport

CLEAN, FAULTY, NO_VERDICT = 0, 1, 2


class _NoVerdict(click.ClickException):
    """No verdict: an exit code of its own, so that scripts do not take it for events that were lost."""

    exit_code = NO_VERDICT


@click.command()
@click.option(
    "--ledgers",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    required=True,
    help="Where the ledgers are: NAME.publisher.* and NAME.subscriber.* of JSONL, Parquet or SQLite.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the report as a page with plots, too.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@JSON
def audit(ledgers: Path, html: Path | None, master: str, as_json: bool) -> None:
    """Compare ledgers on Spark: was every event delivered exactly once and in order?

    Counts what was lost, duplicated, out of order or wrongly delivered, gaps by reason, and latency. Exits 0
    if the first four are 0, 1 if not, 2 if there is no verdict: ledgers that cannot be read, bad options, no
    Spark. docs/proof.md says what is in ledgers and what is counted.

    \b
    tidemark pipeline audit --ledgers run-7
    tidemark pipeline audit --ledgers run-7 --html run-7.html
    tidemark pipeline audit --ledgers run-7 --json | jq .lost
    """
    from tidemark.spark.audit.audit import run
    from tidemark.spark.audit.html import page

    if html is not None and not html.parent.is_dir():
        raise click.BadParameter(f"there is no directory {html.parent}", param_hint="--html")
    try:
        report = run(ledgers, master)
    except TidemarkError as error:
        raise _NoVerdict(visible_lines(str(error))) from None
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    if as_json:
        emit(report.as_dict())
    else:
        _show(report)
    sys.exit(CLEAN if report.is_clean else FAULTY)


def _show(report: AuditReport) -> None:
    from rich.console import Console

    from tidemark.spark.audit.table import show

    console = Console(highlight=False)
    show(report, console)
    if report.is_clean:
        console.print("[green]every subscriber got what it asked for, exactly once and in order")
    else:
        console.print("[red]NOT exactly once and in order")
