"""What a micro-batch of the archive's query reads, and how a task reads it. Imports no pyspark.

The offset of the query is a checkpoint token: how far the archive will cover each pubend when the batch has
ended, and under `#` how many batches there were. But what a batch reads begins where the archive's state
says, not where the last offset ended: if the other engine has archived in between, or a broker went away in
the middle of a batch, the state knows and the offset does not. So a batch that Spark runs again reads only
what is not archived yet, and one that was cut short is completed by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemark import sync
from tidemark.errors import NotConnectedError, StoreAwayError, TimedOutError
from tidemark.spark.archive.archive import LARGE_ROUND_BYTES_MAX, PART_BYTES
from tidemark.spark.archive.part import FETCH_SECONDS, divided_backlog, fetched
from tidemark.spark.archive.plan import FetchTask, backlog, lost_before
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive_query.envelopes import ToldRange, from_events, from_range
from tidemark.spark.broker_answers import HostedPubend
from tidemark.spark.connections import ArchiveBrokers
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MIN, CheckpointToken

#: The key of an offset that counts batches; no pubend has such a name.
COUNT = "#"
_AWAY = (NotConnectedError, StoreAwayError, TimedOutError)
_log = logging.getLogger("tidemark.archive")

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class ArchiveRanges:
    """What one task reads: ranges of pubends, and ranges that are known to be lost."""

    tasks: tuple[FetchTask, ...] = ()
    lost: tuple[FetchTask, ...] = ()

    def read(self) -> Iterator[pa.RecordBatch]:
        """The envelopes of the events, and of what became of each range.

        Where a broker goes away, the range ends early: the next batch goes on from there.
        """
        for each in self.lost:
            yield from_range(ToldRange(each.pubend, each.base, each.upto, is_lost=True))
        for url in dict.fromkeys(task.broker for task in self.tasks):
            try:
                with sync.connect(url, timeout=FETCH_SECONDS, connect_timeout=FETCH_SECONDS / 6) as client:
                    for task in self.tasks:
                        if task.broker == url:
                            yield from _read(client, task)
            except _AWAY as error:
                _log.warning("%s: %s; the next batch goes on from there", url, error)


def _read(client: sync.Client, task: FetchTask) -> Iterator[pa.RecordBatch]:
    for answer in fetched(client, task):
        if answer.batch is not None:
            yield from from_events(task.pubend, answer.batch)
        if answer.lost > answer.base:
            gone = min(answer.lost, task.upto)
            yield from_range(ToldRange(task.pubend, answer.base, gone, is_lost=True))
        for base, upto in answer.damaged:
            yield from_range(ToldRange(task.pubend, base, upto, is_lost=True))
        yield from_range(ToldRange(task.pubend, answer.base, answer.upto))


class ArchivePlanner:
    """The driver's side of the source. It holds connections until `close`."""

    def __init__(self, path: Folder, urls: Sequence[str]) -> None:
        self._path = path
        self._brokers = ArchiveBrokers(urls)
        #: the token beyond which nothing is read, in a query that reads only what was there when it started
        self._ceiling: CheckpointToken | None = None
        #: the last batch that was planned: its offset, and what its tasks read
        self._planned: tuple[Offset, list[ArchiveRanges]] = ({}, [])

    def close(self) -> None:
        """Disconnect."""
        self._brokers.close()

    def initial(self) -> Offset:
        """The offset that a new checkpoint begins with: what is covered."""
        return {**self._covered(), COUNT: 0}

    def newest(self) -> Offset:
        """How far the brokers are; what is covered of those that do not answer."""
        return {**self._covered(), **{each.pubend: each.position for each in self._pubends()}}

    def stop_at_newest(self) -> None:
        """From now on, read nothing beyond what is there now."""
        self._ceiling = CheckpointToken({each.pubend: each.position for each in self._pubends()})

    def latest(self, start: Mapping[str, int]) -> Offset:
        """The offset of the next batch; `start` if there is nothing to archive, or no broker answers."""
        covered = self._covered()
        pubends = self._pubends()
        if self._ceiling is not None:
            pubends = [_bounded(each, self._ceiling.get(each.pubend, TICK_MIN)) for each in pubends]
        ranges = self._ranges(pubends, covered)
        reached = {each.pubend: each.upto for part in ranges for each in (*part.lost, *part.tasks)}
        if not reached:
            return dict(start)
        offset = {**covered, **reached, COUNT: start.get(COUNT, 0) + 1}
        self._planned = offset, ranges
        return offset

    def ranges(self, end: Mapping[str, int]) -> list[ArchiveRanges]:
        """What the tasks of the batch that ends with this offset read."""
        offset, ranges = self._planned
        if offset == dict(end):
            return ranges
        # Spark runs a batch of a former process again: whatever of it is archived already is left out.
        pubends = [_bounded(each, end.get(each.pubend, TICK_MIN)) for each in self._pubends()]
        return self._ranges(pubends, self._covered())

    def _covered(self) -> CheckpointToken:
        return load_state(self._path).covered

    def _pubends(self) -> list[HostedPubend]:
        """The pubends of the brokers that answer; none if no broker does."""
        try:
            return self._brokers.pubends()
        except _AWAY as error:
            _log.warning("%s", error)
            return []

    def _ranges(self, pubends: Sequence[HostedPubend], covered: CheckpointToken) -> list[ArchiveRanges]:
        lost = lost_before(pubends, covered)
        tasks = backlog(pubends, covered)
        if sum(task.bytes for task in tasks) > PART_BYTES:
            try:
                tasks = divided_backlog(tasks, LARGE_ROUND_BYTES_MAX, PART_BYTES, self._brokers.client)
            except _AWAY as error:
                _log.warning("%s", error)
                tasks = []
        parts = [ArchiveRanges(tasks=each) for each in packed(tasks, PART_BYTES)]
        return [ArchiveRanges(lost=tuple(lost)), *parts] if lost else parts


def packed(tasks: Sequence[FetchTask], part_bytes: int) -> list[tuple[FetchTask, ...]]:
    """Neighbouring tasks together, as long as they have no more bytes than a part."""
    parts: list[list[FetchTask]] = []
    size = 0
    for task in tasks:
        if not parts or size + task.bytes > part_bytes:
            parts.append([])
            size = 0
        parts[-1].append(task)
        size += task.bytes
    return [tuple(part) for part in parts]


def _bounded(pubend: HostedPubend, upto: int) -> HostedPubend:
    """The pubend as if it ended at this tick."""
    last = None if pubend.last_event is None else min(pubend.last_event, upto)
    return replace(pubend, position=min(pubend.position, upto), last_event=last)
