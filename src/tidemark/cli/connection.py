"""Ctrl-C while a command talks to a broker: it ends a wait at once and loses nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Ctrl-C (or SIGTERM) ends a wait at once, and lets work that has begun finish; a second one ends all.

    Work asks `told` between its steps; waits happen inside `waiting()`.
    """

    def __init__(self) -> None:
        self.told = False
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
        again, self.told = self.told, True
        if again or self._is_waiting:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Being told in here leaves it, with `told` set; as does having been told before."""
        self._is_waiting = True
        try:
            if not self.told:
                yield
            else:
                raise KeyboardInterrupt
        finally:
            self._is_waiting = False

    def sleep(self, seconds: float) -> bool:
        """Wait; False if told to stop."""
        try:
            with self.waiting():
                time.sleep(max(0.0, seconds))
        except KeyboardInterrupt:
            return False
        return True
