"""Fetching: the logs of the pubends here, for those who read in bulk.

A reader names a range and what it wants of it, and gets a first part of that with the tick it reaches. It
follows nothing and holds nothing: what it has not read when history is let go is lost to it, and it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from tidemark.broker.audience import Audience
from tidemark.broker.effects import FetchLog, LogFetched, Outbox, SendClient
from tidemark.broker.pubend import Pubend
from tidemark.errors import TidemarkError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.message.registry import Registry
from tidemark.wire.frames import Fetch, Fetched, Refused

#: Read for one answer at the most; an answer has to fit into a frame.
FETCH_BYTES_MAX = 8 << 20
#: Fetches of one client that are under way.
FETCHES_MAX = 64
#: Wishes of readers of which the matchers are kept.
_READERS_KEPT_MAX = 32
_MEMBER = 1


class Fetching:
    """All fetches that are under way at one broker."""

    def __init__(self, pubends: Mapping[str, Pubend], registry: Registry, out: Outbox) -> None:
        self._pubends = pubends
        self._registry = registry
        self._out = out
        self._next = 1
        #: ticket of the effect -> who asked for what
        self._asked: dict[int, tuple[int, Fetch]] = {}
        self._of_client: dict[int, set[int]] = {}
        self._audience = lru_cache(_READERS_KEPT_MAX)(self._make_audience)

    def asked(self, client: int, frame: Fetch) -> None:
        """Somebody wants to read."""
        refusal = self._refusal(client, frame)
        if refusal is not None:
            self._out.add(SendClient(client, Refused("fetch", str(frame.ticket), *refusal)))
            return
        ticket = self._next
        self._next += 1
        self._asked[ticket] = client, frame
        self._of_client.setdefault(client, set()).add(ticket)
        # Nothing is known yet of what lies beyond: to say that it is silent would be a promise.
        upto = min(frame.upto, self._pubends[frame.pubend].position)
        size = min(max(frame.bytes_max, 1), FETCH_BYTES_MAX)
        self._out.add(FetchLog(ticket, frame.pubend, frame.base, max(frame.base, upto), size))

    def read(self, answer: LogFetched) -> None:
        """The log has answered."""
        asked = self._asked.pop(answer.ticket, None)
        if asked is None:
            return  # whoever wanted it is gone
        client, frame = asked
        self._of_client[client].discard(answer.ticket)
        read = answer.read
        batch = self._chosen(frame, read.batches)
        upto = max(read.upto, min(read.lost, frame.upto), frame.base)
        fetched = Fetched(frame.ticket, frame.pubend, frame.base, upto, read.lost, batch, read.damaged)
        self._out.add(SendClient(client, fetched))

    def gone(self, client: int) -> None:
        """A connection is gone."""
        for ticket in self._of_client.pop(client, ()):
            del self._asked[ticket]

    def _refusal(self, client: int, frame: Fetch) -> tuple[str, str] | None:
        if frame.pubend not in self._pubends:
            return "pubend", f"the pubend {frame.pubend!r} is not hosted here"
        if len(self._of_client.get(client, ())) >= FETCHES_MAX:
            return "limit", f"{FETCHES_MAX} fetches are under way already: wait for an answer"
        try:
            TopicPattern.parse(frame.pattern)
            parse(frame.selector)
        except TidemarkError as error:
            return "selector", str(error)
        return None

    def _chosen(self, frame: Fetch, batches: tuple[EventBatch, ...]) -> EventBatch | None:
        if not batches:
            return None
        whole = concatenate(batches)
        if frame.pattern == ">" and not frame.selector:
            return whole
        rows = np.flatnonzero(self._audience(frame.pattern, frame.selector).chosen(_MEMBER, whole))
        if not len(rows):
            return None
        return whole if len(rows) == whole.count else whole.take(rows)

    def _make_audience(self, pattern: str, selector: str) -> Audience:
        audience = Audience(self._registry)
        audience.add(_MEMBER, pattern, selector)
        return audience
