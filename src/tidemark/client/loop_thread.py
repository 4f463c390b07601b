"""LoopThread: an event loop on a thread of its own, for programs that block.

Work is begun on the loop and never where it is asked for: an interrupt, which may come at any moment there,
leaves no coroutine behind that nobody awaits. Nothing outlives the thread, and nobody waits for it in vain:
whoever still does when it ends gets the error of something that is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from tidemark.errors import ClosedError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """Runs what is awaited, for other threads."""

    def __init__(
        self, name: str, closed: Callable[[], ClosedError], last: Callable[[], Awaitable[None]]
    ) -> None:
        """`closed` makes the error of whoever comes too late; `last` is done in any case before it ends."""
        self._closed = closed
        self._last = last
        #: what somebody waits for
        self._waited_for: set[Future[Any]] = set()
        self._is_ending = False
        begun: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = Thread(target=self._run, args=(begun,), name=name, daemon=True)
        self._thread.start()
        self._loop = begun.result()

    def _run(self, begun: Future[asyncio.AbstractEventLoop]) -> None:
        loop = asyncio.new_event_loop()
        begun.set_result(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._last())
            loop.run_until_complete(_cancel_others())
        finally:
            loop.close()
            # What was asked for between the last turn of the loop and its end.
            for future in list(self._waited_for):
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._closed())

    def run(self, begin: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call it on the loop and wait for what it gives, or raises; an interrupt ends the work too."""
        future: Future[_T] = Future()
        self._waited_for.add(future)
        future.add_done_callback(self._waited_for.discard)
        try:
            self._loop.call_soon_threadsafe(self._begin, future, partial(begin, *args, **kwargs))
        except RuntimeError:
            future.cancel()
            raise self._closed() from None
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _begin(self, future: Future[_T], begin: Callable[[], Awaitable[_T]]) -> None:
        if future.cancelled():
            return
        try:
            if self._is_ending:
                raise self._closed()
            work = asyncio.ensure_future(begin())
        except Exception as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            return
        work.add_done_callback(partial(self._ended, future))
        future.add_done_callback(lambda given: self.soon(work.cancel) if given.cancelled() else None)

    def _ended(self, future: Future[_T], work: asyncio.Future[_T]) -> None:
        error = self._closed() if work.cancelled() else work.exception()
        if not future.set_running_or_notify_cancel():
            return  # nobody waits any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(work.result())

    def soon(self, call: Callable[[], object]) -> None:
        """Call it on the loop; not any more when that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the thread, and with it all that is under way."""
        self.soon(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._is_ending = True
        self._loop.stop()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
