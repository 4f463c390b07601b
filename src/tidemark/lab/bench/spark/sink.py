"""Spark bench, the sink: the rows of the archive published again, each once, by a batch write."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark import sync
from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.archiving import archive_of
from tidemark.lab.bench.spark.testbed import SparkTestbed, rate, timed
from tidemark.lab.bench.system.load import SCHEMA
from tidemark.lab.bench.system.load import TOPIC as LOADED
from tidemark.spark.history_frames.frame import history

ROWS_A_SECOND = 400_000
TOPIC = "bench.sink"
SCHEMA_COLUMNS = ("n", "sent", "kind", "payload")


def sinking(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the section on the sink."""
    rows = history(testbed.spark, LOADED, archive=archive_of(testbed), columns=SCHEMA_COLUMNS)
    with sync.connect(testbed.broker.url) as tm:
        tm.create_topic(TOPIC, SCHEMA)

    def write(frame: object, topic: str) -> None:
        given = {"broker": testbed.broker.url, "topic": topic, "staging": str(testbed.path / "staging")}
        frame.write.format("tidemark").mode("append").options(**given).save()  # type: ignore[attr-defined]

    write(rows.limit(1_000), "bench.warm")
    taken = timed(lambda: write(rows, TOPIC))
    testbed.check(testbed.read(topic=TOPIC), "sink")
    events = testbed.effort.events
    case = f"{events:,} rows of 250 bytes"
    yield Section("sink", rate(case, events, taken, "rows", ROWS_A_SECOND), prefix="sink")
