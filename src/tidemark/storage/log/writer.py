"""The writer of a log volume: puts groups of records into the tail, and starts a new segment when it is full.

A group is one write into one segment, with what it changes in the catalogue: streams it names for the first
time before its records, chops after them. A crash leaves a prefix, so neither is ever true too early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.catalogue import Entry, encode_catalogue
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.record import CATALOGUE_STREAM, record_bytes
from tidemark.storage.log.recovery import RecoveredVolume
from tidemark.storage.log.segments.open_segments import Segments
from tidemark.storage.log.segments.tail import TailSegment
from tidemark.storage.log.stream import Pending


class VolumeWriter:
    """Owns the tail. Errors of the disk come through; a full disk leaves everything as it was."""

    def __init__(self, disk: Disk, identity: int, found: RecoveredVolume, segment_bytes: int) -> None:
        self._disk = disk
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._segments: Segments = found.segments
        self._tail: TailSegment | None = found.tail
        self._epoch = found.epoch
        #: of the newest segment there is or was
        self.number = found.last_number
        #: catalogue records are numbered only so that a stale one can be told; numbers may be left out
        self._catalogue_last = found.catalogue_last
        #: something was written since the volume was opened
        self._used = False

    def write(
        self,
        group: Sequence[Pending],
        listed: Sequence[Entry],
        chops: Sequence[Entry],
        known: Callable[[], list[Entry]],
    ) -> tuple[int, list[int]]:
        """Write the group; its segment, and the offset of each record of it.

        `listed` are the streams that the catalogue does not have yet, `known` all others.
        """
        before = encode_catalogue(listed, whole=False) if listed else b""
        after = encode_catalogue(chops, whole=False) if chops else b""
        size = sum(record_bytes(record.length) for record in group)
        tail = self._room_for(size + 2 * (record_bytes(len(before)) + record_bytes(len(after))), known)
        named = self._twice(before)
        offsets = tail.write([*named, *group, *self._twice(after)])
        self._used = True
        return tail.number, offsets[len(named) : len(named) + len(group)]

    def sync(self) -> None:
        """Return when all that was written is on the platter."""
        if self._tail is not None:
            self._tail.sync()

    def reclaim(self) -> None:
        """Remove dead segments. All chops are on the platter, and so is the tail's whole catalogue."""
        dead = self._segments.dead(self._tail.number) if self._tail is not None else []
        for number in dead:
            self._segments.retire(number)
        if dead:
            self._disk.sync_directory()

    def close(self) -> None:
        """Let go of the tail, after a last record that says nothing but that all before it was synced.

        Without it, rot in the last records would look like a tail that a crash has torn.
        """
        if self._tail is None:
            return
        if self._used:
            self._tail.sync()
            self._tail.write(self._twice(encode_catalogue([], whole=False)))
            self._tail.sync()
        self._tail.file.close()

    def abandon(self) -> None:
        """Let go of the tail and write nothing."""
        if self._tail is not None:
            self._tail.file.close()

    def _room_for(self, size: int, known: Callable[[], list[Entry]]) -> TailSegment:
        """The segment for so many bytes: a write never spans two."""
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
        """Two records that say the same, so that losing one costs nothing; none for nothing."""
        if not payload:
            return []
        check, first = crc32c(payload), self._catalogue_last + 1
        self._catalogue_last += 2
        return [
            Pending(CATALOGUE_STREAM, index, 0, len(payload), check, [payload])
            for index in (first, first + 1)
        ]
