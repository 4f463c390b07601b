"""Simulated time: actions in order of their time, ties in order of their making."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tidemark.sim.judging.ground_truth import ViolationError

Action = Callable[[], None]
#: A world with more actions is in a storm, in which frames beget frames. Other worlds have some ten thousand,
#: unless they run for long, in parts.
ACTIONS_MAX = 500_000


class Engine:
    """The one clock and the one queue of a simulated world. Time is in microseconds.

    `at` and `after` raise ViolationError once ACTIONS_MAX actions have been scheduled in a world, or since
    `begin_part`.
    """

    def __init__(self, start: int) -> None:
        self.now = start
        self._queue: list[tuple[int, int, Action]] = []
        self._made = 0
        #: how many actions may have been scheduled before there is a storm
        self._made_max = ACTIONS_MAX

    def at(self, time: int, action: Action) -> None:
        """Schedule `action` at `time`, or now if that time has passed."""
        if self._made >= self._made_max:
            raise ViolationError(f"there is a storm: {ACTIONS_MAX} things have happened by {self.now}")
        self._made += 1
        heapq.heappush(self._queue, (max(time, self.now), self._made, action))

    def after(self, delay: int, action: Action) -> None:
        """Schedule `action` in `delay` microseconds."""
        self.at(self.now + delay, action)

    def begin_part(self) -> None:
        """Let ACTIONS_MAX more actions be scheduled: so far there was no storm."""
        self._made_max = self._made + ACTIONS_MAX

    def run(self, until: int) -> None:
        """Carry out every action that is due up to `until`, and set the clock to `until`."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until
