"""Looking after an archive: few and large files, no more history than is to be kept, no unused files.

`Maintenance.run` is called by the process that writes the archive: between rounds, or beside the query in a
thread of its own. Compaction merges neighbouring files, so that for one pubend the order of the files stays
the order of the ticks, and never touches the files of a round that has not ended. It merges files of similar
size, so that an event is rewritten a few times at most and not once for every file beside it. With a Spark
session to borrow, each merge is a task of a Spark job and files become about 256 MiB large; without one they
are merged in this process, up to 32 MiB.

Old history is removed by `spark.upkeep.retention`, and events are erased by `spark.upkeep.erasing`, whose
tasks rewrite files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.archive.part import PartResult
from tidemark.spark.archive.scan import may_have_pubend
from tidemark.spark.archive.state import ArchiveState
from tidemark.spark.archive.table import (
    ArchiveTable,
    DataFile,
    file_name,
    folder_of,
    unused_files,
)
from tidemark.spark.archive.writer import FileWriter
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.spark.stores.folder import Folder, StoredFile
from tidemark.spark.time_travel.unused_files import UnusedFiles

#: SMALL_FILES_MIN neighbours that are smaller than one of the tiers are merged into one file of at most
#: `merged_bytes_max`; fewer neighbours, if they have half of that together.
SMALL_FILES_MIN = 16
#: A run of files with more bytes than this is merged piece by piece, not in memory.
IN_MEMORY_BYTES_MAX = 32 << 20
#: Files that a commit has replaced stay at least this long, for readers that have begun with them.
GRACE_SECONDS = 3_600.0
#: How often an archive without new events is looked after, and how often unused files are removed.
LOOK_SECONDS = 60.0
SWEEP_SECONDS = 600.0
#: How often files that are new are read and compared with the log, on Spark, and how many at once.
CHECK_SECONDS = 900.0
CHECKED_FILES_MAX = 256
_log = logging.getLogger("tidemark.archive")


@dataclass(frozen=True, slots=True)
class ArchiveRetention:
    """How much is kept: the events of so many seconds, and so many bytes of files; None for all."""

    seconds: float | None = None
    bytes: int | None = None
    #: seconds for which versions of tables can be read that are not the newest any more, but GRACE_SECONDS at
    #: the least
    versions: float = 0.0


@dataclass(frozen=True, slots=True)
class MergeSizes:
    """How large merged files become, and which sizes of files are merged with each other."""

    tiers_bytes: tuple[int, ...]
    merged_bytes_max: int


IN_PROCESS = MergeSizes((64 << 10, 1 << 20, 8 << 20), 32 << 20)
ON_SPARK = MergeSizes((64 << 10, 1 << 20, 8 << 20, 64 << 20), 256 << 20)


class MaintainedArchive(Protocol):
    """What maintenance needs of an archive; `archive.Archive` is one."""

    path: Folder
    state: ArchiveState
    #: pubend -> the tick up to which events were erased
    erased: Mapping[str, int]
    #: held by whoever commits to a table or replaces the state
    commits: AbstractContextManager[Any]

    @property
    def tables(self) -> Sequence[ArchiveTable]:
        """All tables of the archive."""

    def save(self, state: ArchiveState) -> None:
        """Replace the state; the new one is on the platter when this returns."""


class Maintenance:
    """Looks after one archive, between its rounds or beside them."""

    def __init__(
        self,
        archive: MaintainedArchive,
        retain: ArchiveRetention,
        clock: Callable[[], float] = time.monotonic,
        sessions: SessionLender | None = None,
    ) -> None:
        """With `sessions`, files are merged by Spark jobs."""
        self._archive = archive
        self._retain = retain
        self._clock = clock
        self._sessions = sessions
        self._looked = self._swept = self._checked_at = float("-inf")
        #: names of files that were read after they were written, and found to be well
        self._checked: set[str] = set()
        self._unused = UnusedFiles(archive.path, clock)

    def run(self, *, is_changed: bool) -> None:
        """Erase, remove old history, merge files once in each table, and remove unused files.

        Each is done as far as it is time for it. `is_changed` says that the archive has got events since the
        last call.
        """
        now = self._clock()
        if not is_changed and now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        # Erasures come first: one that was interrupted knows the files it has counted by their names.
        self._erase()
        self._retire()
        self._merge()
        if self._sessions is not None and now >= self._checked_at + CHECK_SECONDS:
            self._checked_at = now
            self._check(self._sessions)
        if now >= self._swept + SWEEP_SECONDS:
            self._swept = now
            with self._archive.commits:
                for table in self._archive.tables:
                    self._remove_unused(table)

    def _remove_unused(self, table: ArchiveTable) -> None:
        """Remove files that no commit has had for as long as readers and versions need them."""
        unused = unused_files(table.folder, table.files())
        for name in self._unused.due(table.root, unused, GRACE_SECONDS, self._retain.versions):
            table.folder.remove(name)

    def _retire(self) -> None:
        """Remove old history; it rewrites files as erasures do, and so it knows this module."""
        from tidemark.spark.upkeep.retention import retire

        retire(self._archive, self._retain, self._sessions)

    def _check(self, sessions: SessionLender) -> None:
        """Read files that were written since the last time, as a Spark job, and tell what is wrong."""
        from tidemark.spark.upkeep.verifying import Checked, check_file, file_task

        archive = self._archive
        with archive.commits:
            found = {
                each.name: file_task(archive.path, each, table.layout)
                for table, files in zip(archive.tables, ended(archive), strict=True)
                for each in files
            }
        self._checked &= found.keys()
        new = sorted(found.keys() - self._checked)[:CHECKED_FILES_MAX]
        if not new:
            return
        what = f"tidemark: check {len(new)} new files of the archive"
        checked = run_tasks([found[name] for name in new], check_file, Checked.from_json, sessions, what)
        for name, done in zip(new, checked, strict=True):
            if done.wrong:
                _log.error("%s %s: run `tidemark pipeline verify`", done.what, done.wrong)
            else:
                self._checked.add(name)

    def _erase(self) -> None:
        """Do the erasures that were asked for; rewriting files is theirs, and so they know this module."""
        from tidemark.spark.upkeep.erasing import erase_pending

        erase_pending(self._archive, self._sessions)

    def _merge(self) -> None:
        sizes = IN_PROCESS if self._sessions is None else ON_SPARK
        archive = self._archive
        with archive.commits:
            runs = [
                (table, run)
                for table, files in zip(archive.tables, ended(archive), strict=True)
                if (run := mergeable(files, sizes))
            ]
        merges = [Merge.of(archive.path, table, run) for table, run in runs]
        if not merges:
            return
        what = f"tidemark: merge {sum(len(run) for _, run in runs)} files of the archive into {len(merges)}"
        made = run_tasks(merges, merge, PartResult.from_json, self._sessions, what)
        with archive.commits:
            for (table, run), done in zip(runs, made, strict=True):
                table.exchange(run, done.files)


def ended(archive: MaintainedArchive) -> list[list[DataFile]]:
    """For each table, its files of rounds that have ended."""
    return [
        [each for each in table.files() if each.batches[1] <= archive.state.batch] for table in archive.tables
    ]


def mergeable(files: Sequence[DataFile], sizes: MergeSizes = IN_PROCESS) -> list[DataFile]:
    """Neighbours that are many and small enough to be merged, of the smallest tier that has some; or []."""
    for least, limit in pairwise((0, *sizes.tiers_bytes)):
        for run in _runs(files, limit, sizes.merged_bytes_max):
            # Smaller files are merged along, but do not count: each would cause larger ones to be rewritten.
            counted = [each.bytes for each in run if each.bytes >= least]
            if len(counted) >= SMALL_FILES_MIN or (
                len(run) > 1 and sum(counted) >= sizes.merged_bytes_max // 2
            ):
                return run
    return []


def _runs(files: Sequence[DataFile], limit: int, most: int) -> Iterator[list[DataFile]]:
    """Runs of neighbours that are smaller than the limit, each run as large as one file may be."""
    run: list[DataFile] = []
    size = 0
    for each in files:
        is_small = each.bytes < limit and each.is_own
        if not is_small or size + each.bytes > most:
            yield run
            run, size = [], 0
        if is_small:
            run.append(each)
            size += each.bytes
    yield run


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbouring files of a table that become one; Spark carries it to wherever the task runs."""

    path: Folder
    root: str
    #: the columns of the table, as an Arrow schema in bytes
    layout: bytes
    names: tuple[str, ...]
    bytes: int
    #: of the new file
    name: str

    @classmethod
    def of(cls, path: Folder, table: ArchiveTable, files: Sequence[DataFile]) -> Merge:
        """The merge of these neighbours."""
        first, last = files[0].batches[0], files[-1].batches[1]
        part, number = (int(text) for text in files[0].name.split("-")[2:4])
        return cls(
            path,
            table.root,
            table.layout.to_bytes(),
            tuple(each.name for each in files),
            sum(each.bytes for each in files),
            file_name(first, last, part, number),
        )


