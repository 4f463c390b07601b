"""Tests that wait: for a condition, or for a whole coroutine, and never for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

#: The longest that a test waits for what will come. Only a test that fails waits so long, but where much else
#: runs, a process of Java takes minutes to start.
PATIENCE_SECONDS = 600.0
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
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


def eventually(is_so: Callable[[], object]) -> None:
    """The same for a test that is no coroutine: return when the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("what the test waits for has not come")
        time.sleep(0.005)
