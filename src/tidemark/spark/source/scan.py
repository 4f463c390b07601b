"""A scan: all that a query reads, as the driver plans it and as tasks carry it out. Imports no pyspark.

`Planner` is the driver's side: it turns checkpoint tokens into tick ranges. `SourceScan` is what goes to the
tasks: the options, the columns, and how a range is read. Each task has a connection of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.errors import ConfigError
from tidemark.spark.connections import CONNECT_SECONDS_MAX, BrokerConnection, retrying_client
from tidemark.spark.options import SourceOptions
from tidemark.spark.source.offsets import Place, check_gaps, initial, latest, lost, places
from tidemark.spark.source.partitions import TickRange, split, split_evenly
from tidemark.spark.source.reading import LostRange, RangeReader, ReleasedHistory, archive_at
from tidemark.spark.topic_columns import TopicColumnReader, TopicColumns, make_topic_columns
from tidemark.ticks import TICK_MIN, CheckpointToken

if TYPE_CHECKING:
    import pyarrow as pa

#: An idle query asks for news once in this time instead of every 10 ms.
IDLE_SECONDS = 0.2
_IDLE_SLEEP_SECONDS = 0.02
_log = logging.getLogger("tidemark.spark")


def archive_beside(broker: str, retry_seconds: float) -> str | None:
    """The archive that keeps what these brokers let go, if it can be read from here."""
    with retrying_client(broker, min(CONNECT_SECONDS_MAX, retry_seconds)) as asked:
        told: list[str] = list(dict.fromkeys(asked.ask("archive")))
    here = [path for path in told if Path(path).is_dir()]
    if len(here) == 1:
        return here[0]
    if told:
        _log.warning("%s is not here: what was let go is not read; name it with `archive`", " or ".join(told))
    return None


def located(options: SourceOptions) -> SourceOptions:
    """The same, with the archive that the brokers know of where none is named."""
    if options.archive is not None:
        return options
    return replace(options, archive=archive_beside(options.broker, options.retry_seconds))


def topic_columns_of(options: SourceOptions) -> TopicColumns:
    """What the query sees of the topics there are now."""
    if options.archive is not None and not Path(options.archive).is_dir():
        # Without it `earliest` would be what the broker still has, and nobody would notice the rest missing.
        raise ConfigError(
            f"there is no directory {options.archive}: correct it, or start the archive", key="archive"
        )
    with retrying_client(options.broker, min(CONNECT_SECONDS_MAX, options.retry_seconds)) as broker:
        return make_topic_columns(
            broker.ask("topics"),
            options.topic,
            options.selector,
            options.columns,
            gaps=not options.fail_on_gap,
        )


@dataclass(frozen=True, slots=True)
class SourceScan:
    """What to read and how it looks; sent to the tasks."""

    options: SourceOptions
    topic_columns: TopicColumns

    def where(self, selector: str) -> SourceScan:
        """The same, of fewer events."""
        both = (
            f"({self.topic_columns.selector}) AND ({selector})" if self.topic_columns.selector else selector
        )
        return replace(self, topic_columns=replace(self.topic_columns, selector=both))

    def read(self, part: TickRange) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; EventsLostError if some are gone and no gaps are wanted."""
        with retrying_client(self.options.broker, self.options.retry_seconds) as broker:
            column_reader = TopicColumnReader(self.topic_columns, lambda: broker.ask("topics"))
            for item in self.reader(broker, archive_at(self.options.archive), column_reader).read(part):
                if not isinstance(item, LostRange):
                    yield column_reader.records(part.pubend, item)
                elif self.options.fail_on_gap:
                    raise lost(part.pubend, item.base, item.upto)
                else:
                    yield column_reader.gap(part.pubend, item.base, item.upto)

    def reader(
        self, broker: BrokerConnection, archive: ReleasedHistory, column_reader: TopicColumnReader
    ) -> RangeReader:
        """What reads its ranges."""
        return RangeReader(
            broker, archive, self.topic_columns.pattern, self.topic_columns.selector, column_reader.chosen
        )


