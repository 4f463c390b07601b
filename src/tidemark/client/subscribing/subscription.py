"""Subscription: what an application holds of a subscription, and iterates over.

An event counts as *consumed* when the application asks for the next one, acknowledges it, or leaves the
`async with` block without an exception. `checkpoint` is ahead of that by the event that the application is
working on: `checkpoint` is the token to store in the same transaction as what was made of the event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast, overload

from tidemark.client.events import Batch, Event, Gap
from tidemark.client.subscribing.session import SubscriptionSession, Upto
from tidemark.ticks import CheckpointToken

#: Seconds that closing waits for the broker, unless the application says otherwise.
CLOSE_SECONDS = 5.0

#: What iterating gives: Event, or the dataclass given as `into`; with `gaps=True` also Gap.
ItemT = TypeVar("ItemT", covariant=True)


class Subscription(Generic[ItemT]):
    """A subscription: `async with` or `await` opens it; iterate over it for events, or over `batches()`.

    Iterating gives Event objects in the order of each pubend, and ends when the subscription is closed.
    Iterating over a subscription that was not opened opens it. A gap is raised as a GapError; iterating
    again goes on behind it. With `subscribe(..., gaps=True)` a gap is an item of its own, a Gap, and with
    `subscribe(..., into=Trade)` events are handed out as instances of the dataclass Trade.

    RefusedError when the broker ends the subscription: with the code "taken" because another connection has
    opened the same durable subscription.
    """

    def __init__(self, session: SubscriptionSession) -> None:
        """For Client.subscribe, which makes subscriptions."""
        self._session = session

    @property
    def name(self) -> str:
        """The name by which the broker knows the subscription: `durable`, or a name that the client made."""
        return self._session.name

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of everything that was handed out, including what the application is working on.

        An application that keeps its own place stores this token in the transaction of its data.
        """
        return self._session.checkpoint

    # Opening and closing.

    async def open(self) -> Subscription[ItemT]:
        """Subscribe, and return this subscription once delivery has started.

        Everything that is published at this broker from then on is delivered. RefusedError if the broker
        refuses, for a wrong selector say; TimedOutError if it does not answer within the client's timeout;
        ClientError if the durable subscription is open in this client already.
        """
        await self._session.open()
        return self

    def __await__(self) -> Generator[Any, None, Subscription[ItemT]]:
        return self.open().__await__()

    async def __aenter__(self) -> Subscription[ItemT]:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._session.inbox.finish()
        await self.close()

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop. A durable subscription stays at the broker, which keeps events for it.

        Waits up to `timeout` seconds until the broker has stored what was consumed; events whose
        acknowledgement it did not get in time are delivered again. Closing twice does nothing.
        """
        await self._session.close(timeout)

    async def unsubscribe(self) -> None:
        """End the subscription for good: the broker keeps no events for it any more.

        RefusedError if the broker refuses; TimedOutError if it does not answer within the client's timeout.
        """
        await self._session.unsubscribe()

    # Iterating.

    def __aiter__(self) -> Subscription[ItemT]:
        return self

    async def __anext__(self) -> ItemT:
        session = self._session
        if session.must_commit:
            await session.commit()
        item = session.step()
        while item is None:
            if not await session.load():
                raise StopAsyncIteration
            item = session.step()
        return cast(ItemT, item)

    async def next(self, timeout: float | None = None) -> ItemT | None:
        """The next item; None if none came within `timeout` seconds or the subscription is closed.

        Without a timeout it waits until there is one. A gap is raised as a GapError unless gaps are items.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except (TimeoutError, StopAsyncIteration):
            return None

    @overload
    def batches(self: Subscription[Event]) -> AsyncIterator[Batch]: ...

    @overload
    def batches(self) -> AsyncIterator[Batch | Gap]: ...

    async def batches(self) -> AsyncIterator[Batch | Gap]:
        """Iterate over batches: all events of a pubend that arrived together, as arrays.

        A gap is raised as a GapError unless gaps are items.
        """
        session = self._session
        while True:
            if session.must_commit:
                await session.commit()
            item = session.step_batch()
            if item is not None:
                yield item
            elif not await session.load():
                return

    # Acknowledging.

    async def ack(self, upto: Upto = None, *, sync: bool = False) -> None:
        """Acknowledge everything up to an event, gap, batch or token; without `upto` all that was handed out.

        Brokers may release what was acknowledged. An event, gap or batch acknowledges its own pubend only.
        The client tells the broker within 50 ms; with `sync` this returns when the broker has the
        acknowledgement on disk, and raises TimedOutError or RefusedError if that fails. Acknowledging a
        subscription that is not durable does nothing. ClientError if `upto` is anything else.
        """
        await self._session.ack(upto, sync=sync)
