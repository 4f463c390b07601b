"""Fetching: reads of the pubends' logs in bulk, or of ranges that no stream carries any more.

A reader names a range and a selector, and gets a first part of the range with the tick that the part reaches.
A reader follows no stream and holds nothing back: it is told of what was let go before it was read. A fetch
goes, broker by broker, to the one that hosts the pubend, and its answer comes back the same way; until it is
answered each broker on the way sends it again, from soft state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tidemark.broker.effects import FetchLog, LogFetched, SendClient, SendPeer
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.streams.stream import Stream
from tidemark.broker.turn import Turn
from tidemark.errors import TidemarkError, WireError
from tidemark.matching.audience import Audience
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.message.registry import Registry
from tidemark.message.topic_selector import TopicSelector
from tidemark.wire.frames import Fetch, Fetched, Refused

#: Bytes read for one answer at the most; an answer has to fit into a frame.
FETCH_BYTES_MAX = 8 << 20
#: Fetches of one client that are under way, and of one neighbour.
FETCHES_MAX = 64
PASSED_MAX = 1_024
#: Microseconds after which a fetch that is not answered is passed on again.
AGAIN_US = 1_000_000
#: Selectors of readers whose matchers are kept.
_READERS_KEPT_MAX = 32
_MEMBER = 1

Answered = Callable[[Fetched], None]


@dataclass(slots=True)
class _FetchAsked:
    """A fetch under way, under a ticket of this broker."""

    #: the client or neighbour that asked; None if this broker asks for itself
    owner: int | str | None
    #: the fetch as it was asked, with the asker's ticket
    frame: Fetch
    answered: Answered
    #: monotonic time when the fetch was passed on last; None if this broker reads the log itself
    sent_at: int | None = None


class Fetching:
    """All fetches that are under way at one broker."""

    def __init__(
        self,
        pubends: Mapping[str, Pubend],
        streams: Mapping[str, Stream],
        registry: Registry,
        turn: Turn,
    ) -> None:
        #: pubend hosted here -> itself; the broker's own, which only the broker changes
        self._pubends = pubends
        #: pubend of the layout -> its stream; the broker's own, which only the broker changes
        self._streams = streams
        #: the topics that the broker knows; only `Topics` adds to them
        self._registry = registry
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._next = 1
        self._asked: dict[int, _FetchAsked] = {}
        self._of_owner: dict[int | str, set[int]] = {}
        self._audience = lru_cache(_READERS_KEPT_MAX)(self._make_audience)

    # Askers.

    def asked(self, client: int, frame: Fetch) -> None:
        """A client wants to read; it is answered with a Fetched, or refused."""
        with self._turn.looking:
            refusal = self._refusal(client, frame)
        if refusal is not None:
            self._out.add(SendClient(client, Refused("fetch", str(frame.ticket), *refusal)))
        else:
            self._take(client, frame, lambda fetched: self._out.add(SendClient(client, fetched)))

    def passed(self, peer: str, frame: Fetch) -> None:
        """A neighbour passes a fetch on; one too many, or one that cannot be read, is dropped."""
        is_one_too_many = len(self._of_owner.get(peer, ())) >= PASSED_MAX
        with self._turn.looking:
            is_taken = frame.pubend in self._streams and not is_one_too_many and self._is_readable(frame)
        if is_taken:
            self._take(peer, frame, lambda fetched: self._out.add(SendPeer(peer, fetched)))

    def ask(
        self, pubend: str, base: int, upto: int, wanted: TopicSelector, answered: Answered
    ) -> Callable[[], None]:
        """Read for this broker itself; returns a function that gives the fetch up."""
        frame = Fetch(0, pubend, base, upto, wanted.pattern, wanted.selector, FETCH_BYTES_MAX >> 3)
        ticket = self._take(None, frame, answered)
        return lambda: self._drop(ticket)

    def gone(self, owner: int | str) -> None:
        """A connection or link is gone: drop what it asked for."""
        for ticket in self._of_owner.pop(owner, ()):
            del self._asked[ticket]

    def _drop(self, ticket: int) -> None:
        self._asked.pop(ticket, None)

    def _take(self, owner: int | str | None, frame: Fetch, answered: Answered) -> int:
        ticket = self._next
        self._next += 1
        asked = self._asked[ticket] = _FetchAsked(owner, frame, answered)
        if owner is not None:
            self._of_owner.setdefault(owner, set()).add(ticket)
        if frame.pubend in self._pubends:
            # Nothing is known yet of what lies beyond the position: answering for it would promise silence.
            upto = min(frame.upto, self._pubends[frame.pubend].position)
            size = min(max(frame.bytes_max, 1), FETCH_BYTES_MAX)
            self._out.add(FetchLog(ticket, frame.pubend, frame.base, max(frame.base, upto), size))
        else:
            self._pass_on(ticket, asked)
        return ticket

    def _pass_on(self, ticket: int, asked: _FetchAsked) -> None:
        asked.sent_at = self._turn.now
        stream = self._streams.get(asked.frame.pubend)
        upstream = stream.upstream if stream is not None else None
        if upstream is not None:
            self._counters["fetches_passed"] += 1
            self._out.add(SendPeer(upstream, replace(asked.frame, ticket=ticket)))

    # Answers.

    def read(self, answer: LogFetched) -> None:
        """The log of a pubend hosted here has answered."""
        asked = self._done(answer.ticket)
        if asked is None:
            return
        frame, read = asked.frame, answer.read
        batch = self._chosen(frame, read.batches)
        upto = max(read.upto, min(read.lost, frame.upto), frame.base)
        asked.answered(Fetched(frame.ticket, frame.pubend, frame.base, upto, read.lost, batch, read.damaged))

    def fetched(self, frame: Fetched) -> None:
        """A neighbour has answered."""
        asked = self._asked.get(frame.ticket)
        if asked is None:
            return
        with self._turn.looking:
            _check_answer(asked.frame, frame)
        self._done(frame.ticket)
        asked.answered(replace(frame, ticket=asked.frame.ticket))

    def wake(self) -> None:
        """Pass on again the fetches that have not been answered for AGAIN_US."""
        now = self._turn.now
        for ticket, asked in self._asked.items():
            if asked.sent_at is not None and now - asked.sent_at >= AGAIN_US:
                self._pass_on(ticket, asked)

    def attached(self, pubend: str) -> None:
        """The pubend comes from another neighbour now, which has been asked for nothing."""
        for ticket, asked in self._asked.items():
            if asked.sent_at is not None and asked.frame.pubend == pubend:
                self._pass_on(ticket, asked)

    def _done(self, ticket: int) -> _FetchAsked | None:
        """Remove and return the fetch of a ticket; None if its asker is gone."""
        asked = self._asked.pop(ticket, None)
        if asked is not None and asked.owner is not None:
            self._of_owner[asked.owner].discard(ticket)
        return asked

    def _refusal(self, client: int, frame: Fetch) -> tuple[str, str] | None:
        if frame.pubend not in self._streams:
            return "pubend", f"there is no pubend {frame.pubend!r} here or behind a neighbour"
        if len(self._of_owner.get(client, ())) >= FETCHES_MAX:
            return "limit", f"{FETCHES_MAX} fetches are under way already: wait for an answer"
        try:
            TopicPattern.parse(frame.pattern)
            parse(frame.selector)
        except TidemarkError as error:
            return "selector", str(error)
        return None

    def _is_readable(self, frame: Fetch) -> bool:
        try:
            TopicPattern.parse(frame.pattern)
            parse(frame.selector)
        except TidemarkError:
            return False
        return True

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


def _check_answer(asked: Fetch, answer: Fetched) -> None:
    """Raise WireError unless a neighbour's answer is one to what was asked: of that pubend and that range."""
    is_within = answer.base == asked.base and answer.upto <= asked.upto
    if answer.pubend != asked.pubend or not is_within:
        raise WireError(
            f"({asked.base}, {asked.upto}] of {asked.pubend!r} was asked for, and the answer is of "
            f"({answer.base}, {answer.upto}] of {answer.pubend!r}"
        )