class Planner:
    """The driver's side of a scan. Holds a connection."""

    def __init__(self, scan: SourceScan) -> None:
        self._options = scan.options
        self._broker = retrying_client(scan.options.broker, scan.options.retry_seconds)
        self._archive = archive_at(scan.options.archive)
        column_reader = TopicColumnReader(scan.topic_columns, lambda: self._broker.ask("topics"))
        self._reader = scan.reader(self._broker, self._archive, column_reader)
        #: of a query that reads only what was there when it started
        self._ceiling: CheckpointToken | None = None

    def initial(self) -> CheckpointToken:
        """Where a new query starts."""
        return initial(self._options.start, self._places(), self._archive.gaps)

    def newest(self) -> CheckpointToken:
        """All there is to read now."""
        return latest(CheckpointToken(), self._places())

    def stop_at_newest(self) -> None:
        """From now on, what comes later is not there."""
        self._ceiling = self.newest()

    def latest(self, start: CheckpointToken, events_max: int | None) -> CheckpointToken:
        """How far the next batch goes; waits a little when there is nothing."""
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            there = self._places()
            end = latest(start, there, self._ceiling)
            if end != start:
                return end if events_max is None else self._limited(start, end, events_max)
            if self._ceiling is not None or time.monotonic() >= deadline:
                return start
            time.sleep(_IDLE_SLEEP_SECONDS)

    def partitions(self, start: CheckpointToken, end: CheckpointToken) -> list[TickRange]:
        """Who reads what of a batch; EventsLostError if some of it is gone and no gaps are wanted."""
        return self._plan(start, end, self._places())

    def everything(self) -> list[TickRange]:
        """Who reads what of all there is now, from the start that was asked for."""
        there = self._places()
        start = initial(self._options.start, there, self._archive.gaps)
        return self._plan(start, latest(start, there), there)

    def _plan(self, start: CheckpointToken, end: CheckpointToken, there: dict[str, Place]) -> list[TickRange]:
        if self._options.fail_on_gap:
            check_gaps(start, end, there, self._archive.gaps, self._floor)
        return [
            part for whole in self._ranges(start, end) for part in self._parts(whole, there.get(whole.pubend))
        ]

    def close(self) -> None:
        """Disconnect."""
        self._broker.close()

    @property
    def _floor(self) -> int:
        """Where a pubend starts that came up later: from a time on means that time for it too."""
        tick = self._options.start.tick
        return TICK_MIN if tick is None else tick

    def _places(self) -> dict[str, Place]:
        return places(self._broker.ask("pubends"))

    def _ranges(self, start: CheckpointToken, end: CheckpointToken) -> list[TickRange]:
        """What lies between the tokens, that which is furthest behind first."""
        ranges = [TickRange(name, start.get(name, self._floor), upto) for name, upto in end.items()]
        return sorted((each for each in ranges if each.base < each.upto), key=lambda each: each.base)

    def _limited(self, start: CheckpointToken, end: CheckpointToken, events_max: int) -> CheckpointToken:
        """A token up to which there are so many events at most; each pubend gets its share of them."""
        left, token = events_max, start
        ranges = self._ranges(start, end)
        for index, whole in enumerate(ranges):
            share = left // (len(ranges) - index)
            if share:
                upto, found = self._reader.reach(whole, share)
                token, left = token.advance(whole.pubend, upto), left - found
        return token

    def _parts(self, whole: TickRange, place: Place | None) -> list[TickRange]:
        """The archive's part and the broker's, each cut to pieces when it is large."""
        if place is None or not place.bytes:
            return self._archived_parts(whole)
        border = min(max(place.lost, whole.base), whole.upto)
        archived = TickRange(whole.pubend, whole.base, border)
        live = TickRange(whole.pubend, border, whole.upto)
        parts = self._archived_parts(archived) if whole.base < border else []
        return parts + (self._live_parts(live, place) if border < whole.upto else [])

    def _live_parts(self, whole: TickRange, place: Place) -> list[TickRange]:
        def bytes_per_tick(first: int) -> float:
            begins = (
                self._reader.probe(whole.pubend, place.lost, place.end) if whole.base > place.lost else first
            )
            return place.bytes / max(1, place.end - begins)

        return split(whole, bytes_per_tick, lambda at, upto: self._reader.probe(whole.pubend, at, upto))

    def _archived_parts(self, whole: TickRange) -> list[TickRange]:
        first = next(self._archive.read(whole.pubend, whole.base, whole.upto, ">"), None)
        return [whole] if first is None else split_evenly(whole, int(first.ticks[0]))
