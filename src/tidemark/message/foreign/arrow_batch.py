"""Event batches to Arrow record batches and back.

Atomic fields move as arrays: gathered, joined, or scattered for all rows at once. Fields that hold lists,
tuples, variants or dynamics are converted value by value, by the rules of `message.foreign.arrow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tidemark.errors import EncodeError
from tidemark.message.batches.batch import EventBatch, Shape, from_messages
from tidemark.message.batches.columns import Bools, Column, Decimals, Spans
from tidemark.message.batches.reader import BatchColumns, absent_column
from tidemark.message.batches.scatter import encode_columns, is_flat_record
from tidemark.message.batches.spans import joined
from tidemark.message.foreign.arrow import arrow_type, from_arrow_schema
from tidemark.message.foreign.arrow_values import from_arrow_value, to_arrow_value
from tidemark.message.members import members, split_option
from tidemark.message.schema import Schema
from tidemark.message.text import type_text
from tidemark.message.types import (
    BYTES,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Path,
    Reference,
    Tuple,
    Type,
    Variant,
    optional,
    path_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Headers that a record batch carries beside the fields.
HEADER_COLUMNS = ("_topic", "_tick", "_priority", "_publisher")


def as_read(item: Type) -> Type:
    """The type of what a reader may see: any field can be absent in a message of another version."""
    match item:
        case Tuple():
            return Tuple(tuple(Field(field.name, _maybe(field.type)) for field in item.fields))
        case Variant():
            return Variant(tuple(Field(case.name, as_read(case.type)) for case in item.cases))
        case List():
            return List(as_read(item.item))
        case Atomic() | Dynamic() | Reference():
            return item


def to_record_batch(
    columns: BatchColumns, names: Sequence[str] | None = None, *, headers: Sequence[str] = HEADER_COLUMNS
) -> pa.RecordBatch:
    """The events' fields (all, or those named), each nullable, and then their headers."""
    import pyarrow as pa

    root = columns.reader.schema.flat.root.type
    assert isinstance(root, Tuple)
    found = {member.name: member.type for member in members(cast(Tuple, as_read(root)))}
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    for name in names if names is not None else found:
        arrays.append(_array(columns.column((name,)), found[name]))
        fields.append(pa.field(name, arrow_type(found[name])))
    for name in headers:
        column = columns.column((name,))
        arrays.append(_array(column, column.type))
        fields.append(pa.field(name, arrow_type(column.type), nullable=False))
    return pa.record_batch(arrays, schema=pa.schema(fields))


def from_record_batch(
    records: pa.RecordBatch, schema: Schema, topic: str, *, publisher: str = "", keys: pa.Array | None = None
) -> EventBatch:
    """The rows as events of `schema`, ticks not yet given; EncodeError if a row does not fit."""
    shape = Shape(topic, schema.fingerprint)
    spans = None if keys is None else cast(Spans, _column(keys, BYTES, ("key",)).values)
    if is_flat_record(schema):
        columns = {path: _field_column(records, schema, path) for path in schema.paths()}
        messages = encode_columns(schema, columns, records.num_rows)
    else:
        messages = _one_by_one(records, schema)
    return from_messages(shape, messages, publisher=publisher, keys=spans)


def _one_by_one(records: pa.RecordBatch, schema: Schema) -> Spans:
    """For schemas whose fields are more than columns."""
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
    return _column(records.column(path[0]), item, path)


def _column(array: pa.Array, item: Atomic, path: Path) -> Column:
    """An Arrow array of a like type as a column; EncodeError if a value does not fit without loss."""
    import pyarrow as pa

    where = path_text(path)
    if not _is_like(array.type, item):
        raise EncodeError(f"Arrow's {array.type} is not {type_text(item)}: cast the column first", path=where)
    try:
        cast_ = array.cast(arrow_type(item))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise EncodeError(f"Arrow's {array.type} does not fit: {error}", path=where) from None
    valid = None if cast_.null_count == 0 else cast_.is_valid().to_numpy(zero_copy_only=False)
    if item.kind in (Kind.STRING, Kind.BYTES):
        return Column(item, _to_spans(cast_), valid)
    if item.kind is Kind.DECIMAL:
        return Column(item, _to_decimals(cast_, item), valid)
    if item.kind is Kind.TIMESTAMP:
        cast_ = cast_.cast(pa.int64())
    filled = cast_.fill_null(False if item.kind is Kind.BOOLEAN else 0)
    return Column(item, filled.to_numpy(zero_copy_only=False), valid)


