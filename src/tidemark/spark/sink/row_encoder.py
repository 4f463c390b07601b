"""Do the columns of a DataFrame make events of a topic? And rows encoded as events.

Types are compared before anything runs. What only values can show, a NULL in a mandatory field or a number
that is too large, fails in the task that meets it: nothing has been published then either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from tidemark.errors import EncodeError, SchemaError, TidemarkError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.foreign.arrow.batches import from_record_batch
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.members import members, split_option
from tidemark.message.schema import Schema
from tidemark.message.text import type_text
from tidemark.message.types import Atomic, Field, List, Path, Tuple, Type, path_text
from tidemark.spark.sink.dead_letters import letter
from tidemark.spark.topic_columns import GAP, HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

#: Events are published in batches of about this size.
PUBLISH_BYTES = 2 << 20
#: What an event takes beside its values, about: tick, end, prelude, and a header of a few fields.
_ROW_BYTES = 64


def check_fit(columns: pa.Schema, schema: Schema, topic: str, key: str | None) -> None:
    """Raise SchemaError, with everything that is wrong in one line, unless the columns fit the schema."""
    root = schema.flat.root.type
    assert isinstance(root, Tuple)
    wanted = {member.name: member for member in members(root)}
    problems = [_unknown(name, topic) for name in columns.names if name not in wanted and name != key]
    for name, member in wanted.items():
        is_optional = member.chosen or split_option(member.type)[1]
        if name in columns.names:
            problems += _type_problems(columns.field(name).type, member.type, (name,))
        elif not is_optional:
            problems.append(f"{name}: {topic!r} needs it and there is no such column")
    problems += _key_problems(columns, key)
    if problems:
        raise SchemaError(f"these columns are no events of {topic!r}: {'; '.join(problems)}")


class RowEncoder:
    """Encodes rows as events of one topic."""

    def __init__(
        self, schema: Schema, topic: str, key: str | None, publisher: str, dead_topic: str | None = None
    ) -> None:
        """Rows that do not fit become events of `dead_topic`; without one, they raise EncodeError."""
        self._schema = schema
        self._topic = topic
        self._key = key
        self._publisher = publisher
        self._dead_topic = dead_topic

    def encoded(self, records: Iterable[pa.RecordBatch]) -> Iterator[EventBatch]:
        """The rows as event batches, each of a size to publish and of one topic."""
        for whole in records:
            # Of equal size, and each small enough to be published as it is.
            parts = -(-(whole.nbytes + _ROW_BYTES * whole.num_rows) // PUBLISH_BYTES)
            step = max(1, -(-whole.num_rows // max(1, parts)))
            for first in range(0, whole.num_rows, step):
                yield from self._encoded(whole.slice(first, step))

    def _encoded(self, part: pa.RecordBatch) -> list[EventBatch]:
        keys = _keys(part, self._key)
        try:
            batch = from_record_batch(part, self._schema, self._topic, publisher=self._publisher, keys=keys)
            # Parsing checks the limits of what can be published, before anything is.
            return [EventBatch.parse(each.data) for each in batch.split(PUBLISH_BYTES)]
        except TidemarkError as error:
            if self._dead_topic is None:
                raise
            if part.num_rows == 1:
                return [letter(part, self._topic, str(error), self._dead_topic, self._publisher)]
        # Halves, until the rows that do not fit are alone.
        middle = part.num_rows // 2
        return [*self._encoded(part.slice(0, middle)), *self._encoded(part.slice(middle))]


def _keys(records: pa.RecordBatch, key: str | None) -> pa.Array | None:
    import pyarrow as pa

    return None if key is None else records.column(key).cast(pa.binary()).fill_null(b"")


def _unknown(name: str, topic: str) -> str:
    if name in HEADERS or name == GAP:
        return f"{name}: is given when an event is published, so drop the column"
    return f"{name}: {topic!r} has no such field"


def _key_problems(columns: pa.Schema, key: str | None) -> list[str]:
    import pyarrow.types as kinds

    if key is None:
        return []
    if key not in columns.names:
        return [f"{key}: is to be the key and there is no such column"]
    item = columns.field(key).type
    is_text = kinds.is_string(item) or kinds.is_binary(item)
    return [] if is_text else [f"{key}: a key is a string or binary, not {item}"]


def _type_problems(source: pa.DataType, item: Type, path: Path) -> list[str]:
    """What does not fit, with its path. Structs and lists are looked into; atomic values may be widened."""
    import pyarrow.types as kinds

    core, _ = split_option(item)
    target = arrow_type(item)
    if isinstance(core, Atomic):
        return _atomic_problems(source, core, path)
    if isinstance(core, List) and kinds.is_list(source):
        return _type_problems(source.value_type, core.item, path)
    if isinstance(core, Tuple) and kinds.is_struct(source) and kinds.is_struct(target):
        return _struct_problems(source, core, path)
    if _bare(source) == _bare(target):
        return []
    return [f"{path_text(path)}: Arrow's {source} is not {type_text(item)}, which is {target}"]


def _struct_problems(source: pa.DataType, item: Tuple, path: Path) -> list[str]:
    wanted = {member.name: member for member in members(item)}
    problems = []
    for field in source.fields:
        if field.name not in wanted:
            problems.append(f"{path_text((*path, field.name))}: there is no such field")
        else:
            problems += _type_problems(field.type, wanted[field.name].type, (*path, field.name))
    missing = wanted.keys() - {field.name for field in source.fields}
    problems += [
        f"{path_text((*path, name))}: is needed and not there"
        for name in sorted(missing)
        if not wanted[name].chosen and not split_option(wanted[name].type)[1]
    ]
    return problems


def _atomic_problems(source: pa.DataType, item: Atomic, path: Path) -> list[str]:
    """What the conversion itself says of a column of this type without rows."""
    import pyarrow as pa

    empty = pa.record_batch([pa.array([], source)], names=["c"])
    try:
        from_record_batch(empty, Schema(Tuple((Field("c", item),))), "t")
    except (EncodeError, SchemaError) as error:
        reason = error.reason if isinstance(error, EncodeError) else str(error)
        return [f"{path_text(path)}: {reason}"]
    return []


def _bare(item: pa.DataType) -> pa.DataType:
    """The type without nullability, which only values decide."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_struct(item):
        return pa.struct([pa.field(field.name, _bare(field.type)) for field in item.fields])
    if kinds.is_list(item):
        return pa.list_(pa.field("element", _bare(cast("pa.ListType", item).value_type)))
    return item
