"""Looking after an archive: few and large files, no more history than is to be kept, no unused files.

`Maintenance.run` is called between rounds, by the process that writes the archive. Compaction merges
neighbouring files, so that for one pubend the order of the files stays the order of the ticks, and never
touches the files of a round that has not ended. It merges files of similar size, so that an event is
rewritten a few times at most and not once for every file beside it.

History is removed in whole files, the oldest first, up to one tick for all pubends. The state says that tick
before the first file is removed, so a reader never finds history with holes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.archive.recovery import about_release
from tidemark.spark.archive.state import ArchiveState
from tidemark.spark.archive.table import ArchiveTable, DataFile, disk_errors, file_name, remove_old
from tidemark.spark.archive.writer import FileWriter
from tidemark.storage.disk.atomic_file import sync_path

#: SMALL_FILES_MIN neighbours that are smaller than one of these sizes are merged into one file of at most
#: MERGED_BYTES_MAX; fewer neighbours, if they have half of that together.
TIERS_BYTES = (64 << 10, 1 << 20, 8 << 20)
SMALL_FILES_MIN = 16
MERGED_BYTES_MAX = 32 << 20
#: Files that a commit has replaced stay this long, for readers that have begun with them.
GRACE_SECONDS = 3_600.0
#: How often an archive without new events is looked after, and how often unused files are removed.
LOOK_SECONDS = 60.0
SWEEP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ArchiveRetention:
    """How much is kept: the events of so many seconds, and so many bytes of files; None for all."""

    seconds: float | None = None
    bytes: int | None = None


class MaintainedArchive(Protocol):
    """What maintenance needs of an archive; `archive.Archive` is one."""

    path: Path
    state: ArchiveState

    @property
    def tables(self) -> Sequence[ArchiveTable]:
        """All tables of the archive."""

    def save(self, state: ArchiveState) -> None:
        """Replace the state; the new one is on the platter when this returns."""


class Maintenance:
    """Looks after one archive, between its rounds."""

    def __init__(
        self,
        archive: MaintainedArchive,
        retain: ArchiveRetention,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._archive = archive
        self._retain = retain
        self._clock = clock
        self._looked = self._swept = float("-inf")

    def run(self, *, is_changed: bool) -> None:
        """Remove old history, merge files once in each table, and remove unused files, as far as it is time.

        `is_changed` says that the archive has got events since the last call.
        """
        now = self._clock()
        if not is_changed and now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        archive = self._archive
        horizon = horizon_of([each for files in ended(archive) for each in files], self._retain, time.time())
        if horizon is not None:
            remove_history(archive, horizon)
        for table, files in zip(archive.tables, ended(archive), strict=True):
            run = mergeable(files)
            if run:
                compact(archive.path, table, run)
        if now >= self._swept + SWEEP_SECONDS:
            self._swept = now
            for table in archive.tables:
                remove_old(table.folder, table.files(), time.time() - GRACE_SECONDS)


def ended(archive: MaintainedArchive) -> list[list[DataFile]]:
    """For each table, its files of rounds that have ended."""
    return [
        [each for each in table.files() if each.batches[1] <= archive.state.batch] for table in archive.tables
    ]


def horizon_of(files: Sequence[DataFile], retain: ArchiveRetention, now: float) -> int | None:
    """The tick up to which history need not be kept; None if all of it is."""
    found = [] if retain.seconds is None else [int((now - retain.seconds) * 1e6)]
    if retain.bytes is not None:
        excess = sum(each.bytes for each in files) - retain.bytes
        for each in sorted(files, key=_newest):
            if excess <= 0:
                break
            found.append(_newest(each))
            excess -= each.bytes
    return max(found, default=None)


def mergeable(files: Sequence[DataFile]) -> list[DataFile]:
    """Neighbours that are many and small enough to be merged, of the smallest tier that has some; or []."""
    for least, limit in pairwise((0, *TIERS_BYTES)):
        for run in _runs(files, limit):
            # Smaller files are merged along, but do not count: each would cause larger ones to be rewritten.
            counted = [each.bytes for each in run if each.bytes >= least]
            if len(counted) >= SMALL_FILES_MIN or sum(counted) >= MERGED_BYTES_MAX // 2:
                return run
    return []


def _runs(files: Sequence[DataFile], limit: int) -> Iterator[list[DataFile]]:
    """Runs of neighbours that are smaller than the limit, each run as large as one file may be."""
    run: list[DataFile] = []
    size = 0
    for each in files:
        if each.bytes >= limit or size + each.bytes > MERGED_BYTES_MAX:
            yield run
            run, size = [], 0
        if each.bytes < limit:
            run.append(each)
            size += each.bytes
    yield run


def compact(path: Path, table: ArchiveTable, files: Sequence[DataFile]) -> DataFile:
    """Merge neighbours into one file, sorted by pubend and tick, and commit that; the new file."""
    layout = table.layout
    with disk_errors(table.folder):
        rows = pa.concat_tables([_read(table.folder / each.name, layout) for each in files])
    rows = rows.sort_by([("_pubend", "ascending"), ("_tick", "ascending")])
    first, last = files[0].batches[0], files[-1].batches[1]
    part, number = (int(text) for text in files[0].name.split("-")[2:4])
    writer = FileWriter(path, table.root, file_name(first, last, part, number), layout.schema)
    try:
        writer.add(rows)
        made = writer.close()
        sync_path(table.folder)
        table.exchange(files, [made])
    except BaseException:
        writer.discard()
        raise
    return made


def remove_history(archive: MaintainedArchive, horizon: int) -> None:
    """Remove the files without events beyond the horizon; nothing at or below it is read from now on."""
    gone = [[each for each in files if _newest(each) <= horizon] for files in ended(archive)]
    if not any(gone):
        return
    # The state comes first, so that a reader never finds history with holes.
    released = max(horizon, archive.state.released or horizon)
    archive.save(replace(archive.state, released=released))
    for table, files in zip(archive.tables, gone, strict=True):
        if files:
            table.exchange(files, [], about_release(released))


def _newest(file: DataFile) -> int:
    tick: int = file.bounds["_tick"][1]
    return tick


def _read(file: Path, layout: ArchiveLayout) -> pa.Table:
    table = pq.read_table(file, partitioning=None)
    return laid_out({name: table.column(name) for name in table.column_names}, table.num_rows, layout)
