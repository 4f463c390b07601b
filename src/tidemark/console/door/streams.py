"""Streams of events to readers on HTTP: opening, ending and counting them, whatever form they have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tidemark.client.client import Client
from tidemark.client.events import Event, Gap
from tidemark.client.subscribing.subscription import Subscription
from tidemark.console.callers import Caller, Connections
from tidemark.console.door.requests import StreamWanted
from tidemark.console.options import STREAMS_MAX
from tidemark.console.problems import ProblemError
from tidemark.errors import ClientError, RefusedError

#: A reader hears something at least so often, so that both sides notice when the other is gone.
ALIVE_SECONDS = 15.0
#: Events that are written to a reader before other readers have their turn.
EVENTS_AT_A_TIME = 100
SESSION_OVER = "the session of this stream is over: log in again"
TAKEN = "another reader has opened this durable subscription"


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing came for a while; the reader has everything up to the token of the subscription."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another reader has opened the same durable subscription; this one ends."""


Item = list[Event] | Gap | Alive | Taken


class OpenStream:
    """One subscription that a reader on HTTP follows."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription[Event | Gap],
        seconds: float | None,
        goes_on: Callable[[], bool],
    ) -> None:
        self.client = client
        self.subscription = subscription
        self._goes_on = goes_on
        loop = asyncio.get_running_loop()
        self._ends = None if seconds is None else loop.time() + seconds

    async def items(self) -> AsyncIterator[Item]:
        """Give what the reader is to be told, until the subscription ends or its time is up.

        RefusedError if the broker ends the subscription, or if the reader's session is over.
        """
        batches = aiter(self.subscription.batches())
        waiting: asyncio.Future[Any] | None = None
        loop = asyncio.get_running_loop()
        try:
            while self._ends is None or loop.time() < self._ends:
                if waiting is None:
                    waiting = asyncio.ensure_future(anext(batches, None))
                patience = (
                    ALIVE_SECONDS if self._ends is None else min(ALIVE_SECONDS, self._ends - loop.time())
                )
                await asyncio.wait((waiting,), timeout=max(0.0, patience))
                if not self._goes_on():
                    raise RefusedError(SESSION_OVER, what="session", name="", code="login")
                if not waiting.done():
                    yield Alive()
                    continue
                item, waiting = waiting.result(), None
                if item is None:
                    yield Taken()
                    return
                if isinstance(item, Gap):
                    yield item
                    continue
                events = list(item)
                for first in range(0, len(events), EVENTS_AT_A_TIME):
                    yield events[first : first + EVENTS_AT_A_TIME]
        finally:
            if waiting is not None:
                waiting.cancel()


class Streams:
    """All streams that are open at one console."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._count = 0

    @property
    def count(self) -> int:
        """How many streams are open."""
        return self._count

    @asynccontextmanager
    async def open(
        self, caller: Caller, wanted: StreamWanted, goes_on: Callable[[], bool]
    ) -> AsyncIterator[OpenStream]:
        """Open a stream for the time of the block; `goes_on` says whether the reader's session does.

        A token that the reader brings acknowledges what is before it. ProblemError 503 if too many streams
        are open; RefusedError and the like if the broker refuses the subscription.
        """
        if self._count >= STREAMS_MAX:
            raise ProblemError(
                503, "limit", f"{STREAMS_MAX} streams are open at this console: try again later"
            )
        self._count += 1
        try:
            async with self._connections.use(caller) as client:
                subscription = client.subscribe(wanted.pattern, wanted.where, gaps=True, **wanted.options())
                give_back = await self._opened(caller, wanted, subscription)
                try:
                    if wanted.durable is not None and wanted.token is not None:
                        await subscription.ack(wanted.token)
                    seconds = None if wanted.durable is None else wanted.ack_seconds
                    yield OpenStream(client, subscription, seconds, goes_on)
                finally:
                    await _finish(subscription, give_back)
        finally:
            self._count -= 1

    async def _opened(
        self, caller: Caller, wanted: StreamWanted, subscription: Subscription[Any]
    ) -> Callable[[], None]:
        """Open a subscription, and return what is to be done when its reader is gone."""
        if wanted.durable is not None:
            return await self._connections.open_durable(caller, wanted.durable, subscription)
        await subscription.open()
        return lambda: None


async def _finish(subscription: Subscription[Any], then: Callable[[], None]) -> None:
    """Close a subscription, also if the task that reads it is being cancelled, and call `then`."""
    closing = asyncio.ensure_future(_closed(subscription, then))
    _FINISHING.add(closing)
    closing.add_done_callback(_FINISHING.discard)
    await asyncio.shield(closing)


async def _closed(subscription: Subscription[Any], then: Callable[[], None]) -> None:
    try:
        await subscription.close()
    except ClientError:
        # Whether the goodbye reached the broker does not matter to anybody any more.
        return
    finally:
        then()


#: Tasks that close subscriptions; the event loop itself would forget them.
_FINISHING: set[asyncio.Future[None]] = set()
