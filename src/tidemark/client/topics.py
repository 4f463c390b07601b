"""ClientTopics: the schemas that a client knows, and how it learns and declares them.

A value is encoded by the newest version of a declared topic or, in an open topic, by its own shape, which the
client declares when it first meets it. A delivered event is read by the schema in which it was written: if
the client does not know that schema, it asks the broker before the event is handed out.

An open topic may have thousands of shapes. The client asks for all of them once, when it first reads events
of the topic, and from then on for those that it meets and does not know; a client that only publishes asks
for the shapes of its own events. Shapes are parsed when they are used.

A topic may be removed and created again (`message.generations`). An event is read as the newest creation that
has its schema says; nothing is written to a topic that is removed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from typing import Any

import numpy as np

from tidemark.client.connecting.link import closed
from tidemark.client.connecting.refusals import error_of
from tidemark.errors import DecodeError, EncodeError, RefusedError, SchemaError, TidemarkError
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.checking import without_damaged
from tidemark.message.batches.reader import EventReader
from tidemark.message.foreign.infer import infer, merge_shapes
from tidemark.message.foreign.references import write_out
from tidemark.message.generations import creation_of, is_removed, removal_of
from tidemark.message.registry import Registry, TopicSchemas
from tidemark.message.schema import Schema, fingerprint_of
from tidemark.message.types import Path
from tidemark.ticks import Range
from tidemark.wire.frames import Describe, Refused, Topic
from tidemark.wire.limits import SHAPES_ASKED_MAX

#: How many kinds of values are remembered for one open topic; forgotten ones are inferred again.
KINDS_MAX = 4_096
READERS_MAX = 64
#: Functions that read one field of one shape, remembered for one topic.
ACCESSORS_MAX = 16_384
#: Classes whose values all have the same type in the schema language.
_PLAIN = frozenset((bool, int, float, str, bytes, type(None), datetime))

Accessor = Callable[[bytes], Any]
Send = Callable[[Describe | Topic], None]
#: The version of the protocol from which on a broker removes topics.
REMOVAL_VERSION = 6


class KnownTopic:
    """One topic as this client knows it."""

    def __init__(self, registry: Registry, schemas: TopicSchemas) -> None:
        self._registry = registry
        self._schemas = schemas
        #: fingerprint -> text of every version that the client knows
        self.texts: dict[int, str] = {}
        #: the versions that are not in `_schemas` yet
        self._pending: list[int] = []
        #: the broker was asked for all versions, not only for some shapes
        self.is_whole = False
        #: of a declared topic: the fingerprint of the version that new events are written in
        self._newest = 0
        #: nothing is written to it, because it was removed
        self.is_removed = False
        #: it may have been removed: the broker is asked before anything is written to it
        self.is_doubtful = False
        #: of an open topic: the kind of a value -> its shape
        self.kinds: dict[object, Shape] = {}
        self.accessors: dict[tuple[int, str], Accessor] = {}

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._schemas.topic

    @property
    def creation(self) -> int:
        """The generation that the versions belong to."""
        return self._schemas.creation

    @property
    def is_open(self) -> bool:
        """Whether the topic gathers the shapes of what is published."""
        return self._schemas.is_open

    @property
    def newest(self) -> Schema:
        """The version that new events are written in."""
        return self._registry.schemas[self._newest]

    @property
    def reader(self) -> EventReader:
        """Reads events of all versions that the client knows."""
        for fingerprint in self._pending:
            self._schemas.register(self._registry.schemas[fingerprint])
        self._pending.clear()
        return self._schemas.reader

    def learn(self, texts: Sequence[str]) -> list[int]:
        """Take versions that the broker has told of; returns the fingerprints of those that are new.

        SchemaError if two schemas have the same fingerprint, or one of a declared topic is not understood.
        """
        new = []
        for text in texts:
            fingerprint = fingerprint_of(text)
            if fingerprint not in self.texts:
                if self._registry.schemas.text(fingerprint, text) != text:
                    raise SchemaError(f"two schemas have the fingerprint {fingerprint:016x}")
                self.texts[fingerprint] = text
                self._pending.append(fingerprint)
                new.append(fingerprint)
        if not self.is_open and texts:
            self._newest = fingerprint_of(texts[-1])
            _ = self.reader
        return new

    def has(self, path: Path) -> bool:
        """Whether some version that the client knows has this field."""
        word = path[-1].replace('"', '""')
        return any(
            word in text and self._registry.schemas[fingerprint].holder(path) is not None
            for fingerprint, text in self.texts.items()
        )


class ClientTopics:
    """Every topic that the client has met. `send` may drop frames: `again` sends them again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._registry = Registry()
        #: topic -> the newest creation of it that the client has heard of
        self._known: dict[str, KnownTopic] = {}
        #: topic -> the other creations, whose events may still come, by their generation
        self._earlier: dict[str, dict[int, KnownTopic]] = {}
        #: shape -> the topic that reads it
        self._shapes: dict[Shape, KnownTopic] = {}
        self._readers: dict[frozenset[KnownTopic], EventReader] = {}
        #: topic -> the frames about it that are not answered; the broker answers them in this order
        self._asked: dict[str, deque[tuple[Describe | Topic, asyncio.Future[Topic]]]] = {}
        self._is_closed = False

    # Asking.

    async def describe(self, topic: str, shapes: tuple[int, ...] = ()) -> Topic:
        """Ask the broker what a topic is; without schemas and not open, there is no such topic.

        With `shapes`, only these shapes of an open topic are asked for.
        """
        return await self._ask(topic, Describe(topic, shapes))

    async def declare(self, topic: str, schema: Schema | None, *, is_open: bool, generation: int = 0) -> None:
        """Create a topic, or add a version (of an open topic: a shape) to it; RefusedError if refused."""
        await self._ask(topic, Topic(topic, is_open, () if schema is None else (schema.text,), generation))

    async def create(self, topic: str, schema: Schema | None, *, is_open: bool) -> None:
        """Declare a topic as `declare` does, also if it was removed: it is created again then."""
        try:
            await self.declare(topic, schema, is_open=is_open)
        except RefusedError as error:
            if error.code != "removed":
                raise
            answer = await self.describe(topic)
            again = answer.generation + is_removed(answer.generation)
            await self.declare(topic, schema, is_open=is_open, generation=again)

    async def remove(self, topic: str) -> None:
        """Remove the topic as it is now; RefusedError if there is none, or it is refused."""
        answer = await self.describe(topic)
        if is_removed(answer.generation) or not (answer.schemas or answer.is_open):
            raise RefusedError(f"there is no topic {topic!r}", what="topic", name=topic, code="topic")
        await self._ask(topic, Topic(topic, False, (), removal_of(answer.generation)))

    def doubt(self) -> None:
        """The broker refused events of a topic that was removed: ask again before more are written."""
        for known in self._known.values():
            known.is_doubtful = True

    async def prepare(self, topic: str, value: Any) -> None:
        """Learn or declare what `encode` needs to encode `value`. RefusedError, EncodeError."""
        known = self._known.get(topic)
        if known is None:
            await self.describe(topic, _shape_of(value))
        elif known.is_removed or known.is_doubtful:
            await self.describe(topic)
        known = self._known.get(topic)
        if known is not None and known.is_removed:
            # An answer about a shape may be about an earlier creation.
            if is_removed((await self.describe(topic)).generation):
                reason = f"the topic {topic!r} was removed: create it again, or publish to another one"
                raise RefusedError(reason, what="publish", name=topic, code="removed")
            known = self._known[topic]
        if known is not None and not known.is_open:
            return
        _kind(value)
        schema = Schema(infer(value))
        if known is not None and self._shapes.get(Shape(topic, schema.fingerprint)) is known:
            return
        try:
            await self.declare(topic, schema, is_open=True)
        except RefusedError:
            # Another client may have declared the topic just now.
            self._known.pop(topic, None)
            answer = await self.describe(topic)
            if answer.is_open or not answer.schemas:
                raise

    def _ask(self, topic: str, frame: Describe | Topic) -> asyncio.Future[Topic]:
        if self._is_closed:
            raise closed()
        future: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(topic, deque()).append((frame, future))
        self._send(frame)
        return future

    def again(self) -> None:
        """A new connection: send again what is not answered. Describing and declaring twice does no harm."""
        for asked in self._asked.values():
            for frame, _ in asked:
                self._send(frame)

    def end_waiting(self) -> None:
        """The client is closed: whoever waits for an answer, or asks from now on, gets a ClosedError."""
        self._is_closed = True
        for topic, asked in list(self._asked.items()):
            for _ in range(len(asked)):
                self._settle(topic, closed())

    def answered(self, frame: Topic) -> None:
        """The broker said what a topic is."""
        problem: TidemarkError | None = None
        asked = self._asked.get(frame.topic)
        try:
            self._learn(frame, is_whole=asked is not None and asked[0][0] == Describe(frame.topic))
        except TidemarkError as error:
            problem = error
        self._settle(frame.topic, frame if problem is None else problem)

    def refused(self, frame: Refused) -> None:
        """The broker refused to declare or describe a topic."""
        error = error_of(frame)
        self._settle(frame.name, error)

    def _settle(self, topic: str, answer: Topic | TidemarkError) -> None:
        asked = self._asked.get(topic)
        if not asked:
            return
        _, future = asked.popleft()
        if not asked:
            del self._asked[topic]
        if future.done():
            return
        if isinstance(answer, Topic):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    # Learning.

    def _learn(self, frame: Topic, *, is_whole: bool) -> None:
        topic, creation = frame.topic, creation_of(frame.generation)
        if not frame.schemas and not frame.is_open and not frame.generation:
            return  # there is no such topic
        known = self._creation(topic, creation)
        if known is not None and known.is_open != frame.is_open and frame.schemas:
            known = None
        if known is None:
            schemas = TopicSchemas(self._registry, topic, is_open=frame.is_open, creation=creation)
            known = KnownTopic(self._registry, schemas)
        new = known.learn(frame.schemas)
        self._keep(topic, known)
        known.is_whole = known.is_whole or is_whole
        known.is_removed = known.is_removed or is_removed(frame.generation)
        known.is_doubtful = False
        if new:
            for shape in [Shape(topic, fingerprint) for fingerprint in new]:
                before = self._shapes.get(shape)
                if before is None or before.creation <= creation:
                    self._shapes[shape] = known
            self._readers.clear()
            # Accessors of a declared topic read by its newest version, those of an open one by the event's.
            if not known.is_open:
                known.accessors.clear()

    def _creation(self, topic: str, creation: int) -> KnownTopic | None:
        newest = self._known.get(topic)
        if newest is not None and newest.creation == creation:
            return newest
        return self._earlier.get(topic, {}).get(creation)

    def _keep(self, topic: str, known: KnownTopic) -> None:
        """Keep a creation of a topic, as the newest one or beside it."""
        newest, earlier = self._known.get(topic), known
        if newest is None or newest.creation <= known.creation:
            self._known[topic] = known
            if newest is None or newest.creation == known.creation:
                return
            earlier = newest
        earlier.is_removed = True
        self._earlier.setdefault(topic, {})[earlier.creation] = earlier

    # Writing.

    def encode(self, topic: str, value: Any) -> tuple[Shape, bytes] | None:
        """The shape and encoded fields of a value; None if `prepare` has to be awaited first.

        EncodeError if the value does not fit the topic.
        """
        known = self._known.get(topic)
        if known is None or known.is_removed or known.is_doubtful:
            return None
        if not known.is_open:
            schema = known.newest
            return Shape(topic, schema.fingerprint), schema.encode(value)
        kind = _kind(value)
        found = known.kinds.get(kind)
        if found is None:
            shape = Shape(topic, Schema(infer(value)).fingerprint)
            if self._shapes.get(shape) is not known:
                return None
            if len(known.kinds) >= KINDS_MAX:
                known.kinds.clear()
            found = known.kinds[kind] = shape
        return found, self._registry.schemas[found.fingerprint].encode(value)

    # Reading.

    def missing(self, batch: EventBatch) -> list[str]:
        """The topics that the broker must be asked about before the events of this batch can be read."""
        known = self._shapes
        unknown = [index for index, shape in enumerate(batch.shapes) if shape not in known]
        if not unknown:
            return []
        # A batch may name shapes that none of its rows has.
        used = np.unique(batch.prelude("shape")).tolist()
        return sorted({batch.shapes[index].topic for index in unknown if index in used})

    async def fetch(self, batch: EventBatch) -> None:
        """Learn the schemas that this batch needs; DecodeError if the broker does not know them either."""
        missing = self.missing(batch)
        for topic in missing:
            known = self._known.get(topic)
            if known is None or not known.is_open or not known.is_whole:
                await self.describe(topic)
            unknown = self._unknown(topic, batch)
            for at in range(0, len(unknown), SHAPES_ASKED_MAX):
                await self.describe(topic, tuple(unknown[at : at + SHAPES_ASKED_MAX]))
            # What is left is of earlier creations; an answer is about one of them.
            left: list[int] = []
            while (unknown := self._unknown(topic, batch)) and unknown != left:
                await self.describe(topic, tuple(unknown[:SHAPES_ASKED_MAX]))
                left = unknown
        still = self.missing(batch) if missing else []
        if still:
            raise DecodeError(
                f"the broker does not know the schema of some events of {', '.join(still)}: "
                "declare the topic again with the schema they were published in"
            )

    def _unknown(self, topic: str, batch: EventBatch) -> list[int]:
        """The fingerprints of those shapes of a topic in a batch that the client does not know."""
        return [each.fingerprint for each in batch.shapes if each.topic == topic and each not in self._shapes]

    def without_damaged(self, batch: EventBatch) -> tuple[EventBatch | None, list[Range]]:
        """The events of a batch that can be decoded, and the ticks of the others, which an old broker let in.

        Nothing must be `missing`.
        """
        return without_damaged(batch, self._registry.schemas)

    def decode(self, shape: Shape, message: bytes) -> Any:
        """All fields of an encoded message."""
        known = self._shapes[shape]
        if known.is_open:
            return self._registry.schemas[shape.fingerprint].decode(message)
        return known.reader.resolution(shape.fingerprint).decode(message)

    def excerpt(self, shape: Shape) -> Topic:
        """The topic of `shape` as far as it takes to read events of that shape: for another ClientTopics."""
        known = self._shapes[shape]
        written, read = self._registry.schemas[shape.fingerprint], known.reader.schema
        texts = (written.text,) if written == read else (written.text, read.text)
        return Topic(shape.topic, known.is_open, texts)

    def accessor(self, shape: Shape, path: str) -> Accessor:
        """A function that reads one field from messages of this shape; KeyError if no event can have it."""
        known = self._shapes[shape]
        found = known.accessors.get((shape.fingerprint, path))
        if found is None:
            if len(known.accessors) >= ACCESSORS_MAX:
                known.accessors.clear()
            found = known.accessors[shape.fingerprint, path] = self._accessor(known, shape, path)
        return found

    def _accessor(self, known: KnownTopic, shape: Shape, path: str) -> Accessor:
        key = tuple(path.split("."))
        if known.is_open:
            schema = self._registry.schemas[shape.fingerprint]
            if schema.holder(key) is not None:
                return schema.accessor(key)
            if known.has(key):
                return _absent
        reader = known.reader
        if reader.schema.holder(key) is None:
            raise reader.unknown_field(path, shape.topic)
        return _absent if known.is_open else reader.resolution(shape.fingerprint).accessor(key)

    def reader(self, batch: EventBatch) -> EventReader:
        """A reader of all events of a batch; for several topics, by the least schema that all of them fit."""
        topics = frozenset(self._shapes[shape] for shape in batch.shapes if shape in self._shapes)
        if len(topics) == 1:
            return next(iter(topics)).reader
        found = self._readers.get(topics)
        if found is None:
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            ordered = sorted(topics, key=lambda each: (each.name, each.creation))
            schemas = [topic.reader.schema for topic in ordered]
            merged = merge_shapes(write_out(schema.root, schema.definitions) for schema in schemas)
            found = EventReader(Schema(merged), self._registry.schemas, is_open=True)
            self._readers[topics] = found
        return found


def _kind(value: Any) -> object:
    """The kind of a value: values of one kind have one shape. Cheap for a dict of plain values, as most are.

    EncodeError if the value is no dict and no dataclass instance.
    """
    if type(value) is dict:
        classes = tuple(map(type, value.values()))
        if _PLAIN.issuperset(classes):
            return (*value, *classes)
    elif not isinstance(value, dict) and (not is_dataclass(value) or isinstance(value, type)):
        raise EncodeError(f"an event is a dict or a dataclass instance, not {type(value).__name__}")
    return infer(value)


def _shape_of(value: Any) -> tuple[int, ...]:
    """The fingerprint of the shape of a value; none if the value has no shape, though it may fit a schema."""
    try:
        return (Schema(infer(value)).fingerprint,)
    except EncodeError:
        return ()


def _absent(_: bytes) -> None:
    return None
