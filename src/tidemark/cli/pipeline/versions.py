"""`tidemark pipeline versions`: as of which versions the tables of the archive can still be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidemark.admin.numbers import show_time
from tidemark.cli.options import JSON
from tidemark.cli.output import emit, table, visible_values
from tidemark.cli.pipeline.options import PATH

if TYPE_CHECKING:
    from tidemark.spark.stores.folder import Folder


@click.command()
@PATH
@click.option("--table", "root", metavar="TABLE", help="Of this table only: the first level of a topic.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="So many of each table."
)
@JSON
def versions(path: Folder, root: str | None, limit: int, as_json: bool) -> None:
    """List the versions of the archive's tables that can be read, the newest first.

    Every commit makes a version: new events, merged files, an erasure, removed history, new columns. They
    are read with versionAsOf and timestampAsOf, and with version and at of history. How long they are kept
    is the setting archive.versions. With --json a line for each.

    \b
    tidemark pipeline versions
    tidemark pipeline versions --table trades --limit 100
    """
    from tidemark.spark.locations import check_archive
    from tidemark.spark.time_travel.versions import versions as found_versions

    check_archive(path)
    found = found_versions(path, root, limit=limit)
    if as_json:
        for each in found:
            emit(each.to_json())
        return
    rows = [
        (
            each.table,
            str(each.version),
            show_time(each.time),
            each.kind,
            f"{each.rows_added:,}",
            f"+{each.files_added} -{each.files_removed}",
        )
        for each in map(visible_values, found)
    ]
    click.echo(table(("TABLE", "VERSION", "TIME", "WHAT", "ROWS", "FILES"), rows, right=(1, 4, 5)))
