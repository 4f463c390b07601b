"""Spark bench, the archive: how fast it is written, and history over it beside a plain Parquet scan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.spark.reading import rows_from_memory
from tidemark.lab.bench.spark.testbed import SparkTestbed, in_pairs, rate, timed, to_nowhere
from tidemark.lab.bench.system.load import TOPIC, Load
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.history_frames.frame import history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENTS_A_SECOND = 150_000
AGAINST_PARQUET = 0.9
#: A condition on `_time` that one event of a hundred meets may read so much of what all events are.
TIME_BYTES_MAX = 0.05


def archiving(testbed: SparkTestbed) -> Iterator[Section]:
    """Yields the sections on the archive, which stays at `archive_of` for later cases."""
    yield _written(testbed)
    yield _history(testbed)
    yield _source(testbed)
    yield _by_time(testbed)


def archive_of(testbed: SparkTestbed) -> Path:
    """Returns the directory of the archive of all events."""
    return testbed.path / "archive"


def archived(testbed: SparkTestbed) -> Path:
    """Returns the directory of the archive of all events, which is written if it is not there yet."""
    path = archive_of(testbed)
    if not path.exists():
        _write(testbed)
    return path


def _write(testbed: SparkTestbed) -> None:
    with Archive(testbed.broker.url, archive_of(testbed)) as archive:
        while archive.round():
            pass


def _written(testbed: SparkTestbed) -> Section:
    events = testbed.effort.events
    taken = timed(lambda: _write(testbed))
    taken_files = snapshot(archive_of(testbed))
    stored = sum(each.bytes for files in taken_files.files.values() for each in files)
    assert taken_files.state.events == events, f"archived {taken_files.state.events} events, not {events}"
    case = f"{events:,} events"
    return Section(
        "archive",
        [
            *rate(case, events, taken, "events", EVENTS_A_SECOND),
            Measurement(case, "stored", stored / taken_files.state.bytes, "x events' bytes"),
        ],
        prefix="archive",
    )


def _history(testbed: SparkTestbed) -> Section:
    everything = history(testbed.spark, TOPIC, archive=archive_of(testbed))
    some = history(testbed.spark, TOPIC, "kind = 1", archive=archive_of(testbed))
    testbed.check(everything, "history")
    wanted = Load().expected(1, 0, testbed.effort.events)
    found = some.selectExpr("count(*)", "sum(n)").first()
    assert found is not None
    assert tuple(found) == (wanted.count, wanted.total), f"history with a selector: found {tuple(found)}"
    plain = _plain(testbed)
    cases = {
        "all rows": (everything, plain),
        "a quarter by a selector": (some, plain.where("kind = 1")),
        "sums of one column by another": (
            everything.groupBy("kind").sum("n"),
            plain.groupBy("kind").sum("n"),
        ),
    }
    found_here: list[Measurement] = []
    for case, (ours, theirs) in cases.items():
        speed, taken = in_pairs(testbed.effort.pairs, to_nowhere(ours), to_nowhere(theirs))
        found_here.append(Measurement(case, "speed", speed, "x Parquet", Goal(">=", AGAINST_PARQUET)))
        found_here += rate(case, testbed.effort.events, taken, "rows")
    same, _ = in_pairs(testbed.effort.pairs, to_nowhere(plain), to_nowhere(_plain(testbed)))
    found_here.append(Measurement("Parquet against itself, all rows", "speed", same, "x Parquet"))
    return Section(
        "history over the archive, beside a plain Parquet scan of its files",
        found_here,
        prefix="history",
        notes=("Parquet against itself should be 1: what it is off by, any ratio here may be off by",),
    )


def _source(testbed: SparkTestbed) -> Section:
    """The format "tidemark" over the archive, which it reads in Python tasks."""
    path = str(archive_of(testbed))
    everything = testbed.read(archive=path)
    some = testbed.read(archive=path, selector="kind = 1")
    testbed.check(everything, "source over the archive")
    wanted = Load().expected(1, 0, testbed.effort.events)
    assert some.count() == wanted.count, (
        "source over the archive, with a selector: not the events of that kind"
    )
    plain = _plain(testbed)
    cases = {
        "all rows": (everything, plain),
        "a quarter by a selector": (some, plain.where("kind = 1")),
        "sums of one column by another": (
            testbed.read(archive=path, columns="n,kind").groupBy("kind").sum("n"),
            plain.groupBy("kind").sum("n"),
        ),
    }
    # A task of Python hands its rows to the JVM. What that takes alone is what no source in Python can beat.
    held = {
        "all rows": rows_from_memory(testbed),
        "a quarter by a selector": rows_from_memory(testbed, wanted.count),
        "sums of one column by another": rows_from_memory(testbed, columns="n,kind").groupBy("kind").sum("n"),
    }
    found: list[Measurement] = []
    for case, (ours, theirs) in cases.items():
        speed, taken = in_pairs(testbed.effort.pairs, to_nowhere(ours), to_nowhere(theirs))
        found.append(Measurement(case, "speed", speed, "x Parquet", Goal(">=", AGAINST_PARQUET)))
        found += rate(case, testbed.effort.events, taken, "rows")
        limit, _ = in_pairs(min(5, testbed.effort.pairs), to_nowhere(held[case]), to_nowhere(theirs))
        found.append(Measurement(case, "speed of rows from memory", limit, "x Parquet"))
    return Section(
        "the source over the archive, beside a plain Parquet scan of its files",
        found,
        prefix="source over the archive",
        notes=("rows from memory: as many rows of the same columns, from tasks that have them already",),
    )


def _by_time(testbed: SparkTestbed) -> Section:
    """What a condition on `_time` reads, counted by the operating system for the JVM."""
    files = [each for some in snapshot(archive_of(testbed)).files.values() for each in some]
    low, high = min(each.ticks[0] for each in files), max(each.ticks[1] for each in files)
    after = high - (high - low) // 100
    everything = history(testbed.spark, TOPIC, archive=archive_of(testbed))
    late = everything.where(f"_time > timestamp_micros({after}L)")
    wanted = history(testbed.spark, TOPIC, since=after + 1, archive=archive_of(testbed)).count()
    assert late.count() == wanted, "a condition on _time and since do not have the same rows"
    part, whole = (_bytes_read(testbed, frame) for frame in (late, everything))
    case = f"{wanted:,} events by a condition on _time"
    return Section(
        "history by time",
        [Measurement(case, "bytes read", part / whole, "x all events", Goal("<=", TIME_BYTES_MAX))],
        prefix="history by time",
    )


def _bytes_read(testbed: SparkTestbed, frame: DataFrame) -> int:
    """Returns how many bytes of files the JVM reads for all columns of a DataFrame, the second time."""
    run = to_nowhere(frame)
    run()
    pid = testbed.spark.sparkContext._gateway.proc.pid
    before = _characters_read(pid)
    run()
    return _characters_read(pid) - before


def _characters_read(pid: int) -> int:
    first = Path(f"/proc/{pid}/io").read_text().splitlines()[0]
    return int(first.removeprefix("rchar: "))


def _plain(testbed: SparkTestbed) -> DataFrame:
    """Returns a plain Parquet scan of the same files with the same columns."""
    taken = snapshot(archive_of(testbed))
    paths = [taken.location(each).text for files in taken.files.values() for each in files]
    columns = ("n", "sent", "kind", "payload", "_pubend", "_tick", "_topic", "_publisher")
    return testbed.spark.read.parquet(*paths).selectExpr(*columns, "timestamp_micros(_tick) AS _time")
