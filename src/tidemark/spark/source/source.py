"""The format "tidemark" of Spark: reading, in batch and streaming, and writing (`spark.sink.sink`).

These classes only have the shapes that Spark wants; what happens is in `spark.source.scan`. A streaming
offset is a checkpoint token as JSON; a partition is a pubend and a range of its ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidemark.errors import ConfigError
from tidemark.matching.selectors.render import render
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.reader import EventReader
from tidemark.message.schema import Schema
from tidemark.spark.columns import EventColumns
from tidemark.spark.options import sink_options, source_options
from tidemark.spark.pushdown.filters import from_spark_filters
from tidemark.spark.sink.sink import BatchSink, StreamSink, checked_sink
from tidemark.spark.source.partitions import NewerEvents
from tidemark.spark.source.scan import Planner, SourceScan, located, source_schema, topic_columns_of
from tidemark.spark.topic_columns import TopicColumns, root_type
from tidemark.spark.types import spark_fields
from tidemark.ticks import CheckpointToken

if TYPE_CHECKING:
    import pyarrow as pa


class TidemarkSource(DataSource):  # type: ignore[misc]  # pyspark is not looked into
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("tidemark")`."""

    #: the columns that `schema` has found; Spark pickles them along, so that a whole query has the same ones
    _topic_columns: TopicColumns | None = None

    @classmethod
    def name(cls) -> str:
        """The name that `.format()` takes."""
        return "tidemark"

    def schema(self) -> StructType:
        """The columns: the topic's fields, then those that every event has."""
        options = source_options(self.options)
        self._topic_columns = topic_columns_of(options)
        return StructType(spark_fields(source_schema(options, self._topic_columns)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of `spark.read`."""
        scan = self._scan(schema)
        return PushingReader(scan) if scan.options.push_filters else BatchReader(scan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of `spark.readStream`."""
        scan = self._scan(schema)
        if scan.options.end.at != "latest":
            raise ConfigError(
                "a stream has no end: leave it out, and end the query when it has read what there is with "
                ".trigger(availableNow=True)",
                key="end",
            )
        if scan.options.as_of is not None:
            raise ConfigError(
                "a stream goes on with what comes, and reads no archive as it was: leave versionAsOf and "
                "timestampAsOf out, and begin with start",
                key="versionAsOf",
            )
        return StreamReader(scan)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of `df.write`."""
        return BatchSink(checked_sink(sink_options(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        """The writer of `df.writeStream`."""
        return StreamSink(checked_sink(sink_options(self.options), schema, overwrite, is_streaming=True))

    def _scan(self, schema: StructType) -> SourceScan:
        options = located(source_options(self.options))
        topic_columns = self._topic_columns or topic_columns_of(options)
        expected = StructType(spark_fields(source_schema(options, topic_columns)))
        if schema != expected:
            raise ConfigError(
                f"the columns of {options.topic!r} are {expected.simpleString()}, "
                f"not {schema.simpleString()}: leave .schema(...) out, and choose with the option columns"
            )
        return SourceScan(options, topic_columns)


class _PartitionReader:
    """What batch and streaming readers do in a task."""

    _scan: SourceScan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        part = partition.value
        if isinstance(part, NewerEvents):
            return self._scan.read_newer(part)
        # If there are no partitions, Spark asks for the rows of one whose value is None.
        return iter(()) if part is None else self._scan.read(part, keeps_connection=True)


class BatchReader(_PartitionReader, DataSourceReader):  # type: ignore[misc]  # pyspark is not looked into
    """Reads all there is when a query runs, from the start that was asked for."""

    def __init__(self, scan: SourceScan) -> None:
        self._scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges that tasks read."""
        planner = Planner(self._scan)
        try:
            return [InputPartition(part) for part in planner.batch()]
        finally:
            planner.close()


class PushingReader(BatchReader):
    """A batch reader that lets the broker test Spark's conditions.

    It is used only with the option `pushFilters`. Spark keeps the narrowed plan with the DataFrame and uses
    it again for a later query on the same DataFrame without conditions, which then misses rows.
    """

    def pushFilters(self, filters: Iterable[Filter]) -> list[Filter]:  # noqa: N802
        """Take the conditions that the broker can test, and return those that are left to Spark.

        None are taken if gaps are rows, which Spark would test too; and none for a pattern: a selector is
        never true for a topic that lacks the field, while to Spark the field is NULL there.
        """
        topic_columns = self._scan.topic_columns
        if not self._scan.options.fail_on_gap or not TopicPattern.parse(topic_columns.pattern).is_exact:
            return list(filters)
        schema = Schema.parse(topic_columns.schema)
        columns = EventColumns(root_type(schema))
        node, left = from_spark_filters(filters, EventReader(schema, {}), field=columns.field)
        if node is not None:
            self._scan = self._scan.where(render(node))
        return left


class StreamReader(
    _PartitionReader,
    DataSourceStreamReader,  # type: ignore[misc]  # pyspark is not looked into
    SupportsTriggerAvailableNow,  # type: ignore[misc]  # likewise
):
    """Reads events as they are published, in micro-batches."""

    def __init__(self, scan: SourceScan) -> None:
        self._scan = scan
        #: made on the driver only, and not pickled
        self._made: Planner | None = None
        #: the rows of the batch that was planned last, while this is a `HoldingReader`
        self._held: list[pa.RecordBatch] = []

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(self._scan)
        return self._made

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The token that a new query starts from."""
        return dict(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the option `maxEventsPerTrigger` sets."""
        most = self._scan.options.events_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The token up to which the next batch reads."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(self._planner.latest(CheckpointToken(start), most))

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The token of all there is now, from which Spark shows the backlog in a query's progress."""
        return dict(self._planner.newest())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let this run read only what is there now."""
        self._planner.stop_at_newest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The ranges that the tasks of a batch read; a small batch is read here, and handed out with them."""
        parts = self._planner.partitions(CheckpointToken(start), CheckpointToken(end))
        held = self._planner.held_rows(parts)
        if held is not None:
            self._held = held
            self.__class__ = HoldingReader
        return [InputPartition(part) for part in parts]

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: brokers hold nothing for this reader that could be released."""

    def stop(self) -> None:
        """Disconnect, when the query has ended."""
        if self._made is not None:
            self._made.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


class HoldingReader(StreamReader, _SimpleStreamReaderWrapper):  # type: ignore[misc]  # likewise
    """A stream reader that holds the rows of the batch that was just planned, which is small.

    To start a task of Python takes longer than to read a thousand events. If a reader is Spark's own wrapper
    of a `SimpleDataSourceStreamReader`, and has the rows of a batch, Spark takes them from the driver's
    Python, and gives them to a task that needs no Python; it asks with `isinstance`, right after
    `partitions`. Such a reader reports no `latestOffset` in the progress of its query, and reads everything
    on the driver. So a reader is one only from `partitions` until Spark has taken the rows. If Spark loses
    them, a task reads the range of the partition.
    """

    def getCache(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002, N802
        """The rows of the batch; from now on this is a `StreamReader` again."""
        held, self._held = self._held, []
        self.__class__ = StreamReader
        return iter(held)
