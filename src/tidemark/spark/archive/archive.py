"""Writing an archive: pubend logs into Delta tables of Parquet, exactly once (docs/architecture.md).

A round reads what brokers have beyond `covered`, writes it into files, commits the files and reports:
  1. the round is planned as ranges of ticks of pubends, up to the positions that the brokers have answered;
  2. tasks fetch the ranges and write Parquet files, which each task syncs (a small round is one task, here in
     the driver; a large one is a Spark job);
  3. each table that got files gets one Delta commit, which also says how far that table has got, synced;
  4. the state says the new `covered`, synced: the round has ended;
  5. the pubends are told how far they are archived, and may release.

Why a plain loop and not a streaming query: the ticks in a commit say what the commit contains, so
exactly-once needs no second ledger. A crash before a table's commit leaves files that no log names; they are
removed. After a table's commit, the next round leaves out what that table already has, by the table's own
transaction. After the state, the report is made again by comparing what a pubend says is archived with what
is covered, which also serves a broker that restarted. The commits repeat the state: if the file of the state
is damaged, the state is rebuilt from them. A streaming query would keep the same facts a second time, in a
checkpoint that Spark does not sync, with batch ids that start again when the checkpoint is lost, and would
cost a quarter of a second a round.

One process writes an archive: the directory is locked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tidemark.errors import DamagedError, DirectoryLockedError, NotConnectedError
from tidemark.spark.archive.compaction import ArchiveRetention, Maintenance
from tidemark.spark.archive.layout import ArchiveLayout, fields_of
from tidemark.spark.archive.part import FETCH_SECONDS, PartResult, run_part, run_part_alone
from tidemark.spark.archive.plan import FetchTask, RoundPart, backlog, divided, lost_before
from tidemark.spark.archive.recovery import about_round, is_stale, recovered
from tidemark.spark.archive.state import (
    FOLDER,
    ArchiveState,
    Round,
    has_state,
    load_state,
    load_topics,
    save_state,
    save_topics,
    set_aside,
)
from tidemark.spark.archive.table import (
    ArchiveTable,
    DataFile,
    folder_of,
    mend,
    remove_strays,
    root_of,
    roots_in,
)
from tidemark.spark.broker_answers import HostedPubend
from tidemark.spark.connections import ArchiveBrokers, urls_of
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.answers import TopicStatus

#: About how much a round reads that runs in the driver.
SMALL_ROUND_BYTES_MAX = 64 << 20
#: With a backlog of this size a round is a Spark job, if a session is lent, and reads about so much at most.
BACKLOG_BYTES_MIN = 512 << 20
LARGE_ROUND_BYTES_MAX = 2 << 30
PART_BYTES = 64 << 20
_LOCK_TRIES = 3

_log = logging.getLogger("tidemark.archive")


class Archive:
    """An archive that this process writes. No other process can open it for writing meanwhile."""

    def __init__(
        self,
        broker: str | Sequence[str],
        path: str | Path,
        *,
        sessions: SessionLender | None = None,
        retain: ArchiveRetention | None = None,
    ) -> None:
        """`sessions` lends a Spark session for large rounds; without `retain` all history is kept."""
        self.path = Path(path)
        self._brokers = ArchiveBrokers(urls_of(broker))
        self._sessions = sessions
        self._disk = RealDisk(self.path / FOLDER)
        self._lock()
        try:
            self._topics = load_topics(self.path)
            self._tables, self.state = self._opened()
            #: the last batch that was begun; it may be ahead of the state, if a round was interrupted
            self._batch = max([self.state.batch, *(each.batches[1] for each in self._files())])
            self._remove_strays()
            self._maintenance = Maintenance(self, retain or ArchiveRetention())
        except BaseException:
            self._disk.unlock()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect, and let another process write the archive."""
        self.disconnect()
        self._disk.unlock()

    def disconnect(self) -> None:
        """Close the connections to brokers; the next round makes new ones."""
        self._brokers.close()

    @property
    def away(self) -> dict[str, str]:
        """broker -> why it does not answer, while others do."""
        return self._brokers.away

    def round(self) -> Round | None:
        """Archive what the brokers have, or a first part of it.

        Returns None if there was nothing to archive. Raises NotConnectedError if no broker answers.
        """
        began = time.monotonic()
        pubends = self._brokers.pubends()
        ended = self._round(pubends, began)
        self._report(pubends)
        self._maintenance.run(is_changed=ended is not None)
        return ended

    @property
    def tables(self) -> Sequence[ArchiveTable]:
        """All tables, as they are after the last commit."""
        return list(self._tables.values())

    def save(self, state: ArchiveState) -> None:
        """Replace the state; the new one is on the platter when this returns."""
        save_state(self.path, state)
        self.state = state

    # A round.

    def _round(self, pubends: Sequence[HostedPubend], began: float) -> Round | None:
        lost = lost_before(pubends, self.state.covered)
        tasks = backlog(pubends, self.state.covered)
        if not lost and not tasks:
            return None
        state = self.state
        for gone in lost:
            _warn_lost(gone.pubend, gone.base, gone.upto)
            state = state.without(gone.pubend, gone.base, gone.upto)
        covered = CheckpointToken({gone.pubend: gone.upto for gone in lost})
        # Topics are asked for after the positions: a publisher declares a schema before it publishes with it.
        self._learn(self._brokers.topics())
        self._batch += 1
        done = self._read(tasks, self._batch)
        for pubend, (base, upto) in done.missing:
            _warn_lost(pubend, base, upto)
            state = state.without(pubend, base, upto)
        covered = covered.merge(CheckpointToken(done.reached))
        ended = Round(time.time(), time.monotonic() - began, done.events, done.bytes)
        self._commit(done, covered, state.after(self._batch, covered, {}, ended))
        versions = {root: table.version for root, table in self._tables.items()}
        ended = replace(ended, at=time.time(), seconds=time.monotonic() - began)
        self.save(state.after(self._batch, covered, versions, ended))
        return ended

    def _learn(self, described: Sequence[TopicStatus]) -> None:
        """Save new schemas and give the tables columns for their fields, before any event needs them."""
        topics = self._topics.merged(described)
        if topics is not self._topics:
            save_topics(self.path, topics)
            self._topics = topics
        for root in sorted({root_of(name) for name in topics.names}):
            table = self._tables.get(root)
            before = ArchiveLayout() if table is None else table.layout
            versions = [
                version for name in topics.names if root_of(name) == root for version in topics[name].versions
            ]
            layout = before.extended(field for each in versions for field in fields_of(each).items())
            if table is None or layout is not before:
                self._tables[root] = ArchiveTable.to_write(self.path, root, layout)

    def _read(self, tasks: Sequence[FetchTask], batch: int) -> PartResult:
        if not tasks:
            return PartResult()
        if self._sessions is not None and sum(task.bytes for task in tasks) >= BACKLOG_BYTES_MIN:
            parts = [part for task in tasks for part in self._divided(task, len(tasks))]
            # The sizes that brokers answer include what is archived already; those of parts do not.
            if sum(task.bytes for task in parts) >= BACKLOG_BYTES_MIN:
                each = [self._part([task], batch, number) for number, task in enumerate(parts)]
                return _merged(_run_on_spark(each, self._sessions))
        part = self._part(tasks, batch, 0)
        return run_part(replace(part, bytes_max=SMALL_ROUND_BYTES_MAX), self._brokers.client, self._topics)

    def _divided(self, task: FetchTask, count: int) -> list[FetchTask]:
        client = self._brokers.client(task.broker)
        first = client._fetch(task.pubend, TICK_MIN, task.upto, bytes_max=1, timeout=FETCH_SECONDS)
        held_from = first.upto if first.batch is None else int(first.batch.ticks[0]) - 1
        return divided(task, held_from, LARGE_ROUND_BYTES_MAX // count, PART_BYTES)

    def _part(self, tasks: Sequence[FetchTask], batch: int, number: int) -> RoundPart:
        pubends = [task.pubend for task in tasks]
        reached = {
            root: {name: tick for name in pubends if (tick := table.reached(name)) is not None}
            for root, table in self._tables.items()
        }
        layouts = {root: table.layout.to_bytes() for root, table in self._tables.items()}
        return RoundPart(
            str(self.path.absolute()),
            batch,
            number,
            tuple(tasks),
            self._topics.described,
            layouts,
            reached,
        )

    def _commit(self, done: PartResult, covered: CheckpointToken, after: ArchiveState) -> None:
        roots = list(dict.fromkeys(each.root for each in done.files))
        about = about_round(self.state, after, roots)
        for root in roots:
            files = [each for each in done.files if each.root == root]
            self._tables[root].add(files, covered, about)
            self._tables[root].checkpoint()

    # After a round, and before the first.

    def _report(self, pubends: Sequence[HostedPubend]) -> None:
        """Tell how far the archive has got to those pubends that do not know it."""
        behind: dict[str, dict[str, int]] = {}
        for each in pubends:
            covered = self.state.covered.get(each.pubend, TICK_MIN)
            if each.archived is not None and each.archived < min(covered, each.position):
                behind.setdefault(each.broker, {})[each.pubend] = covered
        for url, token in behind.items():
            self._brokers.client(url).ask("archived", token=CheckpointToken(token).text())

    def _lock(self) -> None:
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                return self._disk.lock()
            except DirectoryLockedError as error:
                if not tries_left:
                    reason = f"process {error.holder or 'unknown'} archives into it already: stop that first"
                    raise DirectoryLockedError(reason, path=str(self.path), holder=error.holder) from None
            # A process that asks for the archive's status holds the lock for a moment.
            time.sleep(0.05)

    def _opened(self) -> tuple[dict[str, ArchiveTable], ArchiveState]:
        """The tables, mended after a crash, and the state, which is rebuilt from the tables if it is lost."""
        reason, synced = "is gone", ArchiveState()
        try:
            synced = load_state(self.path)
        except DamagedError:
            reason = "is damaged"
        tables = {}
        for root in roots_in(self.path):
            mend(folder_of(self.path, root), synced.versions.get(root, -1))
            tables[root] = ArchiveTable(self.path, root)
        files = [each for table in tables.values() for each in table.files()]
        if has_state(self.path) and reason == "is gone":
            if not is_stale(synced, files):
                return tables, synced
            reason = "is older than the tables"
        if not files and reason == "is gone":
            return tables, synced
        _log.warning("%s: the state %s; it is made again from the tables", self.path, reason)
        state = recovered(self.path)
        set_aside(self.path)
        save_state(self.path, state)
        return tables, state

    def _files(self) -> list[DataFile]:
        return [each for table in self._tables.values() for each in table.files()]

    def _remove_strays(self) -> None:
        for table in self._tables.values():
            removed = remove_strays(table.folder, table.files(), self.state.batch)
            if removed:
                _log.warning("%s: removed %d files of a round that was interrupted", table.folder, removed)


def _run_on_spark(parts: Sequence[RoundPart], sessions: SessionLender) -> list[PartResult]:
    """The results of the parts, in their order, each read and written by a Spark task of its own."""
    done = run_tasks(parts, run_part_alone, PartResult.from_json, sessions)
    for part, each in zip(parts, done, strict=True):
        # The parts after an incomplete one must not be committed either: what is covered has no holes.
        if any(each.reached[task.pubend] < task.upto for task in part.tasks):
            raise NotConnectedError("the broker has restarted in the middle of a round: it is begun again")
    return done


def _merged(parts: Sequence[PartResult]) -> PartResult:
    whole = PartResult()
    for each in parts:
        whole.files += each.files
        whole.missing += each.missing
        whole.events += each.events
        whole.bytes += each.bytes
        for pubend, tick in each.reached.items():
            whole.reached[pubend] = max(tick, whole.reached.get(pubend, tick))
    return whole


def _warn_lost(pubend: str, base: int, upto: int) -> None:
    # Whether there were events, the broker does not know any more.
    _log.warning(
        "pubend %s: (%d, %d] is gone from the broker; any events there are not archived", pubend, base, upto
    )
