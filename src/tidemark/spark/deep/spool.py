"""The spool: what scans have found and subscribers have not taken yet, in files that are read in place.

A file has those events of one slice that any request wants, each once, in event batches as they were read,
and says who wants which: every event has a match set, and every line of a request has the sets that it is in.
So a file grows with the events and with the differences between subscribers, not with the number of
subscribers. Its bytes are mapped into memory, and a request touches only those of its own events.

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
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DirectoryLockedError, StorageError
from tidemark.matching.index.arrays import spread
from tidemark.message.batches.batch import Buffer, EventBatch, concatenate
from tidemark.message.batches.building import are_even, take_across
from tidemark.message.batches.columns import Ints
from tidemark.message.batches.spans import stretches
from tidemark.spark.stores.folder import Folder, NewFile
from tidemark.storage.disk.real_disk import RealDisk

#: About how many bytes of events a part of an answer has; it has one event at least.
PART_BYTES = 256 << 10
#: A dictionary of at most so many bytes goes with every part whole; of a larger one only what is used does.
NAMES_BYTES_MAX = 1 << 10
#: In an object store, files of this age are left over.
LEFT_SECONDS = 24 * 3_600.0
_TAIL = Struct("<q")
_ALIGNMENT_BYTES = 8


class SliceWriter:
    """Writes the file of one slice; there is no file before the first event."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file: NewFile | None = None
        self._size = 0
        #: where each batch starts and ends in the file
        self._batches: list[tuple[int, int]] = []
        #: of each row that was added, by batch
        self._ticks: list[Ints] = []
        self._lengths: list[NDArray[np.uint32]] = []
        self._sets: list[NDArray[np.uint32]] = []
        self.kept = 0

    def add(self, batch: EventBatch, rows: Ints, sets: NDArray[np.uint32]) -> None:
        """Add rows of a batch, whose ticks lie beyond those added before, with the match set of each row."""
        part = batch if len(rows) == batch.count else _taken([batch], rows)
        self._align()
        start = self._size
        self._write(part.data)
        self._batches.append((start, self._size))
        # A copy, since a view would hold the batch in memory until the file is written.
        self._ticks.append(part.ticks.copy())
        self._lengths.append(part.lengths(np.arange(part.count)))
        self._sets.append(sets)
        self.kept += part.count

    def close(self, lines: NDArray[np.uint32], sets: NDArray[np.uint32]) -> int:
        """Finish the file and return its size; line n is in the set `sets[n]`, and `lines` is sorted."""
        directory: dict[str, Any] = {}
        of_row = np.concatenate(self._sets)
        counts = np.bincount(of_row, minlength=int(sets.max()) + 1)
        columns: dict[str, NDArray[Any]] = {
            "tick": np.concatenate(self._ticks).astype("<i8", copy=False),
            "length": np.concatenate(self._lengths).astype("<u4", copy=False),
            # Rows are listed set by set.
            "rows": np.argsort(of_row, kind="stable").astype("<u4"),
            "row_ends": np.cumsum(counts).astype("<i8"),
            "lines": lines.astype("<u4"),
            "sets": sets.astype("<u4"),
        }
        for name, column in columns.items():
            self._align()
            directory[name] = (column.dtype.str, self._size, len(column))
            self._write(column.view(np.uint8).data)
        footer = json.dumps({"batches": self._batches, "columns": directory}).encode()
        self._write(footer)
        self._write(_TAIL.pack(len(footer)))
        assert self._file is not None
        self._file.close()
        return self._size

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.discard()

    def _align(self) -> None:
        """Let what is written next start where numbers can be read in place."""
        self._write(bytes(-self._size % _ALIGNMENT_BYTES))

    def _write(self, data: Buffer) -> None:
        if self._file is None:
            self._file = self._folder.create(self._name, durable=False)
        with self._folder.errors(self._name):
            self._file.stream.write(data)
        self._size += memoryview(data).nbytes


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
        data = memoryview(self._map)
        self._batches = [EventBatch.trusted(data[start:end]) for start, end in about["batches"]]
        #: the number of each batch's first row among the rows of all, and the number of all rows
        self._firsts: Ints = np.cumsum([0, *(each.count for each in self._batches)])
        column: Mapping[str, NDArray[Any]] = {
            name: np.frombuffer(self._map, dtype, count, at)
            for name, (dtype, at, count) in about["columns"].items()
        }
        self._ticks: Ints = column["tick"]
        self._lengths: NDArray[np.uint32] = column["length"]
        #: rows[row_ends[set - 1] : row_ends[set]] are those of a set
        self._rows: NDArray[np.uint32] = column["rows"]
        self._row_ends: Ints = column["row_ends"]
        self._sets: NDArray[np.uint32] = column["sets"]
        numbers, firsts = np.unique(column["lines"], return_index=True)
        ends = [*firsts.tolist(), len(column["lines"])]
        #: the number of each line that wants something of the slice -> where its sets are in `_sets`
        self.lines: Mapping[int, tuple[int, int]] = dict(zip(numbers.tolist(), pairwise(ends), strict=True))
        #: requests that still need the file; `Spool.release` counts down
        self.readers = 0

    def rows(self, line: int, base: int, upto: int) -> Ints:
        """The rows that a line wants of `(base, upto]`, in the order of their ticks."""
        low, high = self.lines.get(line, (0, 0))
        sets, ends = self._sets[low:high], self._row_ends
        starts = np.where(sets > 0, ends[np.maximum(sets, 1) - 1], 0)
        if len(sets) == 1:
            rows = self._rows[int(starts[0]) : int(ends[sets[0]])].astype(np.int64)
        else:
            _, places = spread(starts, ends[sets] - starts)
            rows = np.sort(self._rows[places]).astype(np.int64)
        first, last = self._ticks[rows].searchsorted((base, upto), side="right")
        return rows[first:last]

    def parts(self, rows: Ints) -> Iterator[Ints]:
        """The rows cut into stretches that make batches of bounded size."""
        for some in stretches(np.cumsum(self._lengths[rows], dtype=np.int64), PART_BYTES):
            yield rows[some]

    def batch(self, rows: Ints) -> EventBatch:
        """The events of these rows, which are in order, as they were published."""
        first, last = (self._firsts.searchsorted((rows[0], rows[-1]), side="right") - 1).tolist()
        return _taken(self._batches[first : last + 1], rows - self._firsts[first])

    def remove(self) -> None:
        """Remove the file; what is mapped into memory stays readable."""
        # A store that is away keeps it for a day.
        with suppress(StorageError):
            self._folder.remove(self._name)


def _taken(batches: Sequence[EventBatch], rows: Ints) -> EventBatch:
    """A new batch of these rows, in ascending order, of the rows of all batches."""
    if batches[0].names_bytes <= NAMES_BYTES_MAX and are_even(batches):
        return take_across(batches, rows)
    ends = np.cumsum([each.count for each in batches])
    cuts = [0, *rows.searchsorted(ends).tolist()]
    parts = zip(batches, ends.tolist(), pairwise(cuts), strict=True)
    return concatenate(
        [each.take(rows[low:high] - (end - each.count)) for each, end, (low, high) in parts if low < high]
    )


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
