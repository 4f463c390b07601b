"""Keeping an archive in shape: few and large files, no more history than wanted, no files of nobody.

Between rounds, by the process that writes the archive. Compaction merges neighbours, so that for one pubend
the order of the files stays the order of the ticks, and never touches a round that has not ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.spark.archivelayout import Layout, laid_out
from tidemark.spark.archivestate import State
from tidemark.spark.archivetable import ArchiveTable, DataFile, disk_errors, file_name, remove_old, sync_file
from tidemark.spark.archivewrite import FileWriter

#: Files below this are merged, once there are so many neighbours, into one of at most so much.
SMALL_FILE_BYTES = 16 << 20
SMALL_FILES_MIN = 16
MERGED_BYTES_MAX = 64 << 20
#: Files that a commit has replaced stay this long for those who read them.
GRACE_SECONDS = 3_600.0
SWEEP_ROUNDS = 64


class Kept(Protocol):
    """What is done here needs of an archive."""

    path: Path
    state: State

    @property
    def tables(self) -> Sequence[ArchiveTable]:
        """All tables."""

    def save(self, state: State) -> None:
        """Replace the state."""


def keep(archive: Kept, retain: float | None) -> None:
    """All of it, each table a step at most."""
    if retain is not None:
        let_go(archive, int((time.time() - retain) * 1e6))
    for table in archive.tables:
        run = mergeable(table.files())
        if run:
            compact(archive.path, table, run)
        if archive.state.batch % SWEEP_ROUNDS == 0:
            remove_old(table.folder, table.files(), time.time() - GRACE_SECONDS)


def mergeable(files: Sequence[DataFile]) -> list[DataFile]:
    """The first neighbours that are many and small enough to be one."""
    run: list[DataFile] = []
    for each in files:
        if each.bytes >= SMALL_FILE_BYTES or sum(one.bytes for one in run) + each.bytes > MERGED_BYTES_MAX:
            if len(run) >= SMALL_FILES_MIN:
                return run
            run = []
        if each.bytes < SMALL_FILE_BYTES:
            run.append(each)
    return run if len(run) >= SMALL_FILES_MIN else []


def compact(path: Path, table: ArchiveTable, files: Sequence[DataFile]) -> DataFile:
    """Merge neighbours into one file, sorted by pubend and tick."""
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
        sync_file(table.folder)
        table.exchange(files, [made])
    except BaseException:
        writer.discard()
        raise
    return made


def let_go(archive: Kept, horizon: int) -> None:
    """Drop the files that have nothing beyond the horizon; nothing at or below it is read from now on."""
    gone = {
        table.root: [each for each in table.files() if each.bounds["_tick"][1] <= horizon]
        for table in archive.tables
    }
    if not any(gone.values()):
        return
    # First said, then done: a reader never meets history with holes.
    archive.save(replace(archive.state, released=max(horizon, archive.state.released or horizon)))
    for table in archive.tables:
        if gone[table.root]:
            table.exchange(gone[table.root], [])


def _read(file: Path, layout: Layout) -> pa.Table:
    table = pq.read_table(file, partitioning=None)
    return laid_out({name: table.column(name) for name in table.column_names}, table.num_rows, layout)
