"""BarePublisher and BareReader: the parts of a client that all protocols of peers share.

A connection is made and introduced on a blocking socket, which keeps the handshakes short to read. From then
on the event loop has it.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, cast

from tidemark.lab.bench.peers.peer_events import EVENT_BYTES, Heads, find_events
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.system.load import Load

HOST = "127.0.0.1"
#: The longest that a handshake waits for an answer.
ANSWER_SECONDS = 20.0
#: Bytes without an event that are kept because an event may follow them.
CONTROL_BYTES_MAX = 4096


def port_of(url: str) -> int:
    """Returns the port of an address such as `peer://127.0.0.1:6379`."""
    return int(url.rpartition(":")[2])


class Handshake:
    """A blocking connection: what a client says and hears before the event loop has its socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = b""

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def exactly(self, count: int) -> bytes:
        """Returns the next `count` bytes."""
        while len(self._heard) < count:
            self._more()
        taken, self._heard = self._heard[:count], self._heard[count:]
        return taken

    def until(self, end: bytes) -> bytes:
        """Returns what comes up to and including `end`."""
        while end not in self._heard:
            self._more()
        return self.exactly(self._heard.index(end) + len(end))

    def some(self) -> bytes:
        """Returns whatever comes next."""
        if not self._heard:
            self._more()
        return self.exactly(len(self._heard))

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise AssertionError(f"the server closed the connection after {self._heard[:200]!r}")
        self._heard += data

    async def hand_over(self, protocol: BarePublisher | BareReader) -> None:
        """Give the socket to the event loop, and what was heard already to the protocol."""
        self.socket.setblocking(False)
        # Before the loop reads more, which comes after it.
        protocol.rest = self._heard
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=self.socket)
        if self._heard:
            protocol.data_received(b"")


class BarePublisher(asyncio.Protocol, ABC):
    """A publisher that sends batches and counts what is acknowledged."""

    def __init__(self, load: Load) -> None:
        self.load = load
        #: events that the server has acknowledged on this connection
        self.acknowledged = 0
        self._changed: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        #: bytes of an answer that is not complete
        self.rest = b""

    async def open(self, url: str) -> None:
        """Connect."""
        handshake = Handshake(port_of(url))
        self.greet(handshake)
        await handshake.hand_over(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop has the socket."""
        self._transport = cast(asyncio.Transport, transport)

    def send(self, first: int, count: int, sent: int = 0) -> None:
        """Send the events `first <= n < first + count` together."""
        assert self._transport is not None
        self._transport.write(self.batch(first, count, sent))

    def change(self) -> asyncio.Future[None]:
        """Returns a future that is done when more is acknowledged from now on."""
        self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def data_received(self, data: bytes) -> None:
        """Count what is acknowledged."""
        self.acknowledged += self.answers(data)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server closed the connection: whoever waits is told."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_exception(AssertionError(f"the server closed the connection: {exc}"))

    def say(self, data: bytes) -> None:
        """Send bytes that are not events."""
        assert self._transport is not None
        self._transport.write(data)

    def greet(self, handshake: Handshake) -> None:
        """Introduce the publisher."""

    @abstractmethod
    def batch(self, first: int, count: int, sent: int) -> bytes:
        """Returns the bytes that publish the events `first <= n < first + count`."""

    @abstractmethod
    def answers(self, data: bytes) -> int:
        """Returns the number of events that the bytes of the server acknowledge."""


class BareReader(asyncio.Protocol, ABC):
    """A durable subscriber; its record survives its connections."""

    def __init__(self, record: DeliveryRecord, delivered: Callable[[Any, int], None]) -> None:
        self.record = record
        self._delivered = delivered
        self._transport: asyncio.Transport | None = None
        #: bytes of an event that is not whole
        self.rest = b""
        #: set by `heard`: what it has understood without an event ends here
        self.control_end = 0
        #: nanoseconds from sending to arrival of each event, while they are wanted
        self.latencies: list[int] | None = None

    async def come(self, url: str) -> None:
        """Connect and subscribe, for the first time or again."""
        handshake = Handshake(port_of(url))
        self.greet(handshake)
        await handshake.hand_over(self)
        self.subscribe()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop has the socket."""
        self._transport = cast(asyncio.Transport, transport)

    async def leave(self) -> None:
        """Disconnect; what was consumed has been acknowledged."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            self.unsubscribe(transport)
            transport.close()

    @property
    def kind(self) -> int:
        """The kind of events that the subscriber wants."""
        assert self.record.kind is not None
        return self.record.kind

    def data_received(self, data: bytes) -> None:
        """Record the events that have come, and acknowledge them."""
        if self.rest:
            data = self.rest + data
        heads, last = find_events(data)
        if len(heads):
            self.took(heads)
        self.heard(data, last, heads)
        # What is left belongs to an event that is not whole, or to no event.
        end = max(last + EVENT_BYTES if last >= 0 else 0, self.control_end)
        self.control_end = 0
        self.rest = data[max(end, len(data) - EVENT_BYTES - CONTROL_BYTES_MAX) :]

    def took(self, heads: Heads) -> None:
        """Record events."""
        self.record.add(heads["n"], heads["kind"])
        if self.latencies is not None:
            self.latencies += (monotonic_ns() - heads["sent"]).tolist()
        self._delivered(self, len(heads))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, which is a fault unless `leave` closed it."""
        if self._transport is not None:
            self.record.problem = self.record.problem or f"subscriber {self.record.name}: disconnected, {exc}"

    def say(self, data: bytes) -> None:
        """Send bytes to the server."""
        if self._transport is not None:
            self._transport.write(data)

    def greet(self, handshake: Handshake) -> None:
        """Introduce the subscriber."""

    @abstractmethod
    def subscribe(self) -> None:
        """Ask for events."""

    def unsubscribe(self, transport: asyncio.Transport) -> None:
        """Say goodbye, if the protocol has a way to."""

    @abstractmethod
    def heard(self, data: bytes, last: int, heads: Heads) -> None:
        """Acknowledge `heads`, the whole events in `data`, of which the last begins at `last`, and go on."""
