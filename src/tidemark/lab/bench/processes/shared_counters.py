"""Board: a few numbers that all processes of a bench see, in a file that is mapped into each.

Who waits for a number looks at it every so often: nothing is sent, so measuring costs those who are measured
nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORKERS_MAX = 8
_STOP, _PUBLISHED, _DELIVERED, _CAUGHT_UP = 0, 1, 2, 2 + WORKERS_MAX
_SLOTS = 2 + 2 * WORKERS_MAX


class SharedCounters:
    """One writer a number."""

    def __init__(self, path: str | Path) -> None:
        """The board in this file, which is made if it is not there."""
        if not Path(path).exists():
            Path(path).write_bytes(bytes(8 * _SLOTS))
        self._slots = np.memmap(path, np.int64, "r+", shape=(_SLOTS,))

    @property
    def is_over(self) -> bool:
        """Publishers should stop."""
        return bool(self._slots[_STOP])

    def stop(self, *, is_over: bool = True) -> None:
        """Publishers stop, or may start again."""
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
        """Deliveries to all subscribers."""
        return int(self._slots[_DELIVERED : _DELIVERED + WORKERS_MAX].sum())

    def delivered_by(self, workers: int) -> int:
        """As many times the deliveries of the slowest of the first so many workers."""
        return int(self._slots[_DELIVERED : _DELIVERED + workers].min()) * workers

    def add_delivered(self, worker: int, events: int) -> None:
        """A worker's subscribers got more."""
        self._slots[_DELIVERED + worker] += events

    @property
    def caught_up(self) -> int:
        """Subscribers that have got what they missed."""
        return int(self._slots[_CAUGHT_UP : _CAUGHT_UP + WORKERS_MAX].sum())

    def add_caught_up(self, worker: int) -> None:
        """One more of a worker's."""
        self._slots[_CAUGHT_UP + worker] += 1
