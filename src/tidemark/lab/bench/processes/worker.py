"""Worker: a process of a benchmark that carries out requests in a role, such as to publish or subscribe.

It is started as `python -m tidemark.lab.bench.processes.worker ROLE ARGUMENTS`. Requests come on standard
input, one JSON array a line, `[what, arguments]`. Each is answered with a line `{"answer": ...}`, or
`{"wrong": why}`. The process ends with its input or with its parent.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

import uvloop

from tidemark.errors import TidemarkError
from tidemark.node.process.parent import end_with_parent


class Role(Protocol):
    """A role; its coroutine methods are the requests that it takes."""

    async def open(self) -> None:
        """Prepare for requests."""


def role_named(name: str) -> Callable[..., Role]:
    """Returns the class of a role. Only its own module is imported, so that many workers start quickly."""
    match name:
        case "publish":
            from tidemark.lab.bench.processes.publishers import PublisherRole

            return PublisherRole
        case "subscribe":
            from tidemark.lab.bench.processes.subscribers import SubscriberRole

            return SubscriberRole
        case "stopwatch":
            from tidemark.lab.bench.processes.stopwatch import StopwatchRole

            return StopwatchRole
        case "attacker":
            from tidemark.lab.bench.hostile.attacker import AttackerRole

            return AttackerRole
        case "neighbour":
            from tidemark.lab.bench.hostile.neighbour import NeighbourRole

            return NeighbourRole
        case "principals":
            from tidemark.lab.bench.security.principals import PrincipalsRole

            return PrincipalsRole
        case "guessing":
            from tidemark.lab.bench.security.guessing import GuessingRole

            return GuessingRole
        case "peer publisher" | "peer stopwatch":
            from tidemark.lab.bench.peers.peer_roles import ROLES as PEER_ROLES

            return PEER_ROLES[name]
        case "soak publisher" | "soak subscriber":
            from tidemark.lab.bench.soak.soak_roles import ROLES as SOAK_ROLES

            return SOAK_ROLES[name]
        case "baseline server" | "baseline publisher" | "baseline stopwatch":
            from tidemark.lab.bench.processes.python_baseline import ROLES

            return ROLES[name]
        case "bulk server":
            from tidemark.lab.bench.processes.bulk_baseline import BulkServer

            return BulkServer
    raise AssertionError(f"there is no role {name!r}")


async def work(role: str, arguments: dict[str, Any]) -> None:
    """Carry out requests until standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    actor = role_named(role)(**arguments)
    _answer(await _carried_out(actor, "open", {}))
    while line := await reader.readline():
        what, given = json.loads(line)
        _answer(await _carried_out(actor, what, given))


async def _carried_out(actor: Role, what: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": await getattr(actor, what)(**arguments)}
    except (AssertionError, TidemarkError, TimeoutError, OSError) as error:
        return {"wrong": f"{what}: {error or type(error).__name__}"}


def _answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    end_with_parent(signal.SIGTERM)
    uvloop.run(work(sys.argv[1], json.loads(sys.argv[2])))
