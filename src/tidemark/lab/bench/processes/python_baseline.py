"""The Python baseline: how fast a server of this shape can be in Python, without any of Tidemark.

The server appends what a publisher sends to a file, syncs the file on a thread, and then answers the
publisher and passes the bytes on to listeners. It has no format, no numbering, no selectors and no memory.
The time of the baseline is that of Python and the machine; what a broker takes beyond it is the broker's own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from queue import SimpleQueue
from struct import Struct
from time import monotonic, monotonic_ns, perf_counter_ns
from typing import cast

#: An event has its number, the time it was sent, and as many bytes as an event takes in a log.
EVENT_BYTES = 330
_HEAD = Struct("<qq")
_REST = bytes(EVENT_BYTES - _HEAD.size)
_ANSWER_BYTES = 8
#: What a listener sends once, in place of an event.
_LISTEN = bytes(1)
_READ_BYTES = 64 << 10


class BaselineServer:
    """The role of a worker that is the server, with a disk thread."""

    def __init__(self, counters: str, path: str, durability: str) -> None:  # noqa: ARG002  (told to every worker)
        self._descriptor = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._is_sync = durability == "sync"
        self._work: SimpleQueue[tuple[_Served, bytes]] = SimpleQueue()
        self.listeners: list[_Served] = []

    async def open(self) -> None:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(lambda: _Served(self), "127.0.0.1", 0)
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    async def port(self) -> int:
        """Returns the port."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def heard(self, publisher: _Served, data: bytes) -> None:
        """Queue an event for the disk thread."""
        self._work.put((publisher, data))

    def _run(self) -> None:
        while True:
            publisher, data = self._work.get()
            os.write(self._descriptor, data)
            if self._is_sync:
                os.fdatasync(self._descriptor)
            self._loop.call_soon_threadsafe(self._synced, publisher, data)

    def _synced(self, publisher: _Served, data: bytes) -> None:
        for listener in self.listeners:
            listener.write(data)
        publisher.write(data[:_ANSWER_BYTES])


class _Socket(asyncio.BufferedProtocol, ABC):
    """One end of a connection on which messages of one size arrive."""

    #: bytes of a message
    size = EVENT_BYTES

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        at = 0
        while self._filled - at >= (size := self.size):
            self.heard(bytes(self._buffer[at : at + size]))
            at += size
        if at:
            self._buffer[: self._filled - at] = self._buffer[at : self._filled]
            self._filled -= at

    @abstractmethod
    def heard(self, data: bytes) -> None:
        """Handle one whole message."""


class _Served(_Socket):
    def __init__(self, server: BaselineServer) -> None:
        super().__init__()
        self._server = server

    def buffer_updated(self, nbytes: int) -> None:
        if self._buffer[:nbytes] == _LISTEN:
            self._server.listeners.append(self)
            self.write(_LISTEN)
        else:
            super().buffer_updated(nbytes)

    def heard(self, data: bytes) -> None:
        self._server.heard(self, data)


class _Publisher(_Socket):
    size = _ANSWER_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, asyncio.Future[None]] = {}

    def publish(self, number: int, sent: int) -> asyncio.Future[None]:
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        self.write(_HEAD.pack(number, sent) + _REST)
        return future

    def heard(self, data: bytes) -> None:
        self.waiting.pop(int.from_bytes(data, "little")).set_result(None)


class BaselinePublisher:
    """The role of a worker that publishes as `PublisherRole` does."""

    def __init__(self, counters: str, port: int) -> None:  # noqa: ARG002  (told to every worker)
        self._port = port
        self._next = 0

    async def open(self) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        _, self._socket = await loop.create_connection(_Publisher, "127.0.0.1", self._port)

    async def one_by_one(self, events: int) -> list[int]:
        """Publish events one at a time; returns nanoseconds until the answer of each."""
        taken = []
        for _ in range(events):
            begin = perf_counter_ns()
            await self._socket.publish(self._next, 0)
            taken.append(perf_counter_ns() - begin)
            self._next += 1
        return taken

    async def timed(self, rate: float, events: int) -> list[int]:
        """Publish `rate` single events a second; returns nanoseconds until the answer of each."""
        taken: list[int] = []
        begin = monotonic()
        for number in range(events):
            await asyncio.sleep(max(0.0, begin + number / rate - monotonic()))
            sent = perf_counter_ns()
            answer = self._socket.publish(self._next, 0)
            answer.add_done_callback(lambda _, sent=sent: taken.append(perf_counter_ns() - sent))  # type: ignore[misc]
            self._next += 1
        await asyncio.gather(*self._socket.waiting.values())
        return taken

    async def paced(self, rate: float, events: int) -> None:
        """Publish `rate` single events a second."""
        begin = monotonic()
        for number in range(events):
            wait = begin + number / rate - monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            self._socket.publish(self._next, monotonic_ns())
            self._next += 1
        await asyncio.gather(*self._socket.waiting.values())


class _Listener(_Socket):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[bytes] = []
        self.waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.size = len(_LISTEN)
        self.write(_LISTEN)

    def heard(self, data: bytes) -> None:
        self.size = EVENT_BYTES
        self.events.append(data)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def next(self) -> bytes:
        """Returns the next event, at once if it has arrived already."""
        while not self.events:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        return self.events.pop(0)


class BaselineStopwatch:
    """The role of a worker that measures latency as `StopwatchRole` does."""

    def __init__(self, counters: str, port: int) -> None:  # noqa: ARG002  (told to every worker)
        self._port = port
        self._next = 0

    async def open(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        _, self._listener = await loop.create_connection(_Listener, "127.0.0.1", self._port)
        await self._listener.next()

    async def measure(self, events: int) -> list[int]:
        """Returns nanoseconds from publishing to arrival, for each of the next `events` events."""
        taken: list[int] = []
        for number in range(self._next, self._next + events):
            found, sent = _HEAD.unpack_from(await self._listener.next())
            taken.append(monotonic_ns() - sent)
            assert found == number, f"event {found} in place of {number}"
        self._next += events
        return taken


ROLES = {
    "baseline server": BaselineServer,
    "baseline publisher": BaselinePublisher,
    "baseline stopwatch": BaselineStopwatch,
}
