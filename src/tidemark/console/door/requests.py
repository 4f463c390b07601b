"""What a request to the HTTP door says: who asks, which topic, from where on, and a body of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from tidemark.client.subscribing.arguments import SubscribeOptions
from tidemark.console.options import (
    BODIES_BYTES_MAX,
    BODY_BYTES_MAX,
    BODY_SECONDS,
    BODY_SMALL_BYTES,
    STREAM_WINDOW_BYTES,
)
from tidemark.console.problems import ProblemError
from tidemark.errors import TokenError
from tidemark.ticks import CheckpointToken

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidemark.client.subscribing.start_position import Start

#: Seconds after which the stream of a durable subscription ends, so that its reader comes back and says, with
#: the last id that it has, what may be acknowledged.
ACK_SECONDS = 60.0
ACK_SECONDS_MIN, ACK_SECONDS_MAX = 1.0, 3_600.0


@dataclass(frozen=True, slots=True)
class StreamWanted:
    """Which events a reader wants as a stream."""

    pattern: str
    where: str
    durable: str | None
    #: behind which the reader goes on: the last id that it has seen
    token: CheckpointToken | None
    start: Start | None
    ack_seconds: float

    def options(self) -> SubscribeOptions:
        """Return the options of the subscription: the reader keeps its place, and the broker waits for it."""
        options: SubscribeOptions = {"window_bytes_max": STREAM_WINDOW_BYTES}
        if self.durable is None:
            options["start"] = self.token if self.token is not None else self.start
            return options
        options |= {"durable": self.durable, "ack": "client"}
        if self.token is not None:
            options["checkpoint"] = self.token
        elif self.start is not None:
            options["start"] = self.start
        return options


def stream_wanted(pattern: str, query: Mapping[str, str], headers: Mapping[str, str]) -> StreamWanted:
    """Return which events a request asks for; ProblemError 400 if it cannot be understood."""
    unknown = sorted(set(query) - {"where", "durable", "start", "ack_seconds", "last_event_id"})
    if unknown:
        raise ProblemError(
            400, "request", f"there is no parameter {unknown[0]!r}: where, durable, start, ack_seconds"
        )
    last = headers.get("last-event-id") or query.get("last_event_id", "")
    return StreamWanted(
        pattern,
        query.get("where", ""),
        query.get("durable") or None,
        _token(last) if last else None,
        start_of(query.get("start", "")),
        _seconds(query.get("ack_seconds", "")),
    )


def start_of(text: str) -> Start | None:
    """Return where a new subscription starts: "earliest", a time, or behind a token; None for now."""
    if text in ("", "now"):
        return None
    if text == "earliest":
        return "earliest"
    if text.startswith("tm1."):
        return _token(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ProblemError(
            400, "request", f"start is earliest, now, an ISO 8601 time or a token, not {text!r}"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _token(text: str) -> CheckpointToken:
    try:
        return CheckpointToken.parse(text)
    except TokenError as error:
        raise ProblemError(400, "token", str(error)) from None


def _seconds(text: str) -> float:
    if not text:
        return ACK_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not ACK_SECONDS_MIN <= seconds <= ACK_SECONDS_MAX:
        raise ProblemError(
            400, "request", f"ack_seconds is from {ACK_SECONDS_MIN:g} to {ACK_SECONDS_MAX:g}, not {text!r}"
        )
    return seconds


def number_of(query: Mapping[str, str], name: str, least: float, most: float) -> float | None:
    """Return a number that a request gives, None if it gives none; ProblemError 400 if out of bounds."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise ProblemError(400, "request", f"{name} is a number from {least:g} to {most:g}, not {text!r}")
    return value


async def read_body(
    request: Request, bytes_max: int = BODY_BYTES_MAX, grown: Callable[[int], None] | None = None
) -> bytes:
    """Return the body of a request; `grown` is called with the bytes that there are, and may raise.

    ProblemError 413 as soon as it is seen to be too long, 408 if it has not come whole in BODY_SECONDS.
    """
    too_long = ProblemError(413, "limit", f"a body is at most {bytes_max:,} bytes: send it in parts")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > bytes_max:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    raise too_long
                if grown is not None:
                    grown(len(body))
    except ClientDisconnect:
        raise ProblemError(400, "request", "the request ended before its body did") from None
    except TimeoutError:
        raise ProblemError(
            408, "timeout", f"the body did not come within {BODY_SECONDS:g} s: send it in parts"
        ) from None
    return bytes(body)


class BodyMemory:
    """The memory that the bodies of requests have together; small ones are not counted, and find room."""

    def __init__(self) -> None:
        self._bytes = 0

    @asynccontextmanager
    async def read(self, request: Request, bytes_max: int = BODY_BYTES_MAX) -> AsyncIterator[bytes]:
        """Give the body of a request, which has its memory for the time of the block.

        ProblemError 503 if the bodies of other requests have all of it, and as `read_body` has them.
        """
        mine = 0

        def grown(size: int) -> None:
            nonlocal mine
            if size <= BODY_SMALL_BYTES:
                return
            if self._bytes + size - mine > BODIES_BYTES_MAX:
                raise ProblemError(503, "limit", "large requests fill this console's memory: try again later")
            self._bytes += size - mine
            mine = size

        try:
            yield await read_body(request, bytes_max, grown)
        finally:
            self._bytes -= mine


def plain_headers(request: Any) -> dict[str, str]:
    """Return the headers of a request, their names in small letters."""
    return {name.lower(): value for name, value in request.headers.items()}
