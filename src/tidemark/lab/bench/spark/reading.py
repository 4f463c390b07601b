"""Spark bench, reading from a broker: a batch read, a stream, and what a micro-batch costs beside its rows.

Each is compared with what Spark itself can do on this machine: take the same rows from Python tasks that have
them in memory, and run micro-batches of its own source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.spark.testbed import (
    CORES,
    SparkTestbed,
    TimeTaken,
    in_turns,
    rate,
    timed,
    to_nowhere,
)
from tidemark.lab.bench.system.load import TOPIC, Load
from tidemark.message.batches.batch import EventBatch
from tidemark.spark.connections import retrying_client
from tidemark.spark.options import source_options
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.source.reading import FETCH_BYTES
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.spark.topic_columns import TopicColumnReader
from tidemark.spark.types import spark_fields

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


def micro_batches(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the section on what a micro-batch costs."""
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
        answers=to_nowhere(_rows_from_answers(testbed)),
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
            *rate(f"{case}, rows from answers", events, taken["answers"], "rows"),
            Measurement(
                f"{case}, rows from answers",
                "against memory",
                taken["memory"].seconds / taken["answers"].seconds,
                "x",
            ),
            *rate(f"{case}, a quarter by a selector", events, taken["selected"], "events read"),
        ],
        prefix="batch read",
        notes=(
            "memory: tasks hand Spark record batches that they have already, without a broker",
            "answers: tasks decode an answer of the broker that they have already, again and again",
        ),
    )


def rows_from_memory(testbed: SparkTestbed, rows: int | None = None, columns: str = "") -> DataFrame:
    """Returns as many rows, from tasks that read one range and repeat what they got."""
    scan, first, count = _parts(testbed, columns)

    def made() -> Iterator[Any]:
        return repeat(next(scan.read(first)))

    return _from_tasks(testbed, scan, made, count, testbed.effort.events if rows is None else rows)


def _rows_from_answers(testbed: SparkTestbed) -> DataFrame:
    """Returns all rows, from tasks that fetch one answer of the broker and decode that again and again.

    This is a read from a broker whose work, and whose connections, cost nothing.
    """
    scan, first, count = _parts(testbed)

    def made() -> Iterator[Any]:
        with retrying_client(scan.options.broker, PATIENCE_SECONDS) as broker:
            wanted = (first.pubend, first.base, first.upto, TOPIC, "")
            batch = broker.fetch(*wanted, bytes_max=FETCH_BYTES).batch
            assert batch is not None
            columns = TopicColumnReader(scan.topic_columns, broker.topics)
        while True:
            # A batch remembers what was decoded of it, and an answer is decoded once.
            anew = EventBatch(batch.data, batch.shapes, batch.publishers)
            sound, _ = columns.sound(anew)
            assert sound is not None
            yield columns.records(first.pubend, sound)

    return _from_tasks(testbed, scan, made, count, testbed.effort.events)


def _parts(testbed: SparkTestbed, columns: str = "") -> tuple[SourceScan, TickRange, int]:
    """Returns a scan of all events, its first range, and how many ranges it has."""
    given = {"broker": testbed.broker.url, "topic": TOPIC} | ({"columns": columns} if columns else {})
    options = source_options(given)
    scan = SourceScan(options, topic_columns_of(options))
    planner = Planner(scan)
    try:
        parts = planner.everything()
    finally:
        planner.close()
    assert isinstance(parts[0], TickRange)
    return scan, parts[0], len(parts)


