"""Admin: what an administrator may ask of a running broker, over the same connection as everything else.

Only what the process knows beyond its broker: the broker's roles answer everything else themselves, as
`broker.admin` says. Arguments and answers are JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING, Any

from tidemark.errors import ConfigError, TidemarkError
from tidemark.node.config.loading import show
from tidemark.node.connection import Connection
from tidemark.node.local_link import LocalLink
from tidemark.node.metrics import gauges
from tidemark.node.topology.text import to_text
from tidemark.wire.frames import Answer, Ask, Refused

if TYPE_CHECKING:
    from tidemark.node.node import Node

LIST_MAX = 10_000


class Admin:
    """Answers questions about one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, ask: Ask, reply: Callable[[Answer | Refused], None]) -> bool:
        """Answer it, now or later; False if the question is for the broker's roles."""
        if ask.what == "propose":
            task = asyncio.create_task(self._propose(ask, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return True
        question = QUESTIONS.get(ask.what)
        if question is not None:
            reply(Answer(ask.ticket, json.dumps(question(self._node), default=str)))
        return question is not None

    async def _propose(self, ask: Ask, reply: Callable[[Answer | Refused], None]) -> None:
        """Another topology: `text`, in place of that of version `base`; with `force` whatever that loses."""
        try:
            given = json.loads(ask.arguments)
            await self._node.membership.propose(
                str(given["text"]), int(given["base"]), is_forced=bool(given.get("force"))
            )
        except ConfigError as error:
            reply(
                Refused(
                    "ask", str(ask.ticket), "version" if "by now" in error.reason else "frame", str(error)
                )
            )
        except (TidemarkError, ValueError, TypeError, KeyError) as error:
            reply(Refused("ask", str(ask.ticket), "frame", f"cannot be taken: {error}"))
        else:
            reply(Answer(ask.ticket, json.dumps(_overlay(self._node))))


def _status(node: Node) -> dict[str, Any]:
    return {
        "broker": node.config.broker.name,
        "version": version("tidemark"),
        "incarnation": node.server.incarnation,
        "state": node.state,
        "draining": node.is_draining,
        "overlay": node.topology.version,
        "started": node.started,
        "uptime_seconds": round(time() - node.started, 3),
        "listen": str(node.address),
        "http": str(node.http_address) if node.http_address else None,
        "data_dir": node.config.storage.data_dir,
        "durability": node.config.storage.durability,
        "links": {peer: peer in node.runtime.peers for peer in node.server.neighbours},
        "pubends": list(node.server.pubends),
        "alarms": list(node.alarms),
        **{name: value for name, (_, value) in gauges(node).items() if name not in ("alarms", "incarnation")},
    }


def _archive(node: Node) -> list[str]:
    """Where the archive is that keeps what is let go here, as this machine calls it; nothing without one."""
    config = node.config
    return [str(config.archive_path().absolute())] if config.retention.archive else []


def _overlay(node: Node) -> dict[str, Any]:
    topology = node.topology
    return {
        "broker": node.config.broker.name,
        "version": topology.version,
        "digest": topology.digest,
        "text": to_text(topology),
    }


def _routes(node: Node) -> list[dict[str, Any]]:
    """By whom each pubend comes here, and who has it from here."""
    found = []
    for name in sorted(node.topology.layout().pubends):
        stream = node.runtime.broker.stream(name)
        if stream is not None:
            followers = sorted(stream.followers)
            found.append({"pubend": name, "upstream": stream.upstream, "followers": followers})
    return found


def _links(node: Node) -> list[dict[str, Any]]:
    """Every link that there should be, and what went over it from here since it is up."""
    server = node.server
    local = {link.peer: link for link in server.local}
    up: dict[str, Connection | LocalLink] = {**{each.peer or "": each for each in server.links}, **local}
    now = server.time()
    return [
        {
            "peer": peer,
            "is_up": peer in node.runtime.peers,
            "is_local": peer in local,
            "seconds": round(now - up[peer].began, 3) if peer in up else None,
            "bytes": up[peer].said_bytes if peer in up else 0,
            "events": up[peer].said_events if peer in up else 0,
            "queued_bytes": up[peer].queued_bytes if peer in up else 0,
        }
        for peer in server.neighbours
    ]


def _connections(node: Node) -> list[dict[str, Any]]:
    now = node.server.time()
    return [
        {
            "client": each.client,
            "peer": each.peer,
            "name": each.name or each.peer,
            "address": each.address,
            "seconds": round(now - each.began, 3),
            "silent_seconds": round(now - each.heard, 3),
            "queued_bytes": each.queued_bytes,
            "is_paused": each.is_paused,
        }
        for each in sorted(node.server.connections, key=lambda each: each.began)
    ][:LIST_MAX]


def _metrics(node: Node) -> dict[str, float]:
    return {**node.runtime.broker.counters, **{name: value for name, (_, value) in gauges(node).items()}}


def _config(node: Node) -> list[dict[str, str]]:
    return [{"key": key, "value": value, "source": source} for key, value, source in show(node.config)]


QUESTIONS: Mapping[str, Callable[[Node], Any]] = {
    "config": _config,
    "connections": _connections,
    "links": _links,
    "metrics": _metrics,
    "overlay": _overlay,
    "routes": _routes,
    "status": _status,
    "archive": _archive,
}
