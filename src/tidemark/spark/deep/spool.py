"""The spool: what scans have found and subscribers have not taken yet, in files that are read in place.

A file has those events of one slice that any request wants, each once, and says who wants which: every event
has a match set, and every line of a request has the sets that it is in. So a file grows with the events and
with the differences between subscribers, not with the number of subscribers. Its bytes are mapped into
memory, and a request touches only those of its own events.

Nothing here outlives its process: the next process removes what a crash has left. In an object store a file
is only on its way from a task to the service, which takes a copy and removes it at once; so what is a day old
was left by a process that is gone.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DirectoryLockedError, StorageError
from tidemark.matching.index.arrays import spread
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.building import from_rows
from tidemark.message.batches.columns import Bytes, Ints, Spans
from tidemark.message.batches.spans import joined, stretches
from tidemark.spark.stores.folder import Folder, NewFile
from tidemark.storage.disk.real_disk import RealDisk

#: About how many bytes of events a part of an answer has; it has one event at least.
PART_BYTES = 256 << 10
#: In an object store, files of this age are left over.
LEFT_SECONDS = 24 * 3_600.0
_TAIL = Struct("<q")
_COLUMNS = {
    "tick": "<i8",
    "shape": "<u4",
    "publisher": "<u4",
    "priority": "u1",
    "validity": "<u4",
    "start": "<i8",
    "key": "<i8",
    "end": "<i8",
    "set": "<u4",
}


class SliceWriter:
    """Writes the file of one slice; there is no file before the first event."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file: NewFile | None = None
        self._size = 0
        self._shapes: dict[Shape, int] = {}
        self._publishers: dict[str, int] = {}
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
        self.kept = 0

    def add(self, batch: EventBatch, rows: Ints, sets: NDArray[np.uint32]) -> None:
        """Add rows of a batch, whose ticks lie beyond those added before, with the match set of each row."""
        starts, keys = batch.message_starts[rows], batch.message_ends[rows]
        body, ends = joined(Spans(batch.body, starts, batch.ends[rows].astype(np.int64)))
        begun = np.concatenate(([0], ends[:-1]))
        shapes = np.array([self._shapes.setdefault(each, len(self._shapes)) for each in batch.shapes])
        named = np.array(
            [self._publishers.setdefault(each, len(self._publishers)) for each in batch.publishers]
        )
        found = {
            "tick": batch.ticks[rows],
            "shape": shapes[batch.prelude("shape")[rows]],
            "publisher": named[batch.prelude("publisher")[rows]],
            "priority": batch.prelude("priority")[rows],
            "validity": batch.prelude("validity_ms")[rows],
            "start": begun + self._size,
            "key": begun + (keys - starts) + self._size,
            "end": ends + self._size,
            "set": sets,
        }
        for name, column in found.items():
            self._columns[name].append(column.astype(_COLUMNS[name]))
        self._write(body)
        self.kept += len(rows)

    def close(self, lines: NDArray[np.uint32], sets: NDArray[np.uint32]) -> int:
        """Finish the file and return its size; line n is in the set `sets[n]`, and `lines` is sorted."""
        directory: dict[str, Any] = {}
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        # Rows are listed set by set.
        order = np.argsort(columns.pop("set"), kind="stable")
        counts = np.bincount(np.concatenate(self._columns["set"]), minlength=int(sets.max()) + 1)
        columns |= {
            "rows": order.astype("<u4"),
            "row_ends": np.cumsum(counts).astype("<i8"),
            "lines": lines.astype("<u4"),
            "sets": sets.astype("<u4"),
        }
        for name, column in columns.items():
            self._write(np.zeros(-self._size % 8, np.uint8))
            directory[name] = (column.dtype.str, self._size, len(column))
            self._write(column.view(np.uint8))
        shapes = [(each.topic, each.fingerprint) for each in self._shapes]
        about = {"columns": directory, "shapes": shapes, "publishers": list(self._publishers)}
        footer = np.frombuffer(json.dumps(about).encode(), np.uint8)
        self._write(footer)
        self._write(np.frombuffer(_TAIL.pack(len(footer)), np.uint8))
        assert self._file is not None
        self._file.close()
        return self._size

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.discard()

    def _write(self, data: Bytes) -> None:
        if self._file is None:
            self._file = self._folder.create(self._name, durable=False)
        with self._folder.errors(self._name):
            self._file.stream.write(data.data)
        self._size += len(data)


