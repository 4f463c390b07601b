"""The writer of a log volume: writes groups of records to the last segment, and starts a new one in time.

A group is one write into one segment, with the changes of the catalogue that belong to it: streams that are
new come before its records, chops come after them. A crash leaves a prefix of the group, so that no record is
there without its stream's name, and nothing is chopped before the group is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.catalogue import Entry, encode_catalogue
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.record import CATALOGUE_STREAM, record_bytes
from tidemark.storage.log.recovery import RecoveredVolume
from tidemark.storage.log.segments.durable_end import NOWHERE, DurableEnd
from tidemark.storage.log.segments.open_segments import Segments
from tidemark.storage.log.segments.tail import TailSegment
from tidemark.storage.log.stream import Pending

#: Room that is kept for the catalogue beside a group that does not change it.
_NO_CATALOGUE_BYTES = 4 * record_bytes(0)


class VolumeWriter:
    """Owns the last segment. Raises the disk's errors; a full disk leaves everything as it was."""

    def __init__(self, disk: Disk, identity: int, found: RecoveredVolume, segment_bytes: int) -> None:
        self._disk = disk
        self._identity = identity
        self._segment_bytes = segment_bytes
        #: shared with the volume, which counts live records there; the writer adds new segments
        self._segments: Segments = found.segments
        self._tail: TailSegment | None = found.tail
        self._epoch = found.epoch
        #: the number of the newest segment that exists or ever did
        self.number = found.last_number
        #: index of the last catalogue record; indexes only serve to recognise a stale one and may have gaps
        self._catalogue_last = found.catalogue_last
        #: whether something was written since the volume was opened
        self._used = False

    @property
    def place(self) -> DurableEnd:
        """Everything before this place is on the platter."""
        tail = self._tail  # another thread may ask while a new segment is begun
        return NOWHERE if tail is None else DurableEnd(tail.number, tail.synced)

    def write(
        self,
        group: Sequence[Pending],
        listed: Sequence[Entry],
        chops: Sequence[Entry],
        known: Callable[[], list[Entry]],
    ) -> tuple[int, list[int]]:
        """Write the group. Returns the number of its segment, and the offset of each of its records.

        `listed` are the streams that the catalogue does not have yet; `known` returns all others. Raises
        DiskFullError or DiskFailedError.
        """
        before = encode_catalogue(listed, whole=False) if listed else b""
        after = encode_catalogue(chops, whole=False) if chops else b""
        size = _NO_CATALOGUE_BYTES
        if before or after:
            size = 2 * (record_bytes(len(before)) + record_bytes(len(after)))
        for record in group:
            size += record_bytes(record.length)
        tail = self._tail
        if tail is None or tail.size + size > self._segment_bytes:
            tail = self._room_for(size, known)
        if not before and not after:
            offsets = tail.write(group)
        else:
            named = self._twice(before)
            offsets = tail.write([*named, *group, *self._twice(after)])
            offsets = offsets[len(named) : len(named) + len(group)]
        self._used = True
        return tail.number, offsets

    def sync(self) -> None:
        """Return when all that was written is on the platter. Raises DiskFailedError."""
        if self._tail is not None:
            self._tail.sync()

    def reclaim(self) -> None:
        """Remove segments whose records are all chopped. Call it after a sync.

        All chops are on the platter then, and so is the whole catalogue of the last segment. Nothing waits
        until the removal is on the platter too, since publishers would: a segment that is back after a crash
        is as dead as before, and is removed again.
        """
        for number in self._segments.dead(self._tail.number) if self._tail is not None else ():
            self._segments.retire(number)

    def close(self) -> None:
        """Close the last segment, after a last record whose header says that all before it was synced.

        Without that record, rot in the last records would look like a tail that a crash has torn.
        """
        if self._tail is None:
            return
        if self._used:
            self._tail.sync()
            self._tail.write(self._twice(encode_catalogue([], whole=False)))
            self._tail.sync()
        self._tail.file.close()

    def abandon(self) -> None:
        """Close the last segment and write nothing."""
        if self._tail is not None:
            self._tail.file.close()

    def _room_for(self, size: int, known: Callable[[], list[Entry]]) -> TailSegment:
        """Returns the segment to write so many bytes to, a new one if need be: a write never spans two."""
        tail = self._tail
        if tail is not None and tail.size + size > self._segment_bytes and not tail.fresh:
            tail.seal()
            tail.file.close()
            self._tail = None
        if self._tail is None:
            first = self._twice(encode_catalogue(known(), whole=True))
            self._tail = TailSegment.create(self._disk, self._identity, self.number + 1, self._epoch, first)
            self.number += 1
            self._segments.live[self.number] = 0
        return self._tail

    def _twice(self, payload: bytes) -> list[Pending]:
        """Returns two records with the same payload, so that losing one costs nothing.

        None for no payload.
        """
        if not payload:
            return []
        check, first = crc32c(payload), self._catalogue_last + 1
        self._catalogue_last += 2
        return [
            Pending(CATALOGUE_STREAM, index, 0, len(payload), check, [payload])
            for index in (first, first + 1)
        ]
