"""The source of the archive's query, in the shapes that Spark wants; what happens is in `planning`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemark.spark.archive_query.envelopes import COLUMNS
from tidemark.spark.archive_query.planning import ArchivePlanner
from tidemark.spark.connections import urls_of
from tidemark.spark.stores.folder import Folder
from tidemark.spark.types import spark_fields

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "tidemark_archive"


class ArchiveSource(DataSource):  # type: ignore[misc]  # pyspark is not looked into
    """What brokers have and the archive does not have yet; `source_of` makes one for an archive."""

    folder: Folder

    @classmethod
    def name(cls) -> str:
        """The name that `.format()` takes."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of envelopes."""
        return StructType(spark_fields(COLUMNS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader of `spark.readStream`."""
        return ArchiveReader(self.folder, urls_of(self.options["broker"]))


def source_of(folder: Folder) -> type[ArchiveSource]:
    """The source of the archive at `folder`, for `register`.

    The folder may have credentials, so it is no option: options are shown in plans.
    """
    return type(ArchiveSource.__name__, (ArchiveSource,), {"folder": folder})


class ArchiveReader(
    DataSourceStreamReader,  # type: ignore[misc]  # pyspark is not looked into
    SupportsTriggerAvailableNow,  # type: ignore[misc]  # likewise
):
    """Reads in micro-batches what is to be archived."""

    def __init__(self, folder: Folder, urls: Sequence[str]) -> None:
        self._folder = folder
        self._urls = tuple(urls)
        #: made on the driver only, and not pickled
        self._made: ArchivePlanner | None = None

    @property
    def _planner(self) -> ArchivePlanner:
        if self._made is None:
            self._made = ArchivePlanner(self._folder, self._urls)
        return self._made

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """What the archive covers."""
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """No limit: the planner bounds a batch in bytes."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """What the archive will cover after the next batch."""
        return self._planner.latest(start)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """How far the brokers are."""
        return self._planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let this run archive only what is there now."""
        self._planner.stop_at_newest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        """What the tasks of a batch read."""
        return [InputPartition(each) for each in self._planner.ranges(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The envelopes of a task."""
        # If there are no partitions, Spark asks for the rows of one whose value is None.
        return iter(()) if partition.value is None else partition.value.read()

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: pubends are told when the archive has committed, not when Spark has."""

    def stop(self) -> None:
        """Disconnect, when the query has ended."""
        if self._made is not None:
            self._made.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}
