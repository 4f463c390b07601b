"""Leaseholder: a client that the broker knows whether or not it has a connection just now.

To the broker it is a connection like any other. What is said while there is none, or after the last frame on
one, waits in a mailbox; what comes next goes behind it, so that nothing is overtaken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.node.leases.mailbox import Mailbox, is_silence
from tidemark.wire.frames import Ack, Frame, Ping, Pong, Rest

if TYPE_CHECKING:
    from tidemark.node.config.units import SocketAddress
    from tidemark.node.connection import Connection

_ASIDE = frozenset((Ack, Ping, Pong))


class Leaseholder:
    """One lease."""

    __slots__ = (
        "_is_paused",
        "_mail_came",
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
        "seconds",
        "ticket",
        "until",
    )

    def __init__(
        self,
        connection: Connection,
        ticket: str,
        time: Callable[[], float],
        mail_came: Callable[[Leaseholder], None],
    ) -> None:
        assert connection.client is not None
        self.client = connection.client
        self.name = connection.name
        self.ticket = ticket
        self.key = ""
        self.address: SocketAddress | None = None
        self.seconds = 0
        #: None while it is parked
        self.connection: Connection | None = connection
        #: the last frame was said on the connection, and the other side's is waited for
        self.is_resting = False
        #: when something was said that matters, on either side; while resting or parked, when that began
        self.flowed = time()
        #: parked for longer it is gone
        self.until = 0.0
        self.mail: Mailbox | None = None
        #: calls it, or has given up: then it has to come by itself
        self.call: asyncio.Task[None] | None = None
        #: a call has led to something, or has ended
        self.answered: asyncio.Future[Connection | None] | None = None
        self.is_over = False
        self._is_paused = False
        self._time = time
        self._mail_came = mail_came

    @property
    def is_parked(self) -> bool:
        """It is away, and expected back."""
        return self.connection is None and not self.is_over

    @property
    def mail_bytes(self) -> int:
        """What waits for it."""
        return 0 if self.mail is None else self.mail.bytes

    # Coming and going.

    def arrived(self, connection: Connection) -> None:
        """It is back: what has gathered goes out first."""
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
        """Say the last frame on this connection."""
        assert self.connection is not None
        assert not self.is_resting
        self.connection.send(Rest(self.seconds))
        self.connection.flush()
        self.is_resting, self.flowed = True, self._time()

    def parked(self) -> None:
        """Both sides have said their last frame."""
        self.connection, self.is_resting, self.flowed = None, False, self._time()
        self.until = self.flowed + self.seconds
        if self.mail:
            self._mail_came(self)

    def tell(self, connection: Connection | None) -> None:
        """Whoever called need not wait any more: it has come on this connection, or a call is over."""
        answered, self.answered = self.answered, None
        if answered is not None and not answered.done():
            answered.set_result(connection)

    def heard(self, frames: list[Frame]) -> None:
        """It has said something. Acknowledgements do not count: silence alone sets them off."""
        if any(type(frame) not in _ASIDE for frame in frames):
            self.flowed = self._time()

    # As the runtime sees it.

    def send(self, frame: Frame) -> None:
        """Say it now, or when it is back."""
        if self.connection is not None and not self.is_resting:
            self.connection.send(frame)
            if not is_silence(frame):
                self.flowed = self._time()
            return
        if self.mail is None:
            self.mail = Mailbox()
        self.mail.put(frame)
        if self.connection is None and not is_silence(frame):
            self._mail_came(self)

    def flush(self) -> None:
        """Put what was said on the socket."""
        if self.connection is not None:
            self.connection.flush()

    def close(self) -> None:
        """End the connection, if there is one, and with it the lease."""
        if self.connection is not None:
            self.connection.close()

    def pause(self) -> None:
        """Read nothing more from it."""
        self._is_paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Read on."""
        self._is_paused = False
        if self.connection is not None:
            self.connection.resume()
