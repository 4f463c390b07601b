"""Staging: encoded events that are not published yet, and the records of what was published.

A task writes its events to a file of its own, `(length u32 | crc32c u32 | event batch)*`, which is on the
platter before the task reports it. A record is a small file for one micro-batch: which staged files are its
events, in which order, under which publisher and from which sequence number on. A record is made if there is
none, so of two drivers that try, one fails and reads what the other wrote; and it never changes. A mark
beside the record says that everything is published; staged files are removed only after the mark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from struct import Struct
from typing import BinaryIO
from uuid import uuid4
from zlib import crc32

from tidemark.errors import DamagedError, StorageError
from tidemark.message.batches.batch import BATCH_BYTES_MAX, Buffer, EventBatch
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.folder import Folder
from tidemark.storage.log.checksum import crc32c

#: Files that no record names, of tasks that failed or that Spark ran twice, are removed after this time.
STAGED_SECONDS_MAX = 24 * 3_600
#: The topic of rows that do not fit, if those are not published.
NO_TOPIC = "~dead~"
_FRAME = Struct("<II")
_PART, _RECORD, _MARK = ".staged", ".json", ".published"
#: What 0.1.0 has staged, with another checksum, is published too when a query goes on with this version.
_OLD_PART = ".events"
_CHECKSUMS: Mapping[str, Callable[[Buffer], int]] = {_PART: crc32c, _OLD_PART: crc32}


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The file of a task: its name, and how many events each of its batches has."""

    name: str
    partition: int
    counts: tuple[int, ...]
    #: which of the batches are rows that do not fit and are to go into a directory; they are not published
    dead: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of events that are published."""
        return sum(count for at, count in enumerate(self.counts) if at not in self.dead)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one micro-batch publishes. A record that was made never changes."""

    batch: int
    publisher: str
    pubend: str
    #: sequence number of the first event
    first: int
    parts: tuple[StagedFile, ...]

    @property
    def count(self) -> int:
        """Number of events."""
        return sum(part.count for part in self.parts)


class Staging:
    """The staging folder of one query or job."""

    def __init__(self, place: Place) -> None:
        self._folder = folder_at(place)

    @property
    def folder(self) -> Folder:
        """The folder, which may not exist yet."""
        return self._folder

    # Files of tasks.

    def stage(self, partition: int, batches: Iterable[EventBatch]) -> StagedFile:
        """Write a task's events; they are on the platter when this returns.

        Without events there is no file.
        """
        name = f"{partition:06d}-{uuid4().hex}{_PART}"
        coming = iter(batches)
        first = next(coming, None)
        counts: list[int] = []
        dead: list[int] = []
        if first is not None:
            self._folder.make()
            counts, dead = self._write(name, chain([first], coming))
            self._folder.sync()
        return StagedFile(name, partition, tuple(counts), tuple(dead))

    def read(self, part: StagedFile) -> Iterator[EventBatch]:
        """The events of a staged file. Raises StorageError if it is missing or not what was written."""
        path = self._folder.at(part.name)
        try:
            with self._folder.open(part.name) as file:
                for count in part.counts:
                    yield _read(file, path, count)
        except FileNotFoundError:
            raise StorageError(
                "the file that a task has staged is not here: set the option staging to a directory that the "
                "driver and all executors share",
                path=path,
            ) from None

    def discard(self, parts: Iterable[StagedFile]) -> None:
        """Remove files that will never be published: all of these but those of an unpublished record."""
        last = self.last()
        kept = set() if last is None or self.is_published(last) else set(last.parts)
        for part in set(parts) - kept:
            self._folder.remove(part.name)

    # Records.

    def last(self) -> BatchRecord | None:
        """The newest record; None if there is none."""
        found = [each.name for each in self._folder.files() if each.name.endswith(_RECORD)]
        return self._parsed(found[-1]) if found else None

    def record(self, wanted: BatchRecord) -> BatchRecord:
        """Make a record and return it; if another driver has made one for the batch, return that one."""
        name = _name(wanted.batch, _RECORD)
        self._folder.create_once(name, json.dumps(asdict(wanted)).encode())
        return self._parsed(name)

    def is_published(self, record: BatchRecord) -> bool:
        """Are all events of the record at the broker?"""
        return self._folder.read(_name(record.batch, _MARK)) is not None

    def mark_published(self, record: BatchRecord) -> None:
        """Note that all events of the record are at the broker, and remove its files and older ones."""
        self._folder.replace(_name(record.batch, _MARK), b"")
        self.discard(record.parts)
        newest, now = _name(record.batch, ""), time.time()
        for each in self._folder.files():
            is_old = each.name.endswith((_RECORD, _MARK)) and each.name.partition(".")[0] < newest
            if is_old or (
                each.name.endswith((_PART, _OLD_PART)) and now - each.modified > STAGED_SECONDS_MAX
            ):
                self._folder.remove(each.name)

    def remove(self) -> None:
        """Remove the folder, when the query or job will never be continued."""
        self._folder.remove_all()

    def _write(self, name: str, batches: Iterable[EventBatch]) -> tuple[list[int], list[int]]:
        counts: list[int] = []
        dead: list[int] = []
        file = self._folder.create(name, private=True)
        try:
            with self._folder.errors(name):
                for batch in batches:
                    file.stream.write(_FRAME.pack(len(batch.data), crc32c(batch.data)))
                    file.stream.write(batch.data)
                    if batch.shapes[0].topic == NO_TOPIC:
                        dead.append(len(counts))
                    counts.append(batch.count)
            file.close()
        except BaseException:
            file.discard()
            raise
        return counts, dead

    def _parsed(self, name: str) -> BatchRecord:
        found = json.loads(self._folder.read(name) or b"")
        parts = tuple(
            StagedFile(each["name"], each["partition"], tuple(each["counts"]), tuple(each.get("dead", ())))
            for each in found["parts"]
        )
        return BatchRecord(found["batch"], found["publisher"], found["pubend"], found["first"], parts)


def in_order(parts: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    """The parts that have events, in the order of their partitions."""
    return tuple(
        sorted((part for part in parts if part.counts), key=lambda part: (part.partition, part.name))
    )


def _name(batch: int, suffix: str) -> str:
    return f"{batch:020d}{suffix}"


def _read(file: BinaryIO, path: str, count: int) -> EventBatch:
    head = file.read(_FRAME.size)
    length, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, 1)
    data = bytearray(length if length <= BATCH_BYTES_MAX else 0)
    is_whole = _fill(file, data) and len(data) == length
    if not is_whole or _CHECKSUMS[f".{path.rpartition('.')[2]}"](data) != checksum:
        raise DamagedError(
            "a staged file is not what was written: remove it and run the batch again",
            path=path,
            offset=0,
        )
    batch = EventBatch.parse(data)
    if batch.count != count:
        raise DamagedError("a staged file is not what was reported", path=path, offset=0)
    return batch


def _fill(file: BinaryIO, data: bytearray) -> bool:
    """Read the next bytes of a file into `data`; returns whether there were enough."""
    left = memoryview(data)
    while left:
        found = file.readinto(left)  # type: ignore[attr-defined]  # every file that is opened here has it
        if not found:
            return False
        left = left[found:]
    return True
