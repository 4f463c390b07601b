"""History: all events of a topic as a DataFrame, from the archive and from the brokers (DESIGN 11).

The archive is scanned by Spark's own Parquet reader, of which nothing is read that the log's bounds or the
wanted columns leave out; what lies beyond the archive is fetched from the broker. Both are taken when the
DataFrame is made: the archive up to what it covers then, each pubend from just there up to its position then,
so no event is there twice and none is missing at the border, however often it is evaluated. If the broker has
let go by then what was fetched before, the archive has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.errors import ConfigError, EventsLostError
from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive.layout import Layout
from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.archive.scan import Wanted
from tidemark.spark.archive.scan import scan as scan_files
from tidemark.spark.archive.state import Topics
from tidemark.spark.archive.table import DataFile
from tidemark.spark.connections import CONNECT_SECONDS_MAX, supervised
from tidemark.spark.history_frames.scan import TableScan
from tidemark.spark.options import RETRY_SECONDS, SourceOptions
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.source.scan import Planner, Scan, archive_beside
from tidemark.spark.topic_columns import View, Viewer, arrow_columns, make_view
from tidemark.spark.types import spark_fields
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken, within
from tidemark.ticks.tick import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger("tidemark.history")

#: A time: a datetime with a zone, its ISO 8601 text, or a tick.
Time = datetime | str | int


def history(
    spark: SparkSession,
    topic: str,
    selector: str = "",
    since: Time | None = None,
    until: Time | None = None,
    *,
    broker: str | None = None,
    archive: str | Path | None = None,
    columns: Sequence[str] | None = None,
    fail_on_gap: bool = True,
) -> DataFrame:
    """The events of a topic, or of all topics of a pattern, that match; from `since` on and before `until`.

    Columns are the topic's fields and `_pubend _tick _topic _publisher _time`, or those named. With a broker
    alone its own archive is read too, if it has one here; with an archive alone, what that covers.
    EventsLostError with the exact range if a part of what is asked for is gone; `fail_on_gap=False` only
    notes it in the log. Without `since` it is asked for what there is, and what lay before that is no gap.
    """
    if broker is None and archive is None:
        raise ConfigError("history needs a broker, an archive, or both: history(spark, topic, archive=...)")
    if broker is not None and archive is None:
        archive = archive_beside(broker, RETRY_SECONDS)
    base = TICK_MIN if since is None else to_tick(since) - 1
    upto = TICK_MAX if until is None else to_tick(until) - 1
    taken = None if archive is None else snapshot(archive)
    topics, pubends = _asked(broker, Topics([]) if taken is None else taken.topics)
    view = make_view(topics.described, topic, selector, columns, gaps=False)
    _tell_gaps(gaps_of(taken, pubends, base, upto), fail_on_gap)
    frames = [] if taken is None else _archived(spark, taken, topics, view, base, upto)
    if broker is not None:
        frames += _live(spark, broker, taken, view, pubends, base, upto)
    if not frames:
        return spark.createDataFrame([], _spark_struct(arrow_columns(view)))
    return reduce(lambda a, b: a.unionByName(b), frames)


def to_tick(time: Time) -> int:
    """The tick of a time; ConfigError if it is none."""
    if isinstance(time, int):
        return time
    try:
        found = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        raise ConfigError(f"{time!r} is no time: write 2026-11-15T12:00:00Z") from None
    if found.tzinfo is None:
        raise ConfigError(f"{time} has no zone: add Z, or +01:00")
    return (found - _EPOCH) // timedelta(microseconds=1)


def _archived(
    spark: SparkSession, taken: Snapshot, topics: Topics, view: View, base: int, upto: int
) -> list[DataFrame]:
    if taken.state.released is not None:
        base = max(base, taken.state.released)
    frames = []
    for root in taken.roots(TopicPattern.parse(view.pattern)):
        scan = TableScan(taken, root, topics, view, base, upto)
        for files, condition in scan.reads():
            table = spark.read.schema(_spark_struct(taken.layouts[root].schema)).parquet(
                *_paths(taken, files)
            )
            frames.append(table.where(condition).selectExpr(*scan.columns()))
        if scan.files:
            paths = _paths(taken, scan.files)
            frames += [
                _matched(spark, taken, root, replace(view, pattern=topic.topic), paths, base, upto)
                for topic in scan.untold
            ]
    return frames


def _paths(taken: Snapshot, files: Sequence[DataFile]) -> list[str]:
    return [str(taken.location(each).absolute()) for each in files]


def _matched(
    spark: SparkSession, taken: Snapshot, root: str, view: View, paths: list[str], base: int, upto: int
) -> DataFrame:
    """For conditions that SQL has no words for, say on a dynamic field: the matcher that brokers use."""
    pubends, described, layout = list(taken.state.covered), taken.topics.described, taken.layouts[root]
    columns = layout.schema.serialize().to_pybytes()

    def run(numbers: Iterator[Any]) -> Iterator[Any]:
        viewer, schemas = Viewer(view, lambda: described), Topics(described).schemas
        held = Layout(pa.ipc.read_schema(pa.py_buffer(columns)))
        files = [paths[number] for batch in numbers for number in batch.column(0).to_pylist()]
        for pubend, file in product(pubends, files):
            wanted = Wanted(pubend, base, upto, TopicPattern.parse(view.pattern))
            for batch in scan_files([Path(file)], wanted, schemas, held):
                if (chosen := viewer.chosen(batch)) is not None:
                    yield viewer.records(pubend, chosen)

    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(run, _spark_struct(arrow_columns(view)))


def _live(
    spark: SparkSession,
    broker: str,
    taken: Snapshot | None,
    view: View,
    pubends: list[dict[str, Any]],
    base: int,
    upto: int,
) -> list[DataFrame]:
    """What the broker has beyond the archive."""
    covered = CheckpointToken() if taken is None else taken.state.covered
    start, end = tail(pubends, covered, base, upto)
    if not end:
        return []
    path = None if taken is None else str(taken.path.absolute())
    scan = Scan(SourceOptions(broker, view.pattern, view.selector, archive=path), view)
    planner = Planner(scan)
    try:
        parts = planner.partitions(start, end)
    finally:
        planner.close()
    return [_fetched(spark, scan, parts)] if parts else []


def gaps_of(
    taken: Snapshot | None, pubends: list[dict[str, Any]], base: int, upto: int
) -> list[tuple[str, Range]]:
    """What of `(base, upto]` neither the archive nor a broker has any more, pubend by pubend.

    Whoever asks from the beginning on asks for what there is: what is gone before that is no gap.
    """
    covered = CheckpointToken() if taken is None else taken.state.covered
    lost = {each["pubend"]: each["lost"] for each in pubends if each["lost"] is not None}
    silent = {each["pubend"] for each in pubends if each["last_event"] is None}
    found: list[tuple[str, Range]] = []
    for name in sorted({*covered, *lost} - silent):
        reach = covered.get(name, TICK_MIN)
        absent = [] if taken is None else taken.state.absent(name)
        if lost.get(name, TICK_MIN) > reach:
            absent = [*absent, (reach, lost[name])]
        found += [(name, cut) for cut in within(absent, base, upto) if cut[0] > TICK_MIN]
    return found


def _tell_gaps(gaps: list[tuple[str, Range]], fail: bool) -> None:
    for pubend, (base, upto) in gaps:
        if fail:
            raise EventsLostError(
                "neither the archive nor the broker has them any more. Ask for later ones with `since`, or "
                "set fail_on_gap=False",
                pubend=pubend,
                base=base,
                upto=upto,
            )
        _log.warning("pubend %s: any events in (%d, %d] are gone", pubend, base, upto)


def tail(
    pubends: list[dict[str, Any]], covered: CheckpointToken, base: int, upto: int
) -> tuple[CheckpointToken, CheckpointToken]:
    """From where and up to where to fetch; only pubends that have something there."""
    start, end = {}, {}
    for each in pubends:
        name, last = each["pubend"], each["last_event"]
        lost = TICK_MIN if each["lost"] is None else each["lost"]
        low = max(base, covered.get(name, TICK_MIN))
        if last is None or last <= low:
            continue
        low, high = max(low, lost), min(upto, each["position"])
        if low < high:
            start[name], end[name] = low, high
    return CheckpointToken(start), CheckpointToken(end)


def _fetched(spark: SparkSession, scan: Scan, parts: list[TickRange]) -> DataFrame:
    def run(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from scan.read(parts[number])

    count = len(parts)
    return spark.range(0, count, 1, count).mapInArrow(run, _spark_struct(arrow_columns(scan.view)))


def _asked(broker: str | None, known: Topics) -> tuple[Topics, list[dict[str, Any]]]:
    """Every topic there is, and the pubends of the broker."""
    if broker is None:
        return known, []
    with supervised(broker, CONNECT_SECONDS_MAX) as asked:
        pubends = asked.ask("pubends")
        return known.merged(asked.ask("topics")), pubends


def _spark_struct(columns: pa.Schema) -> Any:
    from pyspark.sql.types import StructType

    return StructType(spark_fields(columns))
