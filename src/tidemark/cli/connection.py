"""Ctrl-C while a command talks to a broker: a wait ends at once, and work that has begun is finished."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Ctrl-C (or SIGTERM) ends a wait at once and lets work that has begun finish; the second one ends both.

    Work looks at `is_interrupted` between its steps; waits happen inside `waiting()`.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._tell)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        again, self.is_interrupted = self.is_interrupted, True
        if again or self._is_waiting:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """An interrupt inside of this block, or before it, raises KeyboardInterrupt there."""
        self._is_waiting = True
        try:
            if not self.is_interrupted:
                yield
            else:
                raise KeyboardInterrupt
        finally:
            self._is_waiting = False

    def sleep(self, seconds: float) -> bool:
        """Wait for so many seconds; return False if the wait was interrupted."""
        try:
            with self.waiting():
                time.sleep(max(0.0, seconds))
        except KeyboardInterrupt:
            return False
        return True
