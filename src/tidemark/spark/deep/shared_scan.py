"""One shared scan: the requests that arrived together, and how far history has been read for them.

History is read once for all requests, in waves of some slices each: small waves at first, so that the first
events leave early, then larger ones. After a wave each request gets what was found for it. Between waves the
archive may grow, be compacted, or lose old history, so every wave takes a new snapshot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from tidemark.spark.archive.reader import Snapshot
from tidemark.spark.archive_scan.slices import Slice, slices
from tidemark.spark.deep.request import ReadRange, Request
from tidemark.spark.deep.spool import SliceReader
from tidemark.spark.deep.tasks import PackedLines, ScanWork, WantedLine
from tidemark.spark.reports import ScanEnded
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MIN, union
from tidemark.ticks.tick import Range

#: About how much of files a slice reads.
SLICE_BYTES = 8 << 20
#: About how much of files the first wave reads, and any wave at most.
FIRST_WAVE_BYTES = 2 * SLICE_BYTES
WAVE_BYTES_MAX = 16 * SLICE_BYTES


class SharedScan:
    """The requests of one scan, and the tick up to which each pubend has been read for them."""

    def __init__(self, requests: Sequence[Request], found: Snapshot) -> None:
        """Each request wants something that the archive covers; what lies beyond is for another scan."""
        self.name = os.urandom(6).hex()
        self.events = self.bytes = self.waves = 0
        self.requests = list(requests)
        self._served = len(requests)
        self._began = time.monotonic()
        covered = found.state.covered
        #: request -> the tick up to which this scan reads for it
        self._goals = {each: min(each.recall.upto, covered.get(each.pubend, TICK_MIN)) for each in requests}
        lines: list[WantedLine] = []
        #: line -> its request
        self._request_of: list[Request] = []
        #: pubend -> its requests
        self._of: dict[str, list[Request]] = {}
        for each in requests:
            some = each.lines()
            each.begin(len(lines), some)
            lines += some
            self._request_of += [each] * len(some)
            self._of.setdefault(each.pubend, []).append(each)
        self._packed = PackedLines.of(lines)
        self._wanted = {
            pubend: sorted({each.wanted for each in lines if each.pubend == pubend}) for pubend in self._of
        }
        self._reached: dict[str, int] = {}
        self._wave_bytes = FIRST_WAVE_BYTES

    def leave(self, request: Request) -> None:
        """Read nothing more for a request."""
        if request in self._goals:
            del self._goals[request]
            self.requests.remove(request)
            request.finish()

    @property
    def is_done(self) -> bool:
        """Is there nothing left to read?"""
        return not self._goals

    def summary(self) -> ScanEnded:
        """The report of the scan, once it is done."""
        seconds = time.monotonic() - self._began
        return ScanEnded(self._served, self.waves, self.events, self.bytes, seconds)

    def wave(self, found: Snapshot) -> list[Slice]:
        """The slices to read next; of each pubend in the order of ticks."""
        for each in [each for each in self.requests if each.is_over]:
            self.leave(each)
        streams = {
            pubend: slices(found, pubend, self._ranges(pubend), self._wanted[pubend], SLICE_BYTES)
            for pubend in sorted({each.pubend for each in self.requests})
        }
        chosen: list[Slice] = []
        size = 0
        while streams and size < self._wave_bytes:
            for pubend, stream in list(streams.items()):
                part = next(stream, None)
                if part is None:
                    del streams[pubend]
                else:
                    chosen.append(part)
                    size += part.bytes
        self._wave_bytes = min(2 * self._wave_bytes, WAVE_BYTES_MAX)
        return chosen

    def _ranges(self, pubend: str) -> list[Range]:
        """The ranges of a pubend that are still to be read."""
        reached = self._reached.get(pubend, TICK_MIN)
        wanted = (
            (max(each.recall.position, reached), goal)
            for each, goal in self._goals.items()
            if each.pubend == pubend
        )
        return union(wanted)

    def work(self, found: Snapshot, spool: Folder) -> ScanWork:
        """What all slices of the next wave need."""
        layouts = {root: each.to_bytes() for root, each in found.layouts.items()}
        return ScanWork(self.name, spool, found.topics.described, layouts, self._packed)

    def deliver(self, parts: Sequence[Slice], readers: Sequence[SliceReader | None]) -> None:
        """Give each request what a wave has found for it; `readers[n]` has the events of `parts[n]`.

        A slice concerns the requests that it has something for. What lies between is silence, of which a
        request gets one range, before what comes next or at the end of the wave.
        """
        self.waves += 1
        told = _Told()
        for part, reader in zip(parts, readers, strict=True):
            told.begin(part.pubend, part.base)
            self._reached[part.pubend] = part.upto
            self.bytes += part.bytes
            for request in self._concerned(part, reader):
                goal = self._goals.get(request, TICK_MIN)
                base, upto = max(part.base, request.recall.position), min(part.upto, goal)
                if base < upto:
                    told.silence(request, base)
                    told.put(request, ReadRange(base, upto, part.gone, reader))
        for request, goal in list(self._goals.items()):
            reached = self._reached.get(request.pubend, TICK_MIN)
            told.silence(request, min(reached, goal))
            if reached >= goal or request.is_over:
                self.leave(request)

    def _concerned(self, part: Slice, reader: SliceReader | None) -> Iterable[Request]:
        """The requests that a slice has an event or a gap for, and perhaps some more."""
        if part.gone:
            return self._of[part.pubend]
        return () if reader is None else dict.fromkeys(map(self._request_of.__getitem__, reader.lines))


class _Told:
    """How far the requests of a scan have been told what one wave has read."""

    def __init__(self) -> None:
        #: pubend -> where the wave begins
        self._begun: dict[str, int] = {}
        self._upto: dict[Request, int] = {}

    def begin(self, pubend: str, base: int) -> None:
        """A slice begins here, perhaps the first one of the pubend."""
        self._begun.setdefault(pubend, base)

    def silence(self, request: Request, upto: int) -> None:
        """Tell a request that all it has not been told, up to here, is silence."""
        begun = self._begun.get(request.pubend, upto)
        base = self._upto.get(request, max(begun, request.recall.position))
        if base < upto:
            self.put(request, ReadRange(base, upto))

    def put(self, request: Request, read: ReadRange) -> None:
        """Tell a request this range."""
        self._upto[request] = read.upto
        request.put(read)
