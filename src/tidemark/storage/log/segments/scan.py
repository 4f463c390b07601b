"""Reading a segment record by record, when it has no footer that can be trusted.

The scan finds every whole record, and reports the bytes between them. From bytes that are no record it goes
on at the next place where a record starts, so damage costs what it hit and nothing after it.
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
    """Bytes from `offset` to `end` that are not a whole record."""

    offset: int
    end: int
    #: the header, if only the payload is rotten
    header: Header | None
    #: The bytes had been synced, as a later record says. Otherwise they may come from a crash.
    synced: bool


class Scanned(NamedTuple):
    """The records of a segment. `homes` of the rows are streams; the footer is not among the rows."""

    rows: RecordRows
    regions: list[Region]
    #: where the last whole record ends; all regions at or beyond it are the tail
    end: int
    epoch: int


def scan(data: bytes, first: int, seed: int) -> Scanned:
    """Returns every whole record of `data`, the bytes of a segment, from the offset `first` on."""
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
        #: stream -> index of its last record; a record whose index is not greater is stale
        self._last: dict[int, int] = {}

    def step(self, at: int) -> int:
        """Take the record or the damage at `at`. Returns where to go on."""
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
            # After the footer comes only the trailer, and the footer has nothing that the records do not
            # have.
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
        """Returns the next place where a header passes its check, or the end of the data."""
        for at in _candidates(self.data, start).tolist():
            header = header_at(self.data, at, at, self.seed)
            if header is not None and self._follows(header):
                return int(at)
        return len(self.data)


def _candidates(data: memoryview, start: int) -> Ints:
    """Returns the offsets from `start` on where the bytes could be a header; few in random bytes or zeros."""
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
