"""FrameTasks: what a frame has begun and what goes on after it has been handled, such as taking a topology.

An error in such a task is an error that the frame has caused: whoever sent it is refused, the refusal is
counted and logged, and nobody else notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

from tidemark.node.logs import Log

#: Characters of a reason that the other side is told: an error may repeat what came in.
REASON_CHARACTERS_MAX = 4_000
log = Log("frames")


class FrameTasks:
    """The tasks that frames have begun at one part of a broker."""

    def __init__(self, counters: MutableMapping[str, int] | None = None) -> None:
        """`counters` are the broker's, of which `frames_refused` counts; without them nothing is counted."""
        self._counters = counters
        #: asyncio itself keeps no reference to a task
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], refuse: Callable[[str], None]) -> None:
        """Do `work`, which a frame asks for. If it raises, `refuse` is called with the reason."""
        task = asyncio.create_task(self._do(work, refuse))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()

    async def _do(self, work: Coroutine[Any, Any, None], refuse: Callable[[str], None]) -> None:
        try:
            await work
        except Exception as error:
            log.error("what a frame has begun was not foreseen", cause=error)
            if self._counters is not None:
                self._counters["frames_refused"] += 1
            refuse(shortened(f"cannot be handled: {type(error).__name__}: {error}"))


def shortened(reason: str) -> str:
    """Return `reason`, or its beginning if it is too long to be told."""
    return reason if len(reason) <= REASON_CHARACTERS_MAX else f"{reason[:REASON_CHARACTERS_MAX]}..."
