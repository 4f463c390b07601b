"""The registry: every schema by its fingerprint, and the versions of the schema of every topic.

A topic is either *declared* or *open*. A declared topic has one schema, and each new version is checked
against the versions before it. Of an open topic every shape that was ever published is a version, and the
topic is read through the least schema that all of them fit.
"""

from __future__ import annotations

from tidemark.errors import SchemaError
from tidemark.message.batches.reader import EventReader
from tidemark.message.evolve import check_compatible
from tidemark.message.foreign.infer import merge_shapes
from tidemark.message.schema import Schema
from tidemark.message.types import EMPTY, Tuple

#: Shapes of one open topic. A publisher whose events all differ in shape should declare a schema instead.
SHAPES_MAX = 1_000


class Registry:
    """Every schema by its fingerprint, and every topic."""

    def __init__(self) -> None:
        #: fingerprint -> schema. Shared by reference with the `EventReader` of every topic, which finds new
        #: schemas in it as they are added; only `add` changes it.
        self.schemas: dict[int, Schema] = {}
        #: Read by matching.audience; only `declare` and `open` change it.
        self.topics: dict[str, TopicSchemas] = {}

    def add(self, schema: Schema) -> Schema:
        """Make a schema known and return it; SchemaError if another schema has the same fingerprint.

        Of two different schemas that is the case once in 2**64.
        """
        known = self.schemas.setdefault(schema.fingerprint, schema)
        if known != schema:
            raise SchemaError(
                f"two schemas have the fingerprint {schema.fingerprint:016x}: reword one of them"
            )
        return known

    def declare(self, topic: str, schema: Schema) -> TopicSchemas:
        """Create a declared topic, or give it a new version.

        SchemaError if the topic is open or the schema no tuple, IncompatibleSchemaError if an earlier version
        does not allow this one. The registry is unchanged then.
        """
        found = self._topic(topic, is_open=False).register(schema)
        self.topics[topic] = found
        return found

    def open(self, topic: str, shape: Schema | None = None) -> TopicSchemas:
        """Create an open topic, or add a shape to it.

        SchemaError if the topic is declared, or has too many shapes already.
        """
        found = self._topic(topic, is_open=True)
        if shape is not None:
            found.register(shape)
        self.topics[topic] = found
        return found

    def _topic(self, topic: str, *, is_open: bool) -> TopicSchemas:
        """The topic of this name. A new one is not in the registry yet: its first version may be refused."""
        found = self.topics.get(topic)
        if found is None:
            return TopicSchemas(self, topic, is_open=is_open)
        if found.is_open != is_open:
            kind = "open" if found.is_open else "declared"
            raise SchemaError(f"the topic {topic!r} is {kind} and stays so")
        return found


class TopicSchemas:
    """The versions of one topic's schema, oldest first."""

    def __init__(self, registry: Registry, topic: str, *, is_open: bool) -> None:
        self._registry = registry
        self.topic = topic
        self.is_open = is_open
        self.versions: list[Schema] = []
        #: Reads events of all versions. Every new version brings a new reader, so that an owner of the old
        #: one (a matcher, a subscription) notices the change by identity.
        self.reader = EventReader(Schema(EMPTY), registry.schemas, is_open=is_open)

    def register(self, schema: Schema) -> TopicSchemas:
        """Add a version, unless it is known already; returns these versions.

        Raises as `Registry.declare` does, and then nothing has changed.
        """
        if schema in self.versions:
            return self
        if not isinstance(schema.flat.root.type, Tuple):
            raise SchemaError(
                f"the events of {self.topic!r} need named fields: the schema must be a tuple `[...]`"
            )
        if self.is_open:
            latest = self._merged(schema)
        else:
            for version in self.versions:
                check_compatible(version, schema)
            latest = schema
        self._registry.add(schema)
        self.versions.append(schema)
        self.reader = EventReader(latest, self._registry.schemas, is_open=self.is_open)
        return self

    def _merged(self, shape: Schema) -> Schema:
        if len(self.versions) >= SHAPES_MAX:
            raise SchemaError(
                f"the open topic {self.topic!r} has {SHAPES_MAX} different shapes of events already: "
                "declare a schema with optional fields instead"
            )
        if shape.definitions:
            raise SchemaError("a shape with named schemas does not fit an open topic: declare the topic")
        return Schema(merge_shapes([*(version.root for version in self.versions), shape.root]))
