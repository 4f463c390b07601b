"""Turns: how connections share the event loop, so that nobody waits for long because another says much.

What a connection receives is handled at once, in a slice of at most SLICE_SECONDS. A connection that has used
more than its share of the loop lately, or that leaves a part of what it has received unhandled, waits: its
socket is not read, and it gets a further slice whenever its turn comes, in the order in which connections
began to wait. All slices of those that wait take at most TURN_SECONDS of each pass of the event loop. The
rest of a pass belongs to connections that say little, to the completions of the disk and to timers.

A slice ends between two frames, and between two steps of what is done for a frame before it is handled
(`broker.preparation`). Steps that take long are done on a thread; the connection waits for it, and the time
that it took counts as the connection's. The thread holds the interpreter lock while it works, and each time
that the loop gives it up, for a socket say, the loop waits for it again. So the thread rests after each step
for as long as the step took.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter, sleep, thread_time
from typing import Protocol

from tidemark.node.clock import Clock

#: How long the frames of one connection are handled without a break.
SLICE_SECONDS = 0.001
#: How long the frames of all connections that wait are handled in one pass of the event loop.
TURN_SECONDS = 0.002
#: A connection may use one part in SHARE of the event loop's time before it has to wait for its turn ...
SHARE = 4
#: ... and this long at once.
BURST_SECONDS = 0.002
#: The longest rest of the thread that does long steps, after one of them.
REST_SECONDS_MAX = 0.1
#: Frames that a connection decodes for one slice.
SLICE_FRAMES_MAX = 256


class Waiting(Protocol):
    """A connection that waits for its turn."""

    def go_on(self) -> bool:
        """Use one slice; return whether a part is left, so that the connection waits again."""


class Account:
    """What one connection has used of the event loop's time lately. It decides who waits.

    What counts is processor time: that the machine has given the processor to others is nobody's fault.
    """

    __slots__ = ("_clock", "_free_at")

    def __init__(self, clock: Clock = perf_counter) -> None:
        self._clock = clock
        #: when the share of the connection makes up for all that it has used
        self._free_at = 0.0

    @property
    def is_overdrawn(self) -> bool:
        """Whether the connection has used more than its share, so that it has to wait for its turn."""
        return self._free_at - self._clock() > SHARE * BURST_SECONDS

    def used(self, seconds: float) -> None:
        """The connection has used so much of the event loop's time."""
        self._free_at = max(self._free_at, self._clock()) + SHARE * seconds


class Rate:
    """A bound on how often something is done: `most` times in each second."""

    __slots__ = ("_clock", "_most", "_since", "_taken")

    def __init__(self, most: int, clock: Clock = perf_counter) -> None:
        self._most = most
        self._clock = clock
        #: when the running second began, and how often it was taken since
        self._since = 0.0
        self._taken = 0

    def take(self) -> bool:
        """Return whether it may be done once more now."""
        now = self._clock()
        if now - self._since >= 1.0:
            self._since, self._taken = now, 0
        self._taken += 1
        return self._taken <= self._most


class Turns:
    """The connections that wait for their turn. Belongs to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock = perf_counter) -> None:
        self._loop = loop
        self.clock = clock
        self._waiting: deque[Waiting] = deque()
        self._is_due = False
        #: how often a connection began to wait; for metrics
        self.waits = 0
        #: does the long steps in `_works`, one of each connection at a time
        self._thread = ThreadPoolExecutor(1, "preparation")
        self._works: deque[Callable[[], None]] = deque()

    def wait(self, connection: Waiting) -> None:
        """`connection` waits for its turn; it must not be waiting already."""
        self.waits += 1
        self._waiting.append(connection)
        self._call()

    def run(self, work: Callable[[], None], done: Callable[[float], None], *, is_first: bool = False) -> None:
        """Do `work` on a thread, then call `done` on the loop with the seconds of processor time it took.

        With `is_first` it goes before what waits for the thread.
        """

        def timed() -> None:
            began = thread_time()
            try:
                work()
            finally:
                # The loop is closed when a broker ends while a thread is at work; nobody waits then.
                took = thread_time() - began
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(done, took)
                sleep(min(took, REST_SECONDS_MAX))

        (self._works.appendleft if is_first else self._works.append)(timed)
        self._thread.submit(lambda: self._works.popleft()())

    def close(self) -> None:
        """Begin no more work on the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def deadline(self) -> float:
        """Return when a slice that begins now has to end, on `clock`."""
        return self.clock() + SLICE_SECONDS

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            # In the next pass of the loop: before it, sockets are polled and completions are collected.
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._is_due = False
        until = self.clock() + TURN_SECONDS
        while self._waiting:
            connection = self._waiting.popleft()
            if connection.go_on():
                self._waiting.append(connection)
            if self.clock() >= until:
                break
        if self._waiting:
            self._call()
