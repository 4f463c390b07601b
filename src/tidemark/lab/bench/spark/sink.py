"""Spark bench, the sink: the rows of the archive published again, each once, by a batch write.

The same write runs once before, to a topic of its own: the first write of so many rows in a JVM takes more
than twice as long, since its code is compiled meanwhile. The best of a few repetitions counts, as in the
other cases, and every repetition is checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark import sync
from tidemark.lab.bench.report import Section
from tidemark.lab.bench.spark.archiving import archived
from tidemark.lab.bench.spark.testbed import SparkTestbed, rate, timed
from tidemark.lab.bench.system.load import SCHEMA
from tidemark.lab.bench.system.load import TOPIC as LOADED
from tidemark.spark.history_frames.frame import history

ROWS_A_SECOND = 400_000
TOPIC = "bench.sink"
SCHEMA_COLUMNS = ("n", "sent", "kind", "payload")


def sinking(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the section on the sink."""
    rows = history(testbed.spark, LOADED, archive=archived(testbed), columns=SCHEMA_COLUMNS)

    def write(number: int) -> None:
        topic = f"{TOPIC}.{number}"
        with sync.connect(testbed.broker.url) as tm:
            tm.create_topic(topic, SCHEMA)
            # What nobody waits for is let go once it is published, and could not be checked.
            tm.subscribe(topic, durable=f"keeper of {topic}").close()
        given = {"broker": testbed.broker.url, "topic": topic, "staging": str(testbed.path / "staging")}
        rows.write.format("tidemark").mode("append").options(**given).save()

    write(0)
    taken = []
    for number in range(1, testbed.effort.repetitions + 1):
        taken.append(timed(lambda number=number: write(number)))  # type: ignore[misc]
        testbed.check(testbed.read(topic=f"{TOPIC}.{number}"), "sink")
    events = testbed.effort.events
    case = f"{events:,} rows of 250 bytes"
    best = min(taken, key=lambda each: each.seconds)
    yield Section(
        "sink",
        rate(case, events, best, "rows", ROWS_A_SECOND),
        prefix="sink",
        notes=("the same write has run once before",),
    )
