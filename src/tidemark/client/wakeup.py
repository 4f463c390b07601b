"""Wakeup: how one task waits until other code of its event loop says that there is something new."""

from __future__ import annotations

import asyncio


class Wakeup:
    """One task at a time waits; whoever has news calls `wake`. A call that finds no task does nothing."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits."""
        return self._waiter is not None

    async def wait(self) -> None:
        """Return at the next call of `wake`. The caller looks first whether there is something already."""
        assert self._waiter is None, "one task waits at a time"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Let the task that waits go on."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
