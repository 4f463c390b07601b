"""SharedCounters: a few numbers that all processes of a benchmark see, in a file mapped into each.

A process that waits for a number polls it. No messages are sent, so measuring does not slow the measured
processes down.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORKERS_MAX = 8
_STOP, _PUBLISHED, _DELIVERED, _CAUGHT_UP = 0, 1, 2, 2 + WORKERS_MAX
_SLOTS = 2 + 2 * WORKERS_MAX


class SharedCounters:
    """Numbers in a mapped file; each number has one writer."""

    def __init__(self, path: str | Path) -> None:
        """Map the counters of a file, which is created if it does not exist."""
        if not Path(path).exists():
            Path(path).write_bytes(bytes(8 * _SLOTS))
        self._slots = np.memmap(path, np.int64, "r+", shape=(_SLOTS,))

    @property
    def is_over(self) -> bool:
        """Whether publishers should stop."""
        return bool(self._slots[_STOP])

    def stop(self, *, is_over: bool = True) -> None:
        """Tell publishers to stop, or allow them to start again."""
        self._slots[_STOP] = is_over

    @property
    def published(self) -> int:
        """Events sent by the publisher."""
        return int(self._slots[_PUBLISHED])

    @published.setter
    def published(self, events: int) -> None:
        self._slots[_PUBLISHED] = events

    @property
    def delivered(self) -> int:
        """Number of deliveries to all subscribers."""
        return int(self._slots[_DELIVERED : _DELIVERED + WORKERS_MAX].sum())

    def delivered_by(self, workers: int) -> int:
        """Returns `workers` times the deliveries of the slowest of the first `workers` workers."""
        return int(self._slots[_DELIVERED : _DELIVERED + workers].min()) * workers

    def add_delivered(self, worker: int, events: int) -> None:
        """Count more deliveries of a worker's subscribers."""
        self._slots[_DELIVERED + worker] += events

    @property
    def caught_up(self) -> int:
        """Number of subscribers that have caught up."""
        return int(self._slots[_CAUGHT_UP : _CAUGHT_UP + WORKERS_MAX].sum())

    def add_caught_up(self, worker: int) -> None:
        """Count one more subscriber of a worker that has caught up."""
        self._slots[_CAUGHT_UP + worker] += 1
