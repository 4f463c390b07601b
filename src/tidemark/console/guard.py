"""The guard in front of every request: whose pages may ask, under which name, and what a browser may load.

A page of another site can make a browser send requests to a console on the same machine. The guard refuses
those that change something, or open a socket or a stream of events, by their `Origin` and `Sec-Fetch-Site`: a
stream takes a durable subscription from its reader, and the id that it begins with acknowledges events. It
also refuses all that came under a name that is not the console's, by their `Host`, so that a name that was
pointed at this machine afterwards reaches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tidemark.console.callers import ADDRESS
from tidemark.console.options import ConsoleOptions
from tidemark.console.problems import ProblemError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "")
_SAFE = ("GET", "HEAD", "OPTIONS")
#: What browsers say in Sec-Fetch-Site of requests that pages of other sites, or of other ports, have made.
_FOREIGN = ("cross-site", "same-site")
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: The user's own pages may have scripts and styles in them, and load nothing from elsewhere either.
_OWN_PAGE_POLICY = (
    "default-src 'self' 'unsafe-inline' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_CORS_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, traceparent"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server that listens on the host."""
    return host in _LOOPBACK or host.startswith("127.")


def _name_of(host: str) -> str:
    """Return the name in a header Host, without its port; "" if the header cannot be understood."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_stream(path: str) -> bool:
    """Whether a path is that of a stream of events."""
    return path.startswith("/topics/") and path.endswith("/events")


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: ASGIApp, options: ConsoleOptions) -> None:
        self._inner = inner
        self._origins = frozenset(options.origins)
        self._is_tls = options.is_tls
        names = {*options.names, options.host}
        if is_loopback(options.host) or options.host in _EVERYWHERE:
            names |= set(_LOOPBACK)
        #: None: whoever listens everywhere and names nothing is reached under any name
        self._names = None if options.host in _EVERYWHERE and not options.names else frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with what is wrong with it."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        headers = Headers(scope=scope)
        ADDRESS.set(scope["client"][0] if scope.get("client") else "")
        try:
            origin = self._checked_origin(scope, headers)
        except ProblemError as problem:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": problem.code})
                return
            await JSONResponse(problem.as_object(), problem.status)(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            await self._preflight(origin)(scope, receive, send)
            return
        await self._inner(scope, receive, self._with_headers(scope, send, origin))

    def _checked_origin(self, scope: Scope, headers: Headers) -> str | None:
        """Return the other site whose page asks, if it may; None for the console's own pages and programs."""
        host = headers.get("host", "")
        name = _name_of(host)
        if self._names is not None and name not in self._names:
            raise ProblemError(
                421,
                "host",
                f"this console is not called {name!r}: start it with --name {name} if it should be",
            )
        origin = headers.get("origin")
        if origin in self._origins:
            return origin
        is_ours = origin is None or origin in (f"http://{host}", f"https://{host}")
        if is_ours and headers.get("sec-fetch-site") not in _FOREIGN:
            return None
        if scope["type"] == "websocket" or scope["method"] not in _SAFE or _is_stream(scope["path"]):
            site = origin or "another site"
            raise ProblemError(
                403, "origin", f"pages of {site} may not do this: start the console with --origin {site}"
            )
        return None

    def _preflight(self, origin: str | None) -> Response:
        if origin is None:
            return PlainTextResponse("", 204)
        return PlainTextResponse(
            "",
            204,
            {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
                "Access-Control-Allow-Headers": _CORS_HEADERS,
                "Access-Control-Max-Age": "600",
                "Vary": "Origin",
            },
        )

    def _with_headers(self, scope: Scope, send: Send, origin: str | None) -> Send:
        is_own_page = scope["path"].startswith("/pages/")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "same-origin")
                headers.setdefault(
                    "Content-Security-Policy", _OWN_PAGE_POLICY if is_own_page else _PAGE_POLICY
                )
                if self._is_tls:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
                if origin is not None:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers.add_vary_header("Origin")
            await send(message)

        return sending
