"""The command `tidemark pipeline report`: an archive and its brokers over time, as a page with plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemark.cli.options import JSON
from tidemark.cli.output import emit
from tidemark.cli.pipeline.options import MASTER, PATH

if TYPE_CHECKING:
    from tidemark.spark.stores.folder import Folder


@click.command()
@PATH
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    default="archive.html",
    show_default=True,
    help="Where the page is written.",
)
@MASTER
@JSON
def report(path: Folder, html: Path, master: str, as_json: bool) -> None:
    """Draw rates, lag, latency and storage of brokers and archive over time, computed on Spark.

    All comes from the archive itself, so no broker is asked. The page is one file that needs nothing else.

    \b
    tidemark pipeline report
    tidemark pipeline report --path /var/lib/tidemark/archive --html week.html
    tidemark pipeline report --json | jq .latency_ms
    """
    from tidemark.spark.engine.session import quiet_session
    from tidemark.spark.locations import check_archive
    from tidemark.spark.report.figures import figures
    from tidemark.spark.report.html import page

    check_archive(path)
    if not html.parent.is_dir():
        raise click.BadParameter(f"there is no directory {html.parent}", param_hint="--html")
    with quiet_session("tidemark report", master) as spark:
        found = figures(spark, path)
    html.write_text(page(found), encoding="utf-8")
    if as_json:
        emit(found.to_json())
    else:
        click.echo(f"{html}: {found.events:,} events, {found.rounds:,} rounds")
