"""BareClient: a client that sends any frames at all, as fast as the broker takes them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from tidemark.client.connecting.addresses import parse_url
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Deliver, Frame, Refused, Welcome
from tidemark.wire.limits import FRAME_BYTES_MAX

READ_BYTES = 1 << 18
#: Unsent bytes above which `send` waits for the broker.
UNSENT_BYTES_MAX = 1 << 18


class BareClient:
    """One connection. What the broker sends is counted by kind and forgotten."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._writer.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        #: frames that came, and those of them that were Refused; the text of the last refusal
        self.heard = self.refused = 0
        self.reason = ""
        self._came = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def strange(cls, url: str) -> Self:
        """A connection that has not said who it is."""
        return cls(*await asyncio.open_connection(*parse_url(url)[0]))

    @classmethod
    async def connected(cls, url: str, name: str) -> Self:
        """A client that the broker has welcomed; ConnectionError if the broker closes it instead."""
        self = await cls.strange(url)
        await self.send(Connect(name))
        await self.wait_for(1)
        return self

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed the connection."""
        return self._reading.done()

    async def send(self, *frames: Frame) -> None:
        """Send frames, and wait while the broker does not take them."""
        for frame in frames:
            self._writer.writelines(encode(frame))
        await self._writer.drain()

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be whole frames."""
        self._writer.write(data)
        await self._writer.drain()

    def stop_reading(self) -> None:
        """Leave unread what the broker sends from now on."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport

    async def wait_for(self, heard: int) -> None:
        """Wait until so many frames have come in all; ConnectionError if the broker closes before."""
        while self.heard < heard:
            if self.is_closed:
                raise ConnectionError(self.reason or "the broker has closed the connection")
            self._came.clear()
            await self._came.wait()

    async def _read(self) -> None:
        try:
            with suppress(ConnectionError):
                while data := await self._reader.read(READ_BYTES):
                    self._take(self._decoder.feed(data))
        finally:
            self._came.set()

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, Refused):
                self.refused += 1
                self.reason = frame.reason
            elif not isinstance(frame, Welcome | Deliver):
                pass
            self.heard += 1
        self._came.set()

    def abort(self) -> None:
        """Close the connection at once."""
        self._reading.cancel()
        self._writer.transport.abort()
