"""Topics: the schemas a broker knows, and how they spread (docs/messages.md).

A client declares a topic at any broker; from there the topic goes to every neighbour that does not know it
yet. A topic is on disk before the client is told, so that a broker that holds an event of it can read the
event after a restart. An open topic may have thousands of shapes, so only what is new is saved and passed on.

A topic can be removed, and created again (`message.generations`). A broker keeps the schemas of what is
removed and tells them with the generation that removed it, so that events of that time can be read wherever
they still are, and so that a neighbour that was away cannot bring back what was removed meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidemark.broker.effects import SaveTopic, SendClient, SendPeer
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.errors import DecodeError, SchemaError, TidemarkError
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.checking import check_messages
from tidemark.message.generations import CREATIONS_MAX, creation_of, is_removed, removal_of
from tidemark.message.parse import defines_names
from tidemark.message.registry import ParseWork, Registry, TopicSchemas
from tidemark.message.schema import Schema, fingerprint_of
from tidemark.message.visible import control_problem, visible
from tidemark.wire.frames import Describe, Refused, Topic

if TYPE_CHECKING:
    from tidemark.broker.access.access_control import AccessControl
    from tidemark.broker.config import ClientLimits

#: A topic is a promise to remember a schema for ever.
TOPICS_MAX = 100_000
#: Versions of the schema of one declared topic, and shapes of one open topic, that clients may declare.
VERSIONS_MAX = 1_000
SHAPES_MAX = 10_000
#: Schemas of one open topic in one frame to a neighbour: as many as a broker of any version takes.
FRAME_SHAPES_MAX = 1_000
#: Bytes of schemas that a client may declare in one frame: all of them are ready for use at once, which takes
#: a hundred times as much.
DECLARED_BYTES_MAX = 256 << 10
#: A declaration of more bytes, or of a schema that defines names, is parsed in steps, before it is handled.
SMALL_BYTES = 2 << 10
#: A neighbour tells of a generation that is at most so far beyond the one that is known.
GENERATIONS_TOLD_MAX = 64
#: Of topics, and of the bytes of their schemas, neighbours may bring so many times what clients may.
HEARD_TIMES = 4


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """How many bytes of schemas clients may make this broker remember."""

    #: of one topic, all versions together
    topic_bytes_max: int = 4 << 20
    #: of all topics together
    all_bytes_max: int = 64 << 20


#: client, topic, the texts of all versions by fingerprint -> those that the client is told of
VersionsFor = Callable[[int, str, Mapping[int, str]], Mapping[int, str]]


class TopicListener(Protocol):
    """A part of the broker that may wait for a topic."""

    def learnt(self) -> None:
        """A version of a topic has become known."""


class ExistenceListener(Protocol):
    """A part of the broker that has subscribers of a topic."""

    def topic_created(self, topic: str) -> None:
        """A topic exists now, for the first time or again."""

    def topic_removed(self, topic: str) -> None:
        """A topic does not exist any more."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was known of one creation of a topic before a frame about it was handled."""

    #: how many versions; -1 if the creation was not known
    count: int
    is_open: bool
    is_removed: bool
    #: the creation that existed; None if none did
    existing: TopicSchemas | None


