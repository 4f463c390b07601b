"""A streaming source in Python that does nothing but count: its tasks have their rows in memory.

What a micro-batch of it takes beyond one of Spark's own source is what Spark takes for any source that is
written in Python: to ask it for offsets and partitions, to start a task of Python, and to get its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidemark.lab.bench.system.load import SCHEMA, TOPIC, Batches, Load
from tidemark.spark.topic_columns import TopicColumnReader, TopicColumns, arrow_columns, make_topic_columns
from tidemark.spark.types import spark_fields
from tidemark.wire.answers import TopicStatus

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "tidemark-bench-memory"


class MemorySource(DataSource):  # type: ignore[misc]  # pyspark is not looked into
    """The rows of the benchmark's events, again and again; the option `rows` says how many a micro-batch."""

    @classmethod
    def name(cls) -> str:
        """The name that `.format()` takes."""
        return NAME

    def schema(self) -> StructType:
        """The columns that the format "tidemark" has."""
        return StructType(spark_fields(arrow_columns(_columns())))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader of `spark.readStream`."""
        return MemoryReader(int(self.options["rows"]))


class MemoryReader(DataSourceStreamReader):  # type: ignore[misc]  # likewise
    """Offsets count rows, and there are always more."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning."""
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802
        """One micro-batch further."""
        return {"rows": start["rows"] + self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """All rows in one task."""
        return [InputPartition(end["rows"] - start["rows"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, which a worker makes once."""
        yield _rows(partition.value)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is held."""


def _columns() -> TopicColumns:
    return make_topic_columns([TopicStatus(TOPIC, False, (SCHEMA.text,))], TOPIC, "", None, gaps=False)


@cache
def _rows(count: int) -> pa.RecordBatch:
    reader = TopicColumnReader(_columns(), tuple)
    return reader.records("main", Batches(Load(), count).batch(0))
