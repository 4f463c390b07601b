"""History: all events of a topic as a DataFrame, from archive and brokers (docs/architecture.md).

Spark's own Parquet reader scans the archive; it skips the files that the bounds in the table's log exclude
and the columns that nobody wants. What lies beyond the archive is fetched from the broker. The border between
the two is fixed when the DataFrame is made: the archive is read up to what it covers then, and each pubend
from just there up to its position then. So no event is there twice and none is missing at the border, however
often the DataFrame is evaluated. If the broker has meanwhile released what lies beyond the border, the
archive has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.errors import ConfigError, EventsLostError
from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.reader import Snapshot, snapshot
from tidemark.spark.archive.scan import WantedRange
from tidemark.spark.archive.scan import scan as scan_files
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive.table import DataFile
from tidemark.spark.archive_scan.parquet_frames import parquet_frame
from tidemark.spark.connections import CONNECT_SECONDS_MAX, retrying_client
from tidemark.spark.engine.tasks import frame_of_tasks
from tidemark.spark.history_frames.scan import HistoryQuery, TableScan
from tidemark.spark.locations import Place, check_archive, folder_at
from tidemark.spark.options import RETRY_SECONDS, SourceOptions
from tidemark.spark.source.scan import Planner, SourceScan, archive_beside
from tidemark.spark.time_travel.as_of import AsOf, as_of
from tidemark.spark.time_travel.versions import snapshot_as_of
from tidemark.spark.topic_columns import TopicColumnReader, arrow_columns, make_topic_columns
from tidemark.spark.types import spark_fields
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken, within
from tidemark.ticks.tick import Range
from tidemark.wire.answers import PubendStatus, TopicStatus

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
    archive: Place | None = None,
    columns: Sequence[str] | None = None,
    fail_on_gap: bool = True,
    storage_options: Mapping[str, object] | None = None,
    version: int | None = None,
    at: Time | None = None,
) -> DataFrame:
    """The events of a topic, or of all topics of a pattern, that match; from `since` on and before `until`.

    The columns are the topic's fields and `_pubend _tick _topic _publisher _time`, or those that `columns`
    names. With a broker alone, the archive that the broker knows of is read too, if it can be read from here;
    with an archive alone, what the archive covers. Raises EventsLostError with the exact range if a part of
    the history asked for is gone; with `fail_on_gap=False` that is only noted in the log. Without `since`,
    history begins with the oldest event that still exists, and what lay before it is no gap.
    `storage_options` are for an archive in an object store, beside what the environment says.

    With `version` or `at` the archive is read as it was, at a version of the topic's table or at a time, and
    nothing else: a broker is only asked for topics then. Raises StorageError if that is not kept any more.
    """
    then = as_of(version, None if at is None else to_tick(at))
    if broker is None and archive is None:
        raise ConfigError("history needs a broker, an archive, or both: history(spark, topic, archive=...)")
    if broker is not None and archive is None:
        archive = archive_beside(broker, RETRY_SECONDS)
    if archive is not None:
        archive = folder_at(archive, storage_options)
        check_archive(archive)
    base = TICK_MIN if since is None else to_tick(since) - 1
    upto = TICK_MAX if until is None else to_tick(until) - 1
    # Brokers are asked first: what they have released by then, an archive that is looked at later has.
    described, pubends = _topics_and_pubends(broker)
    if then is not None:
        if archive is None:
            raise ConfigError("history as it was needs an archive: history(spark, topic, archive=...)")
        broker, pubends = None, []
    archived = None if archive is None else _taken(archive, then, topic)
    topics = (ArchiveTopics([]) if archived is None else archived.topics).merged(described)
    topic_columns = make_topic_columns(topics.described, topic, selector, columns, gaps=False)
    query = HistoryQuery(topic_columns, base, upto)
    _report_gaps(gaps_of(archived, pubends, base, upto), fail_on_gap)
    frames = [] if archived is None else _archive_frames(spark, archived, topics, query)
    if broker is not None:
        frames += _live_frames(spark, broker, archived, query, pubends)
    if not frames:
        return spark.createDataFrame([], _spark_struct(arrow_columns(topic_columns)))
    return reduce(lambda a, b: a.unionByName(b), frames)


def _taken(archive: Place, then: AsOf | None, topic: str) -> Snapshot:
    """The archive as it is, or as it was then."""
    return snapshot(archive) if then is None else snapshot_as_of(archive, then, TopicPattern.parse(topic))


def to_tick(time: Time) -> int:
    """The tick of a time. Raises ConfigError if the text is no time or the time has no zone."""
    if isinstance(time, int):
        return time
    try:
        found = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        raise ConfigError(f"{time!r} is no time: write 2026-11-15T12:00:00Z") from None
    if found.tzinfo is None:
        raise ConfigError(f"{time} has no zone: add Z, or +01:00")
    return (found - _EPOCH) // timedelta(microseconds=1)


def _archive_frames(
    spark: SparkSession, archived: Snapshot, topics: ArchiveTopics, query: HistoryQuery
) -> list[DataFrame]:
    """What the archive has, in DataFrames that share no row."""
    if archived.state.released is not None:
        query = replace(query, base=max(query.base, archived.state.released))
    frames = []
    for root in archived.roots(TopicPattern.parse(query.columns.pattern)):
        scan = TableScan(archived, root, topics, query)
        for files, condition, columns in scan.reads():
            places = [archived.location(each) for each in files]
            table = parquet_frame(spark, places, archived.layouts[root].schema)
            # Spark shows an alias in `explain(True)`, and plans nothing for it.
            frames.append(table.where(condition).selectExpr(*columns).alias(scan.description(files)))
        if scan.files:
            frames += [
                _matched_frame(spark, archived, root, scan.files, query.of_topic(topic.topic))
                for topic in scan.untranslated
            ]
    return frames


def _matched_frame(
    spark: SparkSession, archived: Snapshot, root: str, files: Sequence[DataFile], query: HistoryQuery
) -> DataFrame:
    """The rows for a selector that has no Spark SQL, say on a dynamic field: by the brokers' matcher."""
    pubends, described = list(archived.state.covered), archived.topics.described
    columns = archived.layouts[root].to_bytes()
    paths = [archived.location(each) for each in files]

    def batches(number: int) -> Iterator[pa.RecordBatch]:
        reader = TopicColumnReader(query.columns, lambda: described)
        schemas = ArchiveTopics(described).schemas
        layout = ArchiveLayout.from_bytes(columns)
        pattern = TopicPattern.parse(query.columns.pattern)
        for pubend in pubends:
            wanted = WantedRange(pubend, query.base, query.upto, pattern)
            for batch in scan_files([paths[number]], wanted, schemas, layout):
                if (chosen := reader.chosen(batch)) is not None:
                    yield reader.records(pubend, chosen)

    return frame_of_tasks(spark, len(paths), batches, _spark_struct(arrow_columns(query.columns)))


