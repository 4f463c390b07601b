"""Event batches to Arrow record batches and back.

Atomic fields move as arrays: gathered, joined, or scattered for all rows at once. Fields that hold lists,
tuples, variants or dynamics are converted value by value, by the rules of `message.arrow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tidemark.message.arrow import arrow_type
from tidemark.message.arrow_values import from_arrow_value, to_arrow_value
from tidemark.message.batch import PRIORITY_DEFAULT, BatchBuilder, EventBatch, Shape
from tidemark.message.columns import Bools, Column, Decimals, Spans
from tidemark.message.members import members, split_option
from tidemark.message.reader import BatchColumns
from tidemark.message.schema import Schema
from tidemark.message.spans import joined
from tidemark.message.types import (
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    optional,
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
    records: pa.RecordBatch,
    schema: Schema,
    topic: str,
    *,
    publisher: str = "",
    keys: Sequence[bytes] | None = None,
) -> EventBatch:
    """The rows as events of `schema`, ticks not yet given; EncodeError if a row does not fit."""
    builder = BatchBuilder()
    shape = Shape(topic, schema.fingerprint)
    root = schema.flat.root.type
    assert isinstance(root, Tuple)
    wanted = records.select([member.name for member in members(root) if member.name in records.schema.names])
    for row, value in enumerate(wanted.to_pylist()):
        message = schema.encode(from_arrow_value(root, value))
        builder.add(
            shape, message, publisher=publisher, key=keys[row] if keys else b"", priority=PRIORITY_DEFAULT
        )
    return builder.build()


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
