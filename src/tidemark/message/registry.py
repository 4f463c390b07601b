"""The registry: every schema by its fingerprint, and the versions of the schema of every topic.

A topic is either *declared* or *open*. A declared topic has one schema, and each new version is checked
against the versions before it. Of an open topic every shape that was ever published is a version, and the
topic is read through the least schema that all of them fit. A topic that was removed keeps its versions:
events of that time are read through them, also when the topic was created again since (`generations`).

A topic may have thousands of versions. The registry keeps their texts; what is made of a text to read and
write messages takes a hundred times the memory, so it is made for the schemas that are used and kept for
those used last. A new version costs time proportional to that version.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from weakref import ReferenceType, ref

from tidemark.errors import SchemaError
from tidemark.message.batches.reader import EventReader
from tidemark.message.codec.rest import Rest, no_rest
from tidemark.message.evolve import SchemaHistory
from tidemark.message.foreign.infer import ShapeUnion
from tidemark.message.generations import creation_of, is_removed, removal_of
from tidemark.message.schema import Schema, fingerprint_of
from tidemark.message.types import EMPTY, Tuple

#: Bytes of the texts of those schemas that are kept ready for use in one registry. Ready for use, a schema
#: takes about a hundred times as much.
READY_BYTES_MAX = 1 << 20


#: A schema of which the text is longer, or which defines names, takes so long to parse that others should not
#: wait for it.
LARGE_BYTES = 2 << 10
#: Bytes of the texts of the topics whose readers are kept, besides those readers that somebody holds.
READERS_BYTES_MAX = 1 << 20


class ParseWork:
    """A text to be parsed, on any thread: what it is given and what it finds are its own."""

    def __init__(self, text: str, *, to_read: bool = False) -> None:
        """With `to_read`, what reads messages of the schema is made too, which takes nearly as long."""
        self.text = text
        self._to_read = to_read
        #: the schema, or the error that its text has led to; None before the work was done
        self.found: Schema | Exception | None = None

    def __call__(self, rest: Rest = no_rest) -> None:
        """Do the work."""
        try:
            found = Schema._parse(self.text, rest)
            if self._to_read:
                found.make_ready(rest)
            self.found = found
        except Exception as error:  # what nobody foresaw comes up again where the text is used
            self.found = error


class ReaderWork:
    """The reader of a topic to be made, on any thread."""

    def __init__(self, topic: TopicSchemas, make: Callable[[Rest], Schema]) -> None:
        self._make = make
        #: as many versions the topic had when this was begun
        self.versions = len(topic.texts)
        self.schema: Schema | None = None

    def __call__(self, rest: Rest = no_rest) -> None:
        """Do the work."""
        self.schema = self._make(rest)


class SchemaTexts(Mapping[int, Schema]):
    """Every schema by its fingerprint; each is made from its text when it is needed."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        #: the fingerprints of those that define names, whose texts do not say how much is made of them
        self._of_names: set[int] = set()
        #: Schemas that are ready, in two generations: what is used moves to the young ones, and when those
        #: fill their half of READY_BYTES_MAX, the old ones that were not used meanwhile are dropped.
        self._young: dict[int, Schema] = {}
        self._young_bytes = 0
        self._old: dict[int, Schema] = {}

    def add(self, schema: Schema) -> Schema:
        """Keep a schema; SchemaError if another one has the same fingerprint."""
        if self.text(schema.fingerprint, schema.text) != schema.text:
            raise SchemaError(
                f"two schemas have the fingerprint {schema.fingerprint:016x}: reword one of them"
            )
        if schema.definitions:
            self._of_names.add(schema.fingerprint)
        self._keep(schema)
        return schema

    def text(self, fingerprint: int, new: str) -> str:
        """The text of the schema of this fingerprint; `new` if there was none before."""
        return self._texts.setdefault(fingerprint, new)

    def __getitem__(self, fingerprint: int) -> Schema:
        found = self._young.get(fingerprint)
        if found is None:
            found = self._old.get(fingerprint) or Schema.parse(self._texts[fingerprint])
            self._keep(found)
        return found

    def work(self, fingerprint: int) -> ParseWork | None:
        """What a large schema lacks to read messages, as work for any thread; None if it lacks nothing."""
        text = self._texts.get(fingerprint, "")
        if len(text) <= LARGE_BYTES and fingerprint not in self._of_names:
            return None
        found = self._young.get(fingerprint) or self._old.get(fingerprint)
        return None if found is not None and found.is_ready else ParseWork(text, to_read=True)

    def take(self, work: ParseWork) -> None:
        """Keep a schema ready that was parsed elsewhere, in place of one that is not."""
        if isinstance(work.found, Schema) and work.found.fingerprint in self._texts:
            self._keep(work.found)
            self._young[work.found.fingerprint] = work.found

    def parsed(self, text: str) -> Schema | None:
        """The schema of a large text, if some topic has it and it is at hand."""
        fingerprint = fingerprint_of(text) if len(text) > LARGE_BYTES else 0
        found = self._young.get(fingerprint) or self._old.get(fingerprint)
        return found if found is not None and found.text == text else None

    def __contains__(self, fingerprint: object) -> bool:
        return fingerprint in self._texts

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def _keep(self, schema: Schema) -> None:
        if schema.fingerprint in self._young:
            return
        if self._young_bytes + schema.weight > READY_BYTES_MAX // 2:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[schema.fingerprint] = schema
        self._young_bytes += schema.weight