def _live_frames(
    spark: SparkSession,
    broker: str,
    archived: Snapshot | None,
    query: HistoryQuery,
    pubends: Sequence[PubendStatus],
) -> list[DataFrame]:
    """What the broker has beyond the archive, in one DataFrame or none."""
    covered = CheckpointToken() if archived is None else archived.state.covered
    start, end = tail(pubends, covered, query.base, query.upto)
    if not end:
        return []
    path = None if archived is None else archived.path.text
    storage = {} if archived is None else archived.path.options
    options = SourceOptions(
        broker, query.columns.pattern, query.columns.selector, archive=path, storage=storage
    )
    scan = SourceScan(options, query.columns)
    planner = Planner(scan)
    try:
        parts = planner.partitions(start, end)
    finally:
        planner.close()
    schema = _spark_struct(arrow_columns(query.columns))
    return (
        [frame_of_tasks(spark, len(parts), lambda number: scan.read(parts[number]), schema)] if parts else []
    )


def gaps_of(
    archived: Snapshot | None, pubends: Sequence[PubendStatus], base: int, upto: int
) -> list[tuple[str, Range]]:
    """What of `(base, upto]` neither the archive nor a broker has any more, pubend by pubend.

    A query that starts at TICK_MIN asks for what still exists: what is gone before that is no gap.
    """
    covered = CheckpointToken() if archived is None else archived.state.covered
    lost = {each.pubend: each.lost for each in pubends if each.lost is not None}
    silent = {each.pubend for each in pubends if each.last_event is None}
    found: list[tuple[str, Range]] = []
    for name in sorted({*covered, *lost} - silent):
        reach = covered.get(name, TICK_MIN)
        absent = [] if archived is None else archived.state.absent(name)
        if lost.get(name, TICK_MIN) > reach:
            absent = [*absent, (reach, lost[name])]
        found += [(name, cut) for cut in within(absent, base, upto) if cut[0] > TICK_MIN]
    return found


def _report_gaps(gaps: list[tuple[str, Range]], fail: bool) -> None:
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
    pubends: Sequence[PubendStatus], covered: CheckpointToken, base: int, upto: int
) -> tuple[CheckpointToken, CheckpointToken]:
    """From where and up to where to fetch from brokers; only pubends that have events there are named."""
    start, end = {}, {}
    for each in pubends:
        name, last = each.pubend, each.last_event
        lost = TICK_MIN if each.lost is None else each.lost
        low = max(base, covered.get(name, TICK_MIN))
        if last is None or last <= low:
            continue
        low, high = max(low, lost), min(upto, each.position)
        if low < high:
            start[name], end[name] = low, high
    return CheckpointToken(start), CheckpointToken(end)


def _topics_and_pubends(broker: str | None) -> tuple[Sequence[TopicStatus], Sequence[PubendStatus]]:
    """The topics and the pubends of the broker; none without one."""
    if broker is None:
        return [], []
    with retrying_client(broker, CONNECT_SECONDS_MAX) as client:
        pubends = client.pubends()
        return client.topics(), pubends


def _spark_struct(columns: pa.Schema) -> Any:
    from pyspark.sql.types import StructType

    return StructType(spark_fields(columns))
