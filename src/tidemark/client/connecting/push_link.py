"""PushLink: a link that has no connection most of the time.

The link holds a lease at the broker, and listens. When no frame was sent for a while the broker closes the
connection and this side is parked. When the broker has an event for it, the broker opens a connection to this
side and presents the key of the lease; this side answers with the ticket of the lease. A frame that this side
sends while it is parked makes it connect to the broker; acknowledgements can wait for the next connection.
This side also connects by itself before the lease ends. A connection that breaks, and was not put to rest,
ends the lease: then everything starts over, as with any link.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from hmac import compare_digest
from ipaddress import ip_address
from secrets import token_hex
from typing import Any

from tidemark.client.connecting.ack_frames import in_frames
from tidemark.client.connecting.addresses import SocketAddress
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.connection import BrokerConnection
from tidemark.client.connecting.link import HANDSHAKE_SECONDS, Link
from tidemark.client.connecting.refusals import error_of
from tidemark.errors import ConfigError, NotConnectedError, TidemarkError
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    ClientFrame,
    Connect,
    Credit,
    Lease,
    Leased,
    Pushing,
    Refused,
    Rest,
    Resume,
    Welcome,
)
from tidemark.wire.limits import PROTOCOL_NEWEST, PROTOCOL_OLDEST

KEY_BYTES = 16
#: How many connections may be open that have not presented the key.
STRANGERS_MAX = 16
#: How long credit waits for a connection that is made for another reason.
CREDIT_SECONDS = 1.0
#: How long the link tries to reach the broker again before it counts as lost.
RESUME_SECONDS = 5.0
#: How long closing waits for a connection on which to tell the broker.
GOODBYE_SECONDS = 2.0


class PushLink(Link):
    """A link with a lease: up while the lease holds, connected only while there is something to send."""

    def __init__(
        self,
        addresses: Sequence[SocketAddress],
        client: str,
        *,
        listen: SocketAddress,
        lease_seconds: int,
        on_frame: Callable[[ClientFrame], None],
        **others: Any,
    ) -> None:
        super().__init__(addresses, client, on_frame=self._heard, **others)
        self._listen = listen
        self._lease_seconds = lease_seconds
        self._on_client_frame = on_frame
        self._listener: asyncio.Server | None = None
        #: the same with TLS: the socket, what takes connections from it, and those that begin
        self._door: socket.socket | None = None
        self._answering: asyncio.Task[None] | None = None
        self._beginning: set[asyncio.Task[None]] = set()
        self._key = token_hex(KEY_BYTES)
        #: the ticket of the lease; "" if there is no lease
        self._ticket = ""
        self._leased: asyncio.Future[Leased] | None = None
        #: for how long the broker waits for this client, as it said last
        self._granted_seconds = lease_seconds
        #: connections that were opened to this side: those that have not presented the key, and the one that
        #: has
        self._strangers: dict[BrokerConnection, None] = {}
        self._pushed: BrokerConnection | None = None
        self._is_calling = False
        #: while parked: when to connect to the broker; the event is set when that, or `_pushed`, changes
        self._call_at = 0.0
        self._changed = asyncio.Event()
        self._is_back = asyncio.Event()
        #: frames, acknowledgements and credit that were sent while parked
        self._waiting: list[ClientFrame] = []
        self._acks: dict[str, CheckpointToken] = {}
        self._credit: dict[str, int] = {}

    # What clients use.

    @property
    def is_parked(self) -> bool:
        """There is a lease, and no connection that frames can be sent on."""
        return self.is_up and (self._connection is None or self._connection.is_resting)

    @property
    def is_congested(self) -> bool:
        """A frame that is sent now would wait for frames that were sent before."""
        return bool(self._waiting) if self.is_parked else super().is_congested

    @property
    def listens_at(self) -> SocketAddress:
        """Where this side listens, once the link is open."""
        return self._listen

    async def open(self, timeout: float) -> Welcome:
        """Listen, and connect for the first time; ConfigError if the link cannot listen there."""
        loop = asyncio.get_running_loop()
        try:
            if self._credentials.tls is None:
                self._listener = await loop.create_server(self._accepted, *self._listen)
                where = self._listener.sockets[0].getsockname()
            else:
                family = socket.AF_INET6 if ":" in self._listen.host else socket.AF_INET
                self._door = socket.create_server(self._listen, family=family, backlog=STRANGERS_MAX)
                self._door.setblocking(False)
                where = self._door.getsockname()
                self._answering = asyncio.create_task(self._answer(self._door), name="callbacks")
        except OSError as error:
            reason = (
                f"cannot listen at {self._listen}: {error.strerror or error}; choose one of this machine's"
            )
            raise ConfigError(reason, key="listen") from None
        self._listen = SocketAddress(*where[:2])
        return await super().open(timeout)

    def send(self, frame: ClientFrame) -> None:
        """Send a frame, or keep it for the next connection, which is made soon unless the frame can wait."""
        if not self.is_parked:
            super().send(frame)
        elif isinstance(frame, Ack) and not frame.ticket:
            for name, token in frame.tokens:
                self._acks[name] = self._acks.get(name, CheckpointToken()).merge(token)
            for granted in frame.credits:
                self._grant(granted)
        elif isinstance(frame, Credit):
            self._grant(frame)
        else:
            self._waiting.append(frame)
            self._connect_within(0.0)

    def _grant(self, frame: Credit) -> None:
        """Keep credit for the next connection, which is made soon."""
        self._credit[frame.name] = self._credit.get(frame.name, 0) + frame.bytes
        self._connect_within(CREDIT_SECONDS)

    async def close(self) -> None:
        """End the lease, the connection and the listening."""
        if self.is_parked:
            self._connect_within(0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._is_back.wait()
        await super().close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._answering is not None and self._door is not None:
            self._answering.cancel()
            self._door.close()
        for stranger in list(self._strangers):
            stranger.close()

    # The lease.

    async def _prepare(self, connection: BrokerConnection) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._lease(connection)
        except TimeoutError:
            connection.close()
            raise NotConnectedError("the broker has not answered to Lease: it may be older") from None
        except BaseException:
            connection.close()
            raise

    async def _lease(self, connection: BrokerConnection) -> None:
        leased = self._leased = asyncio.get_running_loop().create_future()
        connection.send(Lease(self._lease_seconds, str(self._called_at(connection)), self._key))
        await asyncio.wait((leased, connection.lost), return_when=asyncio.FIRST_COMPLETED)
        if not leased.done():
            raise connection.lost.result()
        answer = leased.result()
        self._ticket, self._granted_seconds = answer.ticket, answer.seconds

    def _called_at(self, connection: BrokerConnection) -> SocketAddress:
        """The address that the broker is to call; for one that listens everywhere, as the broker sees it."""
        is_everywhere = ip_address(self._listen.host).is_unspecified
        return SocketAddress(connection.host, self._listen.port) if is_everywhere else self._listen

    def _heard(self, frame: ClientFrame) -> None:
        match frame:
            case Leased() if self._leased is not None and not self._leased.done():
                self._leased.set_result(frame)
            case Refused("lease") if self._leased is not None:
                if not self._leased.done():
                    self._leased.set_exception(error_of(frame))
            case Rest(seconds):
                self._parked(seconds)
            case _:
                self._on_client_frame(frame)

    # Parked and back.

    def _parked(self, seconds: int) -> None:
        self._granted_seconds = seconds
        self._is_back.clear()
        self._call_at = asyncio.get_running_loop().time() + seconds / 2
        # Frames that were sent after the connection was put to rest had no connection to leave on.
        if self._waiting or self._credit:
            self._connect_within(0.0)

    async def _until_lost(self, connection: BrokerConnection) -> Exception:
        try:
            while True:
                error = await connection.lost
                if not (connection.is_resting and connection.is_closed_well):
                    return error
                self._connection = None
                connection = self._connection = await self._back()
                self.welcome = connection.welcome.result()
                self._send_kept()
        except (OSError, TidemarkError) as error:
            return error
        finally:
            if self._pushed is not None:
                self._pushed.close()
                self._pushed = None
            self._ticket = ""
            self._waiting.clear()
            self._acks.clear()
            self._credit.clear()
            self._is_back.set()

    async def _back(self) -> BrokerConnection:
        """Wait until the broker connects, or it is time to connect; return the connection.

        Raises if the lease is lost: OSError, NotConnectedError, RefusedError.
        """
        loop = asyncio.get_running_loop()
        while self._pushed is None and loop.time() < self._call_at:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._call_at):
                    await self._changed.wait()
        if self._pushed is None:
            return await self._resumed()
        pushed, self._pushed = self._pushed, None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await pushed.welcome
        except TimeoutError:
            pushed.close()
            raise NotConnectedError("the broker has called, and not gone on") from None
        return pushed

    async def _resumed(self) -> BrokerConnection:
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until = loop.time() + min(RESUME_SECONDS, self._granted_seconds / 2)
        self._is_calling = True
        try:
            while True:
                try:
                    return await self._greeted(self._addresses[0], self._resume())
                except OSError:
                    if loop.time() >= until:
                        raise
                await asyncio.sleep(backoff.delay())
        finally:
            self._is_calling = False

    def _resume(self) -> Resume:
        return Resume(self._ticket, PROTOCOL_OLDEST, PROTOCOL_NEWEST)

    def _send_kept(self) -> None:
        assert self._connection is not None
        if self._connection.is_resting:
            return  # parked again before anything could be sent
        credit = tuple(Credit(name, granted) for name, granted in self._credit.items())
        for frame in (*self._waiting, *in_frames(tuple(self._acks.items()), credit)):
            self._connection.send(frame)
        self._waiting.clear()
        self._acks.clear()
        self._credit.clear()
        self._is_back.set()
        self._on_writable()

    def _connect_within(self, seconds: float) -> None:
        """Connect to the broker within so many seconds."""
        self._call_at = min(self._call_at, asyncio.get_running_loop().time() + seconds)
        self._changed.set()

    # Connections from brokers.

    def _protocol(self, greeting: Connect | Resume) -> BrokerConnection:
        return BrokerConnection(
            greeting,
            self._heard,
            self._on_writable,
            ping_seconds=self._ping_seconds,
            credentials=self._credentials,
        )

    async def _answer(self, door: socket.socket) -> None:
        """Take connections with TLS, of which this side is the client although it was called.

        So the broker has to show the certificate that it shows to everyone, and this side needs none.
        """
        loop = asyncio.get_running_loop()
        while True:
            called, _ = await loop.sock_accept(door)
            if len(self._beginning) >= STRANGERS_MAX:
                called.close()
                continue
            task = asyncio.create_task(self._begin(called))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, called: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                self._accepted,
                sock=called,
                ssl=self._credentials.tls,
                server_hostname=self._addresses[0].host,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:
            called.close()  # whoever called is not the broker

    def _accepted(self) -> BrokerConnection:
        called = BrokerConnection(
            None,
            self._heard,
            self._on_writable,
            ping_seconds=self._ping_seconds,
            on_pushing=self._called,
        )
        if len(self._strangers) >= STRANGERS_MAX:
            self._turn_away(next(iter(self._strangers)))
        self._strangers[called] = None
        called.lost.add_done_callback(lambda _: self._strangers.pop(called, None))
        asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._turn_away, called)
        return called

    def _turn_away(self, called: BrokerConnection) -> None:
        if called in self._strangers:
            del self._strangers[called]
            called.close()

    def _called(self, called: BrokerConnection, frame: Pushing) -> None:
        """A connection was opened to this side. Only the broker that holds the lease knows the key."""
        if not compare_digest(frame.key.encode(), self._key.encode()):
            reason = "this is not the key of a lease that is held here"
            called.send(Refused("connect", frame.broker, "unknown", reason))
            called.close()
        elif not self.is_parked or self._is_calling or self._pushed is not None:
            called.close()  # there already is another connection
        else:
            self._strangers.pop(called, None)
            self._pushed = called
            called.send(self._resume())
            self._changed.set()
