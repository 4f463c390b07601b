"""DiskThreads: a thread for the event logs, whose syncs publishers wait for, and one for the PFS and tables.

The two threads work in different directories, so that a commit of the tables or a sync of the PFS, each many
times as long as the sync of one event, keeps no publisher waiting. Each thread keeps the order of its own
effects. There is no order between the two threads: an effect that must come after another one on disk is put
only when the completion of the first has been reported. After an error in one thread, neither carries out
anything more.

Additions to the PFS are not handed to their thread one by one, but together with the next effect that
somebody waits for, or when they have gathered: a thread that wakes for each of them would only keep the
interpreter lock from the loop. Those that follow one another become one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendMove,
    AppendPfs,
    ChopCache,
    Effect,
    ExpireLog,
    FetchLog,
    LoseLog,
    ReadCache,
    ReadLog,
    ResumeLog,
    Sets,
    Stimulus,
    SyncLog,
    WriteCache,
)
from tidemark.node.disk.disk_thread import DiskListener, DiskThread, DiskWorker, Report, Result

#: Effects that the thread of the event logs carries out.
OF_EVENT_LOGS = frozenset(
    (
        *(AppendEvents, AppendLease, AppendMove, ExpireLog, FetchLog, LoseLog, ReadLog, ResumeLog, SyncLog),
        *(ChopCache, ReadCache, WriteCache),
    )
)
#: How many additions to the PFS may wait to be handed over, and how many events they may have together.
HELD_MAX = 64
HELD_EVENTS_MAX = 8_192


class DiskThreads:
    """The two threads, used like one. The public methods are for the event loop only."""

    def __init__(self, worker: DiskWorker, listener: DiskListener) -> None:
        """Start both threads. `worker` is called from both, for effects of different directories."""
        self._listener = listener
        self._event_logs_worker = _SharedWorker(worker, retries=False)
        self._pfs_and_tables_worker = _SharedWorker(worker, retries=True)
        self._event_logs = DiskThread(self._event_logs_worker, self)
        self._pfs_and_tables = DiskThread(self._pfs_and_tables_worker, self)
        self._threads = self._event_logs, self._pfs_and_tables
        #: effects of the thread for the PFS and the tables that were not handed to it yet
        self._held: list[Effect] = []
        self._held_events = 0

    def put(self, effects: Sequence[Effect]) -> None:
        """Carry these effects out, each after all that were put before for the same thread."""
        of_event_logs: list[Effect] = []
        is_awaited = False
        for effect in effects:
            if type(effect) in OF_EVENT_LOGS:
                of_event_logs.append(effect)
                continue
            self._held.append(effect)
            if isinstance(effect, AppendPfs):
                self._held_events += len(effect.ticks)
            else:
                is_awaited = True  # nobody waits for what is only added
        if of_event_logs:
            self._event_logs.put(of_event_logs)
        if is_awaited or len(self._held) > HELD_MAX or self._held_events > HELD_EVENTS_MAX:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._held:
            held, self._held, self._held_events = self._held, [], 0
            self._pfs_and_tables.put(_joined(held))

    def collect(self) -> None:
        """Report now what the threads have completed, if anything: see `DiskThread.collect`."""
        for thread in self._threads:
            if thread.finished:
                thread.collect()

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the thread of the event logs: see `DiskThread.call`."""
        return await self._event_logs.call(function)

    async def call_for_tables(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the thread of the PFS and the tables: see `DiskThread.call`."""
        self._hand_over()
        return await self._pfs_and_tables.call(function)

    @property
    def busy_seconds(self) -> float:
        """Seconds since the older of the running disk operations began; 0 while there is none."""
        return max(self._event_logs.busy_seconds, self._pfs_and_tables.busy_seconds)

    async def reached(self) -> None:
        """Return when everything put so far has been carried out and reported, or a thread has failed."""
        self._hand_over()
        await asyncio.gather(self._event_logs.reached(), self._pfs_and_tables.reached())

    async def stop(self) -> None:
        """Carry out everything put so far, end both threads, and report the last completions."""
        self._hand_over()
        await self._event_logs.stop()
        await self._pfs_and_tables.stop()

    # As the listener of both threads.

    def disk_finished(self, stimuli: list[Stimulus]) -> None:
        """One of the threads reports completions."""
        self._listener.disk_finished(stimuli)

    def disk_failed(self, error: BaseException) -> None:
        """One of the threads has failed: the other one carries out nothing more either."""
        self._event_logs_worker.is_over = self._pfs_and_tables_worker.is_over = True
        self._listener.disk_failed(error)

    def sync_took(self, which: str, seconds: float) -> None:
        """One of the threads has measured a sync."""
        self._listener.sync_took(which, seconds)


def _joined(effects: list[Effect]) -> list[Effect]:
    """Return the same effects, with one in place of additions to the PFS that follow one another.

    A number of a match set means the same set in all of them.
    """
    joined: list[Effect] = []
    row: list[AppendPfs] = []
    for effect in effects:
        if isinstance(effect, AppendPfs):
            if row and (effect.pubend != row[0].pubend or effect.base != row[-1].upto):
                joined.append(_one(row))
                row = []
            row.append(effect)
            continue
        if row:
            joined.append(_one(row))
            row = []
        joined.append(effect)
    return [*joined, _one(row)] if row else joined


def _one(row: list[AppendPfs]) -> AppendPfs:
    """Return one addition for several of one pubend, each of which begins where the one before it ends."""
    if len(row) == 1:
        return row[0]
    members: dict[int, Sets] = {}
    for each in row:
        members.update(each.members)
    return AppendPfs(
        row[0].pubend,
        row[0].base,
        row[-1].upto,
        np.concatenate([each.ticks for each in row]),
        np.concatenate([each.sets for each in row]),
        np.concatenate([each.lengths for each in row]),
        members,
    )


class _SharedWorker:
    """The worker as one of the two threads sees it, which stops when either thread has failed."""

    def __init__(self, worker: DiskWorker, *, retries: bool) -> None:
        #: both threads call the same worker
        self._worker = worker
        #: Whether this thread retries what found the disk full. Only the PFS and the tables wait for room:
        #: the event logs answer LogFull at once.
        self._retries = retries
        #: One of the threads has failed. Set on the event loop, read on the thread.
        self.is_over = False

    @property
    def is_waiting(self) -> bool:
        """Whether this thread has something to retry."""
        return self._retries and self._worker.is_waiting

    def carry_out(self, effect: Effect, report: Report) -> Stimulus | None:
        """Carry `effect` out, unless a thread has failed. Returns the stimulus that reports it, if any."""
        return None if self.is_over else self._worker.carry_out(effect, report)

    def retry(self) -> list[Stimulus]:
        """Try the waiting effects again, unless a thread has failed. Returns what is to be reported."""
        return [] if self.is_over else self._worker.retry()
