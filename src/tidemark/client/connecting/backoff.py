"""Back-off: how long to wait before trying again, longer each time, and different for every client."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import SystemRandom

FIRST_SECONDS = 0.05
SECONDS_MAX = 5.0

#: The generator of the module `random` belongs to the application, which may have given it a seed; and one
#: with a state of its own would give all processes that fork the same delays.
_chance = SystemRandom().random


class Backoff:
    """Delays that double up to a bound, each between half of itself and all of it."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        upto: float = SECONDS_MAX,
        chance: Callable[[], float] = _chance,
    ) -> None:
        self._first = first
        self._upto = upto
        self._chance = chance
        self._next = first

    def delay(self, upto: float = inf) -> float:
        """The number of seconds to wait now; the next call returns about twice as many, up to the bound.

        This once, the bound is `upto` if that is less.
        """
        seconds, self._next = min(self._next, upto), min(self._upto, 2 * self._next)
        # Clients that lost the same broker must not all come back at the same moment.
        return seconds * (1 + self._chance()) / 2

    def reset(self) -> None:
        """The attempt succeeded: the next delay is short again."""
        self._next = self._first
