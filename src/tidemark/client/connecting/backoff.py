"""Back-off: how long to wait before trying again, longer each time, never all at the same time."""

from __future__ import annotations

from collections.abc import Callable
from random import random

FIRST_SECONDS = 0.05
SECONDS_MAX = 5.0


class Backoff:
    """Delays that double up to a bound, each between half of itself and all of it."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        upto: float = SECONDS_MAX,
        chance: Callable[[], float] = random,
    ) -> None:
        self._first = first
        self._upto = upto
        self._chance = chance
        self._next = first

    def delay(self) -> float:
        """Seconds to wait now."""
        seconds, self._next = self._next, min(self._upto, 2 * self._next)
        # Those who lost the same broker must not come back in step.
        return seconds * (1 + self._chance()) / 2

    def reset(self) -> None:
        """It worked: the next delay is short again."""
        self._next = self._first
