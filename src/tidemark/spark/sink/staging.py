"""Staging: encoded events that are not published yet, and the records of what was published.

A task writes its events to a file of its own, `(length u32 | crc32 u32 | event batch)*`, which is on the
platter before the task reports it. A record is a small file for one micro-batch: which staged files are its
events, in which order, under which publisher and from which sequence number on. A record is made by a link,
so of two drivers that try, one fails and reads what the other wrote; and it never changes. A mark beside the
record says that everything is published; staged files are removed only after the mark.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import BinaryIO
from uuid import uuid4
from zlib import crc32

from tidemark.errors import DamagedError, StorageError
from tidemark.message.batches.batch import BATCH_BYTES_MAX, EventBatch
from tidemark.storage.disk.atomic_file import sync_path

#: Files that no record names, of tasks that failed or that Spark ran twice, are removed after this time.
STAGED_SECONDS_MAX = 24 * 3_600
#: The topic of rows that do not fit, if those are not published.
NO_TOPIC = "~dead~"
_FRAME = Struct("<II")
_PART, _RECORD, _MARK = ".events", ".json", ".published"


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
    """The staging directory of one query or job."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The directory, which may not exist yet."""
        return self._path

    # Files of tasks.

    def stage(self, partition: int, batches: Iterable[EventBatch]) -> StagedFile:
        """Write a task's events; they are on the platter when this returns.

        Without events there is no file.
        """
        path = self._path / f"{partition:06d}-{uuid4().hex}{_PART}"
        coming = iter(batches)
        first = next(coming, None)
        counts: list[int] = []
        dead: list[int] = []
        if first is not None:
            make_directory(self._path)
            try:
                counts, dead = _write(path, chain([first], coming))
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            sync_path(self._path)
        return StagedFile(path.name, partition, tuple(counts), tuple(dead))

    def read(self, part: StagedFile) -> Iterator[EventBatch]:
        """The events of a staged file. Raises StorageError if it is missing or not what was written."""
        path = self._path / part.name
        try:
            with path.open("rb") as file:
                for count in part.counts:
                    yield _read(file, path, count)
        except FileNotFoundError:
            raise StorageError(
                "the file that a task has staged is not here: set the option staging to a directory that the "
                "driver and all executors share",
                path=str(path),
            ) from None

    def discard(self, parts: Iterable[StagedFile]) -> None:
        """Remove files that will never be published: all of these but those of an unpublished record."""
        last = self.last()
        kept = set() if last is None or self.is_published(last) else set(last.parts)
        for part in set(parts) - kept:
            (self._path / part.name).unlink(missing_ok=True)

    # Records.

    def last(self) -> BatchRecord | None:
        """The newest record; None if there is none."""
        found = sorted(self._path.glob(f"*{_RECORD}")) if self._path.is_dir() else []
        return _parse_record(found[-1]) if found else None

    def record(self, wanted: BatchRecord) -> BatchRecord:
        """Make a record and return it; if another driver has made one for the batch, return that one."""
        make_directory(self._path)
        path = self._at(wanted.batch, _RECORD)
        draft = self._path / f"{path.name}.{uuid4().hex}"
        with open(draft, "x", encoding="utf-8", opener=_private) as file:
            json.dump(asdict(wanted), file)
            file.flush()
            os.fsync(file.fileno())
        try:
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
        sync_path(self._path)
        return _parse_record(path)

    def is_published(self, record: BatchRecord) -> bool:
        """Are all events of the record at the broker?"""
        return self._at(record.batch, _MARK).exists()

    def mark_published(self, record: BatchRecord) -> None:
        """Note that all events of the record are at the broker, and remove its files and older ones."""
        with open(self._at(record.batch, _MARK), "w", opener=_private) as file:
            os.fsync(file.fileno())
        sync_path(self._path)
        self.discard(record.parts)
        newest = self._at(record.batch, "").name
        for path in self._path.iterdir():
            is_old = path.suffix in (_RECORD, _MARK) and path.stem < newest
            if is_old or (path.suffix == _PART and _age_seconds(path) > STAGED_SECONDS_MAX):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the directory, when the query or job will never be continued."""
        for path in self._path.iterdir():
            path.unlink(missing_ok=True)
        self._path.rmdir()

    def _at(self, batch: int, suffix: str) -> Path:
        return self._path / f"{batch:020d}{suffix}"


def make_directory(path: Path) -> None:
    """Make a directory and those above it, private to this user, and sync their names."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync_path(each.parent)


def in_order(parts: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    """The parts that have events, in the order of their partitions."""
    return tuple(
        sorted((part for part in parts if part.counts), key=lambda part: (part.partition, part.name))
    )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _write(path: Path, batches: Iterable[EventBatch]) -> tuple[list[int], list[int]]:
    counts: list[int] = []
    dead: list[int] = []
    with open(path, "xb", opener=_private) as file:
        for batch in batches:
            file.write(_FRAME.pack(len(batch.data), crc32(batch.data)))
            file.write(batch.data)
            if batch.shapes[0].topic == NO_TOPIC:
                dead.append(len(counts))
            counts.append(batch.count)
        file.flush()
        os.fsync(file.fileno())
    return counts, dead


def _read(file: BinaryIO, path: Path, count: int) -> EventBatch:
    head = file.read(_FRAME.size)
    length, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, 1)
    data = file.read(length) if length <= BATCH_BYTES_MAX else b""
    if len(data) != length or crc32(data) != checksum:
        raise DamagedError(
            "a staged file is not what was written: remove it and run the batch again",
            path=str(path),
            offset=0,
        )
    batch = EventBatch.parse(bytearray(data))
    if batch.count != count:
        raise DamagedError("a staged file is not what was reported", path=str(path), offset=0)
    return batch


def _parse_record(path: Path) -> BatchRecord:
    found = json.loads(path.read_text(encoding="utf-8"))
    parts = tuple(
        StagedFile(each["name"], each["partition"], tuple(each["counts"]), tuple(each.get("dead", ())))
        for each in found["parts"]
    )
    return BatchRecord(found["batch"], found["publisher"], found["pubend"], found["first"], parts)
