"""Reading a slice of the archive for many requests: every event is read once and matched with all lines.

The matcher is the brokers' own; it is compiled once for a scan in every process that reads slices of it. The
result of a slice is a file in the spool. Imports no pyspark: slices are read in the driver or in Spark tasks.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DamagedError
from tidemark.matching.audience import Audience
from tidemark.matching.matcher import Matcher
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools, Ints
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.scan import WantedRange, merged, scan
from tidemark.spark.archive.state import ArchiveTopics
from tidemark.spark.archive_scan.slices import Slice
from tidemark.spark.deep.spool import SliceWriter
from tidemark.spark.deep.tasks import ScanWork, SliceResult
from tidemark.spark.stores.folder import Folder

#: Compiled matchers that a process keeps, since scans take turns.
COMPILED_MAX = 8

_Sets = NDArray[np.uint32]


class CompiledLines:
    """The lines of one pubend, compiled into a matcher, and the schemas to read events with."""

    def __init__(self, work: ScanWork, pubend: str) -> None:
        self.topics = ArchiveTopics(work.topics)
        self.audience = Audience(self.topics.registry)
        lines = work.lines.wanted_of(pubend)
        self.patterns = {TopicPattern.parse(each) for each in {wanted.pattern for _, wanted in lines}}
        for number, wanted in lines:
            self.audience.add(number, wanted.pattern, wanted.selector)
        #: only one thread at a time may use a matcher
        self.lock = Lock()


_compiled: OrderedDict[tuple[str, str], CompiledLines] = OrderedDict()
_compiling = Lock()


def compiled(work: ScanWork, pubend: str) -> CompiledLines:
    """The compiled lines of a scan for a pubend, from this process's cache if they are there."""
    key = work.key, pubend
    with _compiling:
        if key not in _compiled:
            _compiled[key] = CompiledLines(work, pubend)
        _compiled.move_to_end(key)
        while len(_compiled) > COMPILED_MAX:
            _compiled.popitem(last=False)
        return _compiled[key]


def read_slice(work: ScanWork, part: Slice, prefix: str) -> SliceResult:
    """Read and match a slice; the name of the file that it writes begins with `prefix`.

    Raises DamagedError if the archive lacks the schema of one of its own events.
    """
    name = f"{prefix}-{os.urandom(6).hex()}"
    matcher = compiled(work, part.pubend)
    writer = SliceWriter(work.spool, name)
    sets = _SliceSets(work.lines.active(part))
    count = 0
    try:
        for batch in _events(work, part, matcher):
            count += batch.count
            _check_known(matcher.audience, batch, work.spool)
            with matcher.lock:
                wanted, of_row = sets.of(matcher.audience, batch)
            if wanted.any():
                writer.add(batch, np.flatnonzero(wanted), of_row[wanted])
        if not writer.kept:
            return SliceResult(read=count)
        return SliceResult(name, writer.close(*sets.lines()), count, writer.kept)
    except BaseException:
        writer.discard()
        raise


def _events(work: ScanWork, part: Slice, matcher: CompiledLines) -> Iterator[EventBatch]:
    base = part.base if part.released is None else max(part.base, part.released)
    if base >= part.upto:
        return
    (pattern,) = matcher.patterns if len(matcher.patterns) == 1 else (None,)
    wanted = WantedRange(part.pubend, base, part.upto, pattern)
    streams = [
        scan(
            files,
            wanted,
            matcher.topics.schemas,
            ArchiveLayout.from_bytes(work.layouts[root]),
        )
        for root, files in part.files.items()
    ]
    yield from streams[0] if len(streams) == 1 else merged(streams)


def _check_known(audience: Audience, batch: EventBatch, spool: Folder) -> None:
    row = audience.unknown_from(batch)
    if row is not None:
        shape = batch.shapes[int(batch.prelude("shape")[row])]
        reason = (
            f"the archive lacks the schema of an event of {shape.topic!r} that is archived: restore "
            "topics.json from a copy"
        )
        raise DamagedError(reason, path=spool.text, offset=0)


class _SliceSets:
    """The match sets met in one slice, numbered from 0 on, without lines that want nothing of the slice."""

    def __init__(self, active: Bools) -> None:
        self._active = active
        #: topic and the matcher's number -> number here; None if no line of the set wants anything of the
        #: slice
        self._numbers: dict[tuple[str, int], int | None] = {}
        self._count = 0
        self._lines: list[_Sets] = []
        self._sets: list[_Sets] = []

    def of(self, audience: Audience, batch: EventBatch) -> tuple[Bools, _Sets]:
        """wanted[row], and set[row] for the wanted rows."""
        wanted = np.zeros(batch.count, np.bool_)
        of_row = np.zeros(batch.count, np.uint32)
        for topic, rows, numbers, matcher in audience.match_sets(batch):
            distinct, which = np.unique(numbers, return_inverse=True)
            self._meet(topic, distinct, matcher)
            here = [self._numbers.get((topic, number)) for number in distinct.tolist()]
            known = np.array([each is not None for each in here], np.bool_)
            table = np.array([each or 0 for each in here], np.uint32)
            wanted[rows], of_row[rows] = known[which], table[which]
        return wanted, of_row

    def _meet(self, topic: str, distinct: _Sets, matcher: Matcher) -> None:
        """Give numbers to the sets that were not met before."""
        news = np.array(
            [each for each in distinct.tolist() if each and (topic, each) not in self._numbers], np.uint32
        )
        if not len(news):
            return
        which, lines = matcher.members_of(news)
        keep = self._active[lines]
        which, lines = which[keep], lines[keep]
        there = np.zeros(len(news), np.bool_)
        there[which] = True
        numbers = np.cumsum(there) - 1 + self._count
        self._count += int(there.sum())
        self._lines.append(lines)
        self._sets.append(numbers[which].astype(np.uint32))
        for each, number, is_there in zip(news.tolist(), numbers.tolist(), there.tolist(), strict=True):
            self._numbers[topic, each] = number if is_there else None

    def lines(self) -> tuple[_Sets, _Sets]:
        """line[n], set[n]: line n is in that set; sorted by line."""
        lines, sets = np.concatenate(self._lines), np.concatenate(self._sets)
        order: Ints = np.argsort(lines, kind="stable")
        return lines[order], sets[order]
