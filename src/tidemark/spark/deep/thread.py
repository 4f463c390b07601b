"""Deep catch-up in a thread of its own, beside whatever else the process does."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from threading import Thread
from types import TracebackType

from tidemark.spark.deep.service import DeepService

#: When the thread is stopped, a wave that is being read is waited for so long.
STOP_SECONDS = 10.0


class DeepThread:
    """Runs a `DeepService` for the length of a `with` block."""

    def __init__(self, service: DeepService) -> None:
        self._service = service
        self._ended: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, name="tidemark deep", daemon=True)

    def __enter__(self) -> DeepThread:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(STOP_SECONDS)

    def check(self) -> None:
        """Raise the error that ended the service, if it has ended with one."""
        if self._ended.done():
            self._ended.result()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._service.run())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            self._ended.set_result(None)
        except BaseException as error:
            self._ended.set_exception(error)
        finally:
            self._loop.close()