class SliceReader:
    """Reads a file of the spool, which is removed when no request needs it any more."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        with folder.errors(name), folder.local_copy(name) as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if folder.mounted is None:
            self.remove()
        self.bytes = len(self._map)
        (size,) = _TAIL.unpack_from(self._map, self.bytes - _TAIL.size)
        about = json.loads(self._map[self.bytes - _TAIL.size - size : self.bytes - _TAIL.size])
        self._shapes = tuple(Shape(topic, fingerprint) for topic, fingerprint in about["shapes"])
        self._publishers: tuple[str, ...] = tuple(about["publishers"])
        self._column: Mapping[str, NDArray[Any]] = {
            name: np.frombuffer(self._map, dtype, count, at)
            for name, (dtype, at, count) in about["columns"].items()
        }
        self._body: Bytes = np.frombuffer(self._map, np.uint8)
        #: the numbers of the lines that want something of the slice
        self.lines: frozenset[int] = frozenset(np.unique(self._column["lines"]).tolist())
        #: requests that still need the file; `Spool.release` counts down
        self.readers = 0

    def rows(self, line: int, base: int, upto: int) -> Ints:
        """The rows that a line wants of `(base, upto]`, in the order of their ticks."""
        low, high = np.searchsorted(self._column["lines"], (line, line + 1))
        sets = self._column["sets"][low:high]
        ends = self._column["row_ends"]
        starts = np.where(sets > 0, ends[np.maximum(sets, 1) - 1], 0)
        _, places = spread(starts, ends[sets] - starts)
        rows = np.sort(self._column["rows"][places]).astype(np.int64)
        ticks = self._column["tick"][rows]
        first, last = np.searchsorted(ticks, (base, upto), side="right")
        return rows[first:last]

    def ticks(self, rows: Ints) -> Ints:
        """tick[row]."""
        found: Ints = self._column["tick"][rows]
        return found

    def parts(self, rows: Ints) -> Iterator[Ints]:
        """The rows cut into stretches that make batches of bounded size."""
        reach = np.cumsum(self._column["end"][rows] - self._column["start"][rows])
        for some in stretches(reach, PART_BYTES):
            yield rows[some]

    def batch(self, rows: Ints) -> EventBatch:
        """The events of these rows, as they were published."""
        column = {name: self._column[name][rows] for name in _COLUMNS if name != "set"}
        shapes, shape = _used(self._shapes, column["shape"])
        publishers, publisher = _used(self._publishers, column["publisher"])
        return from_rows(
            shapes,
            publishers,
            Spans(self._body, column["start"], column["key"]),
            Spans(self._body, column["key"], column["end"]),
            shape=shape,
            publisher=publisher,
            priority=column["priority"],
            validity_ms=column["validity"],
            ticks=column["tick"],
        )

    def remove(self) -> None:
        """Remove the file; what is mapped into memory stays readable."""
        # A store that is away keeps it for a day.
        with suppress(StorageError):
            self._folder.remove(self._name)


def _used(names: tuple[Any, ...], of_row: NDArray[Any]) -> tuple[tuple[Any, ...], NDArray[Any]]:
    """The names that the rows use, and which[row] of those."""
    if len(names) == 1:
        return names, of_row
    used, which = np.unique(of_row, return_inverse=True)
    return tuple(names[at] for at in used.tolist()), which.reshape(-1)


class Spool:
    """The spool of one process, and how many bytes are in it."""

    def __init__(self, folder: Folder) -> None:
        """Makes a folder in `folder`, and removes the folders of processes that are gone."""
        folder.make()
        _remove_left(folder)
        self.folder = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._disk = None if self.folder.mounted is None else RealDisk(self.folder.mounted)
        if self._disk is not None:
            self._disk.lock()
        self.bytes = 0

    def opened(self, name: str) -> SliceReader:
        """A reader of a file that a slice has written."""
        reader = SliceReader(self.folder, name)
        self.bytes += reader.bytes
        return reader

    def release(self, reader: SliceReader) -> None:
        """One request less needs the file; it is removed with the last one."""
        reader.readers -= 1
        if reader.readers == 0:
            if self.folder.mounted is not None:
                reader.remove()
            self.bytes -= reader.bytes

    def sweep(self, prefix: str, names: Sequence[str]) -> None:
        """Remove the files of a wave that are not named: a task that Spark ran twice has left them."""
        for each in self.folder.files(prefix=f"{prefix}-"):
            if each.name not in names:
                self.folder.remove(each.name)

    def close(self) -> None:
        """Remove the folder with everything in it."""
        if self._disk is not None:
            self._disk.unlock()
        with suppress(StorageError):
            self.folder.remove_all()


def _remove_left(folder: Folder) -> None:
    for each in map(folder.__truediv__, folder.folders()):
        if each.mounted is None:
            for file in each.files():
                if time.time() - file.modified > LEFT_SECONDS:
                    each.remove(file.name)
            continue
        disk = RealDisk(each.mounted)
        try:
            disk.lock()
        except DirectoryLockedError:
            continue
        disk.unlock()
        each.remove_all()
