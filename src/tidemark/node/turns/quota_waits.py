"""QuotaWaits: clients that have published more than their quota allows, and are not read from for a while.

A client that waits is told from time to time that the broker is there: the client may be waiting for that,
while nothing that it says is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.node.clock import monotonic_us
from tidemark.wire.frames import ClientFrame, Ping, Publish

if TYPE_CHECKING:
    from tidemark.node.runtime import Runtime
    from tidemark.node.runtime_connection import RuntimeListener

#: A client that is over its quota hears from the broker at least this often.
QUOTA_WAIT_SECONDS_MAX = 2.0


class QuotaWaits:
    """The clients that wait. Belongs to the runtime, which does not read from them."""

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop, listener: RuntimeListener) -> None:
        """`listener` is told whenever a client begins to wait."""
        self._listener = listener
        self._runtime = runtime
        self._loop = loop
        self._clients: set[int] = set()

    def __contains__(self, client: int) -> bool:
        return client in self._clients

    def forget(self, client: int) -> None:
        """`client` is gone, or is reached in another way from now on."""
        self._clients.discard(client)

    def allowed(self, client: int, frames: Sequence[ClientFrame]) -> int:
        """Return how many of these frames may be handled now; let a client wait before it publishes more."""
        broker = self._runtime.broker
        if broker.access.is_open:
            return len(frames)
        first = next((at for at, frame in enumerate(frames) if type(frame) is Publish), None)
        wait = broker.publish_wait(client, monotonic_us()) if first is not None else 0
        if first is None or not wait:
            return len(frames)
        broker.counters["quota_waits"] += 1
        connection = self._runtime.clients.get(client)
        if connection is not None:
            self._listener.publishing_waits(client)
            self._clients.add(client)
            connection.pause()
            self._wait(client, wait)
        return first

    def _wait(self, client: int, microseconds: int) -> None:
        self._loop.call_later(min(microseconds / 1e6, QUOTA_WAIT_SECONDS_MAX), self._waited, client)

    def _waited(self, client: int) -> None:
        """Let a client that was over its quota go on, or wait on."""
        connection = self._runtime.clients.get(client)
        if self._runtime.is_over or connection is None or client not in self._clients:
            return
        wait = self._runtime.broker.publish_wait(client, monotonic_us())
        if wait:
            connection.send(Ping(0))
            self._runtime.flush()
            self._wait(client, wait)
        else:
            self._clients.discard(client)
            self._runtime.resume(client)
