"""Reading many records of a stream with few reads of the disk."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tidemark.errors import DamagedError
from tidemark.storage.log.record import HEADER_BYTES, header_at, payload_at
from tidemark.storage.log.rows import RecordRows
from tidemark.storage.log.segments.open_segments import Segments
from tidemark.storage.log.segments.segment import read_record

#: How many bytes of other streams are read along rather than starting another read.
_GAP_BYTES_MAX = 4_096


def read_rows(segments: Segments, stream: int, rows: RecordRows) -> list[memoryview | None]:
    """Returns the payload of every row, None where the record is damaged."""
    payloads: list[memoryview | None] = []
    for first, last in pairwise([0, *_breaks(rows), rows.size]):
        payloads += _read_run(segments, stream, rows.select(slice(first, last)))
    return payloads


def _breaks(rows: RecordRows) -> list[int]:
    """Returns the positions of rows that do not follow the row before closely in the same segment."""
    ends = rows.offsets[:-1].astype(np.int64) + HEADER_BYTES + rows.lengths[:-1]
    apart = rows.offsets[1:] - ends > _GAP_BYTES_MAX
    breaks: list[int] = (np.flatnonzero(apart | (np.diff(rows.homes) != 0)) + 1).tolist()
    return breaks


def _read_run(segments: Segments, stream: int, rows: RecordRows) -> list[memoryview | None]:
    """Returns the payloads of rows that lie close together: by one read, or by many if that one fails."""
    number, offsets, lengths = int(rows.homes[0]), rows.offsets.tolist(), rows.lengths.tolist()
    file, seed = segments.file(number), segments.seed(number)
    base = offsets[0]
    try:
        data = memoryview(file.pread(base, offsets[-1] + HEADER_BYTES + lengths[-1] - base))
    except DamagedError:
        return [read_record(file, at, length, seed) for at, length in zip(offsets, lengths, strict=True)]
    payloads: list[memoryview | None] = []
    for offset, index in zip(offsets, rows.indexes.tolist(), strict=True):
        header = header_at(data, offset - base, offset, seed)
        ours = header is not None and (header.stream, header.serial) == (stream, index)
        payloads.append(payload_at(data, offset - base, header) if header and ours else None)
    return payloads
