"""The tail: the last segment of a volume, which is being written."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.errors import DiskFullError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.disk.disk import Disk, File
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.record import (
    ALIGNMENT,
    FOOTER_STREAM,
    encode_header,
    record_bytes,
    seed_of,
)
from tidemark.storage.log.rows import NO_ROWS, RecordRows, RowTable
from tidemark.storage.log.segments.segment import (
    SEGMENT_HEADER_BYTES,
    encode_segment_header,
    encode_trailer,
    segment_name,
)
from tidemark.storage.log.stream import Pending

_PADDING = [bytes(count) for count in range(ALIGNMENT)]


class TailSegment:
    """A segment file that grows. A write is one call to the disk and is done wholly or not at all."""

    def __init__(
        self, file: File, identity: int, number: int, size: int, rows: RecordRows, epoch: int
    ) -> None:
        self.file = file
        self.number = number
        #: bytes in the file, and below which offset they are on the platter
        self.size = size
        self.synced = size
        #: whether nothing was written but the first records
        self.fresh = False
        self._epoch = epoch
        self._seed = seed_of(identity, number)
        #: the places of all records, for the footer; `homes` are streams
        self._table = RowTable(rows)

    @classmethod
    def create(
        cls, disk: Disk, identity: int, number: int, epoch: int, first: Sequence[Pending]
    ) -> TailSegment:
        """Create a segment with its first records; all of it, the name too, is on the platter on return.

        Raises DiskFullError, with no segment left, or DiskFailedError.
        """
        name = segment_name(number)
        file = disk.create(name)
        tail = cls(file, identity, number, SEGMENT_HEADER_BYTES, NO_ROWS, epoch)
        tail.synced = 0
        tail.fresh = True
        try:
            tail._write([encode_segment_header(identity, number)], first)
        except DiskFullError:
            file.close()
            disk.remove(name)
            raise
        tail.sync()
        disk.sync_directory()
        return tail

    def write(self, records: Sequence[Pending]) -> list[int]:
        """Append the records, all or none. Returns their offsets. Raises DiskFullError or DiskFailedError."""
        offsets = self._write([], records)
        self.fresh = False
        return offsets

    def sync(self) -> None:
        """Return when all that was written is on the platter. Raises DiskFailedError."""
        if self.synced < self.size:
            self.file.sync()
            self.synced = self.size

    def seal(self) -> None:
        """Write the footer and sync: nothing is written to the segment after that."""
        rows = self._table.rows.tobytes()
        footer = Pending(FOOTER_STREAM, self.number, 0, len(rows), crc32c(rows), [rows])
        pieces, _, _ = self._encode([footer])
        self.file.append([*pieces, encode_trailer(self.size, self._seed)])
        self.file.sync()

    def _write(self, before: list[Buffer], records: Sequence[Pending]) -> list[int]:
        pieces, offsets, end = self._encode(records)
        # A part of one record is worth nothing, so its bytes may get to the platter in any order. Of several
        # records, a later one must not survive without an earlier one.
        self.file.append(before + pieces, as_one=not before and len(records) == 1)
        for record, offset in zip(records, offsets, strict=True):
            self._table.add(record.index, record.mark, record.stream, offset, record.length)
        self.size = end
        return offsets

    def _encode(self, records: Sequence[Pending]) -> tuple[list[Buffer], list[int], int]:
        """Returns the bytes of the records, the offset where each starts, and where the last one ends."""
        pieces: list[Buffer] = []
        offsets: list[int] = []
        at = self.size
        for record in records:
            header = (
                *(record.length, record.payload_check, record.stream),
                *(record.index, record.mark, self._epoch, self.synced),
            )
            pieces.append(encode_header(header, at, self._seed))
            pieces += record.pieces
            if record.length % ALIGNMENT:
                pieces.append(_PADDING[-record.length % ALIGNMENT])
            offsets.append(at)
            at += record_bytes(record.length)
        return pieces, offsets, at
