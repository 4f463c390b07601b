"""BareSubscriber: a subscriber that reads frames directly and sends only credit and acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tidemark.client.connecting.addresses import parse_url
from tidemark.lab.bench.processes.delivery_record import DeliveryRecord
from tidemark.lab.bench.system.load import TOPIC, selector
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Connect,
    Credit,
    Deliver,
    Frame,
    Gap,
    Ping,
    Pong,
    Refused,
    Subscribe,
    Subscribed,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX

READ_BYTES = 1 << 20
#: The window that the client grants by default.
WINDOW_BYTES = 4 << 20

#: Shared by all connections of a process: the decoder copies what it has to keep.
_buffer = memoryview(bytearray(READ_BYTES))


class BareSubscriber(asyncio.BufferedProtocol):
    """One durable subscriber; its record survives its connections."""

    def __init__(self, record: DeliveryRecord, delivered: Callable[[Any, int], None]) -> None:
        self.record = record
        self._delivered = delivered
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._started: asyncio.Future[None] | None = None
        #: pubends at which the subscription has started
        self._starts: set[str] = set()
        #: bytes that were consumed and not yet granted again
        self._owed = 0

    async def come(self, url: str) -> None:
        """Connect and subscribe; returns when the subscription has started."""
        loop = asyncio.get_running_loop()
        self._decoder, self._owed = FrameDecoder(), 0
        self._started = loop.create_future()
        host, port = parse_url(url)[0]
        await loop.create_connection(lambda: self, host, port)
        await self._started

    async def leave(self) -> None:
        """Acknowledge and disconnect."""
        if self._transport is not None:
            self._acknowledge()
            self._transport.close()
            self._transport = None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open: introduce the client."""
        self._transport = cast(asyncio.Transport, transport)
        self._send(Connect(self.record.name))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The connection is closed, which is a fault unless `leave` closed it."""
        if self._transport is not None:
            self._fail("disconnected")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """The buffer to read into."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decode the bytes that have arrived."""
        for frame in self._decoder.feed(_buffer[:nbytes]):
            if type(frame) is Deliver:
                self._take(frame)
            else:
                self._hear(frame)

    # Frames from the broker.

    def _take(self, frame: Deliver) -> None:
        self.record.take(frame.base, frame.upto, frame.batch, frame.pubend)
        if self._started is not None and not self._started.done():
            self._start(frame.pubend)
        if frame.batch is None:
            return
        self._owed += len(frame.batch.body)
        if self._owed > WINDOW_BYTES // 2:
            self._send(Credit(self.record.name, self._owed))
            self._owed = 0
            self._acknowledge()
        self._delivered(self, frame.batch.count)

    def _hear(self, frame: Frame) -> None:
        match frame:
            case Welcome():
                self._decoder.bytes_max = FRAME_BYTES_MAX
                name, wanted = self.record.name, selector(self.record.kind)
                self._send(Subscribe(name, TOPIC, wanted, durable=True, credit=WINDOW_BYTES))
            case Subscribed(token=token):
                self._start(*token)
            case Ping(stamp):
                self._send(Pong(stamp))
            case Gap(base=base, upto=upto):
                self.record.gap(base, upto)
            case Refused(reason=reason):
                self._fail(reason)

    def _start(self, *pubends: str) -> None:
        self._starts.update(pubends)
        if len(self._starts) < self.record.pubends:
            return
        if self._started is not None and not self._started.done():
            self._started.set_result(None)

    def _fail(self, reason: str) -> None:
        self.record.problem = self.record.problem or f"subscriber {self.record.name}: {reason}"
        if self._started is not None and not self._started.done():
            self._started.set_exception(AssertionError(self.record.problem))

    # Frames to the broker.

    def _acknowledge(self) -> None:
        if self.record.told:
            self._send(Ack(((self.record.name, CheckpointToken(self.record.told)),)))

    def _send(self, frame: Frame) -> None:
        if self._transport is not None:
            self._transport.writelines(encode(frame))
