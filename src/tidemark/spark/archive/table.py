"""One Delta table of an archive: the events of all topics with one first level.

`ArchiveTable` owns the table's log. A commit adds files that are synced already and records, in an
application transaction for each pubend, how far the table has got. The commit itself is on the platter when
the call returns: Delta's writer syncs nothing. A torn last entry of the log, which a power failure may leave,
was never reported to anyone; `mend` removes it when the archive is opened for writing.

A file is named `first-last-part-number-random.parquet`: the batches whose events it has, and its place among
the files of a batch. For one pubend the order of the names is the order of the ticks. Other tools may rewrite
files under names of their own (delete, optimize, z-order): such a file has events of batches that have ended,
in any order.

In an object store, where a lease and not a lock says who writes, every commit also records the number of the
writer, in an application transaction of its own. A new writer first commits its number to each table. Delta
refuses a commit whose transactions another process has recorded meanwhile, so whoever had the lease before
cannot commit any more. A commit whose answer was lost is found in the log by the name that it was given.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tidemark.errors import DamagedError, FencedError, StorageError
from tidemark.spark.archive.layout import ArchiveLayout
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MAX, TICK_MIN

#: Commits between two checkpoints of the log.
CHECKPOINT_COMMITS = 50

#: Unless versions are kept longer, nobody reads files that were replaced an hour ago, so the log need not
#: name them any longer. Otherwise a table that gets a file a second would have a log of a million entries,
#: with all removed files in every checkpoint.
_LOG_RETENTION, _FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
_PROPERTIES = {_LOG_RETENTION: "interval 2 hours", _FILE_RETENTION: "interval 1 hours"}
_LOG = "_delta_log"
_OWN_NAME = re.compile(r"\d{10,}-\d{10,}-\d{5,}-\d{5,}-[0-9a-z]+\.parquet")
#: `ArchiveTable.checkpoint` makes checkpoints, and syncs them.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_WRITER = "tidemark writer"
#: What a commit says about itself: a name that no other commit has.
_COMMIT = "tidemark.commit"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table."""

    root: str
    name: str
    bytes: int
    rows: int
    #: column -> its least and greatest value, where known
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Was the file written here? Another tool has written it otherwise, and its rows have no order."""
        return is_own_name(self.name)

    @property
    def batches(self) -> tuple[int, int]:
        """The first and the last batch whose events the file has; (0, 0) if another tool has written it."""
        if not self.is_own:
            return 0, 0
        first, last, *_ = self.name.split("-")
        return int(first), int(last)

    @property
    def ticks(self) -> tuple[int, int]:
        """The least and the greatest tick; all ticks, if the log does not say."""
        low, high = self.bounds.get("_tick", (TICK_MIN, TICK_MAX))
        return int(low), int(high)


def root_of(topic: str) -> str:
    """The first level of a topic's name."""
    return topic.split(".", 1)[0]


def folder_of(path: Place, root: str) -> Folder:
    """The folder of the table of a root: it has the root's name, escaped where that is not a plain one."""
    folder = folder_at(path)
    name = quote(root, safe="")
    # Spark ignores directories whose names begin with an underscore, and `_archive` is taken.
    name = f"%5F{name[1:]}" if name.startswith("_") else name
    # In URLs delta-rs takes a percent sign for an escape of its own.
    return folder / (name if folder.mounted is not None else name.replace("~", "%7E").replace("%", "~"))


def log_of(path: Place, root: str) -> Folder:
    """The folder of the log of a root's table."""
    return folder_of(path, root) / _LOG


def entries_of(log: Folder) -> list[str]:
    """The names of the entries of a table's log, the oldest first."""
    return [each.name for each in log.files() if each.name.endswith(".json")]


def roots_in(path: Place) -> list[str]:
    """The roots that have a table, sorted."""
    folder = folder_at(path)
    found = [each for each in folder.folders() if each != FOLDER and _LOG in (folder / each).folders()]
    names = found if folder.mounted is not None else [each.replace("~", "%") for each in found]
    return sorted(map(unquote, names))


def is_own_name(name: str) -> bool:
    """Is this the name of a file that was written here, by `file_name`?"""
    return _OWN_NAME.fullmatch(name) is not None


def file_name(first: int, last: int, part: int, number: int) -> str:
    """A name for a new file; see the module's docstring."""
    return f"{first:010d}-{last:010d}-{part:05d}-{number:05d}-{os.urandom(4).hex()}.parquet"


