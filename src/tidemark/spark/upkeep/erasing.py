"""Erasing: files of the archive that have events of an erasure are rewritten without them.

The process that writes the archive does it, between its batches or beside its query. A file is rewritten by a
task; a commit replaces some files at a time, and the record of the erasure says which. If the process is
killed, the next one goes on: a file that was rewritten has no such events any more. Files that were replaced
stay for an hour, for readers that have begun with them, and are then removed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive.compaction import GRACE_SECONDS, MaintainedArchive, ended
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.part import PartResult
from tidemark.spark.archive.rows import to_events
from tidemark.spark.archive.scan import pieces
from tidemark.spark.archive.state import ArchiveTopics, load_topics
from tidemark.spark.archive.table import ArchiveTable, DataFile, folder_of
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.spark.stores.folder import Folder
from tidemark.spark.upkeep.erasure import ErasedEvents, Erasure, load_erasures, save_erasure
from tidemark.spark.upkeep.rewriting import count_of, successor_name, with_layout, write_kept
from tidemark.ticks import TICK_MIN
from tidemark.wire.answers import TopicStatus

#: Files that one commit replaces at most.
FILES_AT_ONCE = 32
#: What a commit of an erasure says about itself.
_ERASED = "tidemark.erased"


@dataclass(frozen=True, slots=True)
class EraseTask:
    """A file that may have events of an erasure; Spark carries it to wherever the task runs."""

    path: Folder
    root: str
    #: the columns of the table, as an Arrow schema in bytes
    layout: bytes
    name: str
    #: of the file that takes its place
    new_name: str
    erasure: Erasure
    topics: tuple[TopicStatus, ...]


def erase_pending(archive: MaintainedArchive, sessions: SessionLender | None) -> list[Erasure]:
    """Do all erasures that can be done now; returns those that were completed.

    From then on the archive asks brokers to let go what they hold of the time that an erasure is about.
    """
    done = []
    erased: dict[str, int] = {}
    for erasure in load_erasures(archive.path):
        covered = archive.state.covered
        if erasure.stage == "asked":
            if not all(covered.get(pubend, TICK_MIN) >= upto for pubend, upto in erasure.upto.items()):
                continue
            done.append(erase_from(archive, erasure, sessions))
        elif erasure.stage == "erased" and (erasure.erased_at or 0) + GRACE_SECONDS <= time.time():
            _remove_files(archive, erasure)
        for pubend, upto in erasure.upto.items():
            erased[pubend] = max(upto, erased.get(pubend, upto))
    archive.erased = erased
    return done


def erase_from(archive: MaintainedArchive, erasure: Erasure, sessions: SessionLender | None) -> Erasure:
    """Rewrite the files that have events of the erasure, and note that it is done."""
    topics = load_topics(archive.path)
    first = TopicPattern.parse(erasure.topic).levels[0]
    with archive.commits:
        tables = [
            (table, [each for each in files if each.ticks[0] <= max(erasure.upto.values(), default=TICK_MIN)])
            for table, files in zip(archive.tables, ended(archive), strict=True)
            if first in ("*", ">", table.root)
        ]
    for table, files in tables:
        for at in range(0, len(files), FILES_AT_ONCE):
            some = files[at : at + FILES_AT_ONCE]
            erasure = _erase_files(archive, table, some, erasure, topics, sessions)
    erasure = replace(erasure, erased_at=time.time())
    save_erasure(archive.path, erasure)
    return erasure


def _erase_files(
    archive: MaintainedArchive,
    table: ArchiveTable,
    files: Sequence[DataFile],
    erasure: Erasure,
    topics: ArchiveTopics,
    sessions: SessionLender | None,
) -> Erasure:
    layout, described = table.layout.to_bytes(), topics.described
    tasks = [
        EraseTask(archive.path, table.root, layout, each.name, successor_name(each), erasure, described)
        for each in files
    ]
    what = f"tidemark: erase events from {len(tasks)} files of {table.root} (erasure {erasure.id})"
    made = run_tasks(tasks, rewrite, PartResult.from_json, sessions, what)
    changed = [(old, done) for old, done in zip(files, made, strict=True) if done.events]
    if not changed:
        return erasure
    old = [each for each, _ in changed]
    after = erasure.with_replaced(table.root, {each.name: done.events for each, done in changed})
    with archive.commits:
        # The record comes first: whatever is replaced from now on will be removed.
        save_erasure(archive.path, after)
        new = [each for _, done in changed for each in done.files]
        table.exchange(old, new, {_ERASED: erasure.id}, changes=True)
    return after


def rewrite(task: EraseTask) -> PartResult:
    """Write the file without the events of the erasure.

    The result has how many events were left out, and the new file; neither, if there are none.
    """
    layout = ArchiveLayout.from_bytes(task.layout)
    topics = ArchiveTopics(task.topics)
    erased = ErasedEvents(task.erasure, topics)
    at = folder_of(task.path, task.root).file(task.name)
    with at.errors(), at.parquet() as parquet:
        groups = range(parquet.num_row_groups)
        kept = [_kept(parquet.read_row_group(group), erased, topics, layout) for group in groups]
        count = parquet.metadata.num_rows - count_of(kept)
        if not count:
            return PartResult()
        if count == parquet.metadata.num_rows:
            return PartResult(events=count)
        made = write_kept(parquet, kept, task.path, task.root, task.new_name, layout)
    return PartResult(files=[made], events=count)


def _kept(rows: pa.Table, erased: ErasedEvents, topics: ArchiveTopics, layout: ArchiveLayout) -> pa.Array:
    """kept[row]: the event is not erased."""
    table = with_layout(rows, layout)
    kept = np.ones(table.num_rows, np.bool_)
    pubends = table.column("_pubend").combine_chunks().dictionary_encode()
    number_of = pubends.indices.to_numpy(zero_copy_only=False)
    for number, pubend in enumerate(pubends.dictionary.to_pylist()):
        where = np.flatnonzero(number_of == number)
        first = 0
        for piece in pieces(table.take(pa.array(where))):
            meant = erased.rows(pubend, to_events(piece, topics.schemas, layout))
            kept[where[first : first + piece.num_rows][meant]] = False
            first += piece.num_rows
    return pa.array(kept)


def _remove_files(archive: MaintainedArchive, erasure: Erasure) -> None:
    for root, names in erasure.replaced.items():
        folder = folder_of(archive.path, root)
        for name in names:
            folder.remove(name)
        if folder.exists():
            folder.sync()
    save_erasure(archive.path, replace(erasure, gone_at=time.time()))
