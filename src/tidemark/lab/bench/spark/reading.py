"""Spark bench, reading from a broker: a batch read, a stream, and what a micro-batch costs beside its rows.

Each is compared with what Spark itself can do on this machine: take the same rows from Python tasks that have
them in memory, and run micro-batches of its own source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.spark.testbed import SparkTestbed, in_turns, rate, timed, to_nowhere
from tidemark.lab.bench.system.load import TOPIC, Load
from tidemark.spark.options import source_options
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_A_SECOND = 500_000
AGAINST_MEMORY = 0.7
STREAM_ROWS_A_SECOND = 800_000
#: Milliseconds of a micro-batch beyond those of Spark's own source.
MICRO_BATCH_MS_MAX = 40
#: Micro-batches of the stream whose rate is measured.
STREAM_BATCHES = 4
PATIENCE_SECONDS = 300


def reading(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the sections on reading."""
    yield _batch(testbed)
    yield _stream(testbed)
    yield _overhead(testbed)


def _batch(testbed: SparkTestbed) -> Section:
    events, frame = testbed.effort.events, testbed.read()
    testbed.check(frame, "batch read")
    quarter = testbed.read(selector="kind = 1")
    wanted = Load().expected(1, 0, events).count
    assert quarter.count() == wanted, "batch read with a selector: not the events of that kind"
    taken = in_turns(
        testbed.effort.repetitions,
        read=to_nowhere(frame),
        memory=to_nowhere(rows_from_memory(testbed)),
        selected=to_nowhere(quarter),
    )
    before = testbed.broker.cpu_seconds
    to_nowhere(frame)()
    of_broker = testbed.broker.cpu_seconds - before
    case = f"{events:,} events"
    return Section(
        "batch read from a broker",
        [
            *rate(case, events, taken["read"], "rows", ROWS_A_SECOND),
            Measurement(case, "CPU of the broker", of_broker * 1e6 / events, "s/million"),
            Measurement(
                case,
                "against memory",
                taken["memory"].seconds / taken["read"].seconds,
                "x",
                Goal(">=", AGAINST_MEMORY),
            ),
            *rate(f"{case}, rows from memory", events, taken["memory"], "rows"),
            *rate(f"{case}, a quarter by a selector", events, taken["selected"], "events read"),
        ],
        prefix="batch read",
        notes=("memory: tasks hand Spark record batches that they have already, without a broker",),
    )


def rows_from_memory(testbed: SparkTestbed) -> DataFrame:
    """Returns as many rows of the same columns, from tasks that read one range and repeat it."""
    scan = _scan(testbed)
    planner = Planner(scan)
    try:
        first, count = planner.everything()[0], len(planner.everything())
    finally:
        planner.close()
    rows = -(-testbed.effort.events // count)

    def run(numbers: Iterator[Any]) -> Iterator[Any]:
        # A Python worker that leaves input unread is discarded, and the next task waits for a new one.
        for _ in numbers:
            pass
        made, left = next(scan.read(first)), rows
        while left > 0:
            yield made.slice(0, left)
            left -= made.num_rows

    return testbed.spark.range(0, count, 1, count).mapInArrow(run, testbed.read().schema)


def _scan(testbed: SparkTestbed) -> SourceScan:
    options = source_options({"broker": testbed.broker.url, "topic": TOPIC})
    return SourceScan(options, topic_columns_of(options))


def _stream(testbed: SparkTestbed) -> Section:
    events = testbed.effort.events
    found: list[int] = []

    def stream() -> None:
        batch_events = -(-events // STREAM_BATCHES)
        query = _started(testbed, "rate", maxEventsPerTrigger=str(batch_events))
        found.append(sum(each["numInputRows"] for each in query.recentProgress))

    stream()
    taken = min((timed(stream) for _ in range(testbed.effort.repetitions)), key=lambda each: each.seconds)
    assert set(found) == {events}, f"stream: found {found} rows, expected {events}"
    case = f"{events:,} events in {STREAM_BATCHES} micro-batches"
    return Section(
        "streaming source to nowhere",
        rate(case, events, taken, "rows", STREAM_ROWS_A_SECOND),
        prefix="stream",
    )


def _overhead(testbed: SparkTestbed) -> Section:
    effort = testbed.effort
    ours = _started(testbed, "small", maxEventsPerTrigger=str(effort.batch_events), batches=effort.batches)
    spark_own = _of_spark(testbed)
    case = f"micro-batches of {effort.batch_events:,} events"
    mine, theirs = _milliseconds(ours), _milliseconds(spark_own)
    return Section(
        "what a micro-batch costs",
        [
            Measurement(case, "a batch, median", mine, "ms"),
            Measurement(case, "the same of Spark's own source", theirs, "ms"),
            Measurement(case, "beyond Spark's own", mine - theirs, "ms", Goal("<=", MICRO_BATCH_MS_MAX)),
        ],
        prefix="micro-batch",
        notes=("Spark's own: rate-micro-batch, which makes its rows in the JVM",),
    )


def _started(testbed: SparkTestbed, name: str, batches: int | None = None, **options: str) -> Any:
    """Runs a query over all events, or over `batches` micro-batches; returns it after its end."""
    given = {"broker": testbed.broker.url, "topic": TOPIC, **options}
    frame = testbed.spark.readStream.format("tidemark").options(**given).load()
    return _run(testbed, frame, name, batches)


def _of_spark(testbed: SparkTestbed) -> Any:
    effort = testbed.effort
    frame = (
        testbed.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", effort.batch_events)
        .option("numPartitions", 1)
        .load()
    )
    return _run(testbed, frame, "own", effort.batches)


_runs: Callable[[], int] = iter(range(1 << 30)).__next__


def _run(testbed: SparkTestbed, frame: DataFrame, name: str, batches: int | None) -> Any:
    writer = frame.writeStream.format("noop").option(
        "checkpointLocation", str(testbed.path / f"{name}-{_runs()}")
    )
    if batches is None:
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_SECONDS), f"{name}: the stream does not end"
        return query
    query = writer.start()
    while len(query.recentProgress) < batches + 1:
        assert query.isActive, f"{name}: {query.exception()}"
        query.awaitTermination(0.1)
    query.stop()
    return query


def _milliseconds(query: Any) -> float:
    """Returns the median duration of a micro-batch, without the first, which compiles the plan."""
    return float(median(each["durationMs"]["triggerExecution"] for each in query.recentProgress[1:]))
