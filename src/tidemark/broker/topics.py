"""Topics: the schemas a broker knows, and how they spread (docs/messages.md).

A client declares a topic at any broker; from there the topic goes to every neighbour that does not know it
yet. A topic is on disk before the client is told, so that a broker that holds an event of it can read the
event after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from tidemark.broker.effects import SaveTopic, SendClient, SendPeer
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.errors import DecodeError, SchemaError, TidemarkError
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.reader import check_messages
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.wire.frames import Describe, Refused, Topic

#: A topic is a promise to remember a schema for ever.
TOPICS_MAX = 100_000


class TopicListener(Protocol):
    """A part of the broker that may wait for a topic."""

    def learnt(self) -> None:
        """A version of a topic has become known."""


class Topics:
    """What one broker knows of topics."""

    def __init__(
        self,
        registry: Registry,
        turn: Turn,
        neighbourhood: Neighbourhood,
        listener: TopicListener,
        topics_a_client_max: int,
    ) -> None:
        #: every topic that is known; all parts that match or read events hold it, only this one adds to it
        self._registry = registry
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._neighbourhood = neighbourhood
        self._listener = listener
        self._topics_a_client_max = topics_a_client_max
        #: client that is connected -> how many topics it was the first to declare
        self._declared: Counter[int] = Counter()

    def recover(self, topics: Iterable[Topic]) -> None:
        """Take the topics that the tables have."""
        for topic in topics:
            self._take(topic)

    def declare(self, client: int, frame: Topic) -> None:
        """A client declares a topic, or a further version of it; it is answered once that is on disk."""
        before = self._count(frame.topic)
        if before < 0 and self._declared[client] >= self._topics_a_client_max:
            self._counters["limits_refused"] += 1
            most = self._topics_a_client_max
            reason = f"this client has declared {most} new topics, as many as limits.topics allows"
            self._out.add(SendClient(client, Refused("topic", frame.topic, "limit", reason)))
            return
        try:
            self._check_name(frame.topic)
            self._register(frame)
        except TidemarkError as error:
            self._out.add(SendClient(client, Refused("topic", frame.topic, "schema", str(error))))
        else:
            self._turn.tables.after(partial(self._answer, client, frame.topic))
        if self._count(frame.topic) > before:
            self._declared[client] += before < 0
            self._keep(frame.topic, None)

    def gone(self, client: int) -> None:
        """A client has left; what it has declared stays."""
        self._declared.pop(client, None)

    def describe(self, client: int, frame: Describe) -> None:
        """A client asks for a topic; it is answered once everything known of the topic is on disk."""
        if self._turn.tables.is_idle:
            self._answer(client, frame.topic)
        else:
            self._turn.tables.after(partial(self._answer, client, frame.topic))

    def heard(self, peer: str, frame: Topic) -> None:
        """A neighbour tells of a topic; the other neighbours are told if it is new here."""
        before = self._count(frame.topic)
        self._take(frame)
        if self._count(frame.topic) > before:
            self._keep(frame.topic, peer)
            self._turn.tables.after()

    def problem_of(self, batch: EventBatch) -> str | None:
        """Return why these events cannot be published; None if they can."""
        for shape in batch.shapes:
            if shape.topic not in self._registry.topics:
                return f"there is no topic {shape.topic!r}: declare it first"
        try:
            check_messages(batch, self._registry.schemas)
        except DecodeError as error:
            return f"an event is not as its schema says: {error}"
        return None

    def tell_all(self, peer: str) -> None:
        """Tell a neighbour that has just come up about every topic."""
        for topic in self._registry.topics:
            self._out.add(SendPeer(peer, self._frame(topic)))

    def _take(self, frame: Topic) -> None:
        """Add versions that fit those known; of others keep the schemas, so that their events can be read."""
        try:
            self._register(frame)
        except TidemarkError:
            self._counters["topics_conflicting"] += 1
            for text in frame.schemas:
                with suppress(TidemarkError):
                    self._registry.add(Schema.parse(text))

    def _register(self, frame: Topic) -> None:
        """Add all versions that are not known; raises TidemarkError if one does not fit."""
        schemas = [Schema.parse(text) for text in frame.schemas]
        if frame.is_open and not schemas:
            self._registry.open(frame.topic)
        elif not schemas:
            raise SchemaError("a declared topic needs a schema")
        for schema in schemas:
            if frame.is_open:
                self._registry.open(frame.topic, schema)
            else:
                self._registry.declare(frame.topic, schema)

    def _check_name(self, topic: str) -> None:
        if not TopicPattern.parse(topic).is_exact:
            raise SchemaError("the name of a topic has no wildcards")
        if len(self._registry.topics) >= TOPICS_MAX and topic not in self._registry.topics:
            raise SchemaError(f"there are {TOPICS_MAX} topics already, which is the limit")

    def _count(self, topic: str) -> int:
        found = self._registry.topics.get(topic)
        return -1 if found is None else len(found.versions)

    def _answer(self, client: int, topic: str) -> None:
        known = topic in self._registry.topics
        self._out.add(SendClient(client, self._frame(topic) if known else Topic(topic, False, ())))

    def _keep(self, topic: str, source: str | None) -> None:
        frame = self._frame(topic)
        self._counters["topics_learnt"] += 1
        self._out.add(SaveTopic(frame.topic, frame.is_open, frame.schemas))
        for peer in self._neighbourhood.present():
            if peer != source:
                self._out.add(SendPeer(peer, frame))
        self._listener.learnt()

    def _frame(self, topic: str) -> Topic:
        found = self._registry.topics[topic]
        return Topic(topic, found.is_open, tuple(schema.text for schema in found.versions))
