"""ParkedSubscriber: a bare subscriber that holds a lease instead of a connection.

The broker calls the subscriber when there are events for it. All subscribers of a process listen at one
address; the key in the broker's Pushing frame says which subscriber is called.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any, cast

from tidemark.lab.bench.processes.bare_subscriber import BareSubscriber
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Frame, Lease, Leased, Pushing, Rest, Resume, Welcome
from tidemark.wire.limits import FRAME_BYTES_MAX

LEASE_SECONDS = 3_600
BACKLOG = 1_024


class ParkedSubscriber(BareSubscriber):
    """A durable subscriber with a lease."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._key = token_hex(16)
        self._ticket = ""
        self._parked: asyncio.Future[None] | None = None

    async def come(self, url: str) -> None:
        """Connect, subscribe, take a lease and disconnect; returns when the broker has agreed."""
        self._parked = asyncio.get_running_loop().create_future()
        _by_key[self._key] = self
        port = await _listening_port()
        await super().come(url)
        self._send(Lease(LEASE_SECONDS, f"127.0.0.1:{port}", self._key))
        await self._parked

    def called(self, transport: asyncio.Transport) -> None:
        """The broker has opened a connection to this subscriber."""
        self._decoder, self._transport = FrameDecoder(), transport
        transport.set_protocol(self)
        self._send(Resume(self._ticket))

    def _hear(self, frame: Frame) -> None:
        match frame:
            case Leased(ticket=ticket):
                self._ticket = ticket
                self._send(Rest(0))
            case Rest():
                self._rest(frame)
            case Welcome() if self._ticket:
                self._decoder.bytes_max = FRAME_BYTES_MAX
            case _:
                super()._hear(frame)

    def _rest(self, frame: Rest) -> None:
        assert self._parked is not None
        if self._parked.done():  # the broker ended its delivery
            self._acknowledge()
            self._send(frame)
        else:
            self._parked.set_result(None)
        self._transport = None  # the connection is closed now, which is no fault


class _IncomingCall(asyncio.Protocol):
    """A connection from a broker until its first frame says which subscriber is called."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._decoder = FrameDecoder()

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Pushing)
            _by_key[frame.key].called(self._transport)


_by_key: dict[str, ParkedSubscriber] = {}
_listening: list[asyncio.Task[asyncio.Server]] = []


async def _listening_port() -> int:
    """Returns the port at which this process listens; listens first if need be."""
    if not _listening:
        loop = asyncio.get_running_loop()
        _listening.append(loop.create_task(_listen(loop)))
    port: int = (await asyncio.shield(_listening[0])).sockets[0].getsockname()[1]
    return port


async def _listen(loop: asyncio.AbstractEventLoop) -> asyncio.Server:
    return await loop.create_server(_IncomingCall, "127.0.0.1", 0, backlog=BACKLOG)
