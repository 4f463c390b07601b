"""Reading a segment record by record, when there is no footer to trust.

Finds every whole record, and says of the bytes between them what is known. Bytes that are no record are
skipped to the next place where one starts, so damage costs what it hit and nothing after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidemark.message.batches.columns import Ints
from tidemark.storage.log.record import (
    ALIGNMENT,
    FOOTER_STREAM,
    HEADER_BYTES,
    Header,
    header_at,
    payload_at,
    record_bytes,
)
from tidemark.storage.log.rows import RecordRows, RowTable, Words

_WORD = 4
#: Places of the header's numbers, in words (record.py).
_LENGTH, _STREAM, _EPOCH, _SYNCED = 1, 3, 8, 9
_STREAMS_MAX = 1 << 24


class Region(NamedTuple):
    """Bytes `offset` to `end` that are not a whole record; `header` if it is one with a rotten payload."""

    offset: int
    end: int
    header: Header | None
    #: it had been synced: a later record says so. Otherwise a crash may have made it.
    synced: bool


class Scanned(NamedTuple):
    """What is in a segment. `homes` of the rows are streams; the footer is not among the rows."""

    rows: RecordRows
    regions: list[Region]
    #: where the last whole record ends; all regions at or beyond it are the tail
    end: int
    epoch: int


def scan(data: bytes, first: int, seed: int) -> Scanned:
    """Every whole record from `first` on."""
    reader = _Scanner(memoryview(data), seed)
    at = first
    reader.end = first
    while at < len(data):
        at = reader.step(at)
    regions = [
        region._replace(synced=reader.synced > region.offset)
        for region in reader.regions
        if not (region.header and region.header.stream == FOOTER_STREAM)
    ]
    return Scanned(reader.table.rows, regions, reader.end, reader.epoch)


class _Scanner:
    """The state of one scan."""

    def __init__(self, data: memoryview, seed: int) -> None:
        self.data = data
        self.seed = seed
        self.table = RowTable()
        self.regions: list[Region] = []
        self.end = 0
        self.epoch = 0
        self.synced = 0
        #: last index of each stream: a record that does not go beyond it is a stale one
        self._last: dict[int, int] = {}

    def step(self, at: int) -> int:
        """Take what is at `at`; where to go on."""
        header = header_at(self.data, at, at, self.seed)
        if header is None or not self._follows(header):
            stop = self._next_header(at + ALIGNMENT)
            self.regions.append(Region(at, stop, None, False))
            return stop
        stop = at + record_bytes(header.length)
        if payload_at(self.data, at, header) is None:
            self.regions.append(Region(at, stop, header, False))
            return stop
        if header.stream == FOOTER_STREAM:
            # What follows it is the trailer; the footer itself says nothing that the records do not.
            return len(self.data)
        self._take(header, at)
        self.end = stop
        return stop

    def _follows(self, header: Header) -> bool:
        return header.epoch >= self.epoch and header.serial > self._last.get(header.stream, 0)

    def _take(self, header: Header, at: int) -> None:
        self.table.add(header.serial, header.mark, header.stream, at, header.length)
        self._last[header.stream] = header.serial
        self.epoch = header.epoch
        self.synced = max(self.synced, header.synced)

    def _next_header(self, start: int) -> int:
        """The next place where a header's check holds, or the end of the data."""
        for at in _candidates(self.data, start).tolist():
            header = header_at(self.data, at, at, self.seed)
            if header is not None and self._follows(header):
                return int(at)
        return len(self.data)


def _candidates(data: memoryview, start: int) -> Ints:
    """Offsets from `start` on where a header's numbers would make sense; few in random bytes or zeros."""
    size = len(data)
    count = (size - start - HEADER_BYTES) // ALIGNMENT + 1
    if count <= 0:
        return np.zeros(0, np.int64)
    offsets = start + ALIGNMENT * np.arange(count, dtype=np.int64)
    words = np.frombuffer(data, "<u4", (size - start) // _WORD, start)
    step = ALIGNMENT // _WORD

    def field(place: int) -> Words:
        return words[place::step][:count]

    sensible = offsets + HEADER_BYTES + field(_LENGTH) <= size
    sensible &= (field(_STREAM) < _STREAMS_MAX) | (field(_STREAM) == FOOTER_STREAM)
    sensible &= field(_EPOCH) > 0
    sensible &= field(_SYNCED) <= offsets
    return offsets[sensible]
