"""The archive as the source reads it: what it lacks, its events, and its rows as columns.

`ReleasedHistory` is what filling the holes of a broker's answers needs. `SourceArchive` can also plan, and
read whole ranges as record batches without the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidemark.errors import TranslationError
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.locations import Place
from tidemark.spark.source.partitions import TickRange
from tidemark.spark.time_travel.as_of import AsOf
from tidemark.spark.topic_columns import TopicColumns
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.ticks.tick import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.spark.archive.reader import Snapshot

#: About how much of files a task reads from the archive.
ARCHIVE_PART_BYTES = 32 << 20


class SizedRange(NamedTuple):
    """A range, and about how many bytes of files are read for it."""

    range: TickRange
    bytes: int


class ReleasedHistory(Protocol):
    """History that brokers have released."""

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:
        """The ranges of `(base, upto]` that the archive lacks, in order."""

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
        """The events of `(base, upto]`, byte for byte, in the order of their ticks."""


class SourceArchive(ReleasedHistory, Protocol):
    """History that brokers have released, planned and read as columns."""

    def reach(self, pubend: str) -> int:
        """The tick up to which the archive covers a pubend; TICK_MIN if it has nothing of it."""

    def parts(self, ranges: Sequence[TickRange], wanted: TopicSelector) -> list[SizedRange]:
        """Ranges of bounded size, in order, that have all that is wanted of these."""

    def rows(
        self, ranges: Sequence[TickRange], columns: TopicColumns
    ) -> Iterator[pa.RecordBatch | TickRange]:
        """The rows of ranges, and in their places the ranges that have to be read as events."""


class NoArchive:
    """Stands for the archive if there is none."""

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:  # noqa: ARG002
        """The whole range."""
        return [(base, upto)] if base < upto else []

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:  # noqa: ARG002
        """No events."""
        return iter(())

    def reach(self, pubend: str) -> int:  # noqa: ARG002
        """Nothing is covered."""
        return TICK_MIN

    def parts(self, ranges: Sequence[TickRange], wanted: TopicSelector) -> list[SizedRange]:  # noqa: ARG002
        """The same ranges."""
        return [SizedRange(each, 0) for each in ranges]

    def rows(self, ranges: Sequence[TickRange], columns: TopicColumns) -> Iterator[TickRange]:  # noqa: ARG002
        """The same ranges: none of them is here."""
        return iter(ranges)


class DeltaArchive:
    """The archive at a path, as `spark.archive.reader` and `spark.archive_scan` read it."""

    def __init__(self, path: Place) -> None:
        self._path = path

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:
        """The ranges of `(base, upto]` that the archive lacks, in order."""
        from tidemark.spark.archive.reader import gaps

        return gaps(self._path, pubend, base, upto)

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
        """The events of `(base, upto]`, byte for byte, in the order of their ticks."""
        from tidemark.spark.archive.reader import read

        return read(self._path, pubend, base, upto, pattern)

    def reach(self, pubend: str) -> int:
        """The tick up to which the archive covers a pubend; TICK_MIN if it has nothing of it."""
        from tidemark.spark.archive.reader import covered

        return covered(self._path).get(pubend, TICK_MIN)

    def parts(self, ranges: Sequence[TickRange], wanted: TopicSelector) -> list[SizedRange]:
        """Ranges of bounded size, in order, that have all that is wanted of these.

        Where no file has anything that is wanted, there is no range.
        """
        from tidemark.spark.archive_scan.slices import slices

        archived = self.snapshot()
        return [
            SizedRange(TickRange(each.pubend, each.base, each.upto), each.bytes)
            for whole in ranges
            for each in slices(
                archived, whole.pubend, [(whole.base, whole.upto)], [wanted], ARCHIVE_PART_BYTES
            )
            if each.files or each.gone
        ]

    def rows(
        self, ranges: Sequence[TickRange], columns: TopicColumns
    ) -> Iterator[pa.RecordBatch | TickRange]:
        """The rows of ranges, and in their places the ranges that have to be read as events."""
        from tidemark.spark.archive_scan.columnar import ColumnarReader
        from tidemark.spark.archive_scan.slices import slices

        archived = self.snapshot()
        try:
            reader = ColumnarReader(columns, archived)
        except TranslationError:
            yield from ranges
            return
        wanted = [TopicSelector(columns.pattern, columns.selector)]
        for whole in ranges:
            cuts = [(whole.base, whole.upto)]
            for each in slices(archived, whole.pubend, cuts, wanted, ARCHIVE_PART_BYTES):
                if reader.can_read(each):
                    yield from reader.read(each)
                else:
                    yield TickRange(each.pubend, each.base, each.upto)

    def snapshot(self) -> Snapshot:
        """The archive as it is read now."""
        from tidemark.spark.archive_scan.slices import current_snapshot

        return current_snapshot(self._path)


class PastArchive(DeltaArchive):
    """The archive at a path as it was at a version or a time (`spark.time_travel`); it never changes."""

    def __init__(self, path: Place, as_of: AsOf, pattern: str) -> None:
        """Only tables that may have topics of the pattern are read."""
        super().__init__(path)
        self._as_of = as_of
        self._pattern = pattern
        self._taken: Snapshot | None = None

    def gaps(self, pubend: str, base: int, upto: int) -> list[Range]:
        """The ranges of `(base, upto]` that the archive lacked, in order."""
        from tidemark.spark.archive.reader import gaps_in

        return gaps_in(self.snapshot().state, pubend, base, upto)

    def read(self, pubend: str, base: int, upto: int, pattern: str) -> Iterator[EventBatch]:
        """The events of `(base, upto]`, byte for byte, in the order of their ticks."""
        from tidemark.spark.archive.reader import read_from

        return read_from(self.snapshot(), pubend, base, upto, pattern)

    def reach(self, pubend: str) -> int:
        """The tick up to which the archive covered a pubend; TICK_MIN if it had nothing of it."""
        return self.covered.get(pubend, TICK_MIN)

    @property
    def covered(self) -> CheckpointToken:
        """pubend -> the tick up to which the archive covered it."""
        return self.snapshot().state.covered

    def snapshot(self) -> Snapshot:
        """The archive as it was."""
        from tidemark.spark.time_travel.versions import snapshot_as_of

        if self._taken is None:
            self._taken = snapshot_as_of(self._path, self._as_of, TopicPattern.parse(self._pattern))
        return self._taken


def archive_at(path: Place | None) -> SourceArchive:
    """The archive at a location; `NoArchive` without one."""
    return NoArchive() if path is None else DeltaArchive(path)
