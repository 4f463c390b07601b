"""Retention: history that is older than is to be kept goes, up to one tick for all pubends, the horizon.

The process that writes the archive does it, between its batches or beside its query. A file without events
beyond the horizon goes as a whole, which only the table's log has to say. One that reaches beyond is written
again without what is older once half of its time is over: each is a task, of a Spark job where a session is
lent. So an event is written again a few times at the most, and no event stays on disk for longer than the
file that it is in reaches beyond it. One commit for each table takes all that goes out of it.

The state says the horizon before the first file goes, so a reader never finds history with holes; and what
files still have at or below it is not read any more. A process that is killed in between leaves files that
the next one removes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.spark.archive.compaction import ArchiveRetention, MaintainedArchive, ended
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.part import PartResult
from tidemark.spark.archive.recovery import about_release
from tidemark.spark.archive.table import ArchiveTable, DataFile, folder_of
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.spark.stores.folder import Folder
from tidemark.spark.upkeep.rewriting import count_of, successor_name, write_kept


def retire(
    archive: MaintainedArchive, retain: ArchiveRetention, sessions: SessionLender | None
) -> int | None:
    """Remove what need not be kept; returns the horizon, or None if all of history is kept."""
    with archive.commits:
        files = [each for some in ended(archive) for each in some]
        horizon = horizon_of(files, retain, time.time())
    if horizon is not None:
        remove_history(archive, horizon, sessions)
    return horizon


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


def remove_history(archive: MaintainedArchive, horizon: int, sessions: SessionLender | None = None) -> None:
    """Remove what is at or below the horizon, as far as it is time; nothing of that is read from now on."""
    with archive.commits:
        due = [
            (table, old)
            for table, files in zip(archive.tables, ended(archive), strict=True)
            if (old := [each for each in files if is_due(each, horizon)])
        ]
        if not due:
            return
        # The state comes first, so that a reader never finds history with holes.
        released = max(horizon, archive.state.released or horizon)
        archive.save(replace(archive.state, released=released))
    tasks = [
        CutTask.of(archive.path, table, each, horizon)
        for table, old in due
        for each in old
        if _newest(each) > horizon
    ]
    what = f"tidemark: cut old history off {len(tasks)} files of the archive"
    made = run_tasks(tasks, cut, PartResult.from_json, sessions, what) if tasks else []
    with archive.commits:
        for table, old in due:
            new = [file for done in made for file in done.files if file.root == table.root]
            table.exchange(old, new, about_release(released), changes=True)


def is_due(file: DataFile, horizon: int) -> bool:
    """Is at least half of the time of a file at or below the horizon?"""
    low, high = file.ticks
    return high <= horizon or ("_tick" in file.bounds and low <= horizon and high - horizon <= horizon - low)


@dataclass(frozen=True, slots=True)
class CutTask:
    """A file of which a part goes; Spark carries it to wherever the task runs."""

    path: Folder
    root: str
    #: the columns of the table, as an Arrow schema in bytes
    layout: bytes
    name: str
    #: of the file that takes its place
    new_name: str
    horizon: int

    @classmethod
    def of(cls, path: Folder, table: ArchiveTable, file: DataFile, horizon: int) -> CutTask:
        """The task for a file of a table."""
        return cls(path, table.root, table.layout.to_bytes(), file.name, successor_name(file), horizon)


def cut(task: CutTask) -> PartResult:
    """Write what a file has beyond the horizon into a new file.

    The result has the new file, which is on the platter and in no commit yet; none if nothing is beyond.
    """
    at = folder_of(task.path, task.root).file(task.name)
    with at.errors(), at.parquet() as parquet:
        groups = range(parquet.num_row_groups)
        kept = [_beyond(parquet.read_row_group(group, columns=["_tick"]), task.horizon) for group in groups]
        if not count_of(kept):
            return PartResult()
        layout = ArchiveLayout.from_bytes(task.layout)
        made = write_kept(parquet, kept, task.path, task.root, task.new_name, layout)
    return PartResult(files=[made], events=made.rows)


def _beyond(ticks: pa.Table, horizon: int) -> pa.Array:
    """kept[row]: the event lies beyond the horizon."""
    return pc.greater(ticks.column("_tick"), horizon).combine_chunks()


def _newest(file: DataFile) -> int:
    return file.ticks[1]
