"""Awake: keeps the event loop from sleeping for a while after something has happened (`broker.latency`).

A processor that has slept for some milliseconds takes several times as long for the next event, and waking it
takes time too. A loop that is kept awake looks at its sockets again and again. It lets the disk threads have
the interpreter: while they are at work, it sleeps as usual, and their completion wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from tidemark.node.clock import Clock

#: How long the loop stays awake after the last thing that has happened.
AWAKE_SECONDS = 0.02


class Awake:
    """What keeps one event loop awake."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, is_waiting: Callable[[], bool], clock: Clock = perf_counter
    ) -> None:
        """`is_waiting` returns whether the loop waits for a thread, which needs the interpreter."""
        self._loop = loop
        self._is_waiting = is_waiting
        self._clock = clock
        self._until = 0.0
        self._is_turning = False

    @property
    def is_turning(self) -> bool:
        """Whether the loop is kept awake now."""
        return self._is_turning

    def stay(self) -> None:
        """Something has happened: stay awake for a while from now on."""
        self._until = self._clock() + AWAKE_SECONDS
        if not self._is_turning:
            self._turn()

    def _turn(self) -> None:
        """Have the loop make one more turn, which polls and does not sleep, unless it may sleep by now."""
        self._is_turning = self._clock() < self._until and not self._is_waiting()
        if self._is_turning:
            self._loop.call_soon(self._turn)
