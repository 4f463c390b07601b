"""A streaming source in Python that does nothing but count: its tasks have their rows in memory.

What a micro-batch of it takes beyond one of Spark's own source is what Spark takes for any source that is
written in Python: to ask it for offsets and partitions, to start a task of Python, and to get its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load
from tidemark.spark.topic_columns import TopicColumnReader, TopicColumns, arrow_columns, make_topic_columns
from tidemark.spark.types import spark_fields
from tidemark.wire.answers import TopicStatus

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "tidemark-bench-memory"
#: Rows of a record batch, as many as an answer of a broker has.
BATCH_ROWS = 15_000


class MemorySource(DataSource):  # type: ignore[misc]  # pyspark is not looked into
    """The rows of the benchmark's events, again and again.

    The option `rows` says how many a micro-batch has, `tasks` in how many tasks, and `total` how many there
    are in all, if they end.
    """

    @classmethod
    def name(cls) -> str:
        """The name that `.format()` takes."""
        return NAME

    def schema(self) -> StructType:
        """The columns that the format "tidemark" has."""
        return StructType(spark_fields(arrow_columns(_columns())))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader of `spark.readStream`."""
        given = {name: int(self.options.get(name, 0)) for name in ("rows", "tasks", "total")}
        return MemoryReader(given["rows"], given["tasks"] or 1, given["total"] or None)


class MemoryReader(
    DataSourceStreamReader,  # type: ignore[misc]  # likewise
    SupportsTriggerAvailableNow,  # type: ignore[misc]  # likewise
):
    """Offsets count rows."""

    def __init__(self, rows: int, tasks: int, total: int | None) -> None:
        self._rows = rows
        self._tasks = tasks
        self._total = total

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning."""
        return {"rows": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There are never more than there will be."""

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802
        """One micro-batch further."""
        end = start["rows"] + self._rows
        return {"rows": end if self._total is None else min(end, self._total)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The rows, in as many tasks as there are to be."""
        count, more = divmod(end["rows"] - start["rows"], self._tasks)
        return [InputPartition(count + (number < more)) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, of which a worker makes some once."""
        left = partition.value
        while left:
            some = _rows(min(left, BATCH_ROWS))
            left -= some.num_rows
            yield some

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is held."""


def _columns() -> TopicColumns:
    return make_topic_columns([TopicStatus(TOPIC, False, (SCHEMA.text,))], TOPIC, "", None, gaps=False)


@cache
def _rows(count: int) -> pa.RecordBatch:
    reader = TopicColumnReader(_columns(), tuple)
    return reader.records("main", Batches(Load(), count).batch(0))
