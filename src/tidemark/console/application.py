"""The web application of the console: which path is answered by what, and how errors are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from tidemark.console.callers import ANYBODY, Caller, Connections, caller_of_header
from tidemark.console.door.acknowledging import put_checkpoint
from tidemark.console.door.openapi import openapi_document
from tidemark.console.door.publishing import Publishing
from tidemark.console.door.requests import BodyMemory
from tidemark.console.door.server_sent_events import stream_events
from tidemark.console.door.streams import Streams
from tidemark.console.door.web_sockets import serve_socket
from tidemark.console.guard import Guard, is_loopback
from tidemark.console.options import ConsoleOptions
from tidemark.console.pages.routes import page_routes
from tidemark.console.pages.site import Site
from tidemark.console.problems import ProblemError, problem_of
from tidemark.console.sessions import COOKIE, Sessions
from tidemark.console.watch import Watches
from tidemark.errors import TidemarkError

#: status of an answer -> headers that say what to do
_HINTS = {401: {"WWW-Authenticate": 'Basic realm="tidemark", Bearer'}, 503: {"Retry-After": "1"}}
#: Connections that nobody uses, and sessions that are over, are looked for so often.
TIDYING_SECONDS = 30.0


class Door:
    """The HTTP door: requests in, what they ask for out."""

    def __init__(
        self, options: ConsoleOptions, connections: Connections, sessions: Sessions, memory: BodyMemory
    ) -> None:
        self._sessions = sessions
        self._connections = connections
        self._streams = Streams(connections)
        self._publishing = Publishing(connections, memory)
        self._lets_anybody_in = is_loopback(options.host)

    def caller(self, request: HTTPConnection) -> Caller:
        """Return who a request comes from: its header says so, or its session.

        ProblemError 401 if it comes from nobody in particular, and from another machine perhaps.
        """
        header = request.headers.get("authorization")
        if header is not None:
            return caller_of_header(header)
        session = self._sessions.find(request.cookies.get(COOKIE))
        caller = ANYBODY if session is None else session.caller
        if caller.is_anonymous and not self._lets_anybody_in:
            raise ProblemError(
                401, "login", "this console can be reached from other machines: log in with Basic or Bearer"
            )
        return caller

    def _goes_on(self, request: HTTPConnection) -> Callable[[], bool]:
        """Return what says whether a stream may go on that a request opens: it ends with its session."""
        is_by_header = "authorization" in request.headers
        return self._sessions.goes_on(None if is_by_header else request.cookies.get(COOKIE))

    def routes(self) -> list[BaseRoute]:
        """Return the paths of the door."""
        return [
            Route("/topics/{topic}/events", self._publish, methods=["POST"]),
            Route("/topics/{topic}/events", self._stream, methods=["GET"]),
            WebSocketRoute("/topics/{topic}/events", self._socket),
            Route("/subscriptions/{name:path}/checkpoint", self._checkpoint, methods=["PUT"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
        ]

    async def _publish(self, request: Request) -> Response:
        return await self._publishing.publish(request, self.caller(request))

    async def _stream(self, request: Request) -> Response:
        return await stream_events(request, self.caller(request), self._streams, self._goes_on(request))

    async def _socket(self, socket: WebSocket) -> None:
        try:
            caller = self.caller(socket)
        except ProblemError as problem:
            await socket.close(1008, problem.code)
            return
        await serve_socket(socket, caller, self._streams, self._goes_on(socket))

    async def _checkpoint(self, request: Request) -> Response:
        return await put_checkpoint(request, self.caller(request), self._connections)

    async def _openapi(self, request: Request) -> Response:
        del request
        return JSONResponse(openapi_document())


def make_application(options: ConsoleOptions) -> Starlette:
    """Return the application of one console."""
    connections = Connections(options.url, wants_login=not is_loopback(options.host))
    sessions = Sessions(time.monotonic)
    memory = BodyMemory()
    door = Door(options, connections, sessions, memory)
    watches = Watches(connections, options.url)
    site = Site(options, connections, sessions, watches, memory)
    routes = [*door.routes(), *page_routes(site)]
    if options.pages is not None:
        routes.append(Mount("/pages", StaticFiles(directory=options.pages, html=True)))

    async def http_error(request: Request, error: Exception) -> Response:
        """Answer a person's browser with a page, and a program with JSON."""
        assert isinstance(error, HTTPException)
        reason = error.detail if error.status_code != 404 else f"there is nothing at {request.url.path}"
        problem = ProblemError(error.status_code, "request", reason)
        if "text/html" in request.headers.get("accept", ""):
            return await site.failed(request, problem)
        return JSONResponse(problem.as_object(), problem.status, error.headers)

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        del application
        tasks = [asyncio.ensure_future(_tidy(connections, sessions)), asyncio.ensure_future(watches.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await watches.close()
            await connections.close()

    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, options=options)],
        exception_handlers={
            ProblemError: _told,
            TidemarkError: _told,
            HTTPException: http_error,
        },
    )


async def _tidy(connections: Connections, sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(TIDYING_SECONDS)
        sessions.forget_ended()
        await connections.close_idle(asyncio.get_running_loop().time())


async def _told(request: Request, error: Exception) -> Response:
    """Answer with what went wrong, as JSON."""
    del request
    problem = error if isinstance(error, ProblemError) else problem_of(_tidemark(error))
    return JSONResponse(problem.as_object(), problem.status, _HINTS.get(problem.status))


def _tidemark(error: Exception) -> TidemarkError:
    assert isinstance(error, TidemarkError)
    return error
