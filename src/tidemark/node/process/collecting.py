"""Collecting: when the garbage collector looks for cycles, so that nobody waits for it for long.

Nearly all objects of a broker are freed by their reference counts. A collection finds the few that refer to
each other in a circle, and everybody waits meanwhile, in proportion to the objects that it looks at. So young
objects are looked at often and a few at a time, and those that survive are left alone (`gc.freeze`). All
objects are looked at again when there are more of them and the process has little else to do, or when their
number has grown by far.
"""

from __future__ import annotations

import asyncio
import gc
from time import process_time
from typing import Any

#: New objects that set off a collection of the youngest, and such collections before one of the young.
COLLECT_OBJECTS, COLLECT_YOUNG = 5_000, 4
#: Collections of the young before one of all objects that were not left alone, which are few.
COLLECT_OLD = 50
#: The objects that are left alone after one collection of the young, at most, about.
ROUND_OBJECTS = COLLECT_OBJECTS * (COLLECT_YOUNG + 1)
#: How often it is found out whether all objects should be looked at.
LOOK_SECONDS = 1.0
#: The process is idle if it has used less than this part of one processor meanwhile.
IDLE_PART = 0.05
#: Objects more than after the last collection of all that set off another: when the process is idle, and in
#: any case.
GROWN_IDLE = 2 * ROUND_OBJECTS
GROWN_BUSY = 5_000_000


class Collecting:
    """Decides about the collections of this process, from when its brokers have started."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: the objects that the last collection of all left alone, and how many there are more now, at most
        self._objects = 0
        self._grown = 0
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: the thresholds of before
        self._before = gc.get_threshold()

    def begin(self) -> None:
        """Leave alone what exists now, which lives as long as the process; look again from time to time."""
        self._collect_all()
        gc.set_threshold(COLLECT_OBJECTS, COLLECT_YOUNG, COLLECT_OLD)
        gc.callbacks.append(self._collected)
        self._look()

    def end(self) -> None:
        """Let the collector work by itself again."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()
        if self._timer is not None:
            self._timer.cancel()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        """Python calls this before and after every collection."""
        if phase == "stop" and info["generation"]:
            gc.freeze()
            self._grown += ROUND_OBJECTS

    def _look(self) -> None:
        used = process_time()
        is_idle = used - self._used < IDLE_PART * LOOK_SECONDS
        self._used = used
        if self._is_due(is_idle=is_idle):
            self._collect_all()
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _is_due(self, *, is_idle: bool) -> bool:
        bound = GROWN_IDLE if is_idle else max(GROWN_BUSY, self._objects)
        if self._grown > bound:
            # Most of what was left alone may be gone, as after many connections that came and went: a broker
            # that serves a few clients counts as idle, and they would wait for a collection that finds
            # nothing. Counting takes time too, hence not every time.
            self._grown = max(0, gc.get_freeze_count() - self._objects)
        return self._grown > bound

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._objects, self._grown = gc.get_freeze_count(), 0
