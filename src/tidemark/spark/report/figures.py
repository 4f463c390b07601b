"""The figures of the report, computed on Spark from the archive alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.archive_scan.parquet_frames import parquet_frame
from tidemark.spark.locations import Place, check_archive, folder_at
from tidemark.spark.page_parts import Histogram
from tidemark.spark.round_log import diary_files
from tidemark.spark.upkeep.erasure import ErasureSummary, load_erasures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Bars of a plot, and topics and pubends that get a row of their own.
BARS = 60
ROWS_MAX = 30
_DIARY = (
    "at double, seconds double, events long, bytes long, file_bytes long, oldest long, newest long, "
    "held_bytes long, stored_bytes long"
)
_HEADERS = pa.schema([("_pubend", pa.string()), ("_tick", pa.int64()), ("_topic", pa.string())])
_PERCENTILES = (0.5, 0.9, 0.99)
_SHOWN_PERCENTILES = {"p50": 0.5, "p99": 0.99}
#: From the publishing of a round's oldest event to the end of the round.
_WAITED_MS = "greatest(0, CAST(at * 1000 - oldest / 1000 AS BIGINT)) AS value"


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The events of a topic in one pubend."""

    topic: str
    pubend: str
    events: int
    #: ticks
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TableFigures:
    """A table of the archive."""

    root: str
    events: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    """The archive and its brokers over time."""

    path: str
    #: Unix time of the report
    at: float
    events: int
    event_bytes: int
    file_bytes: int
    rounds: int
    topics: tuple[TopicFigures, ...]
    tables: tuple[TableFigures, ...]
    #: events by the time at which they were published; edges are ticks
    published: Histogram | None
    #: over the time of rounds, edges are Unix microseconds: events that were archived,
    archived: Histogram | None
    #: the greatest time, in milliseconds, from the publishing of an event to its being archived,
    lag_ms: Histogram | None
    #: bytes that brokers held, at most,
    held_bytes: Histogram | None
    #: and bytes of files that rounds had written so far
    written_bytes: Histogram | None
    #: percentile -> milliseconds from the publishing of a round's oldest event to the end of the round
    latency_ms: dict[str, float]
    #: percentiles, p50 and p99, of the same milliseconds of the rounds of each bar
    waited_ms: dict[str, Histogram] = field(default_factory=dict)
    #: bytes of all files of the archive, of which some were merged, cut or erased meanwhile
    stored_bytes: Histogram | None = None
    #: the oldest first
    erasures: tuple[ErasureSummary, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        return asdict(self)


def figures(spark: SparkSession, path: Place) -> ArchiveFigures:
    """The figures of the archive at `path`. Raises ConfigError if there is none."""
    check_archive(path)
    archived = snapshot(path)
    events = _events(spark, archived)
    rounds = _rounds(spark, path)
    topics = () if events is None else _topics(events)
    span = (min(each.first for each in topics), max(each.last for each in topics)) if topics else (0, 0)
    published = (
        None
        if events is None or not topics
        else _bars(events.selectExpr("_tick AS at", "1 AS value"), span, "sum(value)")
    )
    over = _over_rounds(rounds)
    files = [each for some in archived.files.values() for each in some]
    return ArchiveFigures(
        path=archived.path.text,
        at=time.time(),
        events=sum(each.rows for each in files),
        event_bytes=archived.state.bytes,
        file_bytes=sum(each.bytes for each in files),
        rounds=0 if rounds is None else rounds.count(),
        topics=tuple(topics[:ROWS_MAX]),
        tables=tuple(_table(archived, root) for root in archived.files),
        published=published,
        archived=over.get("archived"),
        lag_ms=over.get("lag"),
        held_bytes=over.get("held"),
        written_bytes=over.get("written"),
        latency_ms={} if rounds is None else _latency(rounds),
        waited_ms={name: over[name] for name in _SHOWN_PERCENTILES if name in over},
        stored_bytes=over.get("stored"),
        erasures=tuple(each.summary() for each in load_erasures(path)),
    )


def _events(spark: SparkSession, archived: Snapshot) -> DataFrame | None:
    """The headers of all events."""
    files = [archived.location(each) for some in archived.files.values() for each in some]
    return parquet_frame(spark, files, _HEADERS) if files else None


def _rounds(spark: SparkSession, path: Place) -> DataFrame | None:
    files = diary_files(path)
    if not files:
        return None
    reader = spark.read.schema(_DIARY)
    if folder_at(path).mounted is not None:
        lines = reader.json([each.text for each in files])
    else:
        contents = [each.folder.read(each.name) or b"" for each in files]
        texts = [line.decode() for content in contents for line in content.splitlines()]
        lines = spark.createDataFrame([(text,) for text in texts], "line string").selectExpr(
            f"from_json(line, '{_DIARY}') AS said"
        )
        lines = lines.select("said.*")
    return lines.where("at IS NOT NULL").cache()


def _topics(events: DataFrame) -> tuple[TopicFigures, ...]:
    rows = (
        events.groupBy("_topic", "_pubend")
        .agg({"_tick": "count"})
        .withColumnRenamed("count(_tick)", "events")
        .join(
            events.groupBy("_topic", "_pubend").agg({"_tick": "min"}),
            ["_topic", "_pubend"],
        )
        .join(events.groupBy("_topic", "_pubend").agg({"_tick": "max"}), ["_topic", "_pubend"])
        .collect()
    )
    found = [
        TopicFigures(row["_topic"], row["_pubend"], row["events"], row["min(_tick)"], row["max(_tick)"])
        for row in rows
    ]
    return tuple(sorted(found, key=lambda each: (-each.events, each.topic, each.pubend)))


def _bars(values: DataFrame, span: tuple[int, int], sum_up: str) -> Histogram:
    """`sum_up` of the column `value` for each of BARS stretches of the column `at`, in microseconds."""
    edges, found = _told(values, span, sum_up)
    return Histogram(edges, [int(found.get(bar) or 0) for bar in range(BARS)])


def _told(values: DataFrame, span: tuple[int, int], sum_up: str) -> tuple[list[float], dict[int, Any]]:
    """The edges of BARS stretches of the column `at`, and `sum_up` of the column `value` for each of them."""
    first, last = span
    width = max(1, (last - first) // BARS + 1)
    rows = values.selectExpr("at", f"(at - {first}) DIV {width} AS bar", "value").groupBy("bar")
    found = {row["bar"]: row["told"] for row in rows.agg(_expression(sum_up)).collect()}
    return [float(first + bar * width) for bar in range(BARS + 1)], found


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text).alias("told")


def _over_rounds(rounds: DataFrame | None) -> dict[str, Histogram]:
    if rounds is None:
        return {}
    row = rounds.selectExpr("min(at) AS first", "max(at) AS last").first()
    if row is None or row["first"] is None:
        return {}
    span = int(row["first"] * 1e6), int(row["last"] * 1e6)
    at = "CAST(at * 1000000 AS BIGINT) AS at"
    waited = rounds.where("oldest IS NOT NULL").selectExpr(at, _WAITED_MS)
    written = _bars(rounds.selectExpr(at, "file_bytes AS value"), span, "sum(value)")
    return {
        "archived": _bars(rounds.selectExpr(at, "events AS value"), span, "sum(value)"),
        "lag": _bars(waited, span, "max(value)"),
        "held": _bars(rounds.selectExpr(at, "held_bytes AS value"), span, "max(value)"),
        "written": Histogram(written.edges, _running(written.counts)),
        **_waited(waited, span),
        **_stored(rounds.where("stored_bytes IS NOT NULL").selectExpr(at, "stored_bytes AS value"), span),
    }


def _waited(waited: DataFrame, span: tuple[int, int]) -> dict[str, Histogram]:
    """name of a percentile -> that of the column `value` in each bar."""
    shares = ", ".join(map(str, _SHOWN_PERCENTILES.values()))
    edges, found = _told(waited, span, f"percentile_approx(value, array({shares}))")
    return {
        name: Histogram(edges, [int(found[bar][at]) if bar in found else 0 for bar in range(BARS)])
        for at, name in enumerate(_SHOWN_PERCENTILES)
    }


def _stored(stored: DataFrame, span: tuple[int, int]) -> dict[str, Histogram]:
    """The last value of each bar; one without rounds has that of the bar before. Empty if there is none."""
    edges, found = _told(stored, span, "max_by(value, at)")
    last, counts = 0, []
    for bar in range(BARS):
        last = int(found.get(bar, last))
        counts.append(last)
    return {"stored": Histogram(edges, counts)} if found else {}


def _running(counts: Sequence[float]) -> list[float]:
    return list(accumulate(counts))


def _latency(rounds: DataFrame) -> dict[str, float]:
    at = ", ".join(map(str, _PERCENTILES))
    lag = "greatest(0, at * 1000 - oldest / 1000)"
    row = rounds.where("oldest IS NOT NULL").selectExpr(f"percentile({lag}, array({at})) AS found").first()
    if row is None or row["found"] is None:
        return {}
    return {
        f"p{int(share * 100)}": float(value) for share, value in zip(_PERCENTILES, row["found"], strict=True)
    }


def _table(archived: Snapshot, root: str) -> TableFigures:
    files = archived.files[root]
    return TableFigures(root, sum(each.rows for each in files), len(files), sum(each.bytes for each in files))