def merge(task: Merge) -> PartResult:
    """Merge files into one, sorted by pubend and tick; it is on the platter, and in no commit yet."""
    layout = ArchiveLayout.from_bytes(task.layout)
    folder = folder_of(task.path, task.root)
    files = [folder.file(name) for name in task.names]
    writer = FileWriter(task.path, task.root, task.name, layout.schema)
    rows = _sorted_rows if task.bytes <= IN_MEMORY_BYTES_MAX else _streamed_rows
    try:
        with folder.errors():
            for some in rows(files, layout):
                writer.add(some)
        made = writer.close()
        folder.sync()
    except BaseException:
        writer.discard()
        raise
    return PartResult(files=[made], events=made.rows, bytes=made.bytes)


def _sorted_rows(files: Sequence[StoredFile], layout: ArchiveLayout) -> Iterator[pa.Table]:
    found = []
    for each in files:
        with each.parquet() as parquet:
            found.append(_laid_out(parquet.read(), layout))
    rows = pa.concat_tables(found)
    yield rows.sort_by([("_pubend", "ascending"), ("_tick", "ascending")])


def _streamed_rows(files: Sequence[StoredFile], layout: ArchiveLayout) -> Iterator[pa.Table]:
    """The rows of neighbours pubend by pubend: of one pubend, the order of the files is that of the ticks."""
    with ExitStack() as stack:
        opened = [stack.enter_context(each.parquet()) for each in files]
        pubends: set[str] = set()
        for each in opened:
            for group in each.iter_batches(columns=["_pubend"]):
                pubends.update(group.column(0).unique().to_pylist())
        for pubend in sorted(pubends):
            for each in opened:
                for group in range(each.num_row_groups):
                    if may_have_pubend(each, group, pubend):
                        some = _laid_out(each.read_row_group(group), layout)
                        yield some.filter(pc.equal(some.column("_pubend"), pubend))


def _laid_out(table: pa.Table, layout: ArchiveLayout) -> pa.Table:
    return laid_out({name: table.column(name) for name in table.column_names}, table.num_rows, layout)
