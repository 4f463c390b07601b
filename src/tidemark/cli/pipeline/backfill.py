"""The command `tidemark pipeline backfill`: files or a table into the history of a topic, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidemark.cli.options import JSON
from tidemark.cli.output import emit
from tidemark.cli.pipeline.options import BROKERS, MASTER, PATH
from tidemark.message.visible import visible

if TYPE_CHECKING:
    from tidemark.spark.stores.folder import Folder


@click.command()
@click.argument("sources", nargs=-1, required=True)
@PATH
@click.option("--topic", required=True, metavar="TOPIC", help="The topic that gets the events.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "json", "csv", "table"]),
    default="parquet",
    show_default=True,
    help="What SOURCES are: files or directories of this format, or a table of Spark's catalog.",
)
@click.option("--key", metavar="COLUMN", help="The column whose value is the key of an event.")
@click.option("--job", metavar="NAME", help="Names the backfill; by default its sources do.")
@MASTER
@BROKERS
@JSON
def backfill(
    sources: tuple[str, ...],
    path: Folder,
    topic: str,
    kind: str,
    key: str | None,
    job: str | None,
    master: str,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Publish the rows of files or of a table as events of a topic, exactly once.

    The rows are published now, by Spark, and are archived as all events are. A backfill that was killed is
    completed by running it again, and one that is done publishes nothing again: it is known by the topic and
    by the names, sizes and times of its files, or by --job. Its record is in _archive/backfill.

    \b
    tidemark pipeline backfill --topic trades /data/trades-2025/
    tidemark pipeline backfill --topic trades --format csv --job old-trades trades.csv
    """
    if len(urls) > 1:
        raise click.UsageError("a backfill is published at one broker: name one with --broker")
    from tidemark.spark.engine.session import quiet_session
    from tidemark.spark.upkeep.backfilling import backfill as backfill_topic

    with quiet_session("tidemark pipeline", master) as spark:
        done = backfill_topic(spark, path, urls[0], topic, sources, kind=kind, job=job, key=key)
    if as_json:
        emit(done.to_json())
    elif done.was_done:
        click.echo(f"{visible(done.job)} was done before: {done.events:,} events of {visible(topic)}")
    else:
        click.echo(f"published {done.events:,} events of {visible(topic)} (job {visible(done.job)})")
