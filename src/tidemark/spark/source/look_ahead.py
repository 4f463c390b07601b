"""Where the batch after the next one ends, found while the tasks of the next one read.

A micro-batch that is bounded ends at its n-th event, and somebody has to count: the broker, or the columns of
the archive. Spark asks for the end of a batch when the one before is done, and its cores have nothing to do
until it is told. So the end is looked for earlier, by a thread with a connection of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Protocol

from tidemark.errors import TidemarkError
from tidemark.spark.source.offsets import PubendExtent
from tidemark.ticks import CheckpointToken

_log = logging.getLogger("tidemark.spark")


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """Where a bounded batch ends, where the pubends stood when that was found, and if it has all it may."""

    token: CheckpointToken
    there: Mapping[str, PubendExtent]
    is_full: bool


class EndFinder(Protocol):
    """Finds where batches end; `spark.source.scan.Planner` is one."""

    def bounded(
        self, start: CheckpointToken, ceiling: CheckpointToken | None, events_max: int
    ) -> BatchEnd | None:
        """The end of the batch of at most so many events that begins at a token; None if it has none."""

    def close(self) -> None:
        """Disconnect."""


#: from where, not beyond which token, and how many events at the most
_Question = tuple[CheckpointToken, CheckpointToken | None, int]


class LookAhead:
    """Looks for the end of one batch at a time."""

    def __init__(self, make: Callable[[], EndFinder]) -> None:
        """`make` makes a finder that only the thread uses, when there is first something to find."""
        self._make = make
        self._finder: EndFinder | None = None
        self._thread: Thread | None = None
        self._found: tuple[_Question, BatchEnd | None] | None = None
        self._lock = Lock()
        self._is_closed = False

    def begin(self, start: CheckpointToken, ceiling: CheckpointToken | None, events_max: int) -> None:
        """Begin to look for the end of the batch that starts there, unless another is being looked for."""
        if self._thread is None and not self._is_closed:
            question = (start, ceiling, events_max)
            self._thread = Thread(target=self._look, args=question, name="look ahead", daemon=True)
            self._thread.start()

    def taken(
        self, start: CheckpointToken, ceiling: CheckpointToken | None, events_max: int
    ) -> BatchEnd | None:
        """The end of that batch, if it was looked for, and is still its end.

        A batch that was not full when it was looked for may have more events now.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        thread.join()
        found, self._found = self._found, None
        if found is None or found[0] != (start, ceiling, events_max):
            return None
        return found[1] if found[1] is not None and found[1].is_full else None

    def close(self) -> None:
        """Look for nothing more, and wait for nothing."""
        with self._lock:
            self._is_closed = True
            is_idle = self._thread is None or not self._thread.is_alive()
            if is_idle and self._finder is not None:
                self._finder.close()

    def _look(self, start: CheckpointToken, ceiling: CheckpointToken | None, events_max: int) -> None:
        try:
            if self._finder is None:
                self._finder = self._make()
            self._found = (start, ceiling, events_max), self._finder.bounded(start, ceiling, events_max)
        except (TidemarkError, OSError) as error:
            # Whoever asks for the batch meets the same error again, and reports it.
            _log.debug("the end of the next batch was not found: %s", error)
        with self._lock:
            if self._is_closed and self._finder is not None:
                self._finder.close()
