"""LagQuestion: what durable subscriptions are owed, asked of the broker's core from inside the process.

The page /metrics/subscriptions needs it. It is the question that administrators ask, so that there is one
way to count.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from tidemark.access.principal import BROKER_ITSELF
from tidemark.node.runtime import Runtime
from tidemark.wire.answers import SUBSCRIPTIONS, SubscriptionStatus
from tidemark.wire.frames import Answer, Ask, Frame
from tidemark.wire.json_objects import dumps
from tidemark.wire.questions import PAGE_ITEMS_MAX, read_page

#: Durable subscriptions that have series of their own: the oldest ones.
LAG_SERIES_MAX = 1_000
#: A disk that does not answer must not keep the other metrics back.
ANSWER_SECONDS_MAX = 2.0


class LagQuestion:
    """One question. To the runtime it is a client, which comes, asks page after page, and goes."""

    def __init__(self, runtime: Runtime, done: Callable[[list[SubscriptionStatus], bool], None]) -> None:
        """`done` is called once, on the event loop: with durable subscriptions, and whether these are all."""
        self._runtime = runtime
        self._done = done
        self._found: list[SubscriptionStatus] = []
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(ANSWER_SECONDS_MAX, self._finish, False)
        self._client = runtime.client_came(self, BROKER_ITSELF)
        self._loop.call_soon(self._ask, "")

    def _ask(self, after: str) -> None:
        if self._runtime.is_over:
            self._finish(False)
        elif not self._is_over:
            arguments = dumps({"limit": PAGE_ITEMS_MAX, "after": after})
            self._runtime.client_said(self._client, [Ask(1, SUBSCRIPTIONS.what, arguments)])

    def _finish(self, is_all: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._runtime.client_gone(self._client)
            self._done(self._found[:LAG_SERIES_MAX], is_all and len(self._found) <= LAG_SERIES_MAX)

    # As a connection of the runtime, which is handling a stimulus when it calls these.

    def send(self, frame: Frame) -> None:
        """The broker's core answers."""
        if self._is_over or not isinstance(frame, Answer):
            self._loop.call_soon(self._finish, False)
            return
        items, after = read_page(json.loads(frame.payload))
        found = SUBSCRIPTIONS.read(items)
        self._found += [each for each in found if each.durable]
        if after is None or len(self._found) > LAG_SERIES_MAX:
            self._loop.call_soon(self._finish, after is None)
        else:
            self._loop.call_soon(self._ask, after)

    def flush(self) -> None:
        """Nothing is queued."""

    def close(self) -> None:
        """There is no socket."""

    def refuse(self, code: str, reason: str) -> None:
        """The question is not answered; the time that it may take ends it."""

    def pause(self) -> None:
        """Nothing is read."""

    def resume(self) -> None:
        """Nothing is read."""

    def charge(self, seconds: float) -> None:
        """The broker asks this question itself, so no connection is charged for it."""
