"""The sink: rows published exactly once, whatever is retried, copied, killed or restarted.

Tasks do not publish. Spark runs a task again when it fails, twice when it is slow, and a whole batch again
when the driver died; and the rows of a batch may then be spread over tasks in another way, so that no number
given to a row inside a task says the same the next time. Instead:

1. A task encodes its rows and stages them in a file of its own, synced (`spark.sink.staging`). What it
   reports to the driver is the file's name. Of a task that was run several times Spark keeps one report.
2. The driver's commit writes a *record* for the batch: these files, in this order, this publisher, numbers
   from `first` on, where the last batch's ended. It is made once and synced. From here on the batch is what
   its record says: a replay of it, however its rows are spread, is not looked at.
3. The files are published under the record's publisher and numbers. The pubend takes each number once, and
   keeps what it has taken on disk with the events, so publishing again, all or the rest, adds nothing.
4. A mark beside the record, synced, says that all is published; then the files go. Then Spark notes it.

| killed                       | when the batch comes again                                                |
|------------------------------|---------------------------------------------------------------------------|
| before the record            | nothing was published: new files, a record, published                     |
| between record and mark      | the record's files are published; the broker passes over what it has      |
| between the mark and Spark's | the mark says that it is done; the new files are removed                  |
| the broker, at any time      | what it had not acknowledged is sent again with the same numbers          |

A commit that fails is followed by Spark's abort, which names the same files: those of a record stay.

Records lie where the checkpoint lies, under the query's id, which a restart keeps: the two are lost together
or not at all. The publisher's name has a random part, made with the first record. Should the records be lost
alone, new ones start under a new name: a name used again would make new events look like repetitions, and
lose them.

A batch write has no checkpoint. Within one run it is exactly once in the same way. If the driver is killed
during the commit, some of it is published; give it a name with the option `job` (and `staging`), and running
it again completes the first run instead of publishing a second time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
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
from tidemark.spark.options import SinkOptions
from tidemark.spark.sink.publishing import chosen_pubend, commit, publish_record, topic_schema
from tidemark.spark.sink.row_encoder import check_fit, encoded
from tidemark.spark.sink.staging import StagedFile, Staging

if TYPE_CHECKING:
    import pyarrow as pa

_JOB_BATCH = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """What a write does in tasks and on the driver. No pyspark."""

    options: SinkOptions
    #: of the events, as text
    schema: str
    #: names a batch write; a streaming query has its id
    job: str

    def stage(self, name: str, partition: int, records: Iterator[pa.RecordBatch]) -> StagedFile:
        """A task's rows, encoded and on disk."""
        schema = Schema.parse(self.schema)
        batches = encoded(records, schema, self.options.topic, self.options.key, f"spark-{name}")
        return self.staging(name).stage(partition, batches)

    def commit(self, name: str, batch: int, parts: list[StagedFile]) -> None:
        """All of it is published when this returns."""
        commit(
            self.staging(name),
            name,
            batch,
            parts,
            chosen_pubend(self.options),
            lambda staging, record: publish_record(self.options, staging, record),
        )

    def staging(self, name: str) -> Staging:
        """Where a query or job of this name stages."""
        base = self.options.staging or str(Path(tempfile.gettempdir()) / "tidemark-staging")
        return Staging(Path(base) / quote(name, safe=""))


def checked_sink(
    options: SinkOptions, schema: StructType, overwrite: bool, *, is_streaming: bool = False
) -> Sink:
    """A sink for rows of this schema; SchemaError or ConfigError before anything runs."""
    if overwrite:
        raise ConfigError("what is published stays: write with mode append", key="mode")
    if is_streaming and options.staging is None:
        raise ConfigError(
            'is required: .option("checkpointLocation", directory) also says where rows are staged',
            key="checkpointLocation",
        )
    columns = to_arrow_schema(schema, timezone="UTC")
    found = topic_schema(options, lambda: Schema(from_arrow_schema(columns)))
    check_fit(columns, found, options.topic, options.key)
    return Sink(options, found.text, options.job or uuid4().hex)


class StagedMessage(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not looked into
    """What a task reports."""

    def __init__(self, name: str, part: StagedFile) -> None:
        self.name = name
        self.part = part


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]  # likewise
    """For `df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        name = self._sink.job
        return StagedMessage(name, self._sink.stage(name, _partition(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        name = self._sink.job
        self._sink.commit(name, _JOB_BATCH, _parts(messages))
        if self._sink.options.job is None:
            _forget(self._sink.staging(name))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good, or the commit did."""
        staging = self._sink.staging(self._sink.job)
        if self._sink.options.job is None:
            _forget(staging)  # nobody will come back to it
        else:
            staging.discard(_parts(messages))


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """For `df.writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        name = TaskContext.get().getLocalProperty("sql.streaming.queryId")
        return StagedMessage(name, self._sink.stage(name, _partition(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when all tasks of a batch are done."""
        self._each(messages, lambda name, parts: self._sink.commit(name, batchId, parts))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """A task failed for good, or the commit did."""
        self._each(messages, lambda name, parts: self._sink.staging(name).discard(parts))

    def _each(
        self, messages: list[WriterCommitMessage | None], action: Callable[[str, list[StagedFile]], None]
    ) -> None:
        """All messages are of one query, and only they say which."""
        for name in {message.name for message in messages if message is not None}:
            action(name, _parts(messages))


def _partition() -> int:
    return int(TaskContext.get().partitionId())


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[StagedFile]:
    return [message.part for message in messages if message is not None]


def _forget(staging: Staging) -> None:
    if staging.path.is_dir():
        staging.remove()
