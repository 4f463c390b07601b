"""What a row costs on its way between a broker and Spark, in CPU time, without Spark.

This is Tidemark's own part of a read and of a write: what tasks and the driver do in Python, and what the
broker does for them. Rows are measured in CPU seconds of the two processes, which change little with the load
of the machine, beside what `bench spark` measures of the whole; a micro-batch in milliseconds. Deep catch-up
is measured in the same way, with everything in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

from tidemark import sync
from tidemark.lab.bench.processes.harness import BenchBroker, BenchTestbed
from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.bench.spark.testbed import publish
from tidemark.lab.bench.system.load import SCHEMA, TOPIC
from tidemark.spark.archive.archive import Archive
from tidemark.spark.options import sink_options, source_options
from tidemark.spark.sink.publishing import BrokerPublisher, commit
from tidemark.spark.sink.row_encoder import RowEncoder
from tidemark.spark.sink.staging import Staging
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.ticks import CheckpointToken

WRITTEN = "bench.rows"
#: Rows of a record batch as Spark hands them to a sink.
SINK_ROWS = 10_000
MICRO_BATCHES = 40
MICRO_BATCH_EVENTS = 1_000


@dataclass(frozen=True, slots=True)
class RowsEffort:
    """How much is measured."""

    events: int
    repetitions: int


FULL = RowsEffort(1_000_000, 3)
QUICK = RowsEffort(200_000, 2)


@dataclass(frozen=True, slots=True)
class CpuTaken:
    """CPU seconds of this process and of the broker."""

    own: float
    broker: float


def sections(effort: RowsEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a row is missing or there twice."""
    with BenchTestbed() as testbed:
        # What is archived is read from the broker too, which keeps it.
        kept = {"archive": "true", "min_retain": "1h", "min_retain_bytes": "1GiB"}
        broker = testbed.broker("sync", **{f"retention.{name}": each for name, each in kept.items()})
        publish(broker.url, TOPIC, effort.events)
        # The archive is written before other events are published, which share its table.
        path = testbed.path.absolute() / "archive"
        with Archive(broker.url, path) as archive:
            while archive.round():
                pass
        found: dict[str, CpuTaken] = {}
        for name, work in _works(testbed, broker, effort):
            found[name] = min(
                (_taken(broker, work) for _ in range(effort.repetitions)),
                key=lambda each: each.own + each.broker,
            )
        case = f"{effort.events:,} events of 250 bytes"
        yield Section(
            "CPU of a million rows, without Spark",
            [
                Measurement(f"{case}: {name}", who, seconds * 1e6 / effort.events, "s/million")
                for name, taken in found.items()
                for who, seconds in (("reader or writer", taken.own), ("broker", taken.broker))
            ],
            prefix="rows",
        )
        yield _micro_batches(broker, effort)
        yield _deep(path, effort)


def _deep(path: Path, effort: RowsEffort) -> Section:
    """What deep catch-up takes in one process, which reads the archive, matches, spools and answers."""
    from tidemark.lab.bench.spark.deep import catch_up, returning

    found: list[Measurement] = []
    for who, made in returning(effort.events).items():
        catch_up(None, path, made)
        taken = min(catch_up(None, path, made).cpu_seconds for _ in range(effort.repetitions))
        found.append(Measurement(f"{effort.events:,} events, {who}", "CPU", taken, "s"))
    return Section("deep catch-up, without Spark", found, prefix="deep catch-up")


def _micro_batches(broker: BenchBroker, effort: RowsEffort) -> Section:
    """What Tidemark does in a micro-batch: what the driver asks the broker, and what a task reads."""
    scan = _scan(broker, maxEventsPerTrigger=str(MICRO_BATCH_EVENTS))
    planner = Planner(scan)
    asked: list[float] = []
    read: list[float] = []
    try:
        at = planner.initial()
        for _ in range(min(MICRO_BATCHES, effort.events // MICRO_BATCH_EVENTS)):
            began = time.perf_counter()
            end = planner.latest(at, MICRO_BATCH_EVENTS)
            parts = planner.partitions(at, end)
            planner.newest()
            planned = time.perf_counter()
            found = sum(rows.num_rows for part in parts for rows in scan.read(part, keeps_connection=True))
            assert found == MICRO_BATCH_EVENTS, f"micro-batch: {found} events"
            asked.append(planned - began)
            read.append(time.perf_counter() - planned)
            at = end
    finally:
        planner.close()
    case = f"micro-batches of {MICRO_BATCH_EVENTS:,} events"
    return Section(
        "a micro-batch, without Spark",
        [
            Measurement(case, "the driver's questions, median", 1e3 * median(asked), "ms"),
            Measurement(case, "a task's reading, median", 1e3 * median(read), "ms"),
        ],
        prefix="micro-batch",
    )


def _works(
    testbed: BenchTestbed, broker: BenchBroker, effort: RowsEffort
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields what is measured, in the order in which it is done."""
    scan = _scan(broker)
    kept: list[pa.RecordBatch] = []

    def read() -> None:
        planner = Planner(scan)
        try:
            kept[:] = [rows for part in planner.everything() for rows in scan.read(part)]
        finally:
            planner.close()
        assert sum(rows.num_rows for rows in kept) == effort.events, "read: not every event once"

    yield "read from the broker into columns", read

    def count() -> None:
        planner = Planner(scan)
        try:
            (found,) = planner.backlog(CheckpointToken(dict.fromkeys(planner.newest(), 0))).values()
        finally:
            planner.close()
        assert found == effort.events, f"count: {found} events"

    yield "count for maxEventsPerTrigger", count

    with sync.connect(broker.url) as tm:
        tm.create_topic(WRITTEN, SCHEMA)
    wanted = [name for name in kept[0].schema.names if not name.startswith("_")]
    rows = pa.Table.from_batches(kept).select(wanted).combine_chunks().to_batches(max_chunksize=SINK_ROWS)
    staging = Staging(testbed.path.absolute() / "staging")
    parts = []

    def stage() -> None:
        encoder = RowEncoder(SCHEMA, WRITTEN, None, "spark-bench")
        parts.append(staging.stage(0, encoder.encoded(rows)))

    yield "encode and stage for the sink", stage
    options = sink_options({"broker": broker.url, "topic": WRITTEN, "staging": staging.folder.text})

    def publish_staged() -> None:
        # Numbers of batches only grow.
        commit(staging, "bench", effort.repetitions - len(parts), [parts.pop()], BrokerPublisher(options))

    yield "publish what is staged", publish_staged


def _scan(broker: BenchBroker, **more: str) -> SourceScan:
    options = source_options({"broker": broker.url, "topic": TOPIC, **more})
    return SourceScan(options, topic_columns_of(options))


def _taken(broker: BenchBroker, work: Callable[[], None]) -> CpuTaken:
    own, at_broker = time.process_time(), broker.cpu_seconds
    work()
    return CpuTaken(time.process_time() - own, broker.cpu_seconds - at_broker)
