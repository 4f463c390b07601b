"""GET /topics/T/events: Server-Sent Events whose ids are checkpoint tokens.

A browser's EventSource repeats the last id that it has seen when it connects again, so that it goes on
exactly there. An event has no type, which `onmessage` gets; a gap has the type `gap`, and a subscription that
was ended by the broker the type `refused`. An id without data moves the reader's place over silence.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidemark.client.events import Event, Gap
from tidemark.client.plain_events import EventObject, GapObject, event_object, gap_object
from tidemark.console.callers import Caller
from tidemark.console.door.requests import plain_headers, stream_wanted
from tidemark.console.door.streams import TAKEN, OpenStream, Streams, Taken
from tidemark.console.problems import problem_of
from tidemark.errors import TidemarkError

#: Milliseconds after which an EventSource connects again.
RETRY_MS = 500
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream_events(
    request: Request, caller: Caller, streams: Streams, goes_on: Callable[[], bool]
) -> Response:
    """Answer with the events of a topic or pattern as they come; errors before the first as JSON."""
    wanted = stream_wanted(request.path_params["topic"], dict(request.query_params), plain_headers(request))
    stack = AsyncExitStack()
    opened = await stack.enter_async_context(streams.open(caller, wanted, goes_on))
    return _StreamResponse(_written(opened), stack)


class _StreamResponse(StreamingResponse):
    """A stream that is closed with its response, also if its reader is gone before the first byte."""

    def __init__(self, written: AsyncIterator[str], stack: AsyncExitStack) -> None:
        super().__init__(written, media_type="text/event-stream", headers=_HEADERS)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, and close the stream."""
        async with self._stack:
            await super().__call__(scope, receive, send)


async def _written(opened: OpenStream) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n{_place(opened)}\n"
    try:
        async for item in opened.items():
            if isinstance(item, list):
                yield "".join(_event_lines(item))
            elif isinstance(item, Gap):
                yield _lines(gap_object(item), "gap")
            elif isinstance(item, Taken):
                yield _told("taken", TAKEN)
                return
            else:
                yield f": alive\n{_place(opened)}\n"
    except TidemarkError as error:
        problem = problem_of(error)
        yield _told(problem.code, problem.reason)


def _event_lines(events: Iterable[Event]) -> Iterable[str]:
    return (_lines(event_object(event)) for event in events)


def _lines(found: EventObject | GapObject, kind: str = "") -> str:
    head = f"event: {kind}\n" if kind else ""
    data = {name: value for name, value in found.items() if name != "checkpoint"}
    return f"{head}id: {found['checkpoint']}\ndata: {json.dumps(data)}\n\n"


def _told(code: str, reason: str) -> str:
    return f"event: refused\ndata: {json.dumps({'code': code, 'reason': reason})}\n\n"


def _place(opened: OpenStream) -> str:
    """The id of everything that the reader was told, with an end of its own: no data, so no event."""
    token = opened.subscription.checkpoint
    return f"id: {token.text()}\n" if token else ""
