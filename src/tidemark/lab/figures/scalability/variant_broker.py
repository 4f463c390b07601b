"""A broker process whose event loop or whose writes are other than usual, to compare with.

`python -m tidemark.lab.figures.scalability.variant_broker LOOP WRITES broker ...` runs a broker on the loop
LOOP: `uvloop` as always, `epoll` as asyncio has it, or `poll`, which passes all its sockets to the system in
one list at every turn. With WRITES `queued` instead of `cut-through` nothing is written where it comes about:
all output is queued, and written when the loop next finds that the socket takes it. That is for the loops of
asyncio only. With these the most bytes that ever waited in all queues together are noted in the file that the
environment names.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
from asyncio import selector_events
from collections.abc import Callable, Coroutine
from struct import Struct
from types import SimpleNamespace
from typing import Any

from tidemark.lab.processes.client_processes import main
from tidemark.node.process import process

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "poll": lambda: asyncio.SelectorEventLoop(selectors.PollSelector()),
    "epoll": lambda: asyncio.SelectorEventLoop(selectors.EpollSelector()),
}
UVLOOP, QUEUED, CUT_THROUGH = "uvloop", "queued", "cut-through"
#: The variable that names the file for the most bytes that waited, which has QUEUED_MOST.
QUEUED_FILE = "TIDEMARK_LAB_QUEUED"
QUEUED_MOST = Struct("<q")


def run_on(make: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[Coroutine[Any, Any, int]], int]:
    """Returns what runs a coroutine on a loop that `make` has made."""

    def run(work: Coroutine[Any, Any, int]) -> int:
        with asyncio.Runner(loop_factory=make) as runner:
            return runner.run(work)

    return run


def queue_all_writes() -> None:
    """Let no socket of asyncio be written to before the loop has found that it can be."""

    def write(self: Any, data: Any) -> None:
        if not data or self._conn_lost:
            return
        if not self._buffer:
            self._loop._add_writer(self._sock_fd, self._write_ready)
        self._buffer.extend(data)
        self._maybe_pause_protocol()

    selector_events._SelectorSocketTransport.write = write  # type: ignore[attr-defined]  # not public


def note_queues(path: str) -> None:
    """Note in a file the most bytes that have waited in the queues of all sockets of asyncio together."""
    transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]  # not public
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    total = most = 0

    def noted(method: Callable[..., None]) -> Callable[..., None]:
        def around(self: Any, *arguments: Any) -> None:
            nonlocal total, most
            before = len(self._buffer)
            method(self, *arguments)
            total += len(self._buffer) - before
            if total > most:
                most = total
                os.pwrite(file, QUEUED_MOST.pack(most), 0)

        return around

    transport.write, transport._write_ready = noted(transport.write), noted(transport._write_ready)


def vary(loop: str, writes: str) -> None:
    """Change how the broker of this process will run."""
    if loop != UVLOOP:
        process.uvloop = SimpleNamespace(run=run_on(LOOPS[loop]))  # type: ignore[attr-defined,assignment]
    if writes == QUEUED:
        assert loop != UVLOOP
        queue_all_writes()
    if loop != UVLOOP and QUEUED_FILE in os.environ:
        note_queues(os.environ[QUEUED_FILE])


if __name__ == "__main__":
    vary(*sys.argv[1:3])
    sys.exit(main(sys.argv[3:]))
