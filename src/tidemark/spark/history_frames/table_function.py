"""`tidemark_history(...)`: history as a table function, for people who have SQL and nothing else.

    SELECT symbol, avg(price) FROM tidemark_history('trades', selector => 'price > 10', archive => '/archive')
    GROUP BY symbol

It takes what `history` takes and returns the same rows. Spark runs a table function of Python in one task, so
`history` and the format "tidemark" are for queries that read much. `session` registers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.history_frames.frame import to_tick
from tidemark.spark.locations import check_archive
from tidemark.spark.options import ReadPoint, SourceOptions
from tidemark.spark.source.archived import DeltaArchive, PastArchive
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.source.scan import Planner, SourceScan, located, topic_columns_of
from tidemark.spark.time_travel.as_of import AsOf, as_of
from tidemark.spark.topic_columns import (
    TopicColumnReader,
    TopicColumns,
    arrow_columns,
    make_topic_columns,
)
from tidemark.spark.types import spark_fields
from tidemark.ticks import TICK_MAX, TICK_MIN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

NAME = "tidemark_history"
#: The arguments after the topic, which are given by name.
ARGUMENTS = ("selector", "since", "until", "broker", "archive", "columns", "version", "at")


def register(spark: SparkSession) -> None:
    """Let the SQL of a session call `tidemark_history`."""
    from pyspark.sql.functions import udtf

    spark.udtf.register(NAME, udtf(HistoryFunction))


class HistoryFunction:
    """What Spark calls: `analyze` when a query is made, `eval` in its task."""

    @staticmethod
    def analyze(topic: AnalyzeArgument, **given: AnalyzeArgument) -> AnalyzeResult:
        """The columns of the result. Raises ConfigError for arguments that are no constants or unknown."""
        from pyspark.sql.types import StructType
        from pyspark.sql.udtf import AnalyzeResult

        for name, each in {"topic": topic, **given}.items():
            if not each.isConstantExpression:
                raise ConfigError("is a constant: columns of other tables cannot be asked for", key=name)
        call = HistoryCall.of(topic.value, **{name: each.value for name, each in given.items()})
        return AnalyzeResult(StructType(spark_fields(arrow_columns(call.topic_columns()))))

    def eval(self, topic: str, **given: Any) -> Iterator[tuple[Any, ...]]:
        """The rows."""
        for batch in HistoryCall.of(topic, **given).batches():
            columns = [column.to_pylist() for column in batch.columns]
            yield from zip(*columns, strict=True)


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """The arguments of one call."""

    topic: str
    selector: str
    #: `(base, upto]`
    base: int
    upto: int
    broker: str | None
    archive: str | None
    columns: tuple[str, ...] | None
    #: the archive is read as it was then, and nothing else
    as_of: AsOf | None = None

    @classmethod
    def of(cls, topic: str, **given: Any) -> HistoryCall:
        """The call with these arguments. Raises ConfigError for an unknown one."""
        unknown = sorted(given.keys() - set(ARGUMENTS))
        if unknown:
            raise ConfigError(f"{NAME} takes {', '.join(ARGUMENTS)}", key=unknown[0])
        since, until, columns = given.get("since"), given.get("until"), given.get("columns")
        at = given.get("at")
        found = cls(
            topic,
            given.get("selector") or "",
            TICK_MIN if since is None else to_tick(since) - 1,
            TICK_MAX if until is None else to_tick(until) - 1,
            given.get("broker"),
            given.get("archive"),
            None if columns is None else tuple(name.strip() for name in columns.split(",")),
            as_of(given.get("version"), None if at is None else to_tick(at)),
        )
        if found.broker is None and found.archive is None:
            raise ConfigError(f"{NAME} needs a broker, an archive, or both: archive => '/path'")
        return found

    def topic_columns(self) -> TopicColumns:
        """The columns of the result."""
        if self.broker is not None:
            return topic_columns_of(self._options(self.broker))
        assert self.archive is not None
        check_archive(self.archive)
        topics = snapshot(self.archive).topics.described
        return make_topic_columns(topics, self.topic, self.selector, self.columns, gaps=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, from the archive and the broker."""
        if self.broker is None:
            assert self.archive is not None
            archive = DeltaArchive(self.archive)
            if self.as_of is not None:
                archive = PastArchive(self.archive, self.as_of, self.topic)
            yield from self._archived(archive)
            return
        scan = SourceScan(located(self._options(self.broker)), self.topic_columns())
        planner = Planner(scan)
        try:
            parts = planner.everything()
        finally:
            planner.close()
        for part in parts:
            yield from scan.read(part)

    def _archived(self, archive: DeltaArchive) -> Iterator[pa.RecordBatch]:
        """The rows of what the archive covers, without a broker."""
        columns, archived = self.topic_columns(), archive.snapshot()
        reader = TopicColumnReader(columns, lambda: archived.topics.described)
        base = max(self.base, TICK_MIN if archived.state.released is None else archived.state.released)
        ranges = [
            TickRange(pubend, base, min(self.upto, upto))
            for pubend, upto in archived.state.covered.items()
            if base < min(self.upto, upto)
        ]
        for item in archive.rows(ranges, columns):
            if not isinstance(item, TickRange):
                yield item
                continue
            for batch in archive.read(item.pubend, item.base, item.upto, columns.pattern):
                chosen = reader.chosen(batch)
                if chosen is not None:
                    yield reader.records(item.pubend, chosen)

    def _options(self, broker: str) -> SourceOptions:
        return SourceOptions(
            broker,
            self.topic,
            self.selector,
            start=ReadPoint("earliest") if self.base == TICK_MIN else ReadPoint(tick=self.base),
            end=ReadPoint("latest") if self.upto == TICK_MAX else ReadPoint(tick=self.upto),
            columns=self.columns,
            archive=self.archive,
            as_of=self.as_of,
        )
