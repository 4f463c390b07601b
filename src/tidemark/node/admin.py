"""Admin: what an administrator may ask of a running broker, over the same connection as everything else.

Only what the process knows beyond its broker: the broker's roles answer everything else themselves, as
`broker.admin` says. Arguments and answers are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING, Any

from tidemark.node.configload import show
from tidemark.node.metrics import gauges
from tidemark.wire.frames import Answer, Ask

if TYPE_CHECKING:
    from tidemark.node.node import Node

LIST_MAX = 10_000


class Admin:
    """Answers questions about one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def answer(self, ask: Ask) -> Answer | None:
        """The answer; None if the question is for the broker's roles."""
        question = QUESTIONS.get(ask.what)
        if question is None:
            return None
        return Answer(ask.ticket, json.dumps(question(self._node), default=str))


def _status(node: Node) -> dict[str, Any]:
    return {
        "broker": node.config.broker.name,
        "version": version("tidemark"),
        "incarnation": node.server.incarnation,
        "state": node.state,
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


def _routes(node: Node) -> list[dict[str, Any]]:
    return [
        {"pubend": name, "upstream": route.upstream, "downstream": list(route.downstream)}
        for name, route in sorted(node.server.routes.items())
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
    "metrics": _metrics,
    "routes": _routes,
    "status": _status,
}
