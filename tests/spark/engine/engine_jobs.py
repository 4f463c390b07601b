"""The jobs that run on every engine; as a program: `engine_jobs.py ENGINE BROKER DIRECTORY`.

Nothing here knows which engine it is: only the first argument changes.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tidemark.spark import history
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive.archive import Archive
from tidemark.spark.engine.session import session

EVENTS = 600
SCHEMA = "[n: int, text: string?]"


def run_jobs(spark: Any, broker: str, path: Path) -> dict[str, Any]:
    """What each job has found; the topic `numbers` has the numbers below EVENTS."""
    source = spark.read.format("tidemark").option("broker", broker)
    numbers = source.option("topic", "numbers").option("selector", "n >= 10").load()
    read = numbers.selectExpr("count(*)", "sum(n)").first()
    with Archive(broker, path / "archive", sessions=lambda: nullcontext(spark)) as archive:
        archived = archive.round()
        assert archived is not None
    copy = (
        spark.readStream.format("tidemark")
        .option("broker", broker)
        .option("topic", "numbers")
        .option("columns", "n,text")
        .load()
        .repartition(2)
        .writeStream.format("tidemark")
        .option("broker", broker)
        .option("topic", "copies")
        .option("key", "text")
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert copy.awaitTermination(600)
    copies = source.option("topic", "copies").option("selector", "").load()
    copied = copies.selectExpr("count(*)", "sum(n)", "count(DISTINCT n)").first()
    past = history(spark, "numbers", "n < 500", broker=broker, archive=path / "archive")
    return {
        "read": list(read),
        "archived": archived.events,
        "copied": list(copied),
        "history": list(past.selectExpr("count(*)", "sum(n)", "count(DISTINCT _tick)").first()),
    }


def expected() -> dict[str, Any]:
    """What the jobs must find."""
    total = sum(range(EVENTS))
    return {
        "read": [EVENTS - 10, total - 45],
        "archived": EVENTS,
        "copied": [EVENTS, total, EVENTS],
        "history": [500, sum(range(500)), 500],
    }


if __name__ == "__main__":
    engine, url, directory = sys.argv[1:]
    # A round of any size is a job of Spark's then, in several tasks.
    archive_module.BACKLOG_BYTES_MIN, archive_module.PART_BYTES = 1, 16 << 10
    running = session("engines", engine)
    print(json.dumps(run_jobs(running, url, Path(directory))), flush=True)
    running.stop()
