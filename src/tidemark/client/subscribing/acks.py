"""Acks: what the subscriptions of one client have consumed, acknowledged to the broker in few frames.

Acknowledgements of all subscriptions gather for a moment and leave as one frame. An acknowledgement that must
be on the broker's disk before the application goes on gets a ticket, and is sent again after a reconnection
until the broker answers it. Credit rides in either kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from tidemark.client.connecting.ack_frames import in_frames
from tidemark.client.connecting.link import Link
from tidemark.client.connecting.refusals import error_of
from tidemark.errors import TimedOutError
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Ack, Acked, Credit, Refused

#: How long acknowledgements gather.
GATHER_SECONDS = 0.05
#: How often acknowledgements are sent while an application goes through a long batch event by event.
BUSY_SECONDS = 0.5


class Acknowledger(Protocol):
    """What Acks needs of a subscription."""

    @property
    def name(self) -> str:
        """The name by which the broker knows the subscription."""

    @property
    def is_subscribed(self) -> bool:
        """The broker on this connection has the subscription."""

    def to_acknowledge(self) -> CheckpointToken | None:
        """The token to acknowledge now; None if the broker was told as much on this connection."""

    def to_grant(self, *, with_commit: bool = False) -> int:
        """Bytes of credit to grant to the broker now, `with_commit` together with a commit."""

    @property
    def is_busy(self) -> bool:
        """There will soon be more to acknowledge, although `soon` is not called again."""


Tokens = Sequence[tuple[Acknowledger, CheckpointToken]]


class _Ticket:
    """An acknowledgement that a call of `commit` waits for."""

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
        #: subscriptions that may have something to acknowledge or to grant, in the order of `soon`
        self._dirty: dict[Acknowledger, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tickets: dict[int, _Ticket] = {}
        self._last_ticket = 0

    def soon(self, subscription: Acknowledger, seconds: float = GATHER_SECONDS) -> None:
        """Within so many seconds, send what `subscription` has to acknowledge and to grant."""
        self._dirty[subscription] = None
        if self._timer is not None and self._timer.when() > self._loop.time() + seconds:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self.flush)

    def forget(self, subscription: Acknowledger) -> None:
        """Send nothing more for `subscription`: it is closed."""
        self._dirty.pop(subscription, None)

    def flush(self) -> None:
        """Send what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        dirty, self._dirty = self._dirty, {}
        tokens: list[tuple[str, CheckpointToken]] = []
        connected = [each for each in dirty if each.is_subscribed and self._link.is_up]
        for each in connected:
            token = each.to_acknowledge()
            if token:
                tokens.append((each.name, token))
            if each.is_busy:
                self.soon(each, BUSY_SECONDS)
        granted = _credits((each.name, each.to_grant()) for each in connected)
        for frame in in_frames(tokens, granted):
            self._link.send(frame)

    async def commit(self, tokens: Tokens, timeout: float) -> None:
        """Acknowledge all of `tokens` or nothing; return when the broker has them on disk.

        TimedOutError if the broker has not answered within `timeout` seconds; RefusedError if it refuses.
        """
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
        """A new connection: no ticket has been sent on it."""
        for ticket in self._tickets.values():
            ticket.is_sent = False

    def resend(self) -> None:
        """Send every ticket whose subscriptions the broker on this connection has, all of them."""
        for number, ticket in self._tickets.items():
            if (
                not ticket.is_sent
                and self._link.is_up
                and all(each.is_subscribed for each, _ in ticket.tokens)
            ):
                ticket.is_sent = True
                pairs = tuple((each.name, token) for each, token in ticket.tokens)
                owed = ((each.name, each.to_grant(with_commit=True)) for each, _ in ticket.tokens)
                self._link.send(Ack(pairs, number, _credits(owed)))

    def acked(self, frame: Acked) -> None:
        """The broker has the acknowledgement of a ticket on disk."""
        ticket = self._tickets.get(frame.ticket)
        if ticket is not None and not ticket.future.done():
            ticket.future.set_result(None)

    def refused(self, frame: Refused) -> None:
        """The broker refused an acknowledgement; the frame names its ticket or a subscription."""
        error = error_of(frame)
        for number, ticket in self._tickets.items():
            names = {str(number), *(each.name for each, _ in ticket.tokens)}
            if frame.name in names and not ticket.future.done():
                ticket.future.set_exception(error)

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _credits(granted: Iterable[tuple[str, int]]) -> tuple[Credit, ...]:
    """The frames for (subscription, bytes) that are granted."""
    return tuple(Credit(name, count) for name, count in granted if count)
