"""The broker process: an event loop, signals, and an exit code that says how it ended.

SIGTERM and SIGINT end it in order: nobody new, what was received is finished, goodbye, everything on disk.
The second one ends it at once, which loses no more than a crash does: nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import uvloop

from tidemark.errors import DiskFailedError, TidemarkError
from tidemark.node.companion import LOOK_SECONDS, Companion
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
#: How many new objects set off a collection of garbage, and how many of one generation one of the next. There
#: is hardly any that is not freed by itself, and everybody waits meanwhile.
COLLECT_OBJECTS, COLLECT_YOUNG, COLLECT_OLD = 5_000, 20, 50
log = Log("process")


def run(
    config: Config,
    *,
    ready: Callable[[Node], None] | None = None,
    beside: Callable[[Node], Companion] | None = None,
) -> int:
    """Run a broker until it is told to stop; the exit code. `ready` is called once it listens.

    `beside` then makes a process that runs beside it, and is stopped before the broker is.
    """
    configure(config.log.level, config.log.format)
    sys.setswitchinterval(SWITCH_SECONDS)
    _allow_connections(config.limits.connections)
    return uvloop.run(_run(config, ready, beside))


async def _run(
    config: Config,
    ready: Callable[[Node], None] | None,
    beside: Callable[[Node], Companion] | None,
) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told, told)
    try:
        node = await Node.start(config)
    except (TidemarkError, OSError) as error:
        log.error("cannot start", reason=str(error))
        return NOT_STARTED
    # What is there now stays there: looking through it for garbage takes 12 ms each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS, COLLECT_YOUNG, COLLECT_OLD)
    if ready is not None:
        ready(node)
    companion = None if beside is None else beside(node)
    await _first(told.wait() if companion is None else _together(told, companion), node)
    if companion is not None:
        await asyncio.to_thread(companion.stop)
    if not node.failed.done():
        await _first(node.stop(), node)
    return await _failed(node) if node.failed.done() else DONE


async def _together(told: asyncio.Event, companion: Companion) -> None:
    """Look after a companion until told to stop."""
    while not told.is_set():
        companion.look()
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), LOOK_SECONDS)


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
