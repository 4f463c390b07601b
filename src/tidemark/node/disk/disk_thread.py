"""DiskThread: a thread that carries out a broker's disk effects; the event loop never waits for a disk.

Effects are carried out in the order in which they were put, but reads of the event logs wait for all others:
publishers wait for appends and syncs. One read is carried out whenever nothing else is to be done, and after
at most READ_AFTER other pieces of work. While there is other work, the thread rests after a read for as long
as the read took: it holds the interpreter lock, which the loop needs too. Effects that gather while a sync
runs are carried out after it in one go, so group commit comes by itself. Each completion wakes the event
loop; completions that the loop has not collected yet share one wake-up. After any error the thread carries
out nothing more.
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

from tidemark.broker.effects import (
    CommitTables,
    Effect,
    FetchLog,
    ReadCache,
    ReadLog,
    Stimulus,
    SyncLog,
    SyncPfs,
)
from tidemark.errors import DiskFailedError, StorageError

#: How often the thread retries what found the disk full.
RETRY_SECONDS = 1.0
#: How many pieces of other work may go before a read that waits.
READ_AFTER = 16
#: The longest pause between two reads while there is other work.
PAUSE_SECONDS_MAX = 0.02
#: Effects that nothing waits for but the one who asked: no effect that comes later counts on them.
_READS = frozenset((FetchLog, ReadCache, ReadLog))

_Mark = asyncio.Future[None]
Report = Callable[[Stimulus], None]
Result = TypeVar("Result")

#: effect -> its name in the metric `tidemark_sync_seconds`
SYNCS = {SyncLog: "log", SyncPfs: "pfs", CommitTables: "tables"}


@dataclass(frozen=True, slots=True)
class _Call:
    """A function for the thread to call between effects, and the future that gets its result."""

    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class DiskWorker(Protocol):
    """What carries effects out on the thread: `persistence.store.Store`, or a small class in a test."""

    @property
    def is_waiting(self) -> bool:
        """Whether some effect found the disk full and waits for `retry`."""

    def carry_out(self, effect: Effect, report: Report, /) -> Stimulus | None:
        """Carry `effect` out.

        Returns the stimulus that reports its completion, if the broker waits for one. The worker may call
        `report` with it instead, before it does what nobody waits for, and returns None then.
        """

    def retry(self) -> list[Stimulus]:
        """Try the waiting effects again. Returns the stimuli of those that were carried out."""


class DiskListener(Protocol):
    """Who learns what a disk thread has done. All methods are called on the event loop."""

    def disk_finished(self, stimuli: list[Stimulus]) -> None:
        """These completions came from the disk, in this order."""

    def disk_failed(self, error: BaseException) -> None:
        """The thread met `error` and carries out nothing more. Called at most once a thread."""

    def sync_took(self, which: str, seconds: float) -> None:
        """A sync of `which`, one of the values of SYNCS, took so long. Called after its `disk_finished`."""


class DiskThread:
    """One thread and its queue. The public methods are for the event loop only."""

    def __init__(self, worker: DiskWorker, listener: DiskListener) -> None:
        """Start the thread. `worker` is called on the thread, `listener` on the running event loop."""
        self._worker = worker
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        #: The loop puts, the thread takes; None ends the thread. The runtime bounds it: it reads no more from
        #: publishers while too many bytes wait (`Backlog`).
        self._work: SimpleQueue[Sequence[Effect] | _Mark | _Call | None] = SimpleQueue()
        #: reads that wait for other work, and the pieces of other work done since the last read; only the
        #: thread uses these two
        self._reads: deque[Effect] = deque()
        self._since_read = 0
        #: when the next read may begin, on the clock of perf_counter
        self._next_read = 0.0
        #: callers of `reached` and of `call` that wait; only the loop uses these two and `_is_dead`
        self._marks: set[_Mark] = set()
        self._calls: set[asyncio.Future[Any]] = set()
        self._is_dead = False
        #: Completions, and durations of syncs, that the loop has not collected: the thread appends, the loop
        #: takes. `_is_told`: a wake-up of the loop is under way; the thread sets it, the loop clears it.
        self.finished: deque[Stimulus] = deque()
        self._took: deque[tuple[str, float]] = deque()
        self._is_told = False
        #: when the running effect began, on the clock of perf_counter; None while the thread waits for work
        self._since: float | None = None
        #: the name of the running sync, until its time is noted; None if no sync is running
        self._timed: str | None = None
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    def put(self, effects: Sequence[Effect]) -> None:
        """Carry these effects out, after all that were put before."""
        self._work.put(effects)

    @property
    def busy_seconds(self) -> float:
        """Seconds since the running disk operation began; 0 while there is none."""
        since = self._since
        return 0.0 if since is None else perf_counter() - since

    async def reached(self) -> None:
        """Return when everything put so far has been carried out and reported, or the thread has failed."""
        if self._is_dead:
            return
        mark: _Mark = self._loop.create_future()
        self._marks.add(mark)
        self._work.put(mark)
        await mark

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the thread, after everything put so far. Returns what it returns.

        Raises the StorageError that it raises, and DiskFailedError if the thread has failed.
        """
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
        """Carry out everything put so far, end the thread, and report the last completions."""
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
        self._collect()

    def collect(self) -> None:
        """Report now what has been completed, if anything, and not in the next pass of the event loop."""
        if self.finished:
            self._collect()

    def _collect(self) -> None:
        # Before emptying the queue: what comes from here on wakes the loop again.
        self._is_told = False
        finished: list[Stimulus] = []
        while self.finished:
            finished.append(self.finished.popleft())
        if finished:
            self._listener.disk_finished(finished)
        while self._took:
            self._listener.sync_took(*self._took.popleft())

    def _passed(self, mark: _Mark) -> None:
        self._marks.discard(mark)
        if not mark.done():
            mark.set_result(None)

    def _died(self, error: BaseException) -> None:
        self._is_dead = True
        self._listener.disk_failed(error)
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
                    self._read_all()
                    self._loop.call_soon_threadsafe(self._passed, work)
                elif isinstance(work, _Call):
                    self._read_all()
                    self._run_call(work)
                else:
                    for effect in work:
                        if type(effect) in _READS:
                            self._reads.append(effect)
                        else:
                            self._carry_out(effect)
                    self._since_read += 1
            self._read_all()
        except BaseException as error:  # after any error at all it is unknown what is on the disk
            self._since = None
            self._loop.call_soon_threadsafe(self._died, error)

    def _next(self) -> Sequence[Effect] | _Mark | _Call | None:
        self._since = None
        while True:
            try:
                if self._reads:
                    if self._since_read >= READ_AFTER:
                        self._read()
                    pause = self._next_read - perf_counter()
                    return self._work.get(timeout=pause) if pause > 0 else self._work.get_nowait()
                return self._work.get(timeout=RETRY_SECONDS if self._worker.is_waiting else None)
            except Empty:
                if self._reads:
                    self._read()
                    continue
                for stimulus in self._worker.retry():
                    self._report(stimulus)

    def _read(self) -> None:
        """Carry out the read that has waited longest."""
        began, is_busy = perf_counter(), self._since_read > 0
        self._since_read = 0
        self._carry_out(self._reads.popleft())
        self._since = None
        ended = perf_counter()
        self._next_read = ended + min(ended - began, PAUSE_SECONDS_MAX) if is_busy else 0.0

    def _read_all(self) -> None:
        while self._reads:
            self._read()

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
        self._since = perf_counter()
        self._timed = SYNCS.get(type(effect))
        stimulus = self._worker.carry_out(effect, self._report)
        if stimulus is not None:
            self._report(stimulus)
        elif self._timed is not None:
            self._time()

    def _time(self) -> None:
        """Note how long the running sync has taken so far."""
        # The loop passes it on later: doing it here would hold the interpreter lock while the loop wants to
        # handle the completion.
        if self._timed is not None and self._since is not None:
            self._took.append((self._timed, perf_counter() - self._since))
            self._timed = None

    def _report(self, stimulus: Stimulus) -> None:
        if self._timed is not None:
            self._time()
        self.finished.append(stimulus)
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._collect)
