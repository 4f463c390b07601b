"""Writing an archive: pubend logs into Delta tables of Parquet, exactly once (docs/architecture.md).

A batch reads what brokers have beyond `covered`, writes it into files, commits the files and reports:
  1. the batch is planned as ranges of ticks of pubends, up to the positions that the brokers have answered;
  2. tasks fetch the ranges and write Parquet files, which each task syncs;
  3. each table that got files gets one Delta commit, which also says how far that table has got, synced;
  4. the state says the new `covered`, synced: the batch has ended;
  5. the pubends are told how far they are archived, and may release.

Two engines make batches. `Archive.round` plans and reads in this process. The streaming query of
`spark.archive_query` plans in its source and reads in Spark tasks, and hands what they wrote to
`Archive.take`. Steps 3 to 5 are the same for both, and so are the rows.

The ticks in a commit say what the commit contains, so exactly-once needs no second ledger, and either engine
goes on where the other one ended. A crash before a table's commit leaves files that no log names; they are
removed. After a table's commit, the next batch leaves out what that table already has, by the table's own
transaction. After the state, the report is made again by comparing what a pubend says is archived with what
is covered, which also serves a broker that restarted. The commits repeat the state: if the file of the state
is damaged, the state is rebuilt from them. The checkpoint of the query is Spark's own memory of where it was;
if it is lost or older than the state, nothing is lost or doubled.

One process writes an archive. A directory is locked; in an object store the process has a lease, and one that
has lost its lease cannot replace the state or commit to a table any more (`spark.stores.hold`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import RLock
from typing import Any

from tidemark.errors import DamagedError, NotConnectedError, RefusedError
from tidemark.spark.archive.compaction import ArchiveRetention, Maintenance
from tidemark.spark.archive.layout import ArchiveLayout, fields_of
from tidemark.spark.archive.part import PartResult, divided_backlog, merged_results, run_part, run_part_alone
from tidemark.spark.archive.plan import FetchTask, RoundPart, backlog, lost_before
from tidemark.spark.archive.recovery import about_round, is_stale, recovered
from tidemark.spark.archive.state import (
    FOLDER,
    ArchiveState,
    Round,
    fence_files,
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
from tidemark.spark.connections import ArchiveBrokers, Closing, urls_of
from tidemark.spark.engine.tasks import SessionLender, run_tasks
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.round_log import Diary, RoundNote
from tidemark.spark.stores.hold import hold
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.answers import ARCHIVED, LET_GO, TopicStatus

#: About how much a round reads that runs in the driver.
SMALL_ROUND_BYTES_MAX = 64 << 20
#: With a backlog of this size a round is a Spark job, if a session is lent, and reads about so much at most.
BACKLOG_BYTES_MIN = 512 << 20
LARGE_ROUND_BYTES_MAX = 2 << 30
PART_BYTES = 64 << 20

_log = logging.getLogger("tidemark.archive")


class Archive(Closing):
    """An archive that this process writes. No other process can open it for writing meanwhile."""

    def __init__(
        self,
        broker: str | Sequence[str],
        path: Place,
        *,
        sessions: SessionLender | None = None,
        retain: ArchiveRetention | None = None,
        merging: SessionLender | None = None,
    ) -> None:
        """`sessions` lends a Spark session for large rounds, `merging` for merging files.

        Without `retain` all history is kept.
        """
        self.path = folder_at(path)
        self._brokers = ArchiveBrokers(urls_of(broker))
        self._sessions = sessions
        self._retain = retain or ArchiveRetention()
        #: pubend -> the tick up to which events were erased: brokers are asked to let go what they hold of it
        self.erased: Mapping[str, int] = {}
        #: bytes of all files, as `extent` found them last
        self._stored_bytes: int | None = None
        #: held by whoever commits to the tables or replaces the state: batches and maintenance, each in a
        #: thread of its own
        self.commits: AbstractContextManager[Any] = RLock()
        self._hold = hold(self.path / FOLDER)
        try:
            if self._hold.number:
                fence_files(self.path, self._hold.number)
            self._diary = Diary(self.path)
            self._topics = load_topics(self.path)
            self._tables, self.state = self._opened()
            #: the last batch that was begun; it may be ahead of the state, if a round was interrupted
            self._batch = max([self.state.batch, *(each.batches[1] for each in self._files())])
            self._remove_strays()
            self.maintenance = Maintenance(self, self._retain, sessions=merging)
        except BaseException:
            self._hold.release()
            raise

    def close(self) -> None:
        """Disconnect, and let another process write the archive."""
        self.disconnect()
        self._hold.release()

    def disconnect(self) -> None:
        """Close the connections to brokers; the next round makes new ones."""
        self._brokers.close()

    @property
    def away(self) -> dict[str, str]:
        """broker -> why it does not answer, while others do."""
        return self._brokers.away

    def round(self) -> Round | None:
        """Archive what the brokers have, or a first part of it, in this process.

        Returns None if there was nothing to archive. Raises NotConnectedError if no broker answers.
        """
        began = time.monotonic()
        pubends = self._brokers.pubends()
        lost = lost_before(pubends, self.state.covered)
        tasks = backlog(pubends, self.state.covered)
        ended = None
        if lost or tasks:
            ended = self._take(pubends, lambda part: self._read(tasks, lost, part), began)
        self._report(pubends)
        self.maintenance.run(is_changed=ended is not None)
        return ended

    def take(self, read: Callable[[RoundPart], PartResult]) -> Round | None:
        """Commit what `read` has read beyond what is covered, and tell the pubends.

        `read` gets a part without tasks, which says how to write. Returns None if it has read nothing.
        Raises NotConnectedError if no broker answers.
        """
        began = time.monotonic()
        pubends = self._brokers.pubends()
        ended = self._take(pubends, read, began)
        self._report(pubends)
        return ended

    def tell_pubends(self) -> None:
        """Tell how far the archive has got to those pubends that do not know it, say after a restart.

        Raises NotConnectedError if no broker answers.
        """
        self._report(self._brokers.pubends())

    @property
    def tables(self) -> Sequence[ArchiveTable]:
        """All tables, as they are after the last commit."""
        return list(self._tables.values())

    def extent(self) -> tuple[int, int]:
        """How many files all tables have, and their bytes."""
        with self.commits:
            found = [table.extent() for table in self._tables.values()]
        self._stored_bytes = sum(size for _, size in found)
        return sum(files for files, _ in found), self._stored_bytes

    def save(self, state: ArchiveState) -> None:
        """Replace the state; the new one is on the platter when this returns."""
        self._hold.check()
        save_state(self.path, state, self._hold.number)
        self.state = state

    # A batch.

    def _take(
        self, pubends: Sequence[HostedPubend], read: Callable[[RoundPart], PartResult], began: float
    ) -> Round | None:
        self._hold.check()
        # Topics are asked for after the positions: a publisher declares a schema before it publishes with it.
        self._learn(self._brokers.topics())
        self._batch += 1
        done = read(self._part([each.pubend for each in pubends], self._batch))
        if not done.reached:
            self._batch -= 1
            return None
        with self.commits:
            state = self.state
            for pubend, (base, upto) in done.missing:
                _warn_lost(pubend, base, upto)
                state = state.without(pubend, base, upto)
            covered = CheckpointToken(done.reached)
            ended = Round(time.time(), time.monotonic() - began, done.events, done.bytes)
            self._commit(done, covered, state.after(self._batch, covered, {}, ended))
            versions = {root: table.version for root, table in self._tables.items()}
            ended = replace(ended, at=time.time(), seconds=time.monotonic() - began)
            self.save(state.after(self._batch, covered, versions, ended))
        self._diary.note(_note(ended, done, pubends, self._stored_bytes))
        return ended

    def _learn(self, described: Sequence[TopicStatus]) -> None:
        """Save new schemas and give the tables columns for their fields, before any event needs them."""
        topics = self._topics.merged(described)
        if topics is not self._topics:
            save_topics(self.path, topics, self._hold.number)
            self._topics = topics
        for root in sorted({root_of(name) for name in topics.names}):
            table = self._tables.get(root)
            before = ArchiveLayout() if table is None else table.layout
            creations = [
                each for name in topics.names if root_of(name) == root for each in topics.creations(name)
            ]
            versions = [version for each in creations for version in each.versions]
            layout = before.timed().extended(field for each in versions for field in fields_of(each).items())
            if table is None or layout is not before:
                with self.commits:
                    self._tables[root] = ArchiveTable.to_write(self.path, root, layout, self._hold.number)
                    self._tables[root].keep_versions(self._retain.versions)

    def _read(self, tasks: Sequence[FetchTask], lost: Sequence[FetchTask], part: RoundPart) -> PartResult:
        """What a round in this process reads; a large backlog is a Spark job, if a session is lent."""
        gone = PartResult(
            reached={each.pubend: each.upto for each in lost},
            missing=[(each.pubend, (each.base, each.upto)) for each in lost],
        )
        if not tasks:
            return gone
        if self._sessions is not None and sum(task.bytes for task in tasks) >= BACKLOG_BYTES_MIN:
            ranges = divided_backlog(tasks, LARGE_ROUND_BYTES_MAX, PART_BYTES, self._brokers.client)
            # The sizes that brokers answer include what is archived already; those of parts do not.
            if sum(task.bytes for task in ranges) >= BACKLOG_BYTES_MIN:
                parts = [replace(part, number=at, tasks=(each,)) for at, each in enumerate(ranges)]
                return merged_results([gone, *_run_on_spark(parts, self._sessions)])
        small = replace(part, tasks=tuple(tasks), bytes_max=SMALL_ROUND_BYTES_MAX)
        return merged_results([gone, run_part(small, self._brokers.client, self._topics)])

    def _part(self, pubends: Sequence[str], batch: int) -> RoundPart:
        """How a batch is written: the columns of the tables, and what they have already."""
        covered = self.state.covered
        reached = {
            root: {
                name: max(covered.get(name, TICK_MIN), table.reached(name) or TICK_MIN)
                for name in {*pubends, *covered}
            }
            for root, table in self._tables.items()
        }
        layouts = {root: table.layout.to_bytes() for root, table in self._tables.items()}
        return RoundPart(self.path, batch, 0, (), self._topics.described, layouts, reached)

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
            self._brokers.client(url).ask(ARCHIVED, token=CheckpointToken(token).text())
        let_go(self._brokers, pubends, self.erased)

    def _opened(self) -> tuple[dict[str, ArchiveTable], ArchiveState]:
        """The tables, mended after a crash, and the state, which is rebuilt from the tables if it is lost."""
        is_damaged, synced = False, ArchiveState()
        try:
            synced = load_state(self.path)
        except DamagedError:
            is_damaged = True
        tables = {}
        for root in roots_in(self.path):
            mend(folder_of(self.path, root), synced.versions.get(root, -1))
            tables[root] = ArchiveTable(self.path, root, self._hold.number)
            tables[root].fence()
            tables[root].keep_versions(self._retain.versions)
        files = [each for table in tables.values() for each in table.files()]
        is_there = not is_damaged and has_state(self.path)
        if not is_stale(synced, files) if is_there else not files and not is_damaged:
            return tables, synced
        reason = "is damaged" if is_damaged else "is older than the tables" if is_there else "is gone"
        self._hold.check()
        _log.warning("%s: the state %s; it is made again from the tables", self.path, reason)
        state = recovered(self.path)
        set_aside(self.path)
        save_state(self.path, state, self._hold.number)
        return tables, state

    def _files(self) -> list[DataFile]:
        return [each for table in self._tables.values() for each in table.files()]

    def _remove_strays(self) -> None:
        for table in self._tables.values():
            removed = remove_strays(table.folder, table.files(), self.state.batch)
            if removed:
                _log.warning("%s: removed %d files of a round that was interrupted", table.folder, removed)


def let_go(
    brokers: ArchiveBrokers,
    pubends: Sequence[HostedPubend],
    upto: Mapping[str, int],
    *,
    again: bool = False,
    erasure: str = "",
) -> None:
    """Ask brokers to let go what they hold up to these ticks of pubends, since the archive has it.

    With `again` those are asked, too, that have let it go: they tell other brokers, which may remember it. A
    broker that is too old for the question goes on holding it. `erasure` names the record of what is erased,
    for the audit logs of the brokers.
    """
    asked: dict[str, dict[str, int]] = {}
    for each in pubends:
        held = again or each.lost is None or each.lost < upto.get(each.pubend, TICK_MIN)
        if each.pubend in upto and held and each.archived is not None:
            asked.setdefault(each.broker, {})[each.pubend] = upto[each.pubend]
    for url, token in asked.items():
        try:
            about: dict[str, Any] = {"erasure": erasure} if erasure else {}
            brokers.client(url).ask(LET_GO, token=CheckpointToken(token).text(), **about)
        except RefusedError as error:
            if error.code != "unknown":
                raise


def _run_on_spark(parts: Sequence[RoundPart], sessions: SessionLender) -> list[PartResult]:
    """The results of the parts, in their order, each read and written by a Spark task of its own."""
    what = f"tidemark: archive a backlog in {len(parts)} parts"
    done = run_tasks(parts, run_part_alone, PartResult.from_json, sessions, what)
    for part, each in zip(parts, done, strict=True):
        # The parts after an incomplete one must not be committed either: what is covered has no holes.
        if any(each.reached[task.pubend] < task.upto for task in part.tasks):
            raise NotConnectedError("the broker has restarted in the middle of a round: it is begun again")
    return done


def _note(
    ended: Round, done: PartResult, pubends: Sequence[HostedPubend], stored_bytes: int | None
) -> RoundNote:
    """What the diary says of a round."""
    ticks = [each.ticks for each in done.files]
    return RoundNote(
        ended.at,
        ended.seconds,
        ended.events,
        ended.bytes,
        sum(each.bytes for each in done.files),
        min((low for low, _ in ticks), default=None),
        max((high for _, high in ticks), default=None),
        sum(each.bytes for each in pubends),
        stored_bytes,
    )


def _warn_lost(pubend: str, base: int, upto: int) -> None:
    # Whether there were events, the broker does not know any more.
    _log.warning(
        "pubend %s: (%d, %d] is gone from the broker; any events there are not archived", pubend, base, upto
    )
