"""Turns: how connections share the event loop, so that nobody waits for long because another says much.

What a connection receives is handled at once, in a slice of at most SLICE_SECONDS of processor time, unless
somebody waits who has used less of the loop's time lately (`accounts`), or what is handled at once takes more
than AT_ONCE_SECONDS in this pass of the event loop. Then the connection waits, as one does that leaves a part
of what it has received unhandled: its socket is not read, and it gets a slice when its turn comes. Of those
that wait, the one that has used the least goes first, so that a connection that says little waits for one
slice of somebody else and not for one of each. All slices of those that wait take at most TURN_SECONDS of
each pass. The rest of a pass belongs to deliveries and to timers. Completions of the disk, which publishers
wait for, are collected before each slice: a slice may take longer than it should, and a pass has several.

What a connection wants may be *short*: a few frames that take less than a slice, by what its frames took
before, of a connection that has not had much of the loop lately. What is short goes first, in the order in
which it came, and of several addresses that one goes first that has used the least. Otherwise a publisher
that says a little all the time, and so has used more than somebody who has just come, would wait until that
one has used as much, and then for the next one who comes. In each pass one slice is given to another, however
much is short.

A slice ends between two frames, and between two steps of what is done for a frame before it is handled
(`broker.preparation`). Who cannot end in time pays for it with the next turns. Steps that take long are done
on a thread; the connection waits for it, and the time that it took counts as the connection's. The thread
holds the interpreter lock while it works, and each time that the loop gives it up, for a socket say, the loop
waits for it again. So the thread rests after each half millisecond of work for as long as it has worked, and
longer while connections wait (`thread_rest`): what works on many fields or messages calls the rest itself
(`message.codec.rest`). To rest by a function that Python calls at every call (`sys.setprofile`) was tried and
turned down: a schema took 0.55 s of processor time with it and takes 0.12 s, and the loop was disturbed for
3.4 s and is for 0.4 s.

To let connections take turns in the order in which they begin to wait was turned down too. With a dozen busy
ones, a publisher of one event every 10 ms gets its next slice when all others have had theirs, each a few
milliseconds; by then more events have come than fit into a slice: it is never done, and waits for seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import log
from time import perf_counter, thread_time
from typing import Protocol

from tidemark.message.codec.rest import Rest
from tidemark.node.clock import Clock
from tidemark.node.turns.accounts import HALF_SECONDS, SAME_ORDER, Account, Accounts
from tidemark.node.turns.thread_rest import ThreadRest

#: How long the frames of one connection are handled without a break.
SLICE_SECONDS = 0.001
#: How long what comes is handled at once in one pass of the event loop, of all connections together.
AT_ONCE_SECONDS = 0.002
#: How long the frames of all connections that wait are handled in one pass of the event loop.
TURN_SECONDS = 0.002
#: A connection that has used more than this lately, a quarter of the loop's time, wants nothing short.
LIGHT_SECONDS = 0.25 * HALF_SECONDS / log(2)
#: How many times as long as it has worked the thread rests while connections wait; and the longest rest.
REST_TIMES = 3
REST_SECONDS_MAX = 0.5
#: Frames that a connection decodes for one slice.
SLICE_FRAMES_MAX = 64


class Waiting(Protocol):
    """A connection that waits for its turn."""

    @property
    def account(self) -> Account:
        """What it has used lately."""

    @property
    def is_short(self) -> bool:
        """Whether what it wants takes less than a slice, as far as is known."""

    def go_on(self) -> bool:
        """Use one slice; return whether a part is left, so that the connection waits again."""


class Turns:
    """The connections that wait for their turn. Belongs to the server."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock = perf_counter, work: Clock = thread_time
    ) -> None:
        """`clock` is that of the day, `work` that of the processor time of the loop's thread."""
        self._loop = loop
        self.clock = clock
        #: the clock of slices: a slice is not shorter because the machine does something else meanwhile
        self.work = work
        self.accounts = Accounts(clock)
        #: those that wait, as a heap: their place when they were put here, and who came first of equals
        self._waiting: list[tuple[float, int, Waiting]] = []
        #: those of them that want something short: the place of their address, and who came first
        self._short: list[tuple[float, int, Waiting]] = []
        self._came = count()
        self._is_due = False
        #: what was handled at once in this pass of the loop, and whether its end is awaited
        self._at_once = 0.0
        self._is_counting = False
        #: called before each slice: what the disk has done meanwhile is not to wait until the pass is over
        self.before_slice: Callable[[], None] = lambda: None
        #: how often a connection began to wait; for metrics
        self.waits = 0
        #: the most processor time that one slice has taken; for metrics. It ends after the frame at hand, so
        #: that it is what that frame has taken, and a millisecond at most for those before it
        self.longest = 0.0
        #: does the long steps in `_works`, one of each connection at a time
        self._thread = ThreadPoolExecutor(1, "preparation")
        self._works: deque[Callable[[], None]] = deque()

    def wait(self, connection: Waiting) -> None:
        """`connection` waits for its turn; it must not be waiting already."""
        self.waits += 1
        self._put(connection)
        self._call()

    def may_go_now(self, connection: Waiting) -> bool:
        """Return whether what a connection has just received may be handled before anybody's turn."""
        if self._at_once >= AT_ONCE_SECONDS or self._short:
            return False
        account = connection.account
        is_first = not self._waiting or account.order <= self._waiting[0][0] + SAME_ORDER
        return is_first or self._is_short(connection)

    def _is_short(self, connection: Waiting) -> bool:
        """Whether a connection wants something short, and has not had too much lately."""
        return connection.is_short and connection.account.recent < LIGHT_SECONDS

    def went(self, seconds: float) -> None:
        """A connection has used so much at once."""
        self._at_once += seconds
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._count_anew)

    def _count_anew(self) -> None:
        self._at_once, self._is_counting = 0.0, False

    def _put(self, connection: Waiting) -> None:
        if self._is_short(connection):
            heappush(self._short, (connection.account.address.order, next(self._came), connection))
        else:
            heappush(self._waiting, (connection.account.order, next(self._came), connection))

    def _take(self) -> Waiting:
        """Take out the one that has used the least, of those that want nothing short."""
        while True:
            order, _, connection = heappop(self._waiting)
            # What was done for it elsewhere meanwhile counts too.
            now = connection.account.order
            if not self._waiting or now <= max(order, self._waiting[0][0]) + SAME_ORDER:
                return connection
            heappush(self._waiting, (now, next(self._came), connection))

    def run(
        self, work: Callable[[Rest], None], done: Callable[[float], None], *, is_first: bool = False
    ) -> None:
        """Do `work` on a thread, then call `done` on the loop with the seconds of processor time it took.

        With `is_first` it goes before what waits for the thread.
        """

        def timed() -> None:
            rest = ThreadRest(self.rest)
            try:
                work(rest)
            finally:
                # The loop is closed when a broker ends while a thread is at work; nobody waits then.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(done, rest.took)
                rest.end()

        (self._works.appendleft if is_first else self._works.append)(timed)
        self._thread.submit(lambda: self._works.popleft()())

    def rest(self, took: float) -> float:
        """Return how long the thread rests after so many seconds of work: longer while others wait."""
        return min(took * (REST_TIMES if self._waiting or self._short else 1), REST_SECONDS_MAX)

    def close(self) -> None:
        """Begin no more work on the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def took(self, seconds: float) -> None:
        """A slice has taken so much processor time."""
        self.longest = max(self.longest, seconds)

    def deadline(self, began: float) -> float:
        """Return when a slice that has begun at this time has to end, on `work`."""
        return began + SLICE_SECONDS

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            # In the next pass of the loop: before it, sockets are polled and completions are collected.
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._is_due = False
        until = self.work() + TURN_SECONDS
        not_short: list[Waiting] = []
        while self._short:
            _, _, connection = heappop(self._short)
            self.before_slice()
            if connection.go_on():
                not_short.append(connection)  # it has had its slice
            if self.work() >= until:
                break
        while self._waiting:
            self.before_slice()
            connection = self._take()
            if connection.go_on():
                self._put(connection)
            if self.work() >= until:
                break
        for connection in not_short:
            self._put(connection)
        if self._waiting or self._short:
            self._call()
