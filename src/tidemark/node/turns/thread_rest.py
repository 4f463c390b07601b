"""ThreadRest: how a thread rests within a long step, so that the event loop gets the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep, thread_time

from tidemark.node.clock import Clock

#: A thread rests when it has used so much processor time since its last rest.
REST_AFTER_SECONDS = 0.0005


class ThreadRest:
    """The rests of one step, which calls this every few fields or messages (`message.codec.rest`)."""

    def __init__(
        self,
        length: Callable[[float], float],
        work: Clock = thread_time,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        """`length` returns how long to rest for so many seconds of work; `work` is the thread's own clock."""
        self._length = length
        self._work = work
        self._pause = pause
        self._began = self._rested = work()

    def __call__(self) -> None:
        """Rest if the thread has worked for REST_AFTER_SECONDS since its last rest."""
        if self._work() - self._rested >= REST_AFTER_SECONDS:
            self.end()

    @property
    def took(self) -> float:
        """The seconds of processor time that the step has taken so far."""
        return self._work() - self._began

    def end(self) -> None:
        """Rest for the work that was not rested for."""
        self._pause(self._length(self._work() - self._rested))
        self._rested = self._work()
