"""CacheStore: the cache of history on a broker's disk, in the format of the log volume (DSN'03 1).

The cache is soft state. What an earlier life wrote is removed when the store is opened, whatever state it is
in. Nothing is synced. A record that cannot be written or read is not there, and the broker asks a neighbour
for what it had. After any failure of its disk the cache is off until the next start, and the broker goes on.
"""

from __future__ import annotations

from struct import Struct

from tidemark.broker.effects import CacheRead, CacheWritten, ChopCache, ReadCache, WriteCache
from tidemark.errors import DecodeError, DiskFullError, StorageError
from tidemark.message.batches.batch import EventBatch
from tidemark.persistence.alarm import Alarms
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.volume import LogVolume

STREAM = "cache"
#: What a record begins with: the number of its entry, base and upto; then comes the batch, if there is one.
HEAD = Struct("<qqq")
#: The cause of the alarm about a cache that is off.
OFF = "cache"


class CacheStore:
    """The records of one life's cache."""

    def __init__(
        self, disk: Disk | None, identity: int, segment_bytes: int, alarms: Alarms, *, is_on: bool
    ) -> None:
        """Empty the directory, and begin a cache in it if it `is_on`."""
        self._alarms = alarms
        self._volume: LogVolume | None = None
        #: number of an entry -> the index of its record
        self._index_of: dict[int, int] = {}
        if disk is not None:
            try:
                empty(disk)
                if is_on:
                    self._volume = LogVolume.open(disk, identity=identity, segment_bytes=segment_bytes)
            except StorageError as error:
                self._give_up(error)

    def write(self, effect: WriteCache) -> CacheWritten:
        """Write an entry, if there is room."""
        if self._volume is not None:
            self._write(self._volume, effect)
        return CacheWritten(effect.number)

    def _write(self, volume: LogVolume, effect: WriteCache) -> None:
        head = HEAD.pack(effect.number, effect.base, effect.upto)
        try:
            pieces = [head] if effect.batch is None else [head, effect.batch.data]
            index = volume.append(STREAM, pieces)
            volume.sync()
        except DiskFullError:
            return  # it was taken back
        except StorageError as error:
            self._give_up(error)
            return
        self._index_of[effect.number] = index

    def read(self, effect: ReadCache) -> CacheRead:
        """Return what an entry has, or that it is not there."""
        index = self._index_of.get(effect.number)
        if self._volume is None or index is None:
            return CacheRead(effect, is_found=False)
        try:
            payload = self._volume.read(STREAM, index)
            if HEAD.unpack_from(payload)[0] != effect.number:
                raise DecodeError("another entry")
            batch = EventBatch.parse(bytearray(payload[HEAD.size :])) if len(payload) > HEAD.size else None
        except (StorageError, DecodeError):
            self._index_of.pop(effect.number, None)
            return CacheRead(effect, is_found=False)
        return CacheRead(effect, is_found=True, batch=batch)

    def chop(self, effect: ChopCache) -> None:
        """Remove the entries up to a number."""
        gone = [number for number in self._index_of if number <= effect.upto]
        indexes = [self._index_of.pop(number) for number in gone]
        if self._volume is None or not indexes:
            return
        try:
            self._volume.chop(STREAM, max(indexes))
        except StorageError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the files; what they have is of no use to anyone."""
        if self._volume is not None:
            self._volume.abandon()
            self._volume = None

    def _give_up(self, error: StorageError) -> None:
        self._alarms.stands(OFF, f"{error}; history is not cached on disk until the next start")
        self.close()


def empty(disk: Disk) -> None:
    """Remove all files of a directory: what an earlier life has written."""
    for name in disk.list():
        disk.remove(name)
