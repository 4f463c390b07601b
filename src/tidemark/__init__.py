"""Tidemark: durable, content-based publish/subscribe over one log that Spark reads too.

`tidemark.connect` and `tidemark.sync.connect` are the way in. What they need is loaded when it is first used,
so that whoever only wants a part of the package pays for that part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tidemark import queue, sync
    from tidemark.client.checkpoints import CheckpointStore, DbApiCheckpoints, SqliteCheckpoints
    from tidemark.client.client import Client, connect, listen
    from tidemark.client.events import Batch, Event, Gap
    from tidemark.client.subscribing.acks import Transaction
    from tidemark.client.subscribing.subscription import Subscription
    from tidemark.errors import (
        ClientError,
        ClosedError,
        NotConnectedError,
        RefusedError,
        TidemarkError,
        TimedOutError,
    )
    from tidemark.message.schema import Schema
    from tidemark.ticks.token import CheckpointToken

_HOMES = {
    "Batch": "tidemark.client.events",
    "CheckpointStore": "tidemark.client.checkpoints",
    "CheckpointToken": "tidemark.ticks.token",
    "Client": "tidemark.client.client",
    "ClientError": "tidemark.errors",
    "ClosedError": "tidemark.errors",
    "DbApiCheckpoints": "tidemark.client.checkpoints",
    "Event": "tidemark.client.events",
    "Gap": "tidemark.client.events",
    "NotConnectedError": "tidemark.errors",
    "RefusedError": "tidemark.errors",
    "Schema": "tidemark.message.schema",
    "SqliteCheckpoints": "tidemark.client.checkpoints",
    "Subscription": "tidemark.client.subscribing.subscription",
    "TidemarkError": "tidemark.errors",
    "TimedOutError": "tidemark.errors",
    "Transaction": "tidemark.client.subscribing.acks",
    "connect": "tidemark.client.client",
    "listen": "tidemark.client.client",
}

__all__ = [
    "Batch",
    "CheckpointStore",
    "CheckpointToken",
    "Client",
    "ClientError",
    "ClosedError",
    "DbApiCheckpoints",
    "Event",
    "Gap",
    "NotConnectedError",
    "RefusedError",
    "Schema",
    "SqliteCheckpoints",
    "Subscription",
    "TidemarkError",
    "TimedOutError",
    "Transaction",
    "connect",
    "listen",
    "queue",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name in ("queue", "sync"):
        return import_module(f"tidemark.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
