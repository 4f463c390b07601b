"""Tests that wait: for a condition, or for a whole coroutine, and never for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, ParamSpec

#: The longest that a test waits for what will come. Only a test that fails waits so long, but where much else
#: runs, a process of Java takes minutes to start.
PATIENCE_SECONDS = 600.0
#: The pause after the first look at a condition, and the longest one.
PAUSE_SECONDS_MIN = 0.002
PAUSE_SECONDS_MAX = 0.05
_P = ParamSpec("_P")


def bounded(test: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Make a test of a coroutine: it runs on a loop of its own, for at most PATIENCE_SECONDS."""

    @wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        async def within() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await test(*args, **kwargs)

        asyncio.run(within())

    return run


async def until(is_so: Callable[[], object]) -> None:
    """Return when the condition holds; TimeoutError if it does not within PATIENCE_SECONDS."""
    pauses = _pauses()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(next(pauses))


def eventually(is_so: Callable[[], object], problem: Callable[[], object] | None = None) -> None:
    """The same for a test that is no coroutine. The TimeoutError has the problem as its text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pauses = _pauses()
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(problem() if problem is not None else "what the test waits for has not come")
        time.sleep(next(pauses))


def _pauses() -> Iterator[float]:
    """Yields seconds between two looks: who looks often at what takes long takes from whom it waits for."""
    pause = PAUSE_SECONDS_MIN
    while True:
        yield pause
        pause = min(1.25 * pause, PAUSE_SECONDS_MAX)
