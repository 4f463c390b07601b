"""Simulated time: actions in order of their time, ties in order of their making."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tidemark.sim.judging.ground_truth import ViolationError

Action = Callable[[], None]
#: A world in which more happens is in a storm: frames beget frames. Others have some ten thousand.
ACTIONS_MAX = 500_000


class Engine:
    """The one clock and the one queue of a simulated world. Time is in microseconds.

    ViolationError, from wherever it is used, when there is no end to what happens.
    """

    def __init__(self, start: int) -> None:
        self.now = start
        self._queue: list[tuple[int, int, Action]] = []
        self._made = 0

    def at(self, time: int, action: Action) -> None:
        """Do `action` at `time`, or now if that has passed."""
        if self._made >= ACTIONS_MAX:
            raise ViolationError(f"there is a storm: {ACTIONS_MAX} things have happened by {self.now}")
        self._made += 1
        heapq.heappush(self._queue, (max(time, self.now), self._made, action))

    def after(self, delay: int, action: Action) -> None:
        """Do `action` in `delay` microseconds."""
        self.at(self.now + delay, action)

    def run(self, until: int) -> None:
        """Do everything that is due up to `until`."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until
