"""PendingRequests: what was asked of a broker and not answered. An answer finds its question by the ticket.

They are void with the connection: whoever waits then is told, and asks again if that does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidemark.errors import NotConnectedError, RefusedError, TidemarkError
from tidemark.wire.frames import Answer, Ask, Fetch, Fetched, Refused


class PendingRequests:
    """Those of one client."""

    def __init__(self, send: Callable[[Ask | Fetch], None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    async def ask(self, what: str, arguments: str) -> str:
        """What administrators ask; the answer is JSON."""
        answer: Answer = await self._answer(lambda ticket: Ask(ticket, what, arguments))
        return answer.payload

    async def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, where: str, bytes_max: int
    ) -> Fetched:
        """A part of a pubend."""
        fetched: Fetched = await self._answer(
            lambda ticket: Fetch(ticket, pubend, base, upto, pattern, where, bytes_max)
        )
        return fetched

    async def _answer(self, question: Callable[[int], Ask | Fetch]) -> Any:
        self._last += 1
        ticket = self._last
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._send(question(ticket))
        try:
            return await future
        finally:
            del self._waiting[ticket]

    def answered(self, frame: Answer | Fetched) -> None:
        """A broker has answered."""
        future = self._waiting.get(frame.ticket)
        if future is not None and not future.done():
            future.set_result(frame)

    def refused(self, frame: Refused) -> None:
        """A broker does not answer: the name is the ticket."""
        future = self._waiting.get(int(frame.name)) if frame.name.isdigit() else None
        if future is not None and not future.done():
            future.set_exception(
                RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code)
            )

    def void(self, error: Callable[[], TidemarkError]) -> None:
        """Nobody will answer what was asked: the client is closed, or the connection lost."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error())


def lost() -> NotConnectedError:
    """The error of whoever waited when the connection was lost."""
    return NotConnectedError("the broker was lost: whether it did what was asked is not known; ask again")
