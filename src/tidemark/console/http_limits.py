"""Limits of single HTTP connections: a head comes soon and is short, and what is written is taken.

uvicorn bounds neither. Without bounds, a program that sends a header a minute, or headers without an end, or
that opens a stream and never reads it, would keep its connection for good, until no other was accepted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds within which the head of a request has come whole.
HEAD_SECONDS = 20.0
#: Bytes of the head of a request; a checkpoint token in it has a tick for each pubend of the overlay.
HEAD_BYTES_MAX = 128 << 10
#: Seconds within which a reader takes something of what waits for it.
WRITE_SECONDS = 60.0

_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nContent-Length: 22\r\n"
    b"Connection: close\r\n\r\nThe head is too long.\n"
)


class LimitedHttp(HttpToolsProtocol):
    """One connection. A WebSocket that it becomes has pings of its own, which notice who does not read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: bytes that came while a head was not whole
        self._head_bytes = 0
        #: ends a connection whose head does not come; None while a request is being answered
        self._head_due: asyncio.TimerHandle | None = None
        #: ends a connection that does not take what is written; None while it does
        self._write_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_head()
        self._stop_write()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, unless its head is too long."""
        if self._head_due is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_due is not None and self._head_bytes > HEAD_BYTES_MAX:
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        """The head of the next request begins."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """The head is whole: what follows is a body, which whoever answers the request waits for."""
        self._stop_head()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The reader is slower than what comes."""
        super().pause_writing()
        if self._write_due is None:
            self._write_due = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        self._stop_write()
        super().resume_writing()

    def _await_head(self) -> None:
        if self._head_due is None:
            self._head_bytes = 0
            self._head_due = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _stop_write(self) -> None:
        if self._write_due is not None:
            self._write_due.cancel()
            self._write_due = None