class Topics:
    """What one broker knows of topics."""

    def __init__(
        self,
        registry: Registry,
        turn: Turn,
        neighbourhood: Neighbourhood,
        listener: TopicListener,
        limits: TopicLimits,
        client_limits: ClientLimits,
        access: AccessControl,
    ) -> None:
        #: every topic that is known; all parts that match or read events hold it, only this one adds to it
        self._registry = registry
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._neighbourhood = neighbourhood
        self._listener = listener
        self._limits = limits
        #: bytes of the schemas of all topics
        self._bytes = 0
        self._client_limits = client_limits
        self._origins = access.origins
        self._versions_for: VersionsFor = access.versions
        #: client that is connected -> how many topics it was the first to declare
        self._declared: Counter[int] = Counter()
        #: text -> what came of it, of schemas that are declared next, by clients that wait for it
        self._prepared: dict[str, Schema | Exception] = {}
        #: told when a topic is created and when it is removed
        self.existence_listeners: tuple[ExistenceListener, ...] = ()

    def recover(self, topics: Iterable[Topic]) -> None:
        """Take the topics that the tables have."""
        for topic in topics:
            self._take(topic)

    def steps(self, frame: Topic) -> Iterator[ParseWork] | None:
        """Return the steps in which the schemas of a large declaration are parsed; None if it is small.

        See `Preparation`.
        """
        is_too_large = sum(map(len, frame.schemas)) > DECLARED_BYTES_MAX
        return self._steps(frame) if self.is_large(frame) and not is_too_large else None

    def is_large(self, frame: Topic) -> bool:
        """Return whether the schemas of a topic take long to parse."""
        return sum(map(len, frame.schemas)) > SMALL_BYTES or any(map(defines_names, frame.schemas))

    def steps_heard(self, frame: Topic) -> Iterator[ParseWork]:
        """Return the steps in which the schemas of a topic are parsed that a neighbour tells of."""
        return self._steps(frame)

    def _steps(self, frame: Topic) -> Iterator[ParseWork]:
        known = self._creation(frame)
        texts = [text for text in frame.schemas if known is None or not known.has(text)]
        try:
            for text in texts:
                if self._registry.schemas.parsed(text) is not None:
                    continue  # another topic has it
                work = ParseWork(text)
                yield work
                if work.found is not None:
                    self._prepared[text] = work.found
        except GeneratorExit:
            self._forget_prepared(texts)  # the client is gone
            raise

    def _forget_prepared(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._prepared.pop(text, None)

    def declare(self, client: int, frame: Topic) -> None:
        """A client declares a topic, a further version of it, or its removal.

        It is answered once that is on disk. A declaration of generation 0 is of the topic that exists.
        """
        problem = self._generation_problem(frame)
        if problem is not None:
            self._out.add(SendClient(client, Refused("topic", frame.topic, *problem)))
            return
        if is_removed(frame.generation):
            self._remove(client, frame)
            return
        if not frame.generation and frame.topic in self._registry.topics:
            frame = replace(frame, generation=self._registry.topics[frame.topic].creation)
        before = self._known(frame)
        if before.count < 0 and (who := self._who_has_declared_all(client)):
            self._counters["limits_refused"] += 1
            reason = f"{who} new topics, as many as limits.topics allows"
            self._out.add(SendClient(client, Refused("topic", frame.topic, "limit", reason)))
            return
        with self._turn.looking:
            schemas = self._read(frame)
        self._forget_prepared(frame.schemas)
        try:
            if isinstance(schemas, TidemarkError):
                raise schemas
            shapes = self._register(frame, schemas, self._limits)
        except TidemarkError as error:
            self._out.add(SendClient(client, Refused("topic", frame.topic, "schema", str(error))))
        else:
            # Of an open topic the client learns what it has declared, of a declared one all versions: it
            # writes its events in the newest.
            self._turn.tables.after(partial(self._answer, client, frame.topic, shapes))
            self._declared[client] += before.count < 0
        self._keep(frame, before, None)

    def _generation_problem(self, frame: Topic) -> tuple[str, str] | None:
        """Return the code and the reason if a client cannot declare or remove in this generation."""
        newest, name = self._registry.generation(frame.topic), frame.topic
        exists = name in self._registry.topics
        if is_removed(frame.generation):
            if not exists and name not in self._registry.removed:
                return "topic", f"there is no topic {name!r}"
            if frame.generation > removal_of(newest):
                return "topic", f"this broker has not heard of that creation of {name!r} yet: try again"
            return None
        if exists and frame.generation in (0, newest):
            return None
        if exists or frame.generation < newest:
            return "removed", self._removed_problem(name)
        if frame.generation > newest + 1:
            return "topic", f"this broker has not heard of the removal of {name!r} yet: try again"
        if frame.generation >= 2 * CREATIONS_MAX:
            return (
                "limit",
                f"{name!r} was created {CREATIONS_MAX} times, which is the limit: use another name",
            )
        return None

    def _removed_problem(self, topic: str) -> str:
        if topic in self._registry.topics:
            return f"the topic {topic!r} was removed and created again: ask for its schema, and publish again"
        return (
            f"the topic {topic!r} was removed: create it again (`tidemark topic create {topic} ...`), or "
            "publish to another one"
        )

    def _remove(self, client: int, frame: Topic) -> None:
        """Remove the creation that the client means, unless that has happened already."""
        before = self._known(frame)
        self._registry.remove(frame.topic, frame.generation)
        self._turn.tables.after(partial(self._answer, client, frame.topic, ()))
        self._keep(frame, before, None)

    def _who_has_declared_all(self, client: int) -> str:
        """Return who has declared as many topics as it may, the client or its address; "" if none has."""
        most, times = self._client_limits.topics, self._client_limits.address_times
        if self._declared[client] >= most:
            return f"this client has declared {most}"
        if self._origins.is_full(client, lambda each: self._declared[each], most, times):
            return f"this address has declared {times * most}, {times} times what one client may,"
        return ""

    def gone(self, client: int) -> None:
        """A client has left; what it has declared stays."""
        self._declared.pop(client, None)

    def describe(self, client: int, frame: Describe) -> None:
        """A client asks for a topic; it is answered once everything known of the topic is on disk."""
        if self._turn.tables.is_idle:
            self._answer(client, frame.topic, frame.shapes)
        else:
            self._turn.tables.after(partial(self._answer, client, frame.topic, frame.shapes))

    def lie_of(self, frame: Topic) -> str | None:
        """Return what no honest broker says of a topic, for a sentence that begins with the neighbour's name.

        Brokers tell of all creations of a topic one after the other. What clients may declare is bounded at
        each broker, so that honest neighbours bring little more than the bound.
        """
        name, known = frame.topic, self._registry.generation(frame.topic)
        if frame.generation > known + GENERATIONS_TOLD_MAX:
            return f"tells of generation {frame.generation} of the topic {name!r}, and {known} was the last"
        try:
            self._check_name(name, HEARD_TIMES)
        except TidemarkError as error:
            return f"tells of a topic {name!r}: {error}"
        creation = self._creation(frame)
        new = sum(len(text) for text in frame.schemas if creation is None or not creation.has(text))
        if new and self._bytes + new > HEARD_TIMES * self._limits.all_bytes_max:
            return f"tells of topics whose schemas have {self._bytes + new} bytes in all"
        return None

    def heard(self, peer: str, frame: Topic) -> None:
        """A neighbour tells of a topic; the other neighbours are told if it is new here."""
        before, known = self._known(frame), self._creation(frame)
        with self._turn.looking:
            for text in frame.schemas:
                if known is None or not known.has(text):
                    with suppress(TidemarkError):
                        self._schema(text)
        self._take(frame)
        self._forget_prepared(frame.schemas)
        if self._keep(frame, before, peer):
            self._turn.tables.after()

    def problem_of(self, batch: EventBatch) -> tuple[str, str] | None:
        """Return the code and the reason for which these events cannot be published; None if they can."""
        for publisher in batch.publishers:
            if not publisher.isprintable() and (problem := control_problem(publisher)) is not None:
                return "schema", f"the publisher {visible(publisher)!r}: {problem}"
        topics, removed = self._registry.topics, self._registry.removed
        for topic, fingerprint in batch.shapes:
            if topic in removed:
                found = self._registry.of_event(topic, fingerprint)
                if topics.get(topic) is not found:
                    return "removed", f"nothing of the batch was logged: {self._removed_problem(topic)}"
            elif topic not in topics:
                return "schema", f"there is no topic {topic!r}: declare it first"
        try:
            check_messages(batch, self._registry.schemas)
        except DecodeError as error:
            return (
                "schema",
                f"an event is not as its schema says, and nothing of the batch was logged: {error}",
            )
        return None

    def tell_all(self, peer: str) -> None:
        """Tell a neighbour that has just come up about every topic, also about those that are removed."""
        topics, removed = self._registry.topics, self._registry.removed
        for topic in [*topics, *(each for each in removed if each not in topics)]:
            for creation in self._registry.creations_of(topic):
                self._tell(peer, creation, 0)

    def _take(self, frame: Topic) -> None:
        """Add versions that fit those known; of others keep the schemas, so that their events can be read."""
        try:
            if is_removed(frame.generation):
                self._registry.remove(frame.topic, frame.generation)
            if frame.schemas or frame.is_open or not is_removed(frame.generation):
                self._register(frame, self._parsed(frame), None)
        except TidemarkError:
            self._counters["topics_conflicting"] += 1
            for text in frame.schemas:
                with suppress(TidemarkError):
                    self._registry.add(self._schema(text))

    def _read(self, frame: Topic) -> list[Schema | None] | TidemarkError:
        """Return the schemas of a declaration, or what is wrong with it."""
        try:
            self._check_name(frame.topic)
            self._check_size(frame)
            return self._parsed(frame)
        except TidemarkError as error:
            return error

    def _parsed(self, frame: Topic) -> list[Schema | None]:
        """Return the schemas of a topic, None for those that are versions of it already.

        A text that is known is not parsed again: publishers declare the same shapes all day.
        """
        known = self._creation(frame)
        return [
            None if known is not None and known.has(text) else self._schema(text) for text in frame.schemas
        ]

    def _schema(self, text: str) -> Schema:
        """Return the schema of a text, which may have been parsed before; TidemarkError if it is none."""
        found = self._prepared.get(text) or self._registry.schemas.parsed(text)
        if isinstance(found, Exception):
            raise found
        return found if found is not None else Schema.parse(text)

    def _register(
        self, frame: Topic, parsed: Sequence[Schema | None], limits: TopicLimits | None
    ) -> tuple[int, ...]:
        """Add all versions that are not known, within the limits; returns the fingerprints of all.

        Raises TidemarkError if one does not fit.
        """
        known, generation = self._creation(frame), frame.generation
        new = [schema for schema in parsed if schema is not None]
        if limits is not None:
            self._check_room(frame, new, limits)
        if frame.is_open and not new:
            self._registry.open(frame.topic, None, generation)
        elif not frame.schemas:
            raise SchemaError("a declared topic needs a schema")
        elif known is not None and known.is_open and not frame.is_open and not new:
            # Every version is a shape already: the last of them is what the topic has from now on.
            newest = self._registry.schemas[fingerprint_of(frame.schemas[-1])]
            self._registry.declare(frame.topic, newest, generation)
        for schema in new:
            before = known.text_bytes if known is not None else 0
            add = self._registry.open if frame.is_open else self._registry.declare
            known = add(frame.topic, schema, generation)
            self._bytes += known.text_bytes - before
        return tuple(
            fingerprint_of(text) if schema is None else schema.fingerprint
            for text, schema in zip(frame.schemas, parsed, strict=True)
        )

    def _check_room(self, frame: Topic, schemas: list[Schema], limits: TopicLimits) -> None:
        """Raise SchemaError if these versions would be too many, or too large, in all."""
        known = self._creation(frame)
        count = len(schemas) + (len(known.texts) if known is not None else 0)
        size = sum(len(schema.text.encode()) for schema in schemas)
        if not size:
            return
        if frame.is_open and count > SHAPES_MAX:
            raise SchemaError(
                f"the open topic {frame.topic!r} would have {count} different shapes of events, and may have "
                f"{SHAPES_MAX}: {_FEWER_SHAPES}"
            )
        if not frame.is_open and count > VERSIONS_MAX:
            raise SchemaError(
                f"the topic {frame.topic!r} would have {count} versions of its schema, and may have "
                f"{VERSIONS_MAX}: use a topic of another name"
            )
        of_topic = size + (known.text_bytes if known is not None else 0)
        if of_topic > limits.topic_bytes_max:
            advice = _FEWER_SHAPES if frame.is_open else "use a topic of another name"
            raise SchemaError(
                f"all versions of the schema of {frame.topic!r} would have {of_topic} bytes, and "
                f"limits.topic_schemas allows {limits.topic_bytes_max}: {advice}"
            )
        if self._bytes + size > limits.all_bytes_max:
            raise SchemaError(
                f"the schemas of all topics would have {self._bytes + size} bytes, and limits.all_schemas "
                f"allows {limits.all_bytes_max}: use fewer topics, or raise the limit"
            )

    def _check_size(self, frame: Topic) -> None:
        size = sum(map(len, frame.schemas))
        if size > DECLARED_BYTES_MAX:
            raise SchemaError(
                f"the schemas of one declaration have {size} bytes, and may have {DECLARED_BYTES_MAX}: "
                "declare the versions one after the other"
            )

    def _check_name(self, topic: str, times: int = 1) -> None:
        """Raise TidemarkError unless there may be a topic of this name, with `times` as many as usual."""
        topics_max = times * TOPICS_MAX
        if not TopicPattern.parse(topic).is_exact:
            raise SchemaError("the name of a topic has no wildcards")
        topics, removed = self._registry.topics, self._registry.removed
        if len(topics) + len(removed) >= topics_max and topic not in topics and topic not in removed:
            raise SchemaError(f"there are {topics_max} topics already, which is the limit")

    def _creation(self, frame: Topic) -> TopicSchemas | None:
        """Return the creation that a frame is about; None if it is not known."""
        return self._registry.of_creation(frame.topic, creation_of(frame.generation))

    def _known(self, frame: Topic) -> _Known:
        found, existing = self._creation(frame), self._registry.topics.get(frame.topic)
        if found is None:
            return _Known(-1, is_open=False, is_removed=False, existing=existing)
        return _Known(len(found.texts), found.is_open, self._is_removed(found), existing)

    def _existing_creation(self, topic: str) -> int | None:
        found = self._registry.topics.get(topic)
        return found.creation if found is not None else None

    def _is_removed(self, creation: TopicSchemas) -> bool:
        return self._registry.topics.get(creation.topic) is not creation

    def _generation_of(self, creation: TopicSchemas) -> int:
        return removal_of(creation.creation) if self._is_removed(creation) else creation.creation

    def _answer(self, client: int, topic: str, shapes: tuple[int, ...]) -> None:
        """Tell a client what a topic is: all of it, or the shapes of an open topic that it has asked for.

        It is the creation that has one of the shapes, or else the newest one.
        """
        creations = self._registry.creations_of(topic)
        found = next((each for each in reversed(creations) if not each.texts.keys().isdisjoint(shapes)), None)
        found = found or (creations[-1] if creations else None)
        if found is None:
            frame = Topic(topic, False, ())
        else:
            texts = self._versions_for(client, topic, found.texts)
            chosen = [each for each in shapes if each in texts] if found.is_open and shapes else texts
            told = tuple(texts[each] for each in chosen)
            frame = Topic(topic, found.is_open, told, self._generation_of(found))
        self._out.add(SendClient(client, frame))

    def _keep(self, frame: Topic, before: _Known, source: str | None) -> bool:
        """Save and pass on what was not known before; returns whether there is anything new.

        New are versions, that an open topic is declared now, and that the topic is removed.
        """
        found = self._creation(frame)
        if found is None:
            return False
        has_closed = before.is_open and not found.is_open
        was_removed = not before.is_removed and self._is_removed(found)
        if len(found.texts) <= before.count and not has_closed and not was_removed:
            return False
        first = max(before.count, 0)
        self._counters["topics_learnt"] += 1
        # A shape that an open topic was declared with is saved again, behind the others: it is the newest.
        saved_from = first - 1 if has_closed and len(found.texts) == before.count else first
        generation = self._generation_of(found)
        self._out.add(SaveTopic(frame.topic, found.is_open, found.texts_from(saved_from), generation))
        for peer in self._neighbourhood.present():
            if peer != source:
                self._tell(peer, found, 0 if has_closed else first)
        self._listener.learnt()
        existed = before.existing.creation if before.existing is not None else None
        exists = self._existing_creation(frame.topic)
        if existed == exists:
            return True
        self._counters["topics_removed"] += existed is not None
        for listener in self.existence_listeners:
            if existed is not None:
                listener.topic_removed(frame.topic)
            if exists is not None:
                listener.topic_created(frame.topic)
        return True

    def _tell(self, peer: str, creation: TopicSchemas, first: int) -> None:
        """Tell a neighbour of the versions of a topic after the first `first`, in as many frames as needed.

        The neighbour has those before: frames about topics are never dropped while a link is up.
        """
        texts, generation = creation.texts_from(first), self._generation_of(creation)
        for at in range(0, len(texts) or 1, FRAME_SHAPES_MAX):
            part = texts[at : at + FRAME_SHAPES_MAX]
            self._out.add(SendPeer(peer, Topic(creation.topic, creation.is_open, part, generation)))


_FEWER_SHAPES = (
    "give events with the same meaning the same fields (keys that are data belong into a list, or into the "
    "values), or declare a schema with optional fields"
)