class Registry:
    """Every schema by its fingerprint, and every topic."""

    def __init__(self) -> None:
        #: fingerprint -> schema. Shared by reference with the `EventReader` of every topic, which finds new
        #: schemas in it as they are added; only `add` and the topics change it.
        self.schemas = SchemaTexts()
        #: The topics that exist. Read by matching.audience; only `declare`, `open` and `remove` change it.
        self.topics: dict[str, TopicSchemas] = {}
        #: topic -> creation -> its versions, of creations that are removed
        self.removed: dict[str, dict[int, TopicSchemas]] = {}
        #: the names of the topics that exist, and of all that are known, removed ones too; sorted
        self.names: list[str] = []
        self.known_names: list[str] = []
        #: readers that are kept although nobody may hold them, the one used longest ago first
        self._readers: dict[tuple[str, int], EventReader] = {}
        self._readers_bytes = 0

    def add(self, schema: Schema) -> Schema:
        """Make a schema known and return it; SchemaError if another schema has the same fingerprint.

        Of two different schemas that is the case once in 2**64.
        """
        return self.schemas.add(schema)

    def generation(self, topic: str) -> int:
        """Return the newest generation of a topic that is known; 0 if it was never created."""
        found = self.topics.get(topic)
        if found is not None:
            return found.creation
        removed = self.removed.get(topic)
        return removal_of(max(removed)) if removed else 0

    def of_creation(self, topic: str, creation: int) -> TopicSchemas | None:
        """Return the versions of one creation of a topic, removed or not; None if it is not known."""
        found = self.topics.get(topic)
        if found is not None and found.creation == creation:
            return found
        return self.removed.get(topic, {}).get(creation)

    def creations_of(self, topic: str) -> list[TopicSchemas]:
        """Return all creations of a topic, oldest first; the last one exists unless it is removed."""
        removed = self.removed.get(topic, {})
        found = self.topics.get(topic)
        return [removed[each] for each in sorted(removed)] + ([found] if found is not None else [])

    def of_event(self, topic: str, fingerprint: int) -> TopicSchemas | None:
        """Return the versions that an event is read by: of the newest creation that has its schema.

        Where none has, it is the newest creation. None if the topic is not known.
        """
        found = self.topics.get(topic)
        if topic not in self.removed or (found is not None and fingerprint in found.texts):
            return found
        creations = self.creations_of(topic)
        return next((each for each in reversed(creations) if fingerprint in each.texts), creations[-1])

    def remove(self, topic: str, generation: int) -> None:
        """Take note that a creation of a topic is removed, with those before it, known or not."""
        creation = creation_of(generation)
        found = self.of_creation(topic, creation)
        if found is None:
            found = TopicSchemas(self, topic, is_open=False, creation=creation)
        newest = self.topics.get(topic)
        if newest is not None and newest.creation <= creation:
            self.removed.setdefault(topic, {})[newest.creation] = self.topics.pop(topic)
        self.removed.setdefault(topic, {})[creation] = found
        self._note(topic)

    def declare(self, topic: str, schema: Schema, generation: int = 0) -> TopicSchemas:
        """Create a declared topic, or give it a new version; an open topic becomes a declared one.

        A version may be of a creation that is removed: it is added to the versions of that one. SchemaError
        if the schema is no tuple, or if shapes of an open topic do not fit it; IncompatibleSchemaError if an
        earlier version does not allow this one. The registry is unchanged then.
        """
        known = self.of_creation(topic, creation_of(generation))
        if known is not None and known.is_open:
            found = self._closed(known, schema)
        else:
            found = self._topic(topic, generation, is_open=False).register(schema)
        self._put(found, generation)
        return found

    def take(self, topic: str, schemas: Iterable[Schema], generation: int, *, is_open: bool) -> None:
        """Add a creation of a topic with all its versions; SchemaError if they do not fit each other."""
        found = TopicSchemas(self, topic, is_open=is_open, creation=creation_of(generation))
        for schema in schemas:
            found.register(schema)
        self._put(found, generation)

    def _put(self, found: TopicSchemas, generation: int) -> None:
        """Keep the versions of a creation, which exists unless it is removed or a later one is known."""
        topic, creation = found.topic, found.creation
        newest = self.topics.get(topic)
        if creation in self.removed.get(topic, {}) or creation < creation_of(self.generation(topic)):
            self.removed.setdefault(topic, {})[creation] = found
        else:
            if newest is not None and newest.creation != creation:
                self.removed.setdefault(topic, {})[newest.creation] = newest
            self.topics[topic] = found
        self._note(topic)
        if is_removed(generation):
            self.remove(topic, generation)

    def _note(self, topic: str) -> None:
        """A topic has become known, or has come to exist or ceased to."""
        for names, is_in in ((self.names, topic in self.topics), (self.known_names, True)):
            at = bisect_left(names, topic)
            if (at < len(names) and names[at] == topic) != is_in:
                names[at : at + (not is_in)] = [topic] * is_in

    def _closed(self, known: TopicSchemas, schema: Schema) -> TopicSchemas:
        """The open topic as a declared one: its shapes are versions now, and `schema` is the newest."""
        found = TopicSchemas(self, known.topic, is_open=False, creation=known.creation)
        try:
            for shape in [each for each in known.versions if each != schema]:
                found.register(shape)
            return found.register(schema)
        except SchemaError as error:
            raise SchemaError(
                f"the topic {known.topic!r} is open, and has events that do not fit this schema: {error}; "
                "declare the fields as its shapes have them (`tidemark topic show`), or use another topic"
            ) from error

    def open(self, topic: str, shape: Schema | None = None, generation: int = 0) -> TopicSchemas:
        """Create an open topic, or add a shape to it, as `declare` does.

        SchemaError if the topic is declared, or if all shapes together would have too many fields.
        """
        found = self._topic(topic, generation, is_open=True)
        if shape is not None:
            found.register(shape)
        self._put(found, generation)
        return found

    def keep_reader(self, topic: TopicSchemas, reader: EventReader) -> None:
        """Keep the reader of a topic, which was used just now, and let go of those used longest ago."""
        key = (topic.topic, topic.creation)
        before = self._readers.pop(key, None)
        self._readers_bytes += reader.schema.weight
        self._readers_bytes -= before.schema.weight if before is not None else 0
        self._readers[key] = reader
        while self._readers_bytes > READERS_BYTES_MAX and len(self._readers) > 1:
            oldest = self._readers.pop(next(iter(self._readers)))
            self._readers_bytes -= oldest.schema.weight

    def _topic(self, topic: str, generation: int, *, is_open: bool) -> TopicSchemas:
        """A creation of a topic. A new one is not in the registry yet: its first version may be refused."""
        creation = creation_of(generation)
        found = self.of_creation(topic, creation)
        # Of a creation whose removal came before its versions, it is not known whether it was open.
        if found is None or (not found.texts and creation in self.removed.get(topic, {})):
            return TopicSchemas(self, topic, is_open=is_open, creation=creation)
        if found.is_open != is_open:
            kind = "open" if found.is_open else "declared"
            raise SchemaError(f"the topic {topic!r} is {kind} and stays so")
        return found


