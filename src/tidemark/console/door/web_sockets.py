"""The WebSocket at /topics/T/events: events out, acknowledgements and events in, as JSON texts.

The console sends `{"event": ...}`, `{"gap": ...}`, `{"alive": TOKEN}`, `{"published": ..., "ref": ...}` and
`{"error": ..., "ref": ...}`. A reader sends `{"ack": TOKEN}`, and to put an event into the same topic
`{"publish": VALUE, "key": ..., "ref": ...}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from tidemark.client.events import Gap
from tidemark.client.plain_events import event_object, gap_object
from tidemark.console.callers import Caller
from tidemark.console.door.publishing import topic_form
from tidemark.console.door.requests import plain_headers, stream_wanted
from tidemark.console.door.streams import TAKEN, OpenStream, Streams, Taken
from tidemark.console.problems import ProblemError, problem_of
from tidemark.errors import TidemarkError, TokenError
from tidemark.message.foreign.json.values import parsed_json
from tidemark.ticks import CheckpointToken

#: Codes with which a socket is closed (RFC 6455): the request was wrong; something else ended it.
WRONG, ENDED = 1008, 1011
#: Characters of a reason in a closing frame, which holds 123 bytes.
REASON_CHARACTERS_MAX = 40


async def serve_socket(
    socket: WebSocket, caller: Caller, streams: Streams, goes_on: Callable[[], bool]
) -> None:
    """Serve one socket until either side ends it."""
    await socket.accept()
    try:
        wanted = stream_wanted(socket.path_params["topic"], dict(socket.query_params), plain_headers(socket))
        async with streams.open(caller, wanted, goes_on) as opened:
            reading = asyncio.ensure_future(_read(socket, opened, wanted.pattern))
            writing = asyncio.ensure_future(_write(socket, opened))
            try:
                done, _ = await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                reading.cancel()
                writing.cancel()
                await asyncio.gather(reading, writing, return_exceptions=True)
    except WebSocketDisconnect:
        return
    except (TidemarkError, ProblemError) as error:
        problem = error if isinstance(error, ProblemError) else problem_of(error)
        await _say_and_close(socket, problem)
        return
    await _close(socket, ENDED, "the stream has ended")


async def _write(socket: WebSocket, opened: OpenStream) -> None:
    async for item in opened.items():
        if isinstance(item, list):
            for event in item:
                await _send(socket, {"event": event_object(event)})
        elif isinstance(item, Gap):
            await _send(socket, {"gap": gap_object(item)})
        elif isinstance(item, Taken):
            raise ProblemError(409, "taken", TAKEN)
        else:
            await _send(socket, {"alive": opened.subscription.checkpoint.text()})


async def _read(socket: WebSocket, opened: OpenStream, topic: str) -> None:
    while True:
        # A message of bytes is read like a text: what is no UTF-8 is no JSON either.
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"], message.get("reason"))
        said: Any = None
        try:
            said = parsed_json(message.get("text") or message.get("bytes") or b"")
            if not isinstance(said, dict) or not ({"ack", "publish"} & said.keys()):
                raise ProblemError(400, "request", 'say {"ack": TOKEN} or {"publish": VALUE}')
            await _obey(socket, opened, topic, said)
        except (TidemarkError, ProblemError) as error:
            problem = error if isinstance(error, ProblemError) else problem_of(error)
            await _send(socket, {**problem.as_object(), "ref": _ref(said)})


async def _obey(socket: WebSocket, opened: OpenStream, topic: str, said: dict[str, Any]) -> None:
    if "ack" in said:
        if not isinstance(said["ack"], str):
            raise TokenError("a token is a text", text=str(said["ack"])[:80])
        await opened.subscription.ack(CheckpointToken.parse(said["ack"]))
        return
    form = await topic_form(opened.client, topic)
    value = form.value(said["publish"])
    tick = await opened.client.publish(topic, value, key=str(said.get("key", "")))
    await _send(socket, {"published": tick, "ref": _ref(said)})


def _ref(said: Any) -> Any:
    ref = said.get("ref") if isinstance(said, dict) else None
    return ref if isinstance(ref, str | int) else None


async def _send(socket: WebSocket, said: dict[str, Any]) -> None:
    await socket.send_text(json.dumps(said))


async def _say_and_close(socket: WebSocket, problem: ProblemError) -> None:
    try:
        await _send(socket, problem.as_object())
    except (WebSocketDisconnect, RuntimeError):
        return
    await _close(socket, WRONG, problem.reason[:REASON_CHARACTERS_MAX])


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    try:
        await socket.close(code, reason)
    except RuntimeError:
        # The other side has closed it already.
        return
