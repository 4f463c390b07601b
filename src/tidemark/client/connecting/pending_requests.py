"""PendingRequests: what was asked of a broker and is not answered yet. Answers carry the ticket asked with.

All requests fail when the connection is lost: the caller gets an error, and asks again if that does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

from tidemark.client.connecting.refusals import error_of
from tidemark.errors import NotConnectedError, TidemarkError, TimedOutError
from tidemark.wire.frames import Answer, Ask, Fetch, Fetched, Refused
from tidemark.wire.questions import PAGE_ITEMS_MAX, read_page

_T = TypeVar("_T")


class PendingRequests:
    """The pending requests of one client."""

    def __init__(self, send: Callable[[Ask | Fetch], None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    async def ask(self, what: str, arguments: str) -> str:
        """Ask what administrators ask; `arguments` and the answer are JSON. RefusedError from the broker."""
        answer: Answer = await self._answer(lambda ticket: Ask(ticket, what, arguments))
        return answer.payload

    async def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, where: str, bytes_max: int
    ) -> Fetched:
        """Ask for a part of a pubend; see Client._fetch. RefusedError from the broker."""
        fetched: Fetched = await self._answer(
            lambda ticket: Fetch(ticket, pubend, base, upto, pattern, where, bytes_max)
        )
        return fetched

    async def _answer(self, request: Callable[[int], Ask | Fetch]) -> Any:
        self._last += 1
        ticket = self._last
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._send(request(ticket))
        try:
            return await future
        finally:
            del self._waiting[ticket]

    def answered(self, frame: Answer | Fetched) -> None:
        """The broker answered a request."""
        future = self._waiting.get(frame.ticket)
        if future is not None and not future.done():
            future.set_result(frame)

    def refused(self, frame: Refused) -> None:
        """The broker refused a request, whose ticket is the name in the frame."""
        future = self._waiting.get(int(frame.name)) if frame.name.isdigit() else None
        if future is not None and not future.done():
            future.set_exception(error_of(frame))

    def fail_all(self, error: Callable[[], TidemarkError]) -> None:
        """Fail all requests, each with an error that `error` makes: no answer can come any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error())


async def within(answer: Awaitable[_T], what: str, seconds: float) -> _T:
    """Await `answer` and return it; TimedOutError, which names it `what`, if it takes more than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise TimedOutError(f"{what} did not come within {seconds:g} s: ask again") from None


async def first_pages(
    ask: Callable[[dict[str, Any]], Awaitable[Any]], arguments: dict[str, Any], items_max: float = inf
) -> tuple[list[Any], bool]:
    """Ask a question page by page until there are at least `items_max` items.

    Returns the items of the pages, and whether these are all that the answer has.
    """
    items: list[Any] = []
    after: str | None = ""
    while after is not None and len(items) < items_max:
        more, after = read_page(await ask({"limit": PAGE_ITEMS_MAX, "after": after, **arguments}))
        items += more
    return items, after is None


def connection_lost() -> NotConnectedError:
    """The error of a request that was pending when the connection was lost."""
    return NotConnectedError("the broker was lost: whether it did what was asked is not known; ask again")
