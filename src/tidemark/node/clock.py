"""The clocks of a broker process.

The core reads no clock: the runtime gives it both times with every stimulus. Connections, leases and sweeps
measure with the event loop's own clock, in seconds.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import Protocol


class Clock(Protocol):
    """A clock that only goes forward. A test passes one that it can set."""

    def __call__(self) -> float:
        """Returns the time in seconds since some fixed moment."""


def monotonic_us() -> int:
    """Microseconds on a clock that only goes forward; timers of the core are set on it."""
    return monotonic_ns() // 1_000


def wall_us() -> int:
    """Microseconds of the time of day, which may jump; ticks and epochs are taken from it."""
    return time_ns() // 1_000
