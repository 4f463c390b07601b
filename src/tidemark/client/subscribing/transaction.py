"""Transaction: acknowledgements of several subscriptions that the broker stores together, or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tidemark.client.events import Batch, Event
from tidemark.client.subscribing.acks import Acks
from tidemark.client.subscribing.session import SubscriptionSession, Upto
from tidemark.client.subscribing.subscription import Subscription
from tidemark.errors import ClientError
from tidemark.ticks import CheckpointToken


class Transaction:
    """Acknowledgements of several subscriptions that hold together, or not at all.

    `async with tm.transaction() as tx:` collects acknowledgements. Leaving the block without an exception
    commits them and returns when the broker has them on disk; TimedOutError or RefusedError if that fails.
    After an exception nothing is acknowledged: what was handed out is delivered again when the subscription
    is opened again.
    """

    def __init__(self, acks: Acks, timeout: float) -> None:
        """For Client.transaction, which makes transactions; `timeout` in seconds is for the commit."""
        self._acks = acks
        self._timeout = timeout
        self._tokens: dict[SubscriptionSession, CheckpointToken] = {}

    def ack(self, what: Subscription[Any] | Event | Batch, upto: Upto = None) -> None:
        """Acknowledge, when the transaction commits, everything up to an event or batch.

        `tx.ack(event)` is enough: an event or batch knows its subscription. With a subscription, everything
        up to `upto` is acknowledged: see Subscription.ack. ClientError if `what` is neither, or is an event
        that was unpickled.
        """
        match what:
            case Subscription():
                self._add(what._session, upto)
            case Event() | Batch() if what._rows.session is not None and upto is None:
                self._add(what._rows.session, what)
            case _:
                raise ClientError("a transaction acknowledges a subscription, or an event or batch of one")

    def _add(self, session: SubscriptionSession, upto: Upto) -> None:
        token = session.token_upto(upto)
        before = self._tokens.get(session)
        self._tokens[session] = token if before is None else before.merge(token)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._tokens:
            await self._acks.commit(list(self._tokens.items()), self._timeout)
            for session, token in self._tokens.items():
                session.acknowledged(token)
