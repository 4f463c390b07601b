"""RestartDelay: when a process that has ended is started again.

The wait doubles each time that the process did not live long, so that a process that cannot run takes little
of the machine, and is short again after a long life.
"""

from __future__ import annotations

from tidemark.node.clock import Clock


class RestartDelay:
    """The waits of one process. Its owner says when the process starts and when it has ended."""

    def __init__(self, least: float, most: float, long_life: float, clock: Clock) -> None:
        """Wait at least `least` and at most `most` seconds; a life of `long_life` seconds is a long one."""
        self._least = least
        self._most = most
        self._long_life = long_life
        self._clock = clock
        self._started = self._start_at = clock()
        #: the wait after the next end, in seconds
        self._delay = least

    @property
    def is_over(self) -> bool:
        """Whether the wait after the last end is over; it is before the first start."""
        return self._clock() >= self._start_at

    def started(self) -> None:
        """The process starts."""
        self._started = self._clock()

    def ended(self) -> float:
        """The process has ended, or could not be started; returns the seconds until its next start."""
        if self._clock() - self._started >= self._long_life:
            self._delay = self._least
        delay = self._delay
        self._start_at = self._clock() + delay
        self._delay = min(2 * delay, self._most)
        return delay

    def never(self) -> None:
        """The process is not started again."""
        self._start_at = float("inf")
