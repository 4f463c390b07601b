"""The broker process: an event loop, signals, and an exit code that says how it ended.

SIGTERM and SIGINT end it in order: nobody new, what was received is finished, goodbye, everything on disk.
The second one ends it at once, which loses no more than a crash does: nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvloop

from tidemark.errors import DiskFailedError, TidemarkError
from tidemark.node.config import Config
from tidemark.node.logs import Log, configure
from tidemark.node.node import Node

DONE = 0
NOT_STARTED = 1
DISK_FAILED = 3
BUG = 4
#: ended by the second signal
CUT_SHORT = 5

#: The disk thread has little to do and somebody waits for it: it must not wait long for the interpreter.
SWITCH_SECONDS = 0.0005
log = Log("process")


def run(config: Config, *, ready: Callable[[Node], None] | None = None) -> int:
    """Run a broker until it is told to stop; the exit code. `ready` is called once it listens."""
    configure(config.log.level, config.log.format)
    sys.setswitchinterval(SWITCH_SECONDS)
    _allow_connections(config.limits.connections)
    return uvloop.run(_run(config, ready))


async def _run(config: Config, ready: Callable[[Node], None] | None) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told, told)
    try:
        node = await Node.start(config)
    except (TidemarkError, OSError) as error:
        log.error("cannot start", reason=str(error))
        return NOT_STARTED
    if ready is not None:
        ready(node)
    await _first(told.wait(), node)
    if not node.failed.done():
        await _first(node.stop(), node)
    return await _failed(node) if node.failed.done() else DONE


async def _first(action: Coroutine[Any, Any, object], node: Node) -> None:
    """Return when it is done, or the node has failed."""
    task = asyncio.ensure_future(action)
    both: set[asyncio.Future[Any]] = {task, node.failed}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    else:
        task.cancel()


async def _failed(node: Node) -> int:
    error = node.failed.result()
    if isinstance(error, DiskFailedError):
        advice = "nothing was acknowledged that is not on disk; look at the disk, then start again"
        log.error("the disk failed: stopped", reason=str(error), advice=advice)
    else:
        log.error("stopped by a mistake in the broker; please report it", cause=error)
    await node.fail_stop()
    return DISK_FAILED if isinstance(error, DiskFailedError) else BUG


def _told(told: asyncio.Event) -> None:
    if told.is_set():
        log.warning("told twice: stopping at once")
        os._exit(CUT_SHORT)
    told.set()


def _allow_connections(connections: int) -> None:
    """As many open files as the connections need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 1_000
    if soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
