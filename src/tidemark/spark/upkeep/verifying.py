"""Verifying an archive: is what brokers still hold in it, byte for byte, and can every file be read?

Ranges of ticks that both have are read from both and compared by checksums, a range for each task. Events
that were erased from the archive are left out of what the broker has. Every file is read whole: it must have
as many rows as the table's log says, ticks within its bounds, and events that can be encoded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark import sync
from tidemark.errors import TidemarkError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Spans
from tidemark.message.batches.spans import joined
from tidemark.spark.archive.layout import ArchiveLayout, laid_out
from tidemark.spark.archive.part import FETCH_SECONDS, divided_backlog, fetched
from tidemark.spark.archive.plan import FetchTask
from tidemark.spark.archive.reader import gaps, read, snapshot
from tidemark.spark.archive.rows import to_events
from tidemark.spark.archive.scan import pieces
from tidemark.spark.archive.state import ArchiveState, load_topics
from tidemark.spark.archive.table import DataFile, folder_of
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.spark.locations import Place
from tidemark.spark.stores.folder import Folder
from tidemark.spark.upkeep.erasure import ErasedEvents, load_erasures
from tidemark.ticks import TICK_MIN

#: About how much of a broker's log one task compares, and how much is compared at all.
PART_BYTES = 64 << 20
COMPARED_BYTES_MAX = 1 << 50
_UNREADABLE = (TidemarkError, pa.ArrowException, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Checked:
    """A range that was compared, or a file that was read."""

    #: the pubend and its range, or the file
    what: str
    events: int
    #: what is wrong; "" if nothing is
    wrong: str = ""

    def to_json(self) -> str:
        """The result as text, for the way back from a Spark task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Checked:
        """The result that `to_json` made the text of."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification found."""

    ranges: int
    #: events that both the archive and a broker have
    compared: int
    files: int
    #: events in the files
    events: int
    #: broker -> why it does not answer
    away: dict[str, str]
    wrong: tuple[Checked, ...]

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to read, and what the table's log says of it."""

    path: Folder
    root: str
    layout: bytes
    name: str
    rows: int
    ticks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range to compare."""

    path: Folder
    fetch: FetchTask


def verify(path: Place, broker: str | Sequence[str] | None, sessions: SessionLender | None) -> Verification:
    """Compare the archive at `path` with brokers, and read all its files; with `sessions` by a Spark job."""
    archived = snapshot(path)
    file_tasks = [
        file_task(archived.path, each, archived.layouts[root])
        for root, files in archived.files.items()
        for each in files
    ]
    ranges, away = ([], {}) if broker is None else _ranges(archived.state, broker)
    range_tasks = [RangeTask(archived.path, each) for each in ranges]
    files = run_tasks(
        file_tasks,
        check_file,
        Checked.from_json,
        sessions if file_tasks else None,
        f"tidemark: check {len(file_tasks)} files of the archive",
    )
    compared = run_tasks(
        range_tasks,
        compare_range,
        Checked.from_json,
        sessions if range_tasks else None,
        f"tidemark: compare {len(range_tasks)} ranges of the archive with brokers",
    )
    return Verification(
        ranges=len(compared),
        compared=sum(each.events for each in compared),
        files=len(files),
        events=sum(each.events for each in files),
        away=away,
        wrong=tuple(each for each in (*files, *compared) if each.wrong),
    )


def file_task(path: Folder, file: DataFile, layout: ArchiveLayout) -> FileTask:
    """The task that reads a file of the archive at `path`."""
    return FileTask(path, file.root, layout.to_bytes(), file.name, file.rows, file.ticks)


def _ranges(state: ArchiveState, broker: str | Sequence[str]) -> tuple[list[FetchTask], dict[str, str]]:
    """What both the archive and brokers have; a broker may still hold what the archive has let go."""
    brokers = ArchiveBrokers(urls_of(broker))
    try:
        tasks = []
        for each in brokers.pubends():
            base = max(TICK_MIN if each.lost is None else each.lost, state.released or TICK_MIN)
            upto = min(state.covered.get(each.pubend, TICK_MIN), each.position)
            if base < upto and each.last_event is not None and each.last_event > base:
                tasks.append(FetchTask(each.pubend, base, upto, each.bytes, each.broker))
        return divided_backlog(tasks, COMPARED_BYTES_MAX, PART_BYTES, brokers.client), brokers.away
    finally:
        brokers.close()


def compare_range(task: RangeTask) -> Checked:
    """Compare a range of the archive with what the broker has."""
    fetch = task.fetch
    path = task.path
    topics = load_topics(path)
    erased = [ErasedEvents(each, topics) for each in load_erasures(path) if each.stage != "asked"]
    at_broker, in_archive = _Digest(), _Digest()
    base = upto = fetch.base
    with sync.connect(fetch.broker, timeout=FETCH_SECONDS) as client:
        for answer in fetched(client, fetch):
            if answer.batch is not None:
                meant = np.zeros(answer.batch.count, np.bool_)
                for each in erased:
                    meant |= each.rows(fetch.pubend, answer.batch)
                at_broker.add(answer.batch if not meant.any() else answer.batch.take(~meant))
            # What the broker has let go since is not compared.
            base = max(base, min(answer.lost, answer.upto))
            upto = answer.upto
    what = f"{fetch.pubend} ({base}, {upto}]"
    try:
        for batch in read(path, fetch.pubend, base, upto):
            in_archive.add(batch)
    except _UNREADABLE as error:
        return Checked(what, at_broker.count, f"the archive cannot be read: {error}")
    missing = gaps(path, fetch.pubend, base, upto)
    wrong = ""
    if at_broker.digest() != in_archive.digest():
        wrong = f"the broker has {at_broker.count:,} events and the archive {in_archive.count:,}"
        if at_broker.count == in_archive.count:
            wrong = "the broker and the archive have other events"
        if missing:
            wrong += f"; the archive knows that it lacks {len(missing)} ranges"
    return Checked(what, at_broker.count, wrong)


def check_file(task: FileTask) -> Checked:
    """Read a file whole, and compare it with what the table's log says."""
    folder = folder_of(task.path, task.root)
    what = f"{task.root}/{task.name}"
    layout = ArchiveLayout.from_bytes(task.layout)
    schemas = load_topics(task.path).schemas
    rows = 0
    try:
        with folder.errors(task.name), folder.file(task.name).parquet() as parquet:
            for group in range(parquet.num_row_groups):
                some = parquet.read_row_group(group)
                table = laid_out(
                    {each: some.column(each) for each in some.column_names}, some.num_rows, layout
                )
                bounds = pc.min_max(table.column("_tick")).as_py()
                if table.num_rows and not task.ticks[0] <= bounds["min"] <= bounds["max"] <= task.ticks[1]:
                    return Checked(what, rows, "has ticks beyond the bounds that the table's log says")
                for piece in pieces(table):
                    rows += to_events(piece, schemas, layout).count
    except _UNREADABLE as error:
        return Checked(what, rows, f"cannot be read: {error}")
    wrong = "" if rows == task.rows else f"has {rows:,} rows, and {task.rows:,} by the table's log"
    return Checked(what, rows, wrong)


