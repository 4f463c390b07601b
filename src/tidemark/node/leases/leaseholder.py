"""Leaseholder: a client with a lease, which stays a client of the broker while it has no connection.

To the runtime it is a connection like any other. Frames that are sent while there is no connection, or after
Rest was sent on it, wait in a mailbox; later frames go behind them, so that the order is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tidemark.node.clock import Clock
from tidemark.node.leases.mailbox import Mailbox, is_silence
from tidemark.wire.frames import Ack, Frame, Ping, Pong, Rest

if TYPE_CHECKING:
    from tidemark.node.config.units import HostPort
    from tidemark.node.connection import Connection

#: Frames of a client that do not keep its connection open: they come by themselves when there are no events.
_ASIDE = frozenset((Ack, Ping, Pong))


class LeaseListener(Protocol):
    """Who learns what comes about for a client that is away: `Leases`."""

    def mail_came(self, holder: Leaseholder) -> None:
        """`holder` is parked, and something other than silence waits for it."""

    def turned_away(self, holder: Leaseholder) -> None:
        """`holder` is parked, and the broker has refused its client, which is gone to the runtime."""


class Leaseholder:
    """One lease: a client that is connected, resting (both sides are about to close), or parked (away)."""

    __slots__ = (
        "_is_paused",
        "_listener",
        "_time",
        "address",
        "answered",
        "call",
        "client",
        "connection",
        "flowed",
        "is_over",
        "is_resting",
        "key",
        "mail",
        "name",
        "principal",
        "seconds",
        "ticket",
        "until",
    )

    def __init__(self, connection: Connection, ticket: str, time: Clock, listener: LeaseListener) -> None:
        """The lease of the client on `connection`, which may claim it with `ticket`."""
        assert connection.client is not None
        #: the client's number in the runtime, which it keeps while it is away
        self.client = connection.client
        self.name = connection.name
        #: who the client has proved to be; None while the broker is open
        self.principal = connection.principal
        self.ticket = ticket
        #: where the client is called, the key that it is shown then, and how long it may be away
        self.key = ""
        self.address: HostPort | None = None
        self.seconds = 0
        #: None while the client is parked; the connection's `lease` points back here
        self.connection: Connection | None = connection
        #: Rest was sent on the connection, and the client's Rest is waited for
        self.is_resting = False
        #: When a frame that counts went either way; while resting or parked, when that began. Loop's clock.
        self.flowed = time()
        #: when a parked client has been away for too long, on the loop's clock
        self.until = 0.0
        #: frames that wait for the client; None while there are none
        self.mail: Mailbox | None = None
        #: The task that calls the client. A finished task means that calling was given up: the client has to
        #: come by itself. `Leases` sets and cancels it.
        self.call: asyncio.Task[None] | None = None
        #: what the running call waits for: the connection on which the client came, or None if the call ended
        self.answered: asyncio.Future[Connection | None] | None = None
        self.is_over = False
        #: the runtime reads nothing from this client, because its disk is behind
        self._is_paused = False
        self._time = time
        self._listener = listener

    @property
    def is_parked(self) -> bool:
        """Whether the client is away and expected back."""
        return self.connection is None and not self.is_over

    @property
    def mail_bytes(self) -> int:
        """Bytes that wait for the client."""
        return 0 if self.mail is None else self.mail.bytes

    # Coming and going.

    def arrived(self, connection: Connection) -> None:
        """The client is back on `connection`: what waits for it is sent first."""
        self.connection, self.flowed = connection, self._time()
        self.call = None
        if self._is_paused:
            connection.pause()
        mail, self.mail = self.mail, None
        for frame in mail.take() if mail is not None else ():
            connection.send(frame)
        connection.flush()
        self.tell(connection)

    def rest(self) -> None:
        """Send Rest, the last frame on this connection; what is sent later waits in the mailbox."""
        assert self.connection is not None
        assert not self.is_resting
        self.connection.send(Rest(self.seconds))
        self.connection.flush()
        self.is_resting, self.flowed = True, self._time()

    def parked(self) -> None:
        """Both sides have sent Rest: the client is away from now on."""
        self.connection, self.is_resting, self.flowed = None, False, self._time()
        self.until = self.flowed + self.seconds
        if self.mail:
            self._listener.mail_came(self)

    def tell(self, connection: Connection | None) -> None:
        """End the wait of a running call: the client has come on `connection`, or the call is over (None)."""
        answered, self.answered = self.answered, None
        if answered is not None and not answered.done():
            answered.set_result(connection)

    def heard(self, frames: list[Frame]) -> None:
        """The client has sent `frames`. Acknowledgements do not count: silence alone sets them off."""
        if any(type(frame) not in _ASIDE for frame in frames):
            self.flowed = self._time()

    # As a RuntimeConnection.

    def refuse(self, code: str, reason: str) -> None:
        """Refuse the connection, whose end is the end of the lease; without one the lease ends at once."""
        if self.connection is not None:
            self.connection.refuse(code, reason)
        elif not self.is_over:
            self._listener.turned_away(self)

    def send(self, frame: Frame) -> None:
        """Queue `frame` on the connection, or keep it until the client is back."""
        if self.connection is not None and not self.is_resting:
            self.connection.send(frame)
            if not is_silence(frame):
                self.flowed = self._time()
            return
        if self.mail is None:
            self.mail = Mailbox()
        self.mail.put(frame)
        if self.connection is None and not is_silence(frame):
            self._listener.mail_came(self)

    def flush(self) -> None:
        """Write the queued frames to the socket, if there is one."""
        if self.connection is not None:
            self.connection.flush()

    def close(self) -> None:
        """Close the connection, if there is one, and with it the lease."""
        if self.connection is not None:
            self.connection.close()

    def pause(self) -> None:
        """Read nothing more from the client, also when it comes back."""
        self._is_paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Read from the client again."""
        self._is_paused = False
        if self.connection is not None:
            self.connection.resume()

    def charge(self, seconds: float) -> None:
        """What was done for the client has used so much of the event loop's time."""
        if self.connection is not None:
            self.connection.charge(seconds)
