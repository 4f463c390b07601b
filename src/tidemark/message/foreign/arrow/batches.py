"""Event batches to Arrow record batches and back.

Fields are converted as arrays, for all rows at once. Nested fields are, too, when all rows are written in the
reader's own schema; otherwise they are converted value by value. Both ways follow the rules of
`message.foreign.arrow.types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tidemark.errors import MessageError
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.building import BatchSpace, from_messages
from tidemark.message.batches.columns import Column, Spans
from tidemark.message.batches.reader import BatchColumns, absent_column
from tidemark.message.batches.scatter import encode_columns, is_flat_record
from tidemark.message.foreign.arrow.columns import array_column, column_array
from tidemark.message.foreign.arrow.gather import NotColumnarError, field_array
from tidemark.message.foreign.arrow.scatter import encode_arrays, is_columnar
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.foreign.arrow.values import from_arrow_value, to_arrow_value
from tidemark.message.members import members, split_option
from tidemark.message.schema import Schema
from tidemark.message.types import (
    BYTES,
    Atomic,
    Dynamic,
    Field,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
    is_spliced,
    optional,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Schemas of which it is remembered how they look in Arrow: batch after batch has the same one.
_SCHEMAS_KEPT_MAX = 16

#: Columns of headers that a record batch has after the fields.
HEADER_COLUMNS = ("_topic", "_tick", "_priority", "_publisher")


def as_read(item: Type) -> Type:
    """The type of the values that a reader may see: messages of another version may lack any field."""
    match item:
        case Tuple():
            return Tuple(
                tuple(
                    # A spliced field stays spliced; the fields inside it become optional.
                    Field(field.name, as_read(field.type) if is_spliced(field) else _maybe(field.type))
                    for field in item.fields
                )
            )
        case Variant():
            return Variant(tuple(Field(case.name, as_read(case.type)) for case in item.cases))
        case List():
            return List(as_read(item.item))
        case Atomic() | Dynamic() | Reference():
            return item


def to_record_batch(
    columns: BatchColumns, names: Sequence[str] | None = None, *, headers: Sequence[str] = HEADER_COLUMNS
) -> pa.RecordBatch:
    """A record batch of the events' fields (all, or those named), each nullable, and of their headers."""
    import pyarrow as pa

    found = _read_fields(columns.reader.schema)
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    for name in names if names is not None else found:
        arrays.append(_field_array(columns, name, found[name][0]))
        fields.append(pa.field(name, found[name][1]))
    for name in headers:
        column = columns.column((name,))
        arrays.append(_array(column, column.type))
        fields.append(pa.field(name, arrow_type(column.type), nullable=False))
    return pa.record_batch(arrays, schema=pa.schema(fields))


@lru_cache(_SCHEMAS_KEPT_MAX)
def _read_fields(schema: Schema) -> Mapping[str, tuple[Type, pa.DataType]]:
    """name -> the type of the values that a reader may see in a field, and of its column."""
    root = schema.flat.root.type
    assert isinstance(root, Tuple)
    read = members(cast(Tuple, as_read(root)))
    return {member.name: (member.type, arrow_type(member.type)) for member in read}


def from_record_batch(
    records: pa.RecordBatch, schema: Schema, topic: str, *, publisher: str = "", keys: pa.Array | None = None
) -> EventBatch:
    """The rows as events of `schema` with ticks 0; EncodeError if a row does not fit."""
    shape = Shape(topic, schema.fingerprint)
    spans = None if keys is None else cast(Spans, array_column(keys, BYTES, ("key",)).values)
    if is_flat_record(schema):
        columns = {path: _field_column(records, schema, path) for path in schema.paths()}
        space = BatchSpace(shape, publisher=publisher, keys=spans)
        encode_columns(schema, columns, records.num_rows, space.make)
        return space.batch
    return from_messages(shape, _nested(records, schema), publisher=publisher, keys=spans)


def _field_array(columns: BatchColumns, name: str, item: Type) -> pa.Array:
    own = None if isinstance(split_option(item)[0], Atomic) else columns.own
    if own is not None:
        try:
            return field_array(own, name, item, arrow_type(item))
        except NotColumnarError:
            pass
    return _array(columns.column((name,)), item)


def _nested(records: pa.RecordBatch, schema: Schema) -> Spans:
    """The messages of rows of a schema that is no flat record."""
    import pyarrow as pa

    if is_columnar(schema):
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        try:
            return encode_arrays(schema, arrays, records.num_rows)
        except (MessageError, pa.ArrowException):
            # Value by value the error names the one that does not fit; or it turns out that all do.
            return _one_by_one(records, schema)
    return _one_by_one(records, schema)


def _one_by_one(records: pa.RecordBatch, schema: Schema) -> Spans:
    """The messages of the rows, encoded one at a time."""
    root = schema.flat.root.type
    assert isinstance(root, Tuple)
    wanted = records.select([member.name for member in members(root) if member.name in records.schema.names])
    encoded = [schema.encode(from_arrow_value(root, value)) for value in wanted.to_pylist()]
    ends = np.cumsum([len(message) for message in encoded], dtype=np.int64)
    starts = ends - np.array([len(message) for message in encoded], np.int64)
    return Spans(np.frombuffer(b"".join(encoded), np.uint8), starts, ends)


def _field_column(records: pa.RecordBatch, schema: Schema, path: Path) -> Column:
    item = schema.type_of(path)
    assert isinstance(item, Atomic)
    if path[0] not in records.schema.names:
        return absent_column(item, records.num_rows)
    return array_column(records.column(path[0]), item, path)


def _maybe(item: Type) -> Type:
    inner = as_read(item)
    return inner if split_option(inner)[1] else optional(inner)


def _array(column: Column, item: Type) -> pa.Array:
    import pyarrow as pa

    if not isinstance(column.type, Atomic) or isinstance(column.values, Sequence):
        return pa.array([to_arrow_value(item, value) for value in _listed(column)], arrow_type(item))
    return column_array(column)


def _listed(column: Column) -> list[Any]:
    values = list(cast(Sequence[Any], column.values))
    if column.valid is None:
        return values
    return [value if keep else None for value, keep in zip(values, column.valid.tolist(), strict=True)]
