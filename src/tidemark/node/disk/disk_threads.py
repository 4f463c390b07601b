"""Disks: one thread for the event logs, whose syncs publishers wait for, and one for all else.

They work in directories of their own, so that a commit of the tables or a sync of the PFS, each many times as
long as that of one event, keeps nobody waiting who publishes. Each half of the effects is carried out in its
order; between the halves there is none, and nobody may count on one: what has to come after something else
on disk waits until that is reported. After an error in either nothing more is carried out in both.

What single events add to the PFS is handed over together, with the next that somebody waits for: a thread
that wakes for each of them would only keep the interpreter from the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendPfs,
    Effect,
    FetchLog,
    LoseLog,
    ReadLog,
    ResumeLog,
    Stimulus,
    SyncLog,
)
from tidemark.node.disk.disk_thread import DiskThread, DiskWorker, Result

_OF_LOG = frozenset((AppendEvents, AppendLease, FetchLog, LoseLog, ReadLog, ResumeLog, SyncLog))
#: So many additions to the PFS may wait, each of at most so many events.
HELD_MAX = 64
HELD_EVENTS_MAX = 8


class DiskThreads:
    """The two threads, used like one. All methods are the loop's."""

    def __init__(
        self,
        worker: DiskWorker,
        done: Callable[[list[Stimulus]], None],
        failed: Callable[[BaseException], None],
        timed: Callable[[str, float], None],
    ) -> None:
        """As of DiskThread; the worker is called from both threads, for effects of different halves."""
        self._failed = failed
        self._event_logs_worker = _SharedWorker(worker, retries=False)
        self._pfs_and_tables_worker = _SharedWorker(worker, retries=True)
        self._event_logs = DiskThread(self._event_logs_worker, done, self._died, timed)
        self._pfs_and_tables = DiskThread(self._pfs_and_tables_worker, done, self._died, timed)
        #: small additions to the PFS, on their way to the other thread
        self._held: list[Effect] = []

    def put(self, effects: Sequence[Effect]) -> None:
        """Carry these out, each after all others of its half."""
        log = [effect for effect in effects if type(effect) in _OF_LOG]
        if log:
            self._event_logs.put(log)
        if len(log) < len(effects):
            rest = [effect for effect in effects if type(effect) not in _OF_LOG]
            self._held += rest
            if len(self._held) > HELD_MAX or not all(map(_may_wait, rest)):
                self._hand_over()

    def _hand_over(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._pfs_and_tables.put(held)

    async def call(self, function: Callable[[], Result]) -> Result:
        """Something else that touches the event logs, in its turn; what it returns, or its StorageError."""
        return await self._event_logs.call(function)

    @property
    def busy_seconds(self) -> float:
        """For how long a disk has been at the same thing; 0 while there is nothing to do."""
        return max(self._event_logs.busy_seconds, self._pfs_and_tables.busy_seconds)

    async def reached(self) -> None:
        """Return when everything that was put so far has been carried out and reported, or has failed."""
        self._hand_over()
        await asyncio.gather(self._event_logs.reached(), self._pfs_and_tables.reached())

    async def stop(self) -> None:
        """Carry out what was put, and end the threads."""
        self._hand_over()
        await self._event_logs.stop()
        await self._pfs_and_tables.stop()

    def _died(self, error: BaseException) -> None:
        self._event_logs_worker.is_over = self._pfs_and_tables_worker.is_over = True
        self._failed(error)


def _may_wait(effect: Effect) -> bool:
    return isinstance(effect, AppendPfs) and len(effect.ticks) <= HELD_EVENTS_MAX


class _SharedWorker:
    """The worker, as one of the threads sees it."""

    def __init__(self, worker: DiskWorker, *, retries: bool) -> None:
        self._worker = worker
        self._retries = retries
        #: the other half has failed
        self.is_over = False

    @property
    def is_waiting(self) -> bool:
        """Only what is not the log's waits for room."""
        return self._retries and self._worker.is_waiting

    def carry_out(self, effect: Effect) -> Stimulus | None:
        """Do it, unless nothing is done any more."""
        return None if self.is_over else self._worker.carry_out(effect)

    def retry(self) -> list[Stimulus]:
        """Try again what waits."""
        return [] if self.is_over else self._worker.retry()