class TopicSchemas:
    """The versions of the schema of one creation of a topic, oldest first."""

    def __init__(self, registry: Registry, topic: str, *, is_open: bool, creation: int = 0) -> None:
        self._registry = registry
        self.topic = topic
        self.is_open = is_open
        #: the generation that these versions were declared in, an even number
        self.creation = creation
        #: fingerprint -> text of every version, oldest first
        self.texts: dict[int, str] = {}
        #: bytes of all texts, and what the schemas count for where their memory is bounded
        self.text_bytes = 0
        self.weight = 0
        #: of an open topic: all shapes, merged
        self._union = ShapeUnion()
        #: of a declared topic: what its versions had
        self._history = SchemaHistory()
        #: the reader, as long as somebody holds it or the registry keeps it
        self._reader: ReferenceType[EventReader] | None = None

    @property
    def versions(self) -> list[Schema]:
        """Every version as a schema, oldest first."""
        return [self._registry.schemas[fingerprint] for fingerprint in self.texts]

    @property
    def reader(self) -> EventReader:
        """Reads events of all versions.

        It is another object after a version that changes what the topic is read through, so that an owner of
        the old one (a matcher, a subscription) notices the change by identity.
        """
        found = self._reader() if self._reader is not None else None
        return found if found is not None else self._read_through(self._latest())

    @property
    def is_reader_due(self) -> bool:
        """Whether the reader is not there, and takes long to make."""
        return self.weight > LARGE_BYTES and (self._reader is None or self._reader() is None)

    def reader_work(self) -> ReaderWork | None:
        """The making of a large reader that is not there, as work for any thread; None if there is none.

        What comes of it is to be given to `take`.
        """
        if not self.is_reader_due:
            return None
        if self.is_open:
            root = self._union.type()
            return ReaderWork(self, lambda rest: Schema(root, rest=rest))
        fingerprint = next(reversed(self.texts))
        work = self._registry.schemas.work(fingerprint)
        return None if work is None else ReaderWork(self, partial(Schema._parse, work.text))

    def take(self, work: ReaderWork) -> None:
        """Use what was made elsewhere, unless there is another version meanwhile."""
        if work.schema is not None and work.versions == len(self.texts):
            self._read_through(work.schema)

    def _read_through(self, schema: Schema) -> EventReader:
        reader = EventReader(schema, self._registry.schemas, is_open=self.is_open)
        self._reader = ref(reader)
        self._registry.keep_reader(self, reader)
        return reader

    def register(self, schema: Schema) -> TopicSchemas:
        """Add a version, unless it is known already; returns these versions.

        Raises as `Registry.declare` does, and then nothing has changed.
        """
        if self.has(schema.text):
            return self
        if not isinstance(schema.root, Tuple) and not isinstance(schema.flat.root.type, Tuple):
            raise SchemaError(
                f"the events of {self.topic!r} need named fields: the schema must be a tuple `[...]`"
            )
        if self.is_open and schema.definitions:
            raise SchemaError("a shape with named schemas does not fit an open topic: declare the topic")
        if self.is_open:
            changed = self._union.add(schema.root) or not self.texts
        else:
            self._history.check(schema)
            self._history.add(schema)
            changed = True
        self._registry.add(schema)
        self.texts[schema.fingerprint] = schema.text
        self.text_bytes += len(schema.text.encode())
        self.weight += schema.weight
        if changed:
            self._reader = None
        return self

    def texts_from(self, first: int) -> tuple[str, ...]:
        """The texts of all versions but the first `first`, oldest first; costs only those."""
        newest_first = list(islice(reversed(self.texts.values()), max(0, len(self.texts) - first)))
        return tuple(reversed(newest_first))

    def has(self, text: str) -> bool:
        """Whether a schema with this canonical text is a version."""
        return self.texts.get(fingerprint_of(text)) == text

    def _latest(self) -> Schema:
        if not self.texts:
            return Schema(EMPTY)
        if self.is_open:
            return Schema(self._union.type())
        return self._registry.schemas[next(reversed(self.texts))]
