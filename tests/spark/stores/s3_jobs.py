"""Jobs against an archive in S3, as a program: `s3_jobs.py MASTER BROKER URL OPTIONS`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tidemark.message.schema import Schema
from tidemark.spark import history
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive_query import planning
from tidemark.spark.archive_query.query import ArchiveQuery
from tidemark.spark.connections import urls_of
from tidemark.spark.engine.session import session
from tidemark.spark.locations import folder_at
from tidemark.spark.report.figures import figures
from tidemark.spark.stores.folder import Folder
from tidemark.spark.stores.storage_options import load_storage_options
from tidemark.ticks import TICK_MAX, TICK_MIN

SCHEMA = Schema.parse("[n: int, text: string]")
#: a tick and the values of an event
Row = tuple[int, dict[str, Any]]


def rows_in(folder: Folder) -> list[Row]:
    """Every row of the archive."""
    return [
        (int(batch.ticks[row]), SCHEMA.decode(batch.message(row)))
        for batch in archive_reader.read(folder, "main", TICK_MIN, TICK_MAX)
        for row in range(batch.count)
    ]


def run_jobs(spark: Any, broker: str, url: str, options: str) -> dict[str, Any]:
    """What each job has found: every row, not counts."""
    archive_at = folder_at(f"{url}/archive", load_storage_options(options))
    with (
        Archive(broker, archive_at) as archive,
        ArchiveQuery(archive, spark, urls_of(broker), interval=0.1, once=True) as query,
    ):
        while not query.is_done:
            query.look()
            time.sleep(0.05)
    past = history(spark, "numbers", "n < 500", archive=archive_at)
    again = past._jdf.queryExecution().toString()
    source = spark.read.format("tidemark").option("broker", broker).option("topic", "numbers")
    read = source.option("archive", archive_at.text).option("storageOptions", options).load()
    sink = past.select("n", "text").repartition(2).write.format("tidemark").mode("append")
    for _ in range(2):
        to = {"broker": broker, "topic": "copies", "job": "copy", "staging": f"{url}/staging"}
        sink.options(**to, storageOptions=options).save()
    copies = spark.read.format("tidemark").option("broker", broker).option("topic", "copies").load()
    return {
        "history": sorted([row["_tick"], row["n"], row["text"]] for row in past.collect()),
        "read": sorted([row["_tick"], row["n"], row["text"]] for row in read.collect()),
        "copies": sorted([row["n"], row["text"]] for row in copies.collect()),
        "rounds": figures(spark, archive_at).rounds,
        "plans": again + json.dumps(dict(spark.sparkContext.getConf().getAll())),
    }


if __name__ == "__main__":
    master, *others = sys.argv[1:]
    # A batch of any size is of several tasks then.
    archive_module.PART_BYTES = 16 << 10
    setattr(planning, "PART_BYTES", 16 << 10)  # noqa: B010
    # Where much else runs, a Python worker takes long to start.
    running = session("s3", master, **{"spark.python.authenticate.socketTimeout": "300s"})
    print(json.dumps(run_jobs(running, *others)), flush=True)
    running.stop()
