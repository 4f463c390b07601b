"""Acks: what subscribers have consumed, told to the broker in few frames.

Acknowledgements of all subscriptions of a client gather for a moment and leave as one frame; what must be on
disk before the application goes on gets a ticket, and is sent again after a reconnect until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from tidemark.client.connecting.link import Link
from tidemark.errors import RefusedError, TimedOutError
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Acked, Credit, Refused

#: How long acknowledgements gather.
GATHER_SECONDS = 0.05
#: How often a long piece is looked at that an application works through.
BUSY_SECONDS = 0.5


class Acknowledger(Protocol):
    """What acknowledges: a subscription."""

    @property
    def name(self) -> str:
        """As the broker knows it."""

    @property
    def is_subscribed(self) -> bool:
        """The broker on this connection knows it."""

    def to_acknowledge(self) -> CheckpointToken | None:
        """What can be acknowledged and has not been on this connection."""

    def to_grant(self) -> int:
        """Credit to give."""

    @property
    def is_busy(self) -> bool:
        """More may be acknowledged soon, without another word."""

    def token_upto(self, upto: object) -> CheckpointToken:
        """The token of having consumed all up to an event, a gap, a batch; None is all handed out."""

    def acknowledged(self, token: CheckpointToken) -> None:
        """The application has consumed this."""


Tokens = Mapping[Acknowledger, CheckpointToken]


class _Ticket:
    """An acknowledgement that somebody waits for."""

    def __init__(self, tokens: Tokens, future: asyncio.Future[None]) -> None:
        self.tokens = tokens
        self.future = future
        #: sent on this connection
        self.is_sent = False


class Acks:
    """The acknowledgements of one client."""

    def __init__(self, link: Link) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._dirty: dict[Acknowledger, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tickets: dict[int, _Ticket] = {}
        self._last_ticket = 0

    def soon(self, who: Acknowledger, seconds: float = GATHER_SECONDS) -> None:
        """It has something to acknowledge, or to grant."""
        self._dirty[who] = None
        if self._timer is not None and self._timer.when() > self._loop.time() + seconds:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self.flush)

    def forget(self, who: Acknowledger) -> None:
        """It is closed."""
        self._dirty.pop(who, None)

    def flush(self) -> None:
        """Send what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dirty, self._dirty = self._dirty, {}
        tokens: list[tuple[str, CheckpointToken]] = []
        for who in dirty:
            if who.is_subscribed and self._link.is_up:
                token = who.to_acknowledge()
                if token:
                    tokens.append((who.name, token))
                granted = who.to_grant()
                if granted:
                    self._link.send(Credit(who.name, granted))
                if who.is_busy:
                    self.soon(who, BUSY_SECONDS)
        if tokens:
            self._link.send(Ack(tuple(tokens)))

    async def commit(self, tokens: Tokens, timeout: float) -> None:
        """Acknowledge all of it or nothing; returns when it is on disk."""
        self._last_ticket += 1
        number = self._last_ticket
        ticket = self._tickets[number] = _Ticket(tokens, self._loop.create_future())
        self.resend()
        try:
            async with asyncio.timeout(timeout):
                await ticket.future
        except TimeoutError:
            raise TimedOutError(
                "the broker has not confirmed the acknowledgement in time: acknowledging again is safe; "
                "what was not acknowledged comes again"
            ) from None
        finally:
            del self._tickets[number]

    def up(self) -> None:
        """A new connection: nothing has been sent on it."""
        for ticket in self._tickets.values():
            ticket.is_sent = False

    def resend(self) -> None:
        """Send every ticket whose subscriptions are all known to the broker."""
        for number, ticket in self._tickets.items():
            if not ticket.is_sent and self._link.is_up and all(who.is_subscribed for who in ticket.tokens):
                ticket.is_sent = True
                pairs = tuple((who.name, token) for who, token in ticket.tokens.items())
                self._link.send(Ack(pairs, number))

    def acked(self, frame: Acked) -> None:
        """The acknowledgement of a ticket is on disk."""
        ticket = self._tickets.get(frame.ticket)
        if ticket is not None and not ticket.future.done():
            ticket.future.set_result(None)

    def refused(self, frame: Refused) -> None:
        """The broker did not take an acknowledgement, of a ticket or of a subscription."""
        error = RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code)
        for number, ticket in self._tickets.items():
            names = {str(number), *(who.name for who in ticket.tokens)}
            if frame.name in names and not ticket.future.done():
                ticket.future.set_exception(error)

    def close(self) -> None:
        """Nothing more is sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Transaction:
    """Acknowledgements of several subscriptions that hold together, or not at all.

    `async with tm.transaction() as tx:` collects; leaving the block without an exception commits, and returns
    when the broker has it on disk. After an exception nothing is acknowledged: what was handed out comes
    again when the subscription is opened again.
    """

    def __init__(self, acks: Callable[[], Acks], timeout: float) -> None:
        self._acks = acks
        self._timeout = timeout
        self._tokens: dict[Acknowledger, CheckpointToken] = {}

    def ack(self, subscription: Acknowledger, upto: object = None) -> None:
        """Everything handed out so far, or up to `upto`, is consumed when this commits."""
        token = subscription.token_upto(upto)
        before = self._tokens.get(subscription)
        self._tokens[subscription] = token if before is None else before.merge(token)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._tokens:
            await self._acks().commit(self._tokens, self._timeout)
            for subscription, token in self._tokens.items():
                subscription.acknowledged(token)
