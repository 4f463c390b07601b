"""Recalls: what the archive is asked for, on behalf of subscribers that are behind what pubends still hold.

The pipeline is a client that has offered to answer. Each subscriber has at most one recall per pubend, which
is answered in parts, in order, and no faster than the subscriber takes them. Recalls that are made while no
pipeline is connected wait for one. A pipeline that answers with events of other topics is refused. All of it
is soft state: what the subscriber was not told is recalled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tidemark.broker.effects import SendClient
from tidemark.broker.turn import Turn
from tidemark.errors import WireError
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import Range
from tidemark.wire.frames import Line, Offer, Recall, Recalled, RecallMore, RecallOver, Refused

#: Bytes of events of one recall that are on their way or held.
RECALL_BYTES_MAX = 256 << 10

#: a pubend and a subscriber
Key = tuple[str, int]


class RecallListener(Protocol):
    """What takes the answers of the archive."""

    def recalled(
        self, pubend: str, number: int, base: int, upto: int, batch: EventBatch | None, gone: Sequence[Range]
    ) -> None:
        """Take all there is for subscriber `number` in `(base, upto]`; what is `gone` is L for good."""


@dataclass(slots=True)
class _RecallAsked:
    """A recall of which everything at or below `base` has been answered."""

    base: int
    upto: int
    lines: tuple[Line, ...]
    #: the pipeline that answers it, and under which ticket; 0 while none does
    client: int = 0
    ticket: int = 0


class Recalls:
    """All recalls of one broker."""

    def __init__(self, turn: Turn, listener: RecallListener) -> None:
        self._out = turn.out
        self._looking = turn.looking
        self._counters = turn.counters
        self._listener = listener
        #: pipeline -> how many more recalls it takes
        self._room: dict[int, int] = {}
        self._asked: dict[Key, _RecallAsked] = {}
        self._by_ticket: dict[int, Key] = {}
        self._next_ticket = 1

    @property
    def waiting(self) -> int:
        """The number of recalls that no pipeline answers yet."""
        return sum(not each.ticket for each in self._asked.values())

    @property
    def pipelines(self) -> int:
        """The number of connections that have offered to answer."""
        return len(self._room)

    def state(self, pubend: str, subscriber: int) -> str | None:
        """Return "waiting" (for a pipeline) or "under way" for a subscriber's recall; None if it has none."""
        asked = self._asked.get((pubend, subscriber))
        return None if asked is None else "under way" if asked.ticket else "waiting"

    def is_asked(self, pubend: str, subscriber: int) -> bool:
        """Return whether something is being recalled for the subscriber."""
        return (pubend, subscriber) in self._asked

    def ask(self, pubend: str, subscriber: int, base: int, upto: int, lines: tuple[Line, ...]) -> None:
        """Recall what the lines want of `(base, upto]`."""
        assert base < upto
        self._counters["recalls"] += 1
        self._asked[pubend, subscriber] = _RecallAsked(base, upto, lines)
        self._send_waiting()

    def end(self, pubend: str, subscriber: int) -> None:
        """The subscriber does not wait for its recall any more."""
        asked = self._asked.pop((pubend, subscriber), None)
        if asked is not None and asked.ticket:
            self._close(asked)
            self._out.add(SendClient(asked.client, RecallOver(asked.ticket)))
            self._send_waiting()

    def told(self, pubend: str, subscriber: int, size: int) -> None:
        """The subscriber was told this many bytes of its recall: the pipeline may send as many more."""
        asked = self._asked.get((pubend, subscriber))
        if asked is not None and asked.ticket and size:
            self._out.add(SendClient(asked.client, RecallMore(asked.ticket, size)))

    # The pipeline.

    def offered(self, client: int, frame: Offer) -> None:
        """A pipeline offers to answer recalls."""
        self._room[client] = frame.recalls_max
        self._send_waiting()

    def gone(self, client: int) -> None:
        """A connection is gone: another pipeline may answer its recalls."""
        if self._room.pop(client, None) is None:
            return
        for asked in self._asked.values():
            if asked.client == client:
                del self._by_ticket[asked.ticket]
                asked.client = asked.ticket = 0
        self._send_waiting()

    def answered(self, client: int, frame: Recalled) -> None:
        """The next part of an answer; dropped if the subscriber does not wait any more."""
        key = self._by_ticket.get(frame.ticket)
        if key is None:
            return
        asked = self._asked[key]
        if asked.client != client or frame.base != asked.base or not asked.base < frame.upto <= asked.upto:
            reason = f"({frame.base}, {frame.upto}] does not go on from {asked.base}, up to {asked.upto}"
            self._out.add(SendClient(client, Refused("recall", str(frame.ticket), "frame", reason)))
            return
        with self._looking:
            _check_topics(asked.lines, frame.batch)
        asked.base = frame.upto
        if frame.upto == asked.upto:
            del self._asked[key]
            self._close(asked)
        self._listener.recalled(*key, frame.base, frame.upto, frame.batch, frame.gone)
        self._send_waiting()

    def _close(self, asked: _RecallAsked) -> None:
        del self._by_ticket[asked.ticket]
        self._room[asked.client] += 1

    def _send_waiting(self) -> None:
        for key, asked in self._asked.items():
            if asked.ticket:
                continue
            client = max(self._room, key=lambda each: self._room[each], default=0)
            if not client or self._room[client] <= 0:
                return
            self._room[client] -= 1
            asked.client, asked.ticket = client, self._next_ticket
            self._next_ticket += 1
            self._by_ticket[asked.ticket] = key
            lines = _beyond(asked.lines, asked.base)
            recall = Recall(asked.ticket, key[0], asked.base, asked.upto, lines, RECALL_BYTES_MAX)
            self._out.add(SendClient(client, recall))


def _check_topics(lines: tuple[Line, ...], batch: EventBatch | None) -> None:
    """Raise WireError if the archive brings events of a topic that was not asked for."""
    if batch is None:
        return
    patterns = {TopicPattern.parse(line.wanted.pattern) for line in lines}
    for topic in {batch.shapes[at].topic for at in np.unique(batch.prelude("shape")).tolist()}:
        if not any(pattern.matches(topic) for pattern in patterns):
            raise WireError(f"the recall did not ask for events of {topic!r}")


def _beyond(lines: tuple[Line, ...], base: int) -> tuple[Line, ...]:
    """Return what is left of the lines beyond `base`."""
    rest = (replace(each, base=max(each.base, base)) for each in lines)
    return tuple(each for each in rest if each.base < each.upto)