#: Kinds that an Arrow column may be cast to, checked value by value; Arrow itself would cast more.
_LIKE: dict[Kind, tuple[Kind, ...]] = {
    Kind.INT: (Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.DECIMAL),
    Kind.LONG: (Kind.INT, Kind.LONG, Kind.DOUBLE, Kind.DECIMAL),
    Kind.FLOAT: (Kind.FLOAT, Kind.DOUBLE),
    Kind.DOUBLE: (Kind.FLOAT, Kind.DOUBLE),
}


def _is_like(source: pa.DataType, item: Atomic) -> bool:
    import pyarrow as pa

    if pa.types.is_null(source):
        return True
    (field,) = cast(Tuple, from_arrow_schema(pa.schema([pa.field("c", source, nullable=False)]))).fields
    found = field.type
    return isinstance(found, Atomic) and item.kind in _LIKE.get(found.kind, (found.kind,))


def _to_spans(array: pa.Array) -> Spans:
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return Spans(np.zeros(0, np.uint8), np.zeros(len(array), np.int64), np.zeros(len(array), np.int64))
    marks = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Spans(body, marks[:-1], marks[1:])


def _to_decimals(array: pa.Array, item: Atomic) -> Decimals:
    if len(array) == 0:
        return Decimals(np.zeros(0, np.uint64), np.zeros(0, np.int64), item.scale)
    pairs = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[
        array.offset : array.offset + len(array)
    ]
    return Decimals(pairs[:, 0].copy(), pairs[:, 1].copy().view(np.int64), item.scale)


def _maybe(item: Type) -> Type:
    inner = as_read(item)
    return inner if split_option(inner)[1] else optional(inner)


def _array(column: Column, item: Type) -> pa.Array:
    import pyarrow as pa

    core = column.type
    if not isinstance(core, Atomic) or isinstance(column.values, Sequence):
        return pa.array([to_arrow_value(item, value) for value in _listed(column)], arrow_type(item))
    if isinstance(column.values, Spans):
        return _from_spans(column.values, column.valid, arrow_type(core))
    if isinstance(column.values, Decimals):
        return _from_decimals(column.values, column.valid, arrow_type(core))
    missing = None if column.valid is None else ~column.valid
    values = column.values.astype(_NARROW.get(core.kind, column.values.dtype), copy=False)
    if core.kind is Kind.TIMESTAMP:
        values = values.view("M8[us]")
    return pa.array(values, arrow_type(core), mask=missing)


def _listed(column: Column) -> list[Any]:
    values = list(cast(Sequence[Any], column.values))
    if column.valid is None:
        return values
    return [value if keep else None for value, keep in zip(values, column.valid.tolist(), strict=True)]


def _from_spans(spans: Spans, valid: Bools | None, item: pa.DataType) -> pa.Array:
    import pyarrow as pa

    body, ends = joined(spans)
    offsets = np.zeros(len(spans) + 1, np.int32)
    offsets[1:] = ends
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(body)]
    return pa.Array.from_buffers(item, len(spans), buffers)


def _from_decimals(values: Decimals, valid: Bools | None, item: pa.DataType) -> pa.Array:
    import pyarrow as pa

    pairs = np.empty((len(values), 2), np.uint64)
    pairs[:, 0], pairs[:, 1] = values.low, values.high.view(np.uint64)
    return pa.Array.from_buffers(item, len(values), [_bitmap(valid), pa.py_buffer(pairs)])


def _bitmap(valid: Bools | None) -> pa.Buffer | None:
    import pyarrow as pa

    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


_NARROW: dict[Kind, str] = {Kind.INT: "i4", Kind.FLOAT: "f4"}
