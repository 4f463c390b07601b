"""The live tail: the newest events as they come, as many as an eye can read.

All who tail the same thing share one feed. A feed reads the end of the logs once a second within a budget,
shows at most SHOWN_A_SECOND events of each look, and says how many more it has seen, or that it has skipped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse

from tidemark.client.events import Event
from tidemark.console.pages.selectors import misfit
from tidemark.console.pages.site import Page, Visit
from tidemark.console.pages.topics import shown
from tidemark.console.problems import ProblemError, problem_of
from tidemark.console.recent_events import HostedPubend, events_of
from tidemark.console.watch import Watch
from tidemark.errors import TidemarkError
from tidemark.wire.answers import TOPICS

LOOK_SECONDS = 1.0
SHOWN_A_SECOND = 20
#: Bytes that one look reads of one pubend.
LOOK_BYTES = 64 << 10
#: Feeds of one console; each has any number of readers.
FEEDS_MAX = 64
#: Looks that a reader may be late; it misses those before.
WAITING_MAX = 8


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the ends of the logs has brought."""

    events: tuple[Event, ...]
    #: events that matched and are not shown
    more: int
    #: some logs grew by more than was read: there are events that nobody looked at
    has_skipped: bool


class Feed:
    """One tail, for all who read it."""

    def __init__(self, watch: Watch, pattern: str, where: str) -> None:
        self._watch = watch
        self._pattern = pattern
        self._where = where
        #: pubend -> the tick up to which the tail has come
        self._places: dict[str, int] = {}
        self.readers: set[asyncio.Queue[Look | TidemarkError]] = set()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Look once a second until nobody reads any more."""
        while self.readers:
            said: Look | TidemarkError
            try:
                said = await self._look()
            except TidemarkError as error:
                said = error
            for reader in self.readers:
                if reader.qsize() >= WAITING_MAX:
                    reader.get_nowait()
                reader.put_nowait(said)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> Look:
        events: list[Event] = []
        has_skipped = False
        for pubend in await self._watch.pubends_now():
            found, was_cut = await self._newer(pubend)
            events += found
            has_skipped |= was_cut
        events.sort(key=lambda event: event.tick)
        return Look(tuple(events[-SHOWN_A_SECOND:]), max(0, len(events) - SHOWN_A_SECOND), has_skipped)

    async def _newer(self, pubend: HostedPubend) -> tuple[list[Event], bool]:
        name, upto = pubend.status.pubend, pubend.status.position
        base = self._places.get(name, upto)
        self._places[name] = upto
        if base >= upto:
            return [], False
        fetched = await pubend.client._fetch(
            name, base, upto, self._pattern, self._where, bytes_max=LOOK_BYTES
        )
        events = await events_of(pubend.client, name, base, fetched.upto, fetched.batch)
        return events, fetched.upto < upto


class Feeds:
    """All tails of a console."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[Watch, str, str], Feed] = {}

    def check_room(self, watch: Watch, pattern: str, where: str) -> None:
        """Raise ProblemError 503 if there is no room for a tail."""
        if (watch, pattern, where) not in self._feeds and len(self._feeds) >= FEEDS_MAX:
            raise ProblemError(503, "limit", f"{FEEDS_MAX} tails are open at this console: close one")

    async def read(self, watch: Watch, pattern: str, where: str) -> AsyncIterator[Look | TidemarkError]:
        """Give what a tail brings, for one reader; whether there is room for it was checked."""
        key = (watch, pattern, where)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(watch, pattern, where)
        reader: asyncio.Queue[Look | TidemarkError] = asyncio.Queue()
        feed.readers.add(reader)
        if feed.task is None or feed.task.done():
            feed.task = asyncio.create_task(feed.run())
        try:
            while True:
                yield await reader.get()
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.get(key) is feed:
                del self._feeds[key]


async def show_tail(visit: Visit) -> Response:
    """Show the page of a tail."""
    topic, where = visit.query("topic", ">"), visit.query("where")
    async with visit.site.connections.use(visit.caller) as client:
        problem = misfit(where, topic, await client.ask(TOPICS))
    return visit.page("tail.html", topic=topic, where=where, problem=problem)


def stream_tail(feeds: Feeds) -> Page:
    """Return the page that streams rows of a tail to a browser."""

    async def streamed(visit: Visit) -> Response:
        topic, where = visit.query("topic", ">"), visit.query("where")
        await visit.watch.view()
        feeds.check_room(visit.watch, topic, where)
        rows = _rows(feeds, visit, topic, where)
        return StreamingResponse(rows, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return streamed


async def _rows(feeds: Feeds, visit: Visit, topic: str, where: str) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    watch, site = visit.watch, visit.site
    goes_on = site.sessions.goes_on(visit.cookie)
    async for look in feeds.read(watch, topic, where):
        if not goes_on():
            return
        watch.looked = time.monotonic()
        if isinstance(look, TidemarkError):
            yield _sent("told", site.fragment("tail_told.html", problem=problem_of(look).reason, look=None))
            continue
        rows = [shown(event) for event in reversed(look.events)]
        if rows:
            yield _sent("rows", site.fragment("tail_rows.html", rows=rows))
        yield _sent("told", site.fragment("tail_told.html", problem="", look=look))


def _sent(kind: str, text: str) -> str:
    lines = "\n".join(f"data: {line}" for line in text.splitlines())
    return f"event: {kind}\n{lines}\n\n"
