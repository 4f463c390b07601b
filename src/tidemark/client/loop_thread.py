"""LoopThread: an event loop on a thread of its own, for programs that block.

Coroutines are made on the loop's thread and never in the calling thread, where an interrupt may come at any
moment: so an interrupt leaves no coroutine behind that nobody awaits. Nothing outlives the thread, and no
call waits for it in vain: calls that still wait when the thread ends raise ClosedError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from os import getpid
from threading import Thread
from typing import Any, ParamSpec, TypeVar

import uvloop

from tidemark.client.connecting.link import forked
from tidemark.errors import ClosedError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(
        self, name: str, closed: Callable[[], ClosedError], last: Callable[[], Awaitable[None]]
    ) -> None:
        """`closed` makes the error of calls that come too late; `last` is awaited before the loop ends."""
        self._closed = closed
        self._last = last
        #: the results that calls of `run` wait for
        self._waited_for: set[Future[Any]] = set()
        self._is_ending = False
        #: the process that has the thread; a forked child has not
        self._process = getpid()
        begun: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = Thread(target=self._run, args=(begun,), name=name, daemon=True)
        self._thread.start()
        self._loop = begun.result()

    def _run(self, begun: Future[asyncio.AbstractEventLoop]) -> None:
        # asyncio's own loop copies what a socket does not take at once, again and again: for batches of a
        # megabyte that is most of what publishing takes.
        loop = uvloop.new_event_loop()
        begun.set_result(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._last())
            loop.run_until_complete(_cancel_others())
        finally:
            loop.close()
            # Calls that came between the last turn of the loop and its end.
            for future in list(self._waited_for):
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._closed())

    def run(self, begin: Callable[_P, Awaitable[_T]], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call `begin` on the loop, await its result and return it. An interrupt cancels the work.

        ClosedError if the loop has ended, and in a forked child, which has no thread that runs the loop.
        """
        if self._process != getpid():
            raise forked()
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
            return  # the caller was interrupted
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(work.result())

    def soon(self, call: Callable[[], object]) -> None:
        """Call `call` on the loop, unless the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the thread and all calls that are under way; return when it has ended.

        In a forked child there is no thread to end.
        """
        if self._process != getpid():
            return
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