def _from_tasks(
    testbed: SparkTestbed, scan: SourceScan, made: Callable[[], Iterator[Any]], count: int, rows: int
) -> DataFrame:
    """Returns so many rows in all, which `count` tasks take from the record batches that they make."""
    share = -(-rows // count)

    def run(numbers: Iterator[Any]) -> Iterator[Any]:
        # A Python worker that leaves input unread is discarded, and the next task waits for a new one.
        for _ in numbers:
            pass
        left = share
        for each in made():
            yield each.slice(0, left)
            left -= each.num_rows
            if left <= 0:
                return

    from pyspark.sql.types import StructType

    schema = StructType(spark_fields(scan.arrow_schema))
    return testbed.spark.range(0, count, 1, count).mapInArrow(run, schema)


def _stream(testbed: SparkTestbed) -> Section:
    """A stream over all events, whole and without its start, beside one of rows from memory."""
    events = testbed.effort.events
    batch_events = -(-events // STREAM_BATCHES)
    ours = _best_stream(
        testbed, lambda: _started(testbed, "rate", maxEventsPerTrigger=str(batch_events)), "stream"
    )
    theirs = _best_stream(
        testbed,
        lambda: _of_memory(testbed, rows=batch_events, total=events, tasks=CORES),
        "stream of rows from memory",
    )
    case = f"{events:,} events in {STREAM_BATCHES} micro-batches"
    return Section(
        "streaming source to nowhere",
        [
            *rate(case, events, ours.whole, "rows", STREAM_ROWS_A_SECOND),
            Measurement(case, "rows, of its micro-batches alone", events / ours.batches_seconds, "/s"),
            *rate(f"{case}, rows from memory", events, theirs.whole, "rows"),
            Measurement(
                f"{case}, rows from memory",
                "rows, of its micro-batches alone",
                events / theirs.batches_seconds,
                "/s",
            ),
        ],
        prefix="stream",
        notes=(
            "the whole: from the start of the query, with the Python of its driver and its tasks, to its end",
            "rows from memory: a source in Python whose tasks have their rows, which none can beat",
        ),
    )


class StreamTaken(NamedTuple):
    """What a query took as a whole, and its micro-batches together."""

    whole: TimeTaken
    batches_seconds: float


def _best_stream(testbed: SparkTestbed, run: Callable[[], Any], what: str) -> StreamTaken:
    """Returns the best of the repetitions of a query over all events, after a first one."""
    taken: list[StreamTaken] = []
    for _ in range(1 + testbed.effort.repetitions):
        done: list[Any] = []
        whole = timed(lambda: done.append(run()))  # noqa: B023  # it is called here
        progress = done[0].recentProgress
        found = sum(each["numInputRows"] for each in progress)
        assert found == testbed.effort.events, f"{what}: found {found} rows"
        batches = sum(each["durationMs"]["triggerExecution"] for each in progress)
        taken.append(StreamTaken(whole, batches / 1e3))
    return min(taken[1:], key=lambda each: each.whole.seconds)


def _overhead(testbed: SparkTestbed) -> Section:
    """Queries of the three sources in turns: what the files of checkpoints take changes meanwhile."""
    effort = testbed.effort
    sources: list[Callable[[], Any]] = [
        lambda: _started(
            testbed, "small", maxEventsPerTrigger=str(effort.batch_events), batches=effort.batches
        ),
        lambda: _of_memory(testbed, batches=effort.batches, rows=effort.batch_events),
        lambda: _of_spark(testbed),
    ]
    taken: list[list[float]] = [[] for _ in sources]
    for _ in range(effort.repetitions):
        for found, source in zip(taken, sources, strict=True):
            found += _milliseconds(source())
    case = f"micro-batches of {effort.batch_events:,} events"
    mine, plain, theirs = map(median, taken)
    return Section(
        "what a micro-batch costs",
        [
            Measurement(case, "a batch, median", mine, "ms"),
            Measurement(case, "the same of Spark's own source", theirs, "ms"),
            Measurement(case, "the same of a source in Python with its rows in memory", plain, "ms"),
            Measurement(case, "beyond Spark's own", mine - theirs, "ms", Goal("<=", MICRO_BATCH_MS_MAX)),
        ],
        prefix="micro-batch",
        notes=(
            "Spark's own: rate-micro-batch, which makes its rows in the JVM",
            "a source in Python with its rows in memory: what no source can beat whose tasks are of Python",
        ),
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


def _of_memory(testbed: SparkTestbed, batches: int | None = None, **options: int) -> Any:
    from tidemark.lab.bench.spark.memory_stream import NAME, MemorySource

    testbed.spark.dataSource.register(MemorySource)
    frame = testbed.spark.readStream.format(NAME).options(**options).load()
    return _run(testbed, frame, "memory", batches)


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


def _milliseconds(query: Any) -> list[float]:
    """Returns the durations of the micro-batches, without the first, which compiles the plan."""
    return [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress[1:]]
