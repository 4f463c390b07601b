"""Events as rows of an archive table, and back again byte for byte.

A message is not stored beside its columns: a message that our encoder wrote can be encoded again from them.
Whether that holds is not assumed but tried, for every event, before it is archived. Messages that come out
different (another publisher's encoder, a dynamic value whose type JSON does not keep, bytes that are no
message at all) are stored whole in `_raw`, and only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import MessageError
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.building import from_rows
from tidemark.message.batches.columns import Bools, Bytes, Ints, Spans
from tidemark.message.batches.reader import EventReader
from tidemark.message.batches.spans import joined
from tidemark.message.batches.trace_context import publisher_of
from tidemark.message.foreign.arrow.batches import from_record_batch, to_record_batch
from tidemark.message.schema import Schema
from tidemark.spark.archive.layout import HEADERS, ArchiveLayout, columns_of, fields_of, laid_out

Schemas = Mapping[int, Schema]

#: What encoding or decoding raises for bytes that are no message, or a value that Arrow or Python cannot
#: hold.
_UNFIT = (MessageError, ValueError, OverflowError, pa.ArrowException)


def to_rows(pubend: str, batch: EventBatch, schemas: Schemas, layout: ArchiveLayout) -> pa.Table:
    """The events of one pubend as rows of the table, in the order of the batch."""
    parts: list[pa.Table] = []
    order: list[Ints] = []
    used = batch.prelude("shape")
    for index in np.unique(used).tolist():
        rows = np.flatnonzero(used == index)
        part = batch if len(rows) == batch.count else batch.take(rows)
        schema = schemas.get(batch.shapes[index].fingerprint)
        parts.append(_rows_of_shape(pubend, part, batch.shapes[index], schema, layout))
        order.append(rows)
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def to_events(table: pa.Table, schemas: Schemas, layout: ArchiveLayout) -> EventBatch:
    """The events of rows that `to_rows` made, as they were published; at most as many as fit in one batch."""
    shape_of, names = _shapes(table)
    messages = _Messages(table.num_rows)
    for index, shape in enumerate(names):
        rows = np.flatnonzero(shape_of == index)
        some = table if len(rows) == table.num_rows else table.take(pa.array(rows))
        _add_messages(messages, rows, some, shape, schemas, layout)
    publishers = table.column("_publisher").combine_chunks().dictionary_encode()
    return from_rows(
        names,
        tuple(publishers.dictionary.to_pylist()),
        messages.spans(),
        _spans(table.column("_key").combine_chunks()),
        shape=shape_of,
        publisher=_numbers(publishers.indices),
        priority=_numbers(table.column("_priority")),
        validity_ms=_numbers(pc.fill_null(table.column("_validity"), 0)),
        ticks=_numbers(table.column("_tick")),
    )


# Events to rows.


def _rows_of_shape(
    pubend: str, batch: EventBatch, shape: Shape, schema: Schema | None, layout: ArchiveLayout
) -> pa.Table:
    return laid_out(_headers(pubend, batch, shape) | _fields(batch, schema, layout), batch.count, layout)


def _headers(pubend: str, batch: EventBatch, shape: Shape) -> dict[str, pa.Array]:
    validity = batch.prelude("validity_ms").astype(np.int64)
    fingerprint = int(np.uint64(shape.fingerprint).astype(np.int64))
    return {
        "_pubend": _constant(pubend, batch.count, pa.string()),
        "_tick": pa.array(batch.ticks),
        "_topic": _constant(shape.topic, batch.count, pa.string()),
        "_publisher": pa.DictionaryArray.from_arrays(
            pa.array(batch.prelude("publisher").astype(np.int32)),
            pa.array(map(publisher_of, batch.publishers), pa.string()),
        ).dictionary_decode(),
        "_priority": pa.array(batch.prelude("priority").astype(np.int32)),
        "_validity": pa.array(validity, mask=validity == 0),
        "_key": _binary(Spans(batch.body, batch.message_ends, batch.ends.astype(np.int64))),
        "_shape": _constant(fingerprint, batch.count, pa.int64()),
    }


def _fields(batch: EventBatch, schema: Schema | None, layout: ArchiveLayout) -> dict[str, pa.Array]:
    """The columns of the fields, and `_raw` for the events that need it."""
    written = Spans(batch.body, batch.message_starts, batch.message_ends)
    if schema is None:
        return {"_raw": _binary(written, nullable=False)}
    try:
        records = to_record_batch(
            EventReader(schema, {schema.fingerprint: schema}).columns(batch), headers=()
        )
        fields = fields_of(schema)
        arrays = {name: records.column(name).cast(item) for name, item in fields.items()}
        wrong = _differing(_encoded(pa.table(arrays), schema), written)
    except _UNFIT:
        return _halved(batch, schema, layout)
    placed = {_placed(layout, name, item): arrays[name] for name, item in fields.items()}
    if wrong.any():
        kept = _binary(written, nullable=False)
        placed["_raw"] = pc.if_else(pa.array(wrong), kept, pa.scalar(None, pa.binary()))
    return placed


def _halved(batch: EventBatch, schema: Schema, layout: ArchiveLayout) -> dict[str, pa.Array]:
    """The columns of a batch with an event that cannot be converted: its halves, converted separately.

    The event itself, once it is alone, gets `_raw` and no columns.
    """
    if batch.count == 1:
        return {"_raw": pa.array([batch.message(0)], pa.binary())}
    middle = batch.count // 2
    halves = [
        laid_out(_fields(part, schema, layout), part.count, layout)
        for part in (batch.slice(0, middle), batch.slice(middle, batch.count))
    ]
    whole = pa.concat_tables(halves).combine_chunks()
    return {
        name: whole.column(name).combine_chunks()
        for name in layout.schema.names
        if name not in HEADERS.names or name == "_raw"
    }


def _placed(layout: ArchiveLayout, name: str, item: pa.DataType) -> str:
    column = layout.column_of(name, item)
    assert column is not None, "the layout is extended by every schema before anything is read"
    return column


def _encoded(fields: pa.Table, schema: Schema) -> Spans:
    """The messages that our encoder writes for rows with these values."""
    (records,) = fields.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], fields.schema)]
    made = from_record_batch(records, schema, "")
    return Spans(made.body, made.message_starts, made.message_ends)


def _differing(a: Spans, b: Spans) -> Bools:
    """differing[row]: the row has other bytes in `a` than in `b`."""
    wrong: Bools = a.lengths != b.lengths
    alike = np.flatnonzero(~wrong)
    mine, ends = joined(Spans(a.body, a.starts[alike], a.ends[alike]))
    theirs, _ = joined(Spans(b.body, b.starts[alike], b.ends[alike]))
    at = np.flatnonzero(mine != theirs)
    wrong[alike[np.searchsorted(ends, at, side="right")]] = True
    return wrong


# Rows to events.


class _Messages:
    """Gathers the messages of all rows, which lie in several bodies."""

    def __init__(self, count: int) -> None:
        self._starts = np.zeros(count, np.int64)
        self._ends = np.zeros(count, np.int64)
        self._bodies: list[Bytes] = []
        self._size = 0

    def add(self, rows: Ints, spans: Spans) -> None:
        self._starts[rows] = spans.starts + self._size
        self._ends[rows] = spans.ends + self._size
        self._bodies.append(spans.body)
        self._size += len(spans.body)

    def spans(self) -> Spans:
        body = self._bodies[0] if len(self._bodies) == 1 else np.concatenate(self._bodies)
        return Spans(body, self._starts, self._ends)


def _add_messages(
    messages: _Messages, rows: Ints, table: pa.Table, shape: Shape, schemas: Schemas, layout: ArchiveLayout
) -> None:
    raw = table.column("_raw").combine_chunks()
    kept = raw.is_valid().to_numpy(zero_copy_only=False)
    if kept.any():
        messages.add(rows[kept], _spans(raw.drop_null()))
        rows, table = rows[~kept], table.filter(pa.array(~kept))
    if len(rows):
        schema = schemas[shape.fingerprint]
        messages.add(rows, _encoded(columns_of(table, fields_of(schema), layout), schema))


def _shapes(table: pa.Table) -> tuple[Ints, tuple[Shape, ...]]:
    """shape_of[row], and the shapes that it numbers."""
    topics = table.column("_topic").combine_chunks().dictionary_encode()
    prints = table.column("_shape").combine_chunks().dictionary_encode()
    both = _numbers(topics.indices) * len(prints.dictionary) + _numbers(prints.indices)
    distinct, shape_of = np.unique(both, return_inverse=True)
    names = topics.dictionary.to_pylist()
    numbers = _numbers(prints.dictionary).view(np.uint64).tolist()
    pairs = [divmod(pair, len(numbers)) for pair in distinct.tolist()]
    return shape_of.reshape(-1), tuple(Shape(names[topic], numbers[number]) for topic, number in pairs)


# Arrow and numpy.


def _constant(value: Any, count: int, item: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, item), count)


def _numbers(array: pa.Array | pa.ChunkedArray) -> Ints:
    found = array.to_numpy() if isinstance(array, pa.ChunkedArray) else array.to_numpy(zero_copy_only=False)
    return cast(Ints, found.astype(np.int64, copy=False))


def _binary(spans: Spans, *, nullable: bool = True) -> pa.Array:
    """An Arrow array of the spans' bytes; with `nullable`, empty spans are null."""
    body, ends = joined(spans)
    offsets = np.zeros(len(spans) + 1, np.int32)
    offsets[1:] = ends
    empty = spans.lengths == 0
    valid = pa.py_buffer(np.packbits(~empty, bitorder="little")) if nullable and empty.any() else None
    return pa.Array.from_buffers(pa.binary(), len(spans), [valid, pa.py_buffer(offsets), pa.py_buffer(body)])


def _spans(array: pa.Array) -> Spans:
    """The bytes of an Arrow array of binaries; nulls become empty spans."""
    filled = array.fill_null(b"")
    _, offsets, data = filled.buffers()
    marks = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Spans(body, marks[:-1], marks[1:])