class _Digest:
    """A checksum of events in their order, however they are cut into batches."""

    def __init__(self) -> None:
        self.count = 0
        self._columns = {name: blake2b(digest_size=16) for name in ("tick", "size", "message", "key", "from")}

    def add(self, batch: EventBatch) -> None:
        """Add events."""
        self.count += batch.count
        messages = Spans(batch.body, batch.message_starts, batch.message_ends)
        keys = Spans(batch.body, batch.message_ends, batch.ends.astype(np.int64))
        self._columns["tick"].update(np.ascontiguousarray(batch.ticks, np.int64).tobytes())
        self._columns["size"].update(np.stack([messages.lengths, keys.lengths], 1).astype(np.int64).tobytes())
        self._columns["message"].update(joined(messages)[0].tobytes())
        self._columns["key"].update(joined(keys)[0].tobytes())
        self._columns["from"].update(_names(batch))

    def digest(self) -> tuple[bytes, ...]:
        """The checksums so far."""
        return tuple(each.digest() for each in self._columns.values())


def _names(batch: EventBatch) -> bytes:
    """Topic, schema and publisher of each event."""
    shapes = [f"{each.topic}\x00{each.fingerprint}\x00" for each in batch.shapes]
    publishers = [f"{each}\x00" for each in batch.publishers]
    pairs: Iterable[tuple[int, int]] = zip(
        batch.prelude("shape").tolist(), batch.prelude("publisher").tolist(), strict=True
    )
    return "".join(shapes[shape] + publishers[publisher] for shape, publisher in pairs).encode()