class ArchiveTable:
    """The table of one root, as it was when it was opened or after its own last commit."""

    def __init__(self, path: Place, root: str, writer: int = 0, *, version: int | None = None) -> None:
        """`writer` is the number of this process, where it writes the table by a lease.

        With a version, the table is as it was then, and only read. Raises TableNotFoundError if there is no
        table.
        """
        self.root = root
        self.folder = folder_of(path, root)
        self._writer = writer
        with self.folder.errors():
            self._delta = _opened(self.folder, version)

    @classmethod
    def to_write(cls, path: Place, root: str, layout: ArchiveLayout, writer: int = 0) -> ArchiveTable:
        """The table, created if there is none, and widened until it has at least these columns."""
        folder = folder_of(path, root)
        with folder.errors():
            try:
                _opened(folder)
            except TableNotFoundError:
                folder.make()
                _created(folder, root, layout)
                for each in (folder / _LOG, folder, folder_at(path)):
                    each.sync()
        table = cls(path, root, writer)
        table.fence()
        table.widen(layout)
        return table

    def fence(self) -> None:
        """Keep writers with lesser numbers from committing from now on.

        Raises FencedError if this is such a writer itself.
        """
        if not self._writer:
            return
        last = self._delta.transaction_version(_WRITER) or 0
        if last > self._writer:
            raise self._fenced()
        if last < self._writer:
            self._commit([], CommitProperties())

    @property
    def version(self) -> int:
        """The number of the last entry of the log; the first is 0."""
        return int(self._delta.version())

    @property
    def layout(self) -> ArchiveLayout:
        """The columns of the table."""
        return ArchiveLayout(pa.schema(self._delta.schema().to_arrow()))

    def widen(self, layout: ArchiveLayout) -> None:
        """Give the table the columns that the layout has beyond its own."""
        new = layout.changes(self.layout)
        if len(new):
            fields = list(DeltaSchema.from_arrow(new).fields)
            with self._committing():
                self._delta.alter.add_columns(fields, post_commithook_properties=_NO_HOOKS)

    def keep_versions(self, seconds: float) -> None:
        """Keep the log of so many seconds, or of two hours at the least, so that versions can be read."""
        hours = math.ceil(seconds / 3_600)
        wanted = dict(_PROPERTIES)
        if hours > 1:
            for name, more in ((_LOG_RETENTION, 1), (_FILE_RETENTION, 0)):
                wanted[name] = f"interval {hours + more} hours"
        found = self._delta.metadata().configuration
        if any(found.get(name) != value for name, value in wanted.items()):
            with self._committing():
                self._delta.alter.set_table_properties(
                    wanted, raise_if_not_exists=False, post_commithook_properties=_NO_HOOKS
                )

    def reached(self, pubend: str) -> int | None:
        """The tick up to which the table has a pubend; None if it has nothing. May be ahead of the state."""
        version: int | None = self._delta.transaction_version(_application(pubend))
        return version

    def files(self) -> list[DataFile]:
        """All files, in the order of their names."""
        with self.folder.errors():
            actions = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return sorted((_data_file(self.root, each) for each in actions), key=lambda each: each.name)

    def extent(self) -> tuple[int, int]:
        """How many files there are, and their bytes."""
        with self.folder.errors():
            sizes = pa.table(self._delta.get_add_actions(flatten=True)).column("size_bytes")
        return len(sizes), pc.sum(sizes).as_py() or 0

    def add(self, files: Sequence[DataFile], reached: Mapping[str, int], about: Mapping[str, str]) -> None:
        """Commit files that are on the platter.

        `reached` is, for each pubend, the tick up to which the table has it then; `about` goes into the log.
        """
        transactions = [Transaction(_application(name), tick) for name, tick in reached.items()]
        properties = CommitProperties(custom_metadata=dict(about), app_transactions=transactions)
        self._commit([_addition(each, changes=True) for each in files], properties)

    def exchange(
        self,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        about: Mapping[str, str] | None = None,
        *,
        changes: bool | None = None,
    ) -> None:
        """Commit that the new files replace the old ones; without new files, the events are removed.

        `changes` says whether the new files have other events; by default, if there are none.
        """
        is_changed = not new if changes is None else changes
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [_removal(each, now, changes=is_changed) for each in old]
        actions += [_addition(each, changes=is_changed) for each in new]
        self._commit(actions, CommitProperties(custom_metadata=dict(about or {})))

    def checkpoint(self) -> None:
        """After CHECKPOINT_COMMITS commits, write a checkpoint, which spares readers the log before it."""
        if self.version and self.version % CHECKPOINT_COMMITS == 0:
            with self.folder.errors():
                self._delta.create_checkpoint()
                log = self.folder / _LOG
                made = [each.name for each in log.files(prefix=f"{self.version:020d}.")]
                log.sync([*made, "_last_checkpoint"])
                self._delta.cleanup_metadata()

    def _commit(self, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> None:
        if (self._delta.transaction_version(_WRITER) or 0) > self._writer:
            raise self._fenced()
        name = uuid4().hex
        properties.custom_metadata = {**(properties.custom_metadata or {}), _COMMIT: name}
        if self._writer:
            writer = Transaction(_WRITER, self._writer)
            properties.app_transactions = [*(properties.app_transactions or []), writer]
        with self._committing(name):
            self._delta.create_write_transaction(
                list(actions),
                "append",
                self._delta.schema(),
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )

    @contextmanager
    def _committing(self, name: str = "") -> Iterator[None]:
        """Commit in the block. The answer to a commit of this name may be lost although it was made."""
        before = self.version
        try:
            with self.folder.errors():
                try:
                    yield
                except CommitFailedError:
                    self._delta.update_incremental()
                    if not self._has_commit(name, before):
                        raise
                self._delta.update_incremental()
                log = self.folder / _LOG
                log.sync([f"{version:020d}.json" for version in range(before + 1, self.version + 1)])
        except StorageError:
            # Whatever is committed is known before the next attempt, which otherwise would fail for ever.
            with suppress(StorageError), self.folder.errors():
                self._delta.update_incremental()
            if (self._delta.transaction_version(_WRITER) or 0) > self._writer:
                raise self._fenced() from None
            raise

    def _has_commit(self, name: str, before: int) -> bool:
        """Is a commit of this name among those after the version `before`?"""
        if not name:
            return False
        log = self.folder / _LOG
        entries = (log.read(f"{version:020d}.json") for version in range(before + 1, self.version + 1))
        return any(name.encode() in (entry or b"") for entry in entries)

    def _fenced(self) -> FencedError:
        return FencedError("another process writes the table now: this one stops", path=self.folder.text)


def mend(folder: Folder, synced: int) -> None:
    """Remove torn entries from the end of a table's log, and drafts.

    Raises DamagedError for an entry at or below version `synced`, which was on the platter. An entry beyond
    was never reported to anyone.
    """
    log = folder / _LOG
    names = [each.name for each in log.files()]
    for entry in reversed([each for each in names if each.endswith(".json")]):
        if _is_entry(log.read(entry)):
            break
        if int(entry.removesuffix(".json")) <= synced:
            reason = "an entry of the table's log that was on disk is damaged: restore it from a copy"
            raise DamagedError(reason, path=log.at(entry), offset=0)
        log.remove(entry)
    for draft in (each for each in names if each.endswith(".tmp") or "#" in each):
        log.remove(draft)


def remove_strays(folder: Folder, files: Sequence[DataFile], batch: int) -> int:
    """Remove the files of rounds after `batch` that no commit has added; returns how many there were."""
    mine = [each for each in unused_files(folder, files) if int(each.split("-")[1]) > batch]
    for each in mine:
        folder.remove(each)
    return len(mine)


def unused_files(folder: Folder, files: Sequence[DataFile]) -> list[str]:
    """The names of files that were written here and that no commit has, or has any more."""
    known = {each.name for each in files}
    return [each.name for each in folder.files() if is_own_name(each.name) and each.name not in known]


def _opened(folder: Folder, version: int | None = None) -> DeltaTable:
    return DeltaTable(folder.delta_uri, version=version, storage_options=dict(folder.delta_options) or None)


def _created(folder: Folder, root: str, layout: ArchiveLayout) -> None:
    try:
        DeltaTable.create(
            folder.delta_uri,
            schema=DeltaSchema.from_arrow(layout.schema),
            name=root,
            configuration=dict(_PROPERTIES),
            storage_options=dict(folder.delta_options) or None,
        )
    except DeltaError:
        # The answer to the first attempt may have been lost: then the table is there.
        _opened(folder)


def _application(pubend: str) -> str:
    return f"tidemark/{pubend}"


def _is_entry(data: bytes | None) -> bool:
    try:
        lines = (data or b"").splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _addition(file: DataFile, *, changes: bool) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: low for name, (low, _) in file.bounds.items()},
        "maxValues": {name: high for name, (_, high) in file.bounds.items()},
        "nullCount": dict(file.nulls),
    }
    return AddAction(file.name, file.bytes, {}, int(time.time() * 1000), changes, json.dumps(stats))


def _removal(file: DataFile, now: int, *, changes: bool) -> RemoveAction:
    return RemoveAction(file.name, changes, now)


def _data_file(root: str, action: Mapping[str, Any]) -> DataFile:
    bounds = {
        key.removeprefix("min."): (low, action[f"max.{key.removeprefix('min.')}"])
        for key, low in action.items()
        if key.startswith("min.") and low is not None
    }
    nulls = {
        key.removeprefix("null_count."): count
        for key, count in action.items()
        if key.startswith("null_count.") and count is not None
    }
    return DataFile(root, action["path"], action["size_bytes"], action["num_records"], bounds, nulls)
