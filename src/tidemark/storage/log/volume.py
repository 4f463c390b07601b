"""LogVolume: many log streams on one sequence of segment files (DSN'03 4.2).

A stream is a named sequence of records, whose indexes count from 1 as they are appended. A record also has a
mark, a number of the stream's owner that never decreases. Records wait in memory until `flush`; a flush is
one write, after which all of them are in the log or none. The volume promises:
- What was synced stays until it is chopped, and is read as it was written or reported as damaged.
- A flush that finds the disk full takes back everything appended since the last one. Reads go on, and more
  can be appended at once.
- After a failed write or sync nothing is written any more; reads go on.
- A damaged record leaves a hole in the indexes of its stream, which no other record fills; the file of its
  segment is kept.
- Nothing is deleted that was not chopped, and no file is changed that is not understood.
What a crash may lose: what was appended or chopped since the last sync; see `tidemark.storage.log`.

Bounds: 32 bytes of memory for each record, PENDING_BYTES_MAX of records that wait, a few open files. The
volume is used by one thread at a time: the owner's disk thread, where records gather while a sync runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tidemark.errors import DamagedError, DiskFailedError, DiskFullError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.catalogue import MARK_MIN, STREAM_NAME_BYTES_MAX, Entry
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.damage import Damage
from tidemark.storage.log.identity import VOLUME, identify
from tidemark.storage.log.reader import read_rows
from tidemark.storage.log.record import RECORD_BYTES_MAX
from tidemark.storage.log.recovery import RecoveredVolume, recover
from tidemark.storage.log.reserve import Reserve
from tidemark.storage.log.rows import RecordRows
from tidemark.storage.log.segments.durable_end import NOWHERE, DurableEnd
from tidemark.storage.log.segments.segment import SEGMENT_BYTES, segment_name
from tidemark.storage.log.stream import LogStream, Pending, Undo
from tidemark.storage.log.writer import VolumeWriter

#: How many bytes may wait for one flush; the owner must apply back-pressure before that.
PENDING_BYTES_MAX = 128 << 20
#: The pieces of a record of so many bytes are joined: one check and one piece cost less than copying them.
JOINED_BYTES_MAX = 4 << 10
#: How many bytes `read_some` returns unless told otherwise.
READ_BYTES = 1 << 20
#: How many records it returns unless it is told that there is no bound.
READ_RECORDS = 128


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it was appended."""

    index: int
    mark: int
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Records in order without damaged ones, complete up to the index `last`."""

    records: list[LogRecord]
    last: int


class LogVolume:
    """One volume, open. A stream is used by its name; one that was never appended to is empty."""

    def __init__(self, disk: Disk, identity: int, found: RecoveredVolume, segment_bytes: int) -> None:
        """Use `open`."""
        self._disk = disk
        #: shared with the writer, which adds new segments to it
        self._segments = found.segments
        self._writer = VolumeWriter(disk, identity, found, segment_bytes)
        self._reserve = Reserve(disk)
        #: every stream, by its name and by its number
        self._streams = {stream.name: stream for stream in found.streams.values()}
        self._by_id = found.streams
        #: Every segment was lost, or the volume is an older copy: a stream that is new here may have been
        #: there before, and gets a hole.
        self._is_emptied = found.is_emptied
        #: the number of the next new stream
        self._next_stream = found.next_stream
        #: reports of damage, of recovery and of reads
        self._damage = found.damage
        #: what the next flush writes, in order: streams that the catalogue does not have yet, records, chops
        self._unlisted: list[LogStream] = []
        self._group: list[Pending] = []
        self._group_bytes = 0
        self._chops: dict[str, int] = {}
        #: the failure after which nothing is written any more
        self._failure: DiskFailedError | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        identity: int,
        segment_bytes: int = SEGMENT_BYTES,
        synced: DurableEnd = NOWHERE,
        is_partial: bool = False,
    ) -> LogVolume:
        """Lock the directory and recover the volume in it, or create one. Returns the open volume.

        `identity` is a random number of 64 bits, for a volume that has to be created. Everything before
        `synced` is known to have been on the platter; a stream that may have lost its last records there
        gets a hole at its end. With `is_partial` whole streams may have been lost: one that is new begins
        with a hole. Damage that recovery found is in `damage`. Raises DirectoryLockedError,
        UnknownFormatError or DamagedError if the directory cannot be used; it is left as it is then.
        """
        disk.lock()
        try:
            identity = identify(disk, identity)
            found = recover(disk, identity, synced)
            found.is_emptied |= is_partial
            return cls(disk, identity, found, segment_bytes)
        except Exception:
            disk.unlock()
            raise

    @property
    def damage(self) -> tuple[Damage, ...]:
        """All damage found so far, by recovery and by reads. Sealed segments are not searched for it."""
        return tuple(self._damage)

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self._disk.path

    def standing_damage(self) -> list[Damage]:
        """Returns the damage that still matters: of records that are not chopped, and of live segments.

        May be asked by another thread than the one that uses the volume.
        """
        return [each for each in tuple(self._damage) if self._stands(each)]

    def _stands(self, damage: Damage) -> bool:
        if damage.stream is None:
            return not damage.segment or damage.segment in self._segments.live
        return damage.last_index > self._streams[damage.stream].chopped

    @property
    def place(self) -> DurableEnd:
        """Everything before this place is on the platter; NOWHERE before anything was written."""
        return self._writer.place

    def cut(self) -> dict[str, int | None]:
        """Returns the files that have everything before `place`: name -> how many of its bytes; None for all.

        These bytes do not change any more. A file may be removed by a later sync, when it is not needed.
        """
        place, names = self.place, {VOLUME: None}
        lengths = {
            segment_name(number): place.offset if number == place.segment else None
            for number in sorted(self._segments.live)
        }
        return {**names, **lengths}

    @property
    def streams(self) -> list[str]:
        """Names of the streams, sorted."""
        return sorted(self._streams)

    @property
    def pending_bytes(self) -> int:
        """Bytes of payload that wait for the next flush."""
        return self._group_bytes

    def has_room(self, size: int) -> bool:
        """Returns whether so many bytes may be appended that could also wait until after the next flush.

        Less than half of PENDING_BYTES_MAX is for them; the rest is for records that cannot wait.
        """
        return self._group_bytes + size <= PENDING_BYTES_MAX * 3 // 8

    @property
    def failure(self) -> DiskFailedError | None:
        """The failure after which nothing is written any more; None if there was none."""
        return self._failure

    def append(
        self,
        stream: str,
        pieces: Sequence[Buffer],
        mark: int = MARK_MIN,
        undo: Undo | None = None,
    ) -> int:
        """Append a record to the stream. Returns its index. Raises DiskFailedError after an earlier failure.

        The pieces are written as they are at the next flush and must not change before. If the flush has to
        take the record back, `undo` is called, that of the newest record first, and the next record gets the
        same index.
        """
        if self._failure is not None:
            self._refuse_after_failure()
        log = self._streams.get(stream) or self._stream(stream)
        length = sum(map(len, pieces))
        if length <= JOINED_BYTES_MAX:
            pieces = (b"".join(pieces),)
        assert length <= RECORD_BYTES_MAX
        assert self._group_bytes + length <= PENDING_BYTES_MAX
        assert mark >= log.last_mark
        record = Pending(log.id, log.next, mark, length, _check(pieces), pieces, undo)
        log.pending.append(record)
        self._group.append(record)
        self._group_bytes += length
        return record.index

    def chop(self, stream: str, upto: int) -> None:
        """Chop the stream's records up to the index `upto`, as far as they are flushed.

        The chop is part of the next flush; once that is synced, segments without live records are removed.
        Chopping the same again does nothing. Raises DiskFailedError after an earlier failure.
        """
        self._refuse_after_failure()
        log = self._stream(stream)
        upto = min(upto, log.last)
        if upto > max(log.chopped, self._chops.get(stream, 0)):
            self._chops[stream] = upto

    def flush(self) -> None:
        """Hand everything that waits to the operating system, in one write.

        Raises DiskFullError: everything since the last flush is taken back, chops too. Raises
        DiskFailedError: nothing is written any more, now or later.
        """
        if self._failure is not None:
            self._refuse_after_failure()
        if not self._group and not self._chops:
            return
        try:
            self._write_with_reserve()
        except DiskFullError:
            self._take_back()
            raise
        except DiskFailedError as error:
            self._take_back()
            self._failure = error
            raise

    def sync(self) -> None:
        """Flush, and return when everything is on the platter. Raises what `flush` raises."""
        self.flush()
        try:
            self._writer.sync()
            self._writer.reclaim()
            self._reserve.refill()
        except DiskFailedError as error:
            self._failure = error
            raise

    def discard(self) -> None:
        """Take back everything since the last flush, chops too, as a flush does when the disk is full."""
        self._take_back()

    def bounds(self, stream: str) -> tuple[int, int]:
        """Returns the first and the last index that are not chopped.

        The first is greater if there are none.
        """
        log = self._stream(stream)
        return log.chopped + 1, log.next - 1

    def last_mark(self, stream: str) -> int:
        """Returns the mark of the last whole record, or else of the last chopped one; MARK_MIN if none."""
        return self._stream(stream).last_mark

    def mark_upto(self, stream: str, index: int) -> int:
        """Returns what `last_mark` would if the record of this index were the last one."""
        return self._stream(stream).mark_upto(index)

    def chopped_mark(self, stream: str) -> int:
        """Returns the mark of the last chopped record; MARK_MIN if none was chopped."""
        return self._stream(stream).chopped_mark

    def after_mark(self, stream: str, mark: int) -> int:
        """Returns the first index whose mark is above this one; one more than the last if there is none."""
        return self._stream(stream).after_mark(mark)

    def holes(self, stream: str) -> list[tuple[int, int]]:
        """Returns first and last index of every run of damaged records, in order."""
        return self._stream(stream).holes()

    def sizes(self, stream: str) -> list[tuple[int, int]]:
        """Returns mark and payload bytes of every record that is flushed and whole, in order."""
        rows = self._stream(stream).table.rows
        return list(zip(rows.marks.tolist(), rows.lengths.tolist(), strict=True))

    @property
    def newest_segment(self) -> int:
        """The number of the newest segment that exists or ever did."""
        return self._writer.number

    def segments_behind(self, stream: str) -> int:
        """Returns how many segments ago the stream's first record was written: it keeps that one on disk."""
        first = self._stream(stream).table.first_home
        return 0 if first is None else self._writer.number - first

    def read(self, stream: str, index: int) -> bytes:
        """Returns the payload of one record. Raises DamagedError if it is lost."""
        return bytes(self.read_range(stream, index, index)[0])

    def read_range(self, stream: str, first: int, last: int) -> list[bytes | memoryview]:
        """Returns the payloads of these records, both ends included. Raises DamagedError if one is lost."""
        records = self.read_some(stream, first, last, bytes_max=None).records
        if len(records) < last + 1 - first:
            lost = set(range(first, last + 1)) - {record.index for record in records}
            raise self._lost(stream, min(lost))
        return [record.payload for record in records]

    def read_some(
        self, stream: str, first: int, last: int, *, bytes_max: int | None = READ_BYTES
    ) -> RecordsRead:
        """Returns the records of these indexes, both ends included, as many as fit in `bytes_max`.

        With such a bound there are READ_RECORDS at the most: small ones take as long as large ones. It
        returns at least one record, unless all of them are damaged.
        """
        log = self._stream(stream)
        assert log.chopped < first
        assert last < log.next
        if bytes_max is not None:
            last = min(last, first + READ_RECORDS - 1)
        rows = log.between(first, last)
        if bytes_max is not None and rows.size:
            fit = max(1, int(rows.lengths.cumsum(dtype=np.int64).searchsorted(bytes_max, "right")))
            last = int(rows.indexes[fit - 1]) if fit < rows.size else min(last, log.last)
            rows = rows.select(slice(0, fit))
        waiting = log.pending[max(0, first - log.last - 1) : max(0, last - log.last)]
        records = self._read(log, rows)
        records += [LogRecord(record.index, record.mark, record.payload) for record in waiting]
        return RecordsRead(records, last)

    def close(self) -> None:
        """Sync if that is possible, close the files, and unlock the directory."""
        try:
            with suppress(DiskFullError, DiskFailedError):
                self.sync()
                self._writer.close()
                return
            self._writer.abandon()
        finally:
            self._segments.close_all()
            self._disk.unlock()

    def abandon(self) -> None:
        """Close the files and unlock the directory, and write nothing."""
        self._writer.abandon()
        self._segments.close_all()
        self._disk.unlock()

    def _stream(self, name: str) -> LogStream:
        log = self._streams.get(name)
        if log is None:
            assert len(name.encode()) <= STREAM_NAME_BYTES_MAX
            log = LogStream(Entry(self._next_stream, name, int(self._is_emptied), 0, MARK_MIN))
            self._next_stream += 1
            self._streams[name] = self._by_id[log.id] = log
            self._unlisted.append(log)
        return log

    def _known(self) -> list[Entry]:
        """Returns the entries of the streams that the catalogue has."""
        unlisted = {log.id for log in self._unlisted}
        return [log.entry for log in self._by_id.values() if log.id not in unlisted]

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            reason = f"stopped after an earlier failure ({self._failure.reason}); restart to go on"
            raise DiskFailedError(reason, path=self._failure.path)

    def _write_with_reserve(self) -> None:
        try:
            self._write()
        except DiskFullError:
            # Chops make room, so they may use the space that is kept for them.
            if not self._chops or not self._reserve.spend():
                raise
            self._write()

    def _write(self) -> None:
        chops: Sequence[Entry] = ()
        if self._chops:
            chops = [self._streams[name].chopped_to(upto) for name, upto in self._chops.items()]
        listed = [log.entry for log in self._unlisted] if self._unlisted else ()
        number, offsets = self._writer.write(self._group, listed, chops, self._known)
        for record, offset in zip(self._group, offsets, strict=True):
            log = self._by_id[record.stream]
            log.table.add(record.index, record.mark, number, offset, record.length)
            log.last = record.index
        self._segments.live[number] += len(self._group)
        self._unlisted.clear()
        self._forget_group()
        for entry in chops:
            self._segments.let_go(self._by_id[entry.stream].chop(entry))

    def _take_back(self) -> None:
        """Treat what waits as never appended."""
        group = self._group
        self._forget_group()
        for record in reversed(group):
            if record.undo is not None:
                record.undo()

    def _forget_group(self) -> None:
        for record in self._group:
            self._by_id[record.stream].pending.clear()
        self._group = []
        self._group_bytes = 0
        self._chops = {}

    def _read(self, log: LogStream, rows: RecordRows) -> list[LogRecord]:
        """Returns the whole records of these rows; the others count as damaged from now on."""
        rows = rows.copy()
        indexes, marks = rows.indexes.tolist(), rows.marks.tolist()
        payloads = read_rows(self._segments, log.id, rows) if indexes else []
        for at, payload in enumerate(payloads):
            if payload is None:
                self._lose(log, indexes[at], int(rows.homes[at]), int(rows.offsets[at]))
        return [
            LogRecord(index, mark, payload)
            for index, mark, payload in zip(indexes, marks, payloads, strict=True)
            if payload is not None
        ]

    def _lose(self, log: LogStream, index: int, number: int, offset: int) -> None:
        """Report a record that turned out to be damaged, and drop its row."""
        self._damage.append(Damage(log.name, index, index, number, offset, True))
        self._segments.damaged.add(number)
        self._segments.live[number] -= 1
        log.table.remove(int(log.table.rows.indexes.searchsorted(index)))

    def _lost(self, stream: str, index: int) -> DamagedError:
        for damage in self._damage:
            if damage.stream == stream and damage.first_index <= index <= damage.last_index:
                path = f"{self._disk.path}/{segment_name(damage.segment)}"
                return DamagedError(f"record {index} of {stream} is lost", path=path, offset=damage.offset)
        raise AssertionError(f"record {index} of {stream} is neither there nor damaged")


def _check(pieces: Sequence[Buffer]) -> int:
    check = 0
    for piece in pieces:
        check = crc32c(piece, check)
    return check
