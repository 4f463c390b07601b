"""DiskThread: the one thread that touches a disk.

Effects are carried out in the order in which they were put. What gathers while a sync runs is worked off
after it in one go, so group commit comes by itself. Completions come back to the loop as soon as they are
there; those that it has not collected yet share one wake-up. After any error nothing more is carried out.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Protocol, TypeVar

from tidemark.broker.effects import CommitTables, Effect, Stimulus, SyncLog, SyncPfs
from tidemark.errors import DiskFailedError, StorageError

#: A disk that was full is tried again this often.
RETRY_SECONDS = 1.0

_Mark = asyncio.Future[None]
Result = TypeVar("Result")

SYNCS = {SyncLog: "log", SyncPfs: "pfs", CommitTables: "tables"}


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class DiskWorker(Protocol):
    """What carries effects out: `store.Store`, or less in a test."""

    @property
    def is_waiting(self) -> bool:
        """Something found the disk full and waits to be tried again."""

    def carry_out(self, effect: Effect) -> Stimulus | None:
        """Do it; what is to be reported of it."""

    def retry(self) -> list[Stimulus]:
        """Try again what waits."""


class DiskThread:
    """See above. All methods are the loop's."""

    def __init__(
        self,
        worker: DiskWorker,
        done: Callable[[list[Stimulus]], None],
        failed: Callable[[BaseException], None],
        timed: Callable[[str, float], None],
    ) -> None:
        """All are called on the loop; `timed(which, seconds)` for each sync, after what it has set off."""
        self._worker = worker
        self._done = done
        self._failed = failed
        self._timed = timed
        self._loop = asyncio.get_running_loop()
        #: bounded by its owner, who reads no more from publishers while too much is in it
        self._work: SimpleQueue[Sequence[Effect] | _Mark | _Call | None] = SimpleQueue()
        #: who waits for the thread to get somewhere
        self._marks: set[_Mark] = set()
        self._calls: set[asyncio.Future[Any]] = set()
        self._is_dead = False
        #: completions that the loop has not collected, and whether it has been told that there are some
        self._finished: deque[Stimulus] = deque()
        #: how long syncs took, which the loop has not told yet
        self._took: deque[tuple[str, float]] = deque()
        self._is_told = False
        #: when the effect that is being carried out began, on the clock of perf_counter
        self._since: float | None = None
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    def put(self, effects: Sequence[Effect]) -> None:
        """Carry these out, after all others."""
        self._work.put(effects)

    @property
    def busy_seconds(self) -> float:
        """For how long the disk has been at the same thing; 0 while it has nothing to do."""
        since = self._since
        return 0.0 if since is None else perf_counter() - since

    async def reached(self) -> None:
        """Return when everything that was put so far has been carried out and reported, or has failed."""
        if self._is_dead:
            return
        mark: _Mark = self._loop.create_future()
        self._marks.add(mark)
        self._work.put(mark)
        await mark

    async def call(self, function: Callable[[], Result]) -> Result:
        """Something else that touches the disk, in its turn; what it returns, or its StorageError."""
        if self._is_dead:
            raise DiskFailedError("nothing more is written", path="")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._calls.add(future)
        self._work.put(_Call(function, future))
        try:
            return await future
        finally:
            self._calls.discard(future)

    async def stop(self) -> None:
        """Carry out what was put, and end the thread."""
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        self._collect()

    def _collect(self) -> None:
        # Before emptying the queue: what comes from here on wakes the loop again.
        self._is_told = False
        finished: list[Stimulus] = []
        while self._finished:
            finished.append(self._finished.popleft())
        if finished:
            self._done(finished)
        while self._took:
            self._timed(*self._took.popleft())

    def _passed(self, mark: _Mark) -> None:
        self._marks.discard(mark)
        if not mark.done():
            mark.set_result(None)

    def _died(self, error: BaseException) -> None:
        self._is_dead = True
        self._failed(error)
        for mark in list(self._marks):
            self._passed(mark)
        for call in self._calls:
            self._answer(call, error)

    def _answer(self, future: asyncio.Future[Any], answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    # On the thread.

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                if isinstance(work, asyncio.Future):
                    self._loop.call_soon_threadsafe(self._passed, work)
                elif isinstance(work, _Call):
                    self._run_call(work)
                else:
                    for effect in work:
                        self._carry_out(effect)
        except BaseException as error:  # whatever it was: nobody knows what is on the disk
            self._since = None
            self._loop.call_soon_threadsafe(self._died, error)

    def _next(self) -> Sequence[Effect] | _Mark | _Call | None:
        self._since = None
        while True:
            try:
                return self._work.get(timeout=RETRY_SECONDS if self._worker.is_waiting else None)
            except Empty:
                for stimulus in self._worker.retry():
                    self._report(stimulus)

    def _run_call(self, call: _Call) -> None:
        self._since = perf_counter()
        answer: Any
        try:
            answer = call.function()
        except DiskFailedError:
            raise
        except StorageError as error:
            answer = error
        self._loop.call_soon_threadsafe(self._answer, call.answer, answer)

    def _carry_out(self, effect: Effect) -> None:
        began = self._since = perf_counter()
        stimulus = self._worker.carry_out(effect)
        which = SYNCS.get(type(effect))
        if which is not None:
            # Told by the loop, later: here it would keep the interpreter from whoever waits for the report.
            self._took.append((which, perf_counter() - began))
        if stimulus is not None:
            self._report(stimulus)

    def _report(self, stimulus: Stimulus) -> None:
        self._finished.append(stimulus)
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._collect)
