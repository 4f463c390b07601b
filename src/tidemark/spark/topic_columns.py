"""How the events of a topic, or of all topics of a pattern, look as columns: one schema for a whole query.

`make_topic_columns` fixes the reader's schema when a query is made: the newest version of a declared topic,
the least schema that all shapes of an open topic fit, or the union of the schemas of several topics. Events
written in other versions, also in versions that appear later, are read by that schema: fields that it does
not have are ignored, fields that an event does not have are NULL. A topic that was removed and created again
counts as several topics, so that events of all its creations are there. `TopicColumnReader` turns event
batches into record batches with these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from tidemark.errors import ConfigError, DecodeError, SchemaError, SelectorError
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.checking import without_damaged
from tidemark.message.batches.columns import Bools
from tidemark.message.batches.reader import BatchColumns, EventReader
from tidemark.message.foreign.arrow.batches import as_read, to_record_batch
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.foreign.infer import merge_shapes
from tidemark.message.foreign.references import write_out
from tidemark.message.members import members
from tidemark.message.registry import Registry, TopicSchemas
from tidemark.message.schema import Schema
from tidemark.message.types import Tuple, Type
from tidemark.ticks import Range
from tidemark.wire.answers import TopicStatus

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns that every event has beside its fields. `_time` is the tick as a timestamp.
HEADERS = ("_pubend", "_tick", "_topic", "_publisher", "_time")
#: Names of which an array with many of each is kept, for columns in which all rows have one name.
_REPEATED_MAX = 8
#: The column that tells gaps from events: a struct of base and upto in the row of a gap, NULL for events.
GAP = "_gap"


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """The columns that a query has, and which events: made once on the driver and sent to every task."""

    pattern: str
    selector: str
    #: the reader's schema, as text
    schema: str
    #: of the columns, in their order
    names: tuple[str, ...]
    #: the topics that matched when the columns were chosen
    topics: tuple[TopicStatus, ...]


def make_topic_columns(
    topics: Sequence[TopicStatus], pattern: str, selector: str, columns: Sequence[str] | None, *, gaps: bool
) -> TopicColumns:
    """The columns of those of `topics` (as a broker lists them) that match the pattern.

    `columns` names those that are wanted, None stands for all; with `gaps` the column GAP is one of them.
    Raises ConfigError if no topic matches or a wanted column is unknown, SelectorError if the selector fits
    none of the topics.
    """
    chosen = _matching(topics, pattern)
    if not chosen:
        raise ConfigError(f"no topic matches {pattern!r}: create it first, or correct it", key="topic")
    registry = _registry(chosen)
    chosen_names = dict.fromkeys(each.topic for each in chosen)
    found = [creation for name in chosen_names for creation in registry.creations_of(name)]
    _check_selector(found, selector)
    schema = found[0].reader.schema if len(found) == 1 else _merged(found)
    names = _checked_columns(schema, columns, gaps=gaps)
    return TopicColumns(pattern, selector, schema.text, names, chosen)


class TopicColumnReader:
    """Turns event batches into record batches that have the columns of one `TopicColumns`."""

    def __init__(self, topic_columns: TopicColumns, ask: Callable[[], Sequence[TopicStatus]]) -> None:
        """`ask` returns the broker's current topics; an event whose schema is unknown here calls for it."""
        self.topic_columns = topic_columns
        self._ask = ask
        self._registry = _registry(topic_columns.topics)
        self._reader = EventReader(Schema.parse(topic_columns.schema), self._registry.schemas, is_open=True)
        self._matchers: dict[TopicSchemas, tuple[EventReader, Matcher | None]] = {}
        #: the columns of the batch that was found sound last, which is usually read next
        self._sound: BatchColumns | None = None
        #: a name -> an array with many of it; batch after batch has the same few names
        self._many: dict[str, pa.Array] = {}

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the record batches."""
        return arrow_columns(self.topic_columns)

    def records(self, pubend: str, batch: EventBatch) -> pa.RecordBatch:
        """The events of a batch as rows."""
        import pyarrow as pa

        self._learn(batch)
        columns, self._sound = self._sound, None
        if columns is None or columns.batch is not batch:
            columns = self._reader.columns(batch)
        fields = [name for name in self.topic_columns.names if name not in HEADERS and name != GAP]
        read = to_record_batch(columns, fields, headers=())
        topics = [shape.topic for shape in batch.shapes]
        made: dict[str, Callable[[], pa.Array]] = {
            "_pubend": lambda: self._repeated(pubend, batch.count),
            "_tick": lambda: _ticks(batch, pa.int64()),
            "_topic": lambda: self._named(topics, batch, "shape"),
            "_publisher": lambda: self._named(batch.publishers, batch, "publisher"),
            "_time": lambda: _ticks(batch, pa.timestamp("us", tz="UTC")),
            GAP: lambda: pa.nulls(batch.count, _gap_type()),
        }
        arrays = [made[name]() if name in made else read.column(name) for name in self.topic_columns.names]
        return pa.record_batch(arrays, schema=self.arrow_schema)

    def _named(self, names: Sequence[str], batch: EventBatch, field: str) -> pa.Array:
        """names[the number in each row's prelude] as an Arrow array of strings."""
        import pyarrow as pa

        if len(names) == 1:
            return self._repeated(names[0], batch.count)
        numbers = batch.prelude(field).astype(np.int32)
        indices = pa.Array.from_buffers(pa.int32(), batch.count, [None, pa.py_buffer(numbers)])
        return pa.DictionaryArray.from_arrays(indices, _texts(names)).dictionary_decode()

    def _repeated(self, name: str, count: int) -> pa.Array:
        many = self._many.get(name)
        if many is None or len(many) < count:
            if len(self._many) >= _REPEATED_MAX:
                self._many.clear()
            many = self._many[name] = _texts([name] * count)
        return many if len(many) == count else many.slice(0, count)

    def gap(self, pubend: str, base: int, upto: int) -> pa.RecordBatch:
        """One row which says that `(base, upto]` is gone. Its `_tick` is `upto`."""
        import pyarrow as pa

        values = {"_pubend": pubend, "_tick": upto, "_time": upto, GAP: {"base": base, "upto": upto}}
        arrays = [pa.array([values.get(field.name)], field.type) for field in self.arrow_schema]
        return pa.record_batch(arrays, schema=self.arrow_schema)

    def sound(self, batch: EventBatch) -> tuple[EventBatch | None, list[Range]]:
        """The events that can be decoded, None if none can, and the ticks of the others as ranges."""
        self._learn(batch)
        columns = self._reader.columns(batch)
        if columns.looks_sound():
            self._sound = columns
            return batch, []
        return without_damaged(batch, self._registry.schemas)

    def chosen(self, batch: EventBatch) -> EventBatch | None:
        """The events that pattern and selector choose, or None if they choose none.

        A broker filters what it sends; this does the same for events that come from the archive.
        """
        self._learn(batch)
        shapes_of: dict[TopicSchemas, list[int]] = {}
        for index, shape in enumerate(batch.shapes):
            found = self._registry.of_event(*shape)
            if found is not None:  # else no event has this shape
                shapes_of.setdefault(found, []).append(index)
        of_shape = batch.prelude("shape")
        wanted: Bools = np.zeros(batch.count, np.bool_)
        for topic, shapes in shapes_of.items():
            rows = np.flatnonzero(np.isin(of_shape, shapes))
            if not len(rows):
                continue
            wanted[rows] = self._matches(topic, batch if len(rows) == batch.count else batch.take(rows))
        return batch if wanted.all() else batch.take(wanted) if wanted.any() else None

    def _matches(self, topic: TopicSchemas, batch: EventBatch) -> Bools:
        reader, matcher = self._matcher(topic)
        if matcher is None:
            return np.zeros(batch.count, np.bool_)
        return cast(Bools, matcher.match(reader.columns(batch)) != 0)

    def _matcher(self, topic: TopicSchemas) -> tuple[EventReader, Matcher | None]:
        """The topic's reader, and its matcher unless the topic does not fit the pattern or the selector."""
        found, reader = self._matchers.get(topic), topic.reader
        if found is None or found[0] is not reader:
            matcher: Matcher | None = None
            if TopicPattern.parse(self.topic_columns.pattern).matches(topic.topic):
                try:
                    selector = Selector.parse(self.topic_columns.selector, reader, topic.topic)
                except SelectorError:
                    pass
                else:
                    matcher = Matcher(reader)
                    matcher.add(1, selector)
            found = self._matchers[topic] = reader, matcher
        return found

    def _learn(self, batch: EventBatch) -> None:
        if not self._unknown_topics(batch):
            return
        _register(self._registry, self._ask())
        for topic in self._unknown_topics(batch):
            raise DecodeError(
                f"the broker does not know the schema of some events of {topic!r}: declare the topic again "
                "with the schema they were published in"
            )

    def _unknown_topics(self, batch: EventBatch) -> list[str]:
        """The topics of those events of the batch whose schema is unknown here."""
        schemas = self._registry.schemas
        unknown = [
            index
            for index, shape in enumerate(batch.shapes)
            if self._registry.of_event(*shape) is None or shape.fingerprint not in schemas
        ]
        if not unknown:
            return []
        # The dictionary of a batch may name shapes of which it has no row.
        used = np.unique(batch.prelude("shape")).tolist()
        return [batch.shapes[index].topic for index in unknown if index in used]


def arrow_columns(topic_columns: TopicColumns) -> pa.Schema:
    """The Arrow fields of the columns, just as Spark has them after `spark.types.spark_fields`."""
    import pyarrow as pa

    types = _field_types(Schema.parse(topic_columns.schema))
    headers: dict[str, pa.Field] = {
        "_pubend": pa.field("_pubend", pa.string(), nullable=False),
        "_tick": pa.field("_tick", pa.int64(), nullable=False),
        "_topic": pa.field("_topic", pa.string()),
        "_publisher": pa.field("_publisher", pa.string()),
        "_time": pa.field("_time", pa.timestamp("us", tz="UTC"), nullable=False),
        GAP: pa.field(GAP, _gap_type()),
    }
    return pa.schema(
        [
            headers[name] if name in headers else pa.field(name, arrow_type(types[name]))
            for name in topic_columns.names
        ]
    )


def root_type(schema: Schema) -> Type:
    """The type of the events of a schema, with references written out."""
    return schema.flat.root.type


def _texts(texts: Sequence[str]) -> pa.Array:
    """An Arrow array of these texts. `pa.array` would import pandas, for which a new worker takes long."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _ticks(batch: EventBatch, item: pa.DataType) -> pa.Array:
    """The ticks as an Arrow array over the batch's own bytes, which nobody changes any more."""
    import pyarrow as pa

    return pa.Array.from_buffers(item, batch.count, [None, pa.py_buffer(batch.ticks)])


def _gap_type() -> pa.DataType:
    import pyarrow as pa

    return pa.struct([pa.field("base", pa.int64(), False), pa.field("upto", pa.int64(), False)])


def _matching(topics: Sequence[TopicStatus], pattern: str) -> tuple[TopicStatus, ...]:
    """The topics of the pattern that have a schema; an open topic has none before its first event."""
    parsed = TopicPattern.parse(pattern)
    return tuple(each for each in topics if each.schemas and parsed.matches(each.topic))


def _registry(topics: Iterable[TopicStatus]) -> Registry:
    registry = Registry()
    _register(registry, topics)
    return registry


def _register(registry: Registry, topics: Iterable[TopicStatus]) -> None:
    for each in topics:
        for text in each.schemas:
            schema = Schema.parse(text)
            add = registry.open if each.open else registry.declare
            add(each.topic, schema, each.generation)


def _check_selector(found: list[TopicSchemas], selector: str) -> None:
    """Raise SelectorError unless the selector fits at least one topic; for the others it is never true."""
    refusal: SelectorError | None = None
    for topic in found:
        try:
            Selector.parse(selector, topic.reader, topic.topic)
        except SelectorError as error:
            refusal = error
        else:
            return
    assert refusal is not None
    raise refusal


def _merged(found: list[TopicSchemas]) -> Schema:
    schemas = [topic.reader.schema for topic in found]
    return Schema(merge_shapes(write_out(schema.root, schema.definitions) for schema in schemas))


def _field_types(schema: Schema) -> dict[str, Type]:
    root = root_type(schema)
    assert isinstance(root, Tuple)
    return {member.name: member.type for member in members(cast(Tuple, as_read(root)))}


def _checked_columns(schema: Schema, wanted: Sequence[str] | None, *, gaps: bool) -> tuple[str, ...]:
    headers = (*HEADERS, GAP) if gaps else HEADERS
    fields = _field_types(schema)
    taken = [name for name in fields if name in (*HEADERS, GAP)]
    if taken:
        raise SchemaError(f"the field {taken[0]!r} has the name of a column that every source has: rename it")
    there = (*fields, *headers)
    if wanted is None:
        return there
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise ConfigError(f"there is no column {unknown[0]!r}: there are {', '.join(there)}", key="columns")
    if gaps and GAP not in wanted:
        raise ConfigError(
            f"with failOnGap=false the column {GAP} tells gaps from events: add it", key="columns"
        )
    return tuple(wanted)
