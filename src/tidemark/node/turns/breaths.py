"""Breaths: how a thread that computes for long lets the event loop go on.

A thread holds the interpreter lock while it computes, and the loop waits for the lock each time that it gave
it up, for a socket say. Two threads that both want it have half of it each, and every turn of the loop takes
twice as long, or more where the machine is busy. So a thread that does a long piece of work rests after each
BREATH_SECONDS of it. The work itself is not divided and knows nothing of this: Python calls the function of
`sys.setprofile` whenever a function is called on the thread, or returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import sleep, thread_time
from types import FrameType

#: How long a thread computes between two rests.
BREATH_SECONDS = 0.0005
#: Calls and returns of functions between two looks at the clock.
CALLS = 16


class Breaths:
    """Has a thread rest while it does a piece of work: `with Breaths(rest): work()`."""

    def __init__(self, rest: Callable[[float], float]) -> None:
        """`rest` returns for how long to rest after so many seconds of processor time."""
        self._rest = rest
        self._calls = 0
        self._since = 0.0

    def __enter__(self) -> Breaths:
        self._since = thread_time()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._breathe()

    def _called(self, frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG002  (Python's)
        self._calls += 1
        if self._calls % CALLS == 0 and thread_time() > self._since + BREATH_SECONDS:
            self._breathe()

    def _breathe(self) -> None:
        sleep(self._rest(thread_time() - self._since))
        self._since = thread_time()
