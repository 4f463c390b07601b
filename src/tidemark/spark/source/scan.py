"""A scan: all that a query reads, as the driver plans it and as tasks carry it out. Imports no pyspark.

`Planner` is the driver's side: it turns checkpoint tokens into tick ranges. `SourceScan` is what goes to the
tasks: the options, the columns, and how a range is read. Each task has a connection of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError, SchemaError, TidemarkError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.connections import CONNECT_SECONDS_MAX, BrokerReader, kept_client, retrying_client
from tidemark.spark.locations import check_archive, folder_at
from tidemark.spark.options import SourceOptions
from tidemark.spark.source.ahead import BatchEnd, SearchAhead
from tidemark.spark.source.archived import (
    ARCHIVE_PART_BYTES,
    PastArchive,
    ReleasedHistory,
    SourceArchive,
    archive_at,
)
from tidemark.spark.source.losses import lost
from tidemark.spark.source.offsets import (
    PubendExtent,
    ceiling,
    check_gaps,
    initial,
    latest,
    pubend_extents,
)
from tidemark.spark.source.partitions import (
    PARTITION_BYTES,
    PARTITION_EVENTS_MIN,
    ArchivedRanges,
    NewerEvents,
    TickRange,
    split,
)
from tidemark.spark.source.reading import LostRange, RangeReader
from tidemark.spark.topic_columns import (
    TopicColumnReader,
    TopicColumns,
    arrow_columns,
    make_topic_columns,
)
from tidemark.ticks import TICK_MIN, CheckpointToken

if TYPE_CHECKING:
    import pyarrow as pa

#: What one task reads.
Partition = TickRange | ArchivedRanges
#: The column that says where a row came from, and what it says; NULL in the row of a gap.
ORIGIN = "_origin"
BROKER, ARCHIVE = "broker", "archive"
#: An idle query makes Spark wait so long for new events, instead of letting it ask every 10 ms.
IDLE_SECONDS = 0.2
_IDLE_SLEEP_SECONDS = 0.02
#: So many events are counted at a time to find how far a query is behind.
BACKLOG_EVENTS_MAX = 1 << 40
#: So many parts of the archive at most are searched for the end of a bounded batch.
ARCHIVE_PARTS_COUNTED_MAX = 16
#: A micro-batch of at most so many events, in so much of a broker's log, is read by the driver.
HELD_EVENTS_MAX = 4_000
HELD_BYTES_MAX = 1 << 20
_log = logging.getLogger("tidemark.spark")


def archive_beside(broker: str, retry_seconds: float) -> str | None:
    """The path of the archive that these brokers know of, if it can be read from here; else None."""
    with retrying_client(broker, min(CONNECT_SECONDS_MAX, retry_seconds)) as client:
        paths: list[str] = list(dict.fromkeys(client.archives()))
    here = [path for path in paths if _is_here(path)]
    if len(here) == 1:
        return here[0]
    if paths:
        _log.warning(
            "%s is not here: what was let go is not read; name it with `archive`", " or ".join(paths)
        )
    return None


def _is_here(path: str) -> bool:
    """Can the archive at a path or URL be read from here?"""
    try:
        return folder_at(path).exists()
    except TidemarkError:
        return False


def located(options: SourceOptions) -> SourceOptions:
    """The options, with the archive that the brokers know of if none is named.

    Raises ConfigError if the archive is to be read as it was, and there is none.
    """
    if options.archive is not None:
        return options
    found = archive_beside(options.broker, options.retry_seconds)
    if found is None and options.as_of is not None:
        raise ConfigError("is required to read it as it was, and the brokers know of none", key="archive")
    return replace(options, archive=found)


def topic_columns_of(options: SourceOptions) -> TopicColumns:
    """The columns of a query on the topics there are now. Raises ConfigError or SelectorError."""
    if options.archive_folder is not None:
        check_archive(options.archive_folder)
    with retrying_client(options.broker, min(CONNECT_SECONDS_MAX, options.retry_seconds)) as broker:
        return make_topic_columns(
            broker.topics(),
            options.topic,
            options.selector,
            options.columns,
            gaps=not options.fail_on_gap,
        )


def source_schema(options: SourceOptions, topic_columns: TopicColumns) -> pa.Schema:
    """The columns of a read: those of the topic, and ORIGIN if it is asked for. Raises SchemaError."""
    import pyarrow as pa

    columns = arrow_columns(topic_columns)
    if not options.origin:
        return columns
    if ORIGIN in columns.names:
        raise SchemaError(f"the topic has a field {ORIGIN!r}: leave the option origin out, or rename it")
    return columns.append(pa.field(ORIGIN, pa.string()))


@dataclass(frozen=True, slots=True)
class SourceScan:
    """What to read, and as which columns; sent to the tasks."""

    options: SourceOptions
    topic_columns: TopicColumns

    def where(self, selector: str) -> SourceScan:
        """The scan, narrowed to events that this selector matches too."""
        both = (
            f"({self.topic_columns.selector}) AND ({selector})" if self.topic_columns.selector else selector
        )
        return replace(self, topic_columns=replace(self.topic_columns, selector=both))

    def read(
        self, part: TickRange | ArchivedRanges, *, keeps_connection: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises EventsLostError if some events are gone, unless gaps are rows.

        `keeps_connection` is for Spark's workers: the connection is kept for the next task.
        """
        connect = kept_client if keeps_connection else retrying_client
        with connect(self.options.broker, self.options.retry_seconds) as broker:
            archive = self.archive
            if isinstance(part, TickRange):
                yield from self._rows(broker, archive, [part])
                return
            for item in archive.rows(part.ranges, self.topic_columns):
                if isinstance(item, TickRange):
                    yield from self._rows(broker, archive, [item])
                else:
                    yield self._marked(item, ARCHIVE)

    def read_newer(self, newer: NewerEvents) -> Iterator[pa.RecordBatch]:
        """The rows of all that has come since the other ranges were planned."""
        with retrying_client(self.options.broker, self.options.retry_seconds) as broker:
            start = CheckpointToken(newer.after)
            there = pubend_extents(broker.pubends())
            end = latest(start, there, ceiling(newer.end, there))
            bases = {name: start.get(name, newer.first_base) for name in end}
            parts = [TickRange(name, bases[name], upto) for name, upto in end.items() if bases[name] < upto]
            yield from self._rows(broker, self.archive, parts)

    def _rows(
        self, broker: BrokerReader, archive: SourceArchive, parts: Sequence[TickRange]
    ) -> Iterator[pa.RecordBatch]:
        column_reader = TopicColumnReader(self.topic_columns, broker.topics)
        reader = self.reader(broker, archive, column_reader)
        read = reader.read if self.options.as_of is None else reader.read_archived
        for part in parts:
            for item in read(part):
                yield self.rows_of(part.pubend, item, column_reader, is_archived=reader.is_archived)

    def rows_of(
        self, pubend: str, item: EventBatch | LostRange, columns: TopicColumnReader, *, is_archived: bool
    ) -> pa.RecordBatch:
        """What was read as rows. Raises EventsLostError for a gap, unless gaps are rows."""
        if not isinstance(item, LostRange):
            return self._marked(columns.records(pubend, item), ARCHIVE if is_archived else BROKER)
        if self.options.fail_on_gap:
            raise lost(pubend, item.base, item.upto, item.why)
        return self._marked(columns.gap(pubend, item.base, item.upto), None)

    def _marked(self, rows: pa.RecordBatch, origin: str | None) -> pa.RecordBatch:
        """The rows, with the column that says where they come from if that is asked for."""
        import pyarrow as pa

        if not self.options.origin:
            return rows
        marks = pa.repeat(pa.scalar(origin, pa.string()), rows.num_rows)
        return pa.record_batch([*rows.columns, marks], schema=self.arrow_schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return source_schema(self.options, self.topic_columns)

    def reader(
        self, broker: BrokerReader, archive: ReleasedHistory, column_reader: TopicColumnReader
    ) -> RangeReader:
        """What reads the ranges of the scan."""
        return RangeReader(broker, archive, self.wanted, column_reader.chosen, column_reader.sound)

    @property
    def archive(self) -> SourceArchive:
        """The archive that the scan reads, which is `NoArchive` if there is none."""
        folder, as_of = self.options.archive_folder, self.options.as_of
        if folder is None or as_of is None:
            return archive_at(folder)
        return PastArchive(folder, as_of, self.topic_columns.pattern)

    @property
    def wanted(self) -> TopicSelector:
        """The topics and the selector."""
        return TopicSelector(self.topic_columns.pattern, self.topic_columns.selector)


class Planner:
    """The driver's side of a scan. It holds a connection until `close`."""

    def __init__(self, scan: SourceScan) -> None:
        self._options = scan.options
        self._wanted = scan.wanted
        self._columns = scan.topic_columns
        self._broker = retrying_client(scan.options.broker, scan.options.retry_seconds)
        self._archive = scan.archive
        self._scan = scan
        self._column_reader = TopicColumnReader(scan.topic_columns, self._broker.topics)
        self._reader = scan.reader(self._broker, self._archive, self._column_reader)
        #: the token beyond which nothing is read, in a query that reads only what was there when it started
        self._ceiling: CheckpointToken | None = None
        #: the token that `latest` returned last, and where the pubends stood then
        self._asked: tuple[CheckpointToken | None, dict[str, PubendExtent]] = (None, {})
        #: finds the end of the next large batch, with a connection of its own; None before it is needed
        self._ahead: SearchAhead | None = None
        self._other: Planner | None = None

    def initial(self) -> CheckpointToken:
        """The token that a new query starts from."""
        return initial(self._options.start, self._extents(), self._archive.gaps)

    def newest(self) -> CheckpointToken:
        """The token of all there is to read now."""
        return latest(CheckpointToken(), self._extents())

    def stop_at_newest(self) -> None:
        """From now on, read nothing beyond what is there now."""
        self._ceiling = self.newest()

    def latest(self, start: CheckpointToken, events_max: int | None) -> CheckpointToken:
        """The token up to which the next batch reads; without events, this waits up to IDLE_SECONDS."""
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            found = self._found_ahead(start, events_max) or self._end(start, events_max)
            if found.token != start:
                self._asked = found.token, found.there
                self._look_ahead(found, events_max)
                return found.token
            if self._ceiling is not None or time.monotonic() >= deadline:
                return start
            time.sleep(_IDLE_SLEEP_SECONDS)

    def _end(self, start: CheckpointToken, events_max: int | None) -> BatchEnd:
        """Up to where a batch that begins now reads; `start` if there is nothing to read."""
        there = self._extents()
        end = latest(start, there, self._ceiling)
        if end != start and events_max is not None:
            end = self._limited(start, end, there, events_max)
        return BatchEnd(end, there)

    def _found_ahead(self, start: CheckpointToken, events_max: int | None) -> BatchEnd | None:
        if self._ahead is None or events_max is None:
            return None
        return self._ahead.found(start, events_max)

    def _look_ahead(self, batch: BatchEnd, events_max: int | None) -> None:
        """Look for the end of the batch after this one, if it is a large one and there are events for it."""
        if events_max is None or events_max <= PARTITION_EVENTS_MIN:
            return
        if latest(batch.token, batch.there, self._ceiling) == batch.token:
            return
        if self._ahead is None:
            self._other = Planner(self._scan)
            self._ahead = SearchAhead(self._other._end)
        assert self._other is not None
        self._other._ceiling = self._ceiling
        self._ahead.begin(batch.token, events_max)

    def backlog(self, token: CheckpointToken) -> dict[str, int]:
        """How many events there are beyond a token, by pubend, at the broker and in the archive."""
        there = self._extents()
        found: dict[str, int] = {}
        for whole in self._ranges(token, latest(token, there)):
            base, count = whole.base, 0
            while base < whole.upto:
                left = TickRange(whole.pubend, base, whole.upto)
                base, more = self._reach(left, there.get(whole.pubend), BACKLOG_EVENTS_MAX)
                count += more
            found[whole.pubend] = count
        return found

    def partitions(self, start: CheckpointToken, end: CheckpointToken) -> list[Partition]:
        """The ranges that the tasks of a batch read.

        Raises EventsLostError if some are gone, as `read` does.
        """
        asked, there = self._asked
        # What a broker releases in between is found out by the tasks.
        return self._plan(start, end, there if asked == end else self._extents())

    def held_rows(self, parts: Sequence[Partition]) -> list[pa.RecordBatch] | None:
        """The rows of a batch that is one small answer of a broker; None for other batches."""
        most = self._options.events_per_trigger_max
        if len(parts) != 1 or (most is not None and most > HELD_EVENTS_MAX):
            return None
        (part,) = parts
        if not isinstance(part, TickRange):
            return None
        found = self._reader.read_small(part, HELD_BYTES_MAX)
        if found is None:
            return None
        columns = self._column_reader
        return [self._scan.rows_of(part.pubend, each, columns, is_archived=False) for each in found]

    def everything(self) -> list[Partition]:
        """The ranges that tasks read for all there is now, from the start that was asked for."""
        return self._everything()[0]

    def batch(self) -> list[Partition | NewerEvents]:
        """The ranges for all there is now, and what a task reads for all that will have come until then."""
        parts, end = self._everything()
        if self._options.as_of is not None:
            return list(parts)
        return [*parts, NewerEvents(dict(end), self._first_base, self._options.end)]

    def _everything(self) -> tuple[list[Partition], CheckpointToken]:
        there = self._extents()
        start = initial(self._options.start, there, self._archive.gaps)
        end = latest(start, there, ceiling(self._options.end, there))
        # A batch read takes all that is archived from there, and spares the broker. A stream is near the end.
        return self._plan(start, end, there, from_archive=True), end

    def _plan(
        self,
        start: CheckpointToken,
        end: CheckpointToken,
        there: dict[str, PubendExtent],
        *,
        from_archive: bool = False,
    ) -> list[Partition]:
        if self._options.fail_on_gap:
            check_gaps(start, end, there, self._archive.gaps, self._first_base)
        archived: list[TickRange] = []
        live: list[Partition] = []
        for whole in self._ranges(start, end):
            extent = there.get(whole.pubend)
            border = self._border(whole, extent, from_archive=from_archive)
            if whole.base < border:
                archived.append(TickRange(whole.pubend, whole.base, border))
            if extent is not None and border < whole.upto:
                live += self._live_parts(TickRange(whole.pubend, border, whole.upto), extent)
        return [*self._archived_parts(archived), *live]

    def _border(self, whole: TickRange, extent: PubendExtent | None, *, from_archive: bool) -> int:
        """The tick up to which a range is read from the archive, and from which on from the broker."""
        if extent is None or not extent.bytes:
            return whole.upto
        border = extent.lost
        reach = min(self._archive.reach(whole.pubend), whole.upto) if from_archive else TICK_MIN
        if reach > max(border, whole.base) and not self._archive.gaps(whole.pubend, whole.base, reach):
            border = reach
        return min(max(border, whole.base), whole.upto)

    def _archived_parts(self, ranges: Sequence[TickRange]) -> list[Partition]:
        """What tasks read from the archive, small ranges together."""
        parts: list[list[TickRange]] = []
        size = 0
        for each, each_bytes in self._archive.parts(ranges, self._wanted) if ranges else ():
            if not parts or size + each_bytes > ARCHIVE_PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(each)
            size += each_bytes
        return [ArchivedRanges(tuple(part)) for part in parts]

    def close(self) -> None:
        """Disconnect."""
        if self._ahead is not None and self._other is not None:
            self._ahead.close()
            self._other.close()
        self._broker.close()

    @property
    def _first_base(self) -> int:
        """Where a pubend starts that appeared after the query: at the start time, if the query has one."""
        tick = self._options.start.tick
        return TICK_MIN if tick is None else tick

    def _extents(self) -> dict[str, PubendExtent]:
        if isinstance(self._archive, PastArchive):
            # The brokers have no part in it: everything is where the archive was.
            return {name: PubendExtent(upto, upto, upto, 0) for name, upto in self._archive.covered.items()}
        return pubend_extents(self._broker.pubends())

    def _ranges(self, start: CheckpointToken, end: CheckpointToken) -> list[TickRange]:
        """The ranges between the tokens, the one that is furthest behind first."""
        ranges = [TickRange(name, start.get(name, self._first_base), upto) for name, upto in end.items()]
        return sorted((each for each in ranges if each.base < each.upto), key=lambda each: each.base)

    def _limited(
        self,
        start: CheckpointToken,
        end: CheckpointToken,
        there: dict[str, PubendExtent],
        events_max: int,
    ) -> CheckpointToken:
        """A token up to which there are `events_max` events at most; each pubend gets an equal share."""
        left, token = events_max, start
        ranges = self._ranges(start, end)
        for index, whole in enumerate(ranges):
            share = left // (len(ranges) - index)
            if share:
                upto, found = self._reach(whole, there.get(whole.pubend), share)
                token, left = token.advance(whole.pubend, upto), left - found
        return token

    def _reach(self, whole: TickRange, extent: PubendExtent | None, events_max: int) -> tuple[int, int]:
        """As `RangeReader.reach`; what is read from the archive is counted by its columns."""
        border = self._border(whole, extent, from_archive=False)
        archived = TickRange(whole.pubend, whole.base, border)
        found = 0
        counted = replace(self._columns, names=("_tick",))
        parts = self._archive.parts([archived], self._wanted) if whole.base < border else []
        for number, (part, _) in enumerate(parts):
            if number == ARCHIVE_PARTS_COUNTED_MAX:
                return part.base, found
            for item in self._archive.rows([part], counted):
                if isinstance(item, TickRange):
                    rest = TickRange(whole.pubend, item.base, whole.upto)
                    upto, more = self._reader.reach(rest, events_max - found)
                    return upto, found + more
                if found + item.num_rows >= events_max:
                    return item.column("_tick")[events_max - found - 1].as_py(), events_max
                found += item.num_rows
        if border == whole.upto or found == events_max:
            return border, found
        upto, more = self._reader.reach(TickRange(whole.pubend, border, whole.upto), events_max - found)
        return upto, found + more

    def _live_parts(self, whole: TickRange, extent: PubendExtent) -> list[TickRange]:
        most = self._options.events_per_trigger_max
        if extent.bytes <= PARTITION_BYTES or (most is not None and most <= PARTITION_EVENTS_MIN):
            return [whole]

        def bytes_per_tick(first: int) -> float:
            begins = (
                self._reader.probe(whole.pubend, extent.lost, extent.end)
                if whole.base > extent.lost
                else first
            )
            return extent.bytes / max(1, extent.end - begins)

        return split(whole, bytes_per_tick, lambda at, upto: self._reader.probe(whole.pubend, at, upto))
