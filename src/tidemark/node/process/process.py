"""The broker process: an event loop, signals, and an exit code that says how it ended.

The process may run several brokers of an overlay, each with its own data directory and address. They start
and end together, and the links between them cross no socket. SIGTERM or SIGINT stops them in order: nobody
new is accepted, what was received is acknowledged, connections are closed, everything is put on disk. A
second signal ends the process at once, which loses as much as a crash does: nothing that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

import uvloop

from tidemark.errors import DamagedError, DiskFailedError, TidemarkError
from tidemark.node.config.settings import Config
from tidemark.node.local_link import LocalBrokers
from tidemark.node.logs import Log, configure
from tidemark.node.node import Node
from tidemark.node.process.collecting import Collecting
from tidemark.node.process.open_files import allow_connections
from tidemark.node.process.supervised_process import LOOK_SECONDS, SupervisedGroup
from tidemark.node.workers.handover import WorkerSeat

DONE = 0
NOT_STARTED = 1
DISK_FAILED = 3
BUG = 4
#: ended by the second signal
CUT_SHORT = 5
#: the data directory is damaged, and an administrator has to choose what to do
DAMAGED = 6

#: How long a thread may hold the interpreter lock. The disk threads have little to do and publishers wait for
#: them, so they must get the lock soon.
SWITCH_SECONDS = 0.0005
log = Log("process")


class Ready(Protocol):
    """Called with each broker as soon as it listens."""

    def __call__(self, node: Node, /) -> None:
        """Print where `node` listens, for example."""


class MakeBeside(Protocol):
    """Makes the processes that run beside a broker: the archive and the console of `tidemark up`."""

    def __call__(self, node: Node, /) -> SupervisedGroup:
        """Returns the processes, which are started soon and stopped before `node` is."""


def run(
    *configs: Config,
    ready: Ready | None = None,
    beside: MakeBeside | None = None,
    seat: WorkerSeat | None = None,
) -> int:
    """Run a broker for each configuration until a signal. Returns the exit code of the process.

    `seat` is that of a worker, whose process has one broker.
    """
    first = configs[0]
    configure(first.log.level, first.log.format)
    sys.setswitchinterval(SWITCH_SECONDS)
    allow_connections(sum(config.limits.connections for config in configs))
    return uvloop.run(_run(configs, ready, beside, seat))


async def _run(
    configs: Sequence[Config], ready: Ready | None, beside: MakeBeside | None, seat: WorkerSeat | None
) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told, told)
    local_brokers = LocalBrokers()
    running: list[asyncio.Task[int]] = []
    #: the brokers that run, whose certificates SIGHUP has read again
    nodes: list[Node] = []
    for config in configs:
        try:
            node = await Node.start(config, local_brokers, seat)
        except (TidemarkError, OSError) as error:
            log.error("cannot start", broker=config.broker.name, reason=str(error))
            code = DAMAGED if isinstance(error, DamagedError) else NOT_STARTED
            running.append(asyncio.create_task(_not_started(code)))
            told.set()
            break
        loop.add_signal_handler(signal.SIGHUP, _reload, nodes)
        nodes.append(node)
        if ready is not None:
            ready(node)
        running.append(asyncio.create_task(_live(node, told, None if beside is None else beside(node))))
    collecting = Collecting(loop)
    collecting.begin()
    try:
        return max(await asyncio.gather(*running))
    finally:
        collecting.end()


def _reload(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.reload()


async def _not_started(code: int) -> int:
    return code


async def _live(node: Node, told: asyncio.Event, beside: SupervisedGroup | None) -> int:
    """Run one broker until a signal, its removal from the overlay, or a failure. Returns its exit code."""
    waiting = told.wait() if beside is None else _together(told, beside)
    ends = [asyncio.ensure_future(each) for each in (waiting, node.removed.wait())]
    both: set[asyncio.Future[Any]] = {*ends, node.failed}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    if beside is not None:
        await asyncio.to_thread(beside.stop)
    if not node.failed.done():
        await _first(node.stop(), node)
    if not node.failed.done():
        return DONE
    # What made one broker of the process fail may be wrong for all of them, so all stop.
    told.set()
    return await _failed(node)


async def _together(told: asyncio.Event, beside: SupervisedGroup) -> None:
    """Look after the processes beside the broker until `told` is set."""
    while not told.is_set():
        beside.look()
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), LOOK_SECONDS)


async def _first(action: Coroutine[Any, Any, object], node: Node) -> None:
    """Return when `action` is done, or cancel it when the node has failed."""
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
