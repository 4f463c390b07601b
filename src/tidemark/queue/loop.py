"""Loop: an event loop on a thread of its own, for the clients under a queue that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from tidemark.errors import ClosedError

_T = TypeVar("_T")


class Loop:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidemark queue", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_others())
        finally:
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What it returns, or raises; an interrupt ends the work too."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise closed() from None
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            future.cancel()
            raise

    def soon(self, call: Callable[[], object]) -> None:
        """Call it on the loop; not any more when that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


async def _cancel_others() -> None:
    """Whoever asked for something in the last moment must not wait for ever."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def closed() -> ClosedError:
    """The error of whoever uses a queue that is closed."""
    return ClosedError("the queue is closed: open it again with tidemark.queue.connect(...)")
