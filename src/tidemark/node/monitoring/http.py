"""A small HTTP/1.1 server for GET and HEAD requests: health and metrics.

It answers one request a connection, and bounds the size and time of a request and the number of connections.
When there are too many, the one that has been open the longest goes: whoever asks for the health of the
broker says so at once and is answered, however many others hold connections. Pages are made in turns with the
connections of the broker, so that who asks for them again and again has a part of the event loop and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

from tidemark.node.config.settings import LimitsSection
from tidemark.node.config.units import HostPort
from tidemark.node.logs import Log
from tidemark.node.security.handshakes import Handshakes, listening
from tidemark.node.security.tls import Transport
from tidemark.node.turns.accounts import Account
from tidemark.node.turns.turns import Turns

REQUEST_BYTES_MAX = 8 << 10
CONNECTIONS_MAX = 64
REQUEST_SECONDS_MAX = 10.0
BACKLOG = 100
log = Log("http")


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
    """Serves `pages` by their path, and a page that has a guard only to requests that the guard lets in."""

    def __init__(
        self, pages: Mapping[str, Page], turns: Turns, guards: Mapping[str, Guard] | None = None
    ) -> None:
        """`turns` are those of the broker's connections."""
        self.pages = pages
        self.turns = turns
        #: what all requests together have used of the event loop's time
        self.account: Account = turns.accounts.open("http")
        self._guards = guards or {}
        #: open connections, the oldest first; each adds and removes itself
        self.open: dict[_Request, None] = {}
        self._listener: asyncio.Server | None = None
        self._handshakes: Handshakes | None = None

    async def listen(
        self, address: HostPort, transport: Transport | None = None, limits: LimitsSection | None = None
    ) -> HostPort:
        """Accept requests at `address`, over TLS if `transport` has it, within the `limits` of handshakes.

        Returns the address with the port, which for 0 the system chooses. Raises OSError if the address is
        taken.
        """
        if transport is not None:
            self._handshakes = transport.handshakes(lambda: _Request(self), limits or LimitsSection())
        self._listener = await listening(lambda: _Request(self), address, self._handshakes, BACKLOG)
        host, port = self._listener.sockets[0].getsockname()[:2]
        return HostPort(host, port)

    def close(self) -> None:
        """Accept no more requests and abort those that are open."""
        if self._listener is not None:
            self._listener.close()
        if self._handshakes is not None:
            self._handshakes.close()
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

    #: a page takes some milliseconds
    is_short = False

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = b""
        #: the request is whole, and a page answers it when it is its turn
        self._is_whole = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is open: the request has REQUEST_SECONDS_MAX to arrive."""
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.open) >= CONNECTIONS_MAX:
            next(iter(self._server.open)).cut_off()
        self._server.open[self] = None
        self._timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, self.cut_off)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """The connection is closed."""
        self._server.open.pop(self, None)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Part of the request has arrived, or all of it."""
        if self._is_whole or self._transport is None or self._transport.is_closing():
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._is_whole = True
            self._server.turns.wait(self)
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._say(_problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    @property
    def account(self) -> Account:
        """What all requests have used lately."""
        return self._server.account

    def go_on(self) -> bool:
        """Answer the request, which is whole; return False, since nothing is left then."""
        server = self._server
        began = server.turns.work()
        is_bare = self._head.startswith(b"HEAD ")
        try:
            server.respond(self._head, lambda response: self._say(response, is_bare=is_bare))
        except Exception as error:  # those who wait behind this request are not to wait for ever
            log.error("a page could not be made", cause=error)
            self._say(_problem(HTTPStatus.INTERNAL_SERVER_ERROR))
        server.account.used(server.turns.work() - began)
        return False

    def cut_off(self) -> None:
        """Abort the connection."""
        self._server.open.pop(self, None)
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
