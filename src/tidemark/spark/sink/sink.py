"""The sink: rows published exactly once, whatever is retried, copied, killed or restarted.

Tasks do not publish. Spark runs a task again when it fails, twice when it is slow, and a whole batch again
when the driver died. The rows of the batch may then be spread over tasks in another way, so no number that a
task gives to a row means the same the next time. Instead:

1. A task encodes its rows and stages them in a file of its own, synced (`spark.sink.staging`). It reports the
   file's name to the driver. If a task was run several times, Spark keeps one report.
2. The driver's commit writes a *record* of the batch: these files, in this order, under this publisher, with
   sequence numbers from `first` on, where the last batch ended. The record is made once and synced. From then
   on the batch is what its record says: if Spark replays the batch, the new rows are ignored.
3. The files are published under the record's publisher and numbers. The pubend takes each number once, and
   keeps
   the numbers that it has taken on disk with the events, so publishing all or a part again adds nothing.
4. A mark beside the record, synced, says that everything is published; then the files are removed. Then Spark
   notes in its checkpoint that the batch is done.

| killed                               | when the batch comes again                                         |
|--------------------------------------|--------------------------------------------------------------------|
| before the record                    | nothing was published: new files, a record, published              |
| between record and mark              | the record's files are published; the broker skips what it has     |
| between the mark and Spark's note    | the mark says that the batch is done; the new files are removed    |
| the broker, at any time              | what it had not acknowledged is sent again with the same numbers   |

A commit that fails is followed by Spark's abort, which names the same files: those of a record stay.

Records lie where the checkpoint lies, under the query's id, which a restart keeps: both are lost together or
not at all. The publisher's name has a random part, made with the first record. Should the records be lost
alone, new ones start under a new name: a name used again would make new events look like repetitions, and
lose them.

A batch write has no checkpoint. Within one run it is exactly once in the same way. If the driver is killed
during the commit, some of the batch is published; a write that is named with the option `job` (and `staging`)
can be run again, which completes the first run instead of publishing a second time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import ConfigError
from tidemark.message.foreign.arrow.types import from_arrow_schema
from tidemark.message.schema import Schema
from tidemark.spark.engine.plain_errors import UPDATES_RECIPE
from tidemark.spark.locations import folder_at, staging_beside
from tidemark.spark.options import SinkOptions
from tidemark.spark.sink.dead_letters import is_directory
from tidemark.spark.sink.publishing import BrokerPublisher, commit, declare_dead_letters, topic_schema
from tidemark.spark.sink.row_encoder import RowEncoder, check_fit
from tidemark.spark.sink.staging import NO_TOPIC, StagedFile, Staging
from tidemark.spark.stores.folder import Folder

if TYPE_CHECKING:
    import pyarrow as pa

_JOB_BATCH = 0
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True, slots=True)
class Sink:
    """What a write does in tasks and on the driver, without pyspark."""

    options: SinkOptions
    #: the schema of the events, as text
    schema: str
    #: the name of a batch write; a streaming query is named by its id instead
    job: str

    def stage(self, query: SinkQuery, partition: int, records: Iterator[pa.RecordBatch]) -> StagedFile:
        """Encode a task's rows and stage them; they are on the platter when this returns."""
        options = self.options
        dead = options.dead_letter
        encoder = RowEncoder(
            Schema.parse(self.schema),
            options.topic,
            options.key,
            f"spark-{query.name}",
            NO_TOPIC if dead is not None and is_directory(dead) else dead,
        )
        return query.staging.stage(partition, encoder.encoded(records))

    def commit(self, query: SinkQuery, batch: int, parts: list[StagedFile]) -> None:
        """Publish what was staged for a batch; all of it is published when this returns."""
        commit(query.staging, query.name, batch, parts, BrokerPublisher(self.options))

    @property
    def batch_write(self) -> SinkQuery:
        """The name and place of a batch write."""
        base = self.options.staging or f"{tempfile.gettempdir()}/tidemark-staging"
        return SinkQuery(self.job, folder_at(base, self.options.storage))


@dataclass(frozen=True, slots=True)
class SinkQuery:
    """A query or job: its name, and the folder in which it stages."""

    name: str
    base: Folder

    @property
    def staging(self) -> Staging:
        """The staging folder of the query or job."""
        return Staging(self.base / quote(self.name, safe=""))


def checked_sink(
    options: SinkOptions, schema: StructType, overwrite: bool, *, is_streaming: bool = False
) -> Sink:
    """A sink for rows of this schema. Raises SchemaError or ConfigError before anything runs."""
    if overwrite and is_streaming:
        raise ConfigError(
            f"complete publishes the whole table again with every batch: {UPDATES_RECIPE}",
            key="outputMode",
        )
    if overwrite:
        raise ConfigError("what is published stays: write with mode append", key="mode")
    columns = to_arrow_schema(schema, timezone="UTC")
    found = topic_schema(options, lambda: Schema(from_arrow_schema(columns)))
    check_fit(columns, found, options.topic, options.key)
    if options.dead_letter is not None and not is_directory(options.dead_letter):
        declare_dead_letters(options)
    return Sink(options, found.text, options.job or uuid4().hex)


class StagedMessage(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not looked into
    """What a task reports to the driver: the query or job, and the file that it has staged."""

    def __init__(self, query: SinkQuery, part: StagedFile) -> None:
        self.query = query
        self.part = part


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]  # likewise
    """For `df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; called in the task."""
        query = self._sink.batch_write
        return StagedMessage(query, self._sink.stage(query, _partition(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged; called on the driver when all tasks are done."""
        query, batch = self._sink.batch_write, self._sink.options.batch
        self._sink.commit(query, _JOB_BATCH if batch is None else batch, _parts(messages))
        if self._sink.options.job is None:
            _forget(query.staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged, after a task or the commit has failed for good."""
        staging = self._sink.batch_write.staging
        if self._sink.options.job is None:
            _forget(staging)  # nobody will come back to it
        else:
            staging.discard(_parts(messages))


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """For `df.writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; called in the task."""
        query = SinkQuery(TaskContext.get().getLocalProperty("sql.streaming.queryId"), self._base())
        return StagedMessage(query, self._sink.stage(query, _partition(), iterator))

    def _base(self) -> Folder:
        """Where rows are staged: as an option says, or the setting that Spark tells its tasks."""
        if self._sink.options.staging is not None:
            return folder_at(self._sink.options.staging, self._sink.options.storage)
        checkpoints = TaskContext.get().getLocalProperty(_CHECKPOINTS)
        if not checkpoints:
            raise ConfigError(
                'is required: .option("checkpointLocation", directory), or the setting '
                f"{_CHECKPOINTS}, also says where rows are staged",
                key="checkpointLocation",
            )
        return folder_at(staging_beside(checkpoints), self._sink.options.storage)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what was staged; called on the driver when all tasks of a batch are done."""
        self._each(messages, lambda query, parts: self._sink.commit(query, batchId, parts))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what was staged, after a task or the commit has failed for good."""
        self._each(messages, lambda query, parts: query.staging.discard(parts))

    def _each(
        self,
        messages: list[WriterCommitMessage | None],
        action: Callable[[SinkQuery, list[StagedFile]], None],
    ) -> None:
        """Call `action` for the query that the messages are of; only the messages say which one that is."""
        for query in {message.query for message in messages if message is not None}:
            action(query, _parts(messages))


def _partition() -> int:
    return int(TaskContext.get().partitionId())


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.part for message in messages if message is not None]


def _forget(staging: Staging) -> None:
    staging.remove()
