"""A small HTTP/1.1 server for GET and HEAD requests: health and metrics.

It answers one request a connection, and bounds the size and time of a request and the number of connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

from tidemark.node.config.units import HostPort

REQUEST_BYTES_MAX = 8 << 10
CONNECTIONS_MAX = 64
REQUEST_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Response:
    """The content of a page, its media type and the HTTP status."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK


#: Sends a response to whoever asked.
Say = Callable[[Response], None]


class Page(Protocol):
    """Makes a page when it is asked for."""

    def __call__(self, say: Say, /) -> None:
        """Call `say` with the page, now or later. Called on the event loop, so it must not block."""


class Guard(Protocol):
    """Decides who may see a page."""

    def __call__(self, authorization: str, /) -> bool:
        """Returns whether a request with this header Authorization, "" without one, may see the page."""


class HttpServer:
    """Serves `pages` by their path, those with a guard only to whom it lets in; over TLS with a context."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        guards: Mapping[str, Guard] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.pages = pages
        self._guards = guards or {}
        self._tls = tls
        #: open connections; each adds and discards itself
        self.open: set[_Request] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, address: HostPort) -> HostPort:
        """Accept requests at `address`. Returns the address with the port, which for 0 the system chooses.

        Raises OSError if the address is taken.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Request(self), address.host, address.port, ssl=self._tls
        )
        host, port = self._listener.sockets[0].getsockname()[:2]
        return HostPort(host, port)

    def close(self) -> None:
        """Accept no more requests and abort those that are open."""
        if self._listener is not None:
            self._listener.close()
        for request in list(self.open):
            request.cut_off()

    def respond(self, head: bytes, say: Say) -> None:
        """Call `say` with the response to the request with this head, now or later."""
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return say(_problem(HTTPStatus.BAD_REQUEST))
        if method not in ("GET", "HEAD"):
            return say(_problem(HTTPStatus.METHOD_NOT_ALLOWED))
        name = path.partition("?")[0]
        page, guard = self.pages.get(name), self._guards.get(name)
        if page is None:
            return say(_problem(HTTPStatus.NOT_FOUND))
        if guard is not None and not guard(_authorization(head)):
            return say(_problem(HTTPStatus.UNAUTHORIZED))
        return page(say)


class _Request(asyncio.Protocol):
    """One connection with one request."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = b""
        #: the request is whole, and a page answers it now or later
        self._is_answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is open: the request has REQUEST_SECONDS_MAX to arrive."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.open.add(self)
        if len(self._server.open) > CONNECTIONS_MAX:
            self.cut_off()
        self._timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self.cut_off)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The connection is closed."""
        self._server.open.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Part of the request has arrived, or all of it."""
        if self._is_answered or self._transport is None or self._transport.is_closing():
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            is_bare = self._head.startswith(b"HEAD ")
            self._is_answered = True
            self._server.respond(self._head, lambda response: self._say(response, is_bare=is_bare))
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._say(_problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def cut_off(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _say(self, response: Response, *, is_bare: bool = False) -> None:
        """Send the response and close the connection; if `is_bare`, without the content, as HEAD asks."""
        if self._transport is None or self._transport.is_closing():
            return  # whoever asked did not wait
        head = (
            f"HTTP/1.1 {int(response.status)} {HTTPStatus(response.status).phrase}\r\n"
            f"Content-Type: {response.kind}\r\nContent-Length: {len(response.body)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self._transport.writelines((head.encode("latin-1"), b"" if is_bare else response.body))
        self._transport.close()


def _authorization(head: bytes) -> str:
    """Returns the header Authorization of a request; "" if there is none."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "authorization":
            return value.strip()
    return ""


def _problem(status: HTTPStatus) -> Response:
    return Response(f"{status.phrase}\n".encode(), status=status)
