"""Reading a topic's events, whatever version of its schema each was written in.

An EventReader presents every event in the shape of one schema, the reader's. It tells the matcher the types
of the fields. For a batch it serves them as columns: rows are grouped by the schema that they were written
in, each group is gathered by its own layout, and the columns of the groups are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.alike import alike_column, are_alike, even_column
from tidemark.message.batches.batch import EventBatch, Prelude
from tidemark.message.batches.columns import Bools, Bytes, Column, Decimals, Ints, Spans
from tidemark.message.batches.gather import Messages
from tidemark.message.batches.trace_context import publisher_of
from tidemark.message.codec.lazy import lazy_property
from tidemark.message.evolve import Resolution
from tidemark.message.schema import Schema
from tidemark.message.types import INT, LONG, STRING, TIMESTAMP, Atomic, Kind, Path, Type

#: Schemas that one reader remembers how to read at a time, and bytes of their texts, which take about a
#: hundred times as much in memory: a topic may have thousands of schemas.
RESOLUTIONS_MAX = 256
RESOLUTIONS_BYTES_MAX = 128 << 10


class EventReader:
    """The view of a topic's events through one schema."""

    def __init__(self, schema: Schema, schemas: Mapping[int, Schema], *, is_open: bool = False) -> None:
        """`schemas` has, by fingerprint, those that events may be written in; a registry may add to it."""
        self.schema = schema
        #: fingerprint -> schema; shared with the registry, which adds to it
        self.schemas = schemas
        self._open = is_open
        self._resolutions: dict[int, Resolution] = {}
        self._resolutions_bytes = 0
        #: what `columns` returned last
        self._latest: ReferenceType[BatchColumns] | None = None

    @property
    def open(self) -> bool:
        """True when events may have fields that no schema has named yet."""
        return self._open

    def type_of(self, path: Path) -> Type | None:
        """The type at `path` without options; None when there is no such field."""
        return self.schema.type_of(path)

    def paths(self) -> Sequence[Path]:
        """Every path that can be named."""
        return self.schema.paths()

    def unknown_field(self, path: str, topic: str) -> KeyError:
        """The error of asking for a field that no event of `topic` can have."""
        close = get_close_matches(path, [".".join(each) for each in self.paths()], 1)
        return KeyError(f"{topic} has no field {path}" + (f"; {close[0]}?" if close else ""))

    def columns(self, batch: EventBatch) -> BatchColumns:
        """The columns of a batch, each gathered when it is first asked for.

        They are the ones of before if the batch is that of the latest call and somebody holds them still.
        """
        latest = self._latest() if self._latest is not None else None
        if latest is None or latest.batch is not batch:
            latest = BatchColumns(batch, self)
            self._latest = ref(latest)
        return latest

    def decode(self, batch: EventBatch, row: int) -> Any:
        """The value of one event, in the reader's shape; DecodeError if its message is damaged."""
        shape = batch.shapes[int(batch.prelude("shape")[row])]
        return self.resolution(shape.fingerprint).decode(batch.message(row))

    def resolution(self, fingerprint: int) -> Resolution:
        """How messages of the schema of that fingerprint are read; DecodeError if it is not known here."""
        found = self._resolutions.get(fingerprint)
        if found is None:
            is_full = self._resolutions_bytes > RESOLUTIONS_BYTES_MAX
            if is_full or len(self._resolutions) >= RESOLUTIONS_MAX:
                self._resolutions.clear()
                self._resolutions_bytes = 0
            found = self._resolutions[fingerprint] = Resolution(self.writer(fingerprint), self.schema)
            self._resolutions_bytes += found.writer.weight
        return found

    def writer(self, fingerprint: int) -> Schema:
        """The schema of that fingerprint; DecodeError if it is not known here."""
        try:
            return self.schemas[fingerprint]
        except KeyError:
            raise DecodeError(f"no schema with the fingerprint {fingerprint:016x} is known here") from None


class BatchColumns:
    """The columns of one batch; each is gathered when it is first asked for, and kept."""

    def __init__(self, batch: EventBatch, reader: EventReader) -> None:
        self.batch = batch
        self.reader = reader
        #: Columns that have been gathered. Everyone who asks for a path gets the same column: nobody changes
        #: it.
        self._columns: dict[Path, Column] = {}
        #: whether `find_alike` has found that all messages are alike
        self._are_alike = False

    @property
    def count(self) -> int:
        """Number of events."""
        return self.batch.count

    def named(self, path: str) -> Column:
        """The field or header at a path with dots; KeyError if no event of these topics can have it."""
        parts = tuple(path.split("."))
        if path not in _HEADERS and self.reader.schema.holder(parts) is None:
            topics = ", ".join(sorted({shape.topic for shape in self.batch.shapes}))
            raise self.reader.unknown_field(path, topics)
        return self.column(parts)

    def column(self, path: Path) -> Column:
        """The field, or header, at `path`; an all-invalid column when no event has it."""
        found = self._columns.get(path)
        if found is None:
            header = _HEADERS.get(path[0]) if len(path) == 1 else None
            found = self._columns[path] = header(self.batch) if header else self._field(path)
        return found

    @property
    def own(self) -> Messages | None:
        """The messages of all rows, if every one is written in the reader's own schema; else None."""
        messages, rows = self._groups[0]
        is_own = rows is None and messages.schema.fingerprint == self.reader.schema.fingerprint
        return messages if is_own else None

    def looks_sound(self) -> bool:
        """True if array operations find that every message can be decoded.

        If it is False, `checking` tells which cannot, or that all can: it looks at messages one by one.
        """
        try:
            if self.find_alike():
                return True
            if not all(messages.schema.is_plain for messages, _ in self._groups):
                return False
            for messages, _ in self._groups:
                messages.check()
        except DecodeError:
            return False
        return True

    def find_alike(self) -> bool:
        """Return whether all messages are alike and can be decoded: then their columns cost the least.

        False says nothing of any message. DecodeError if their schema is not known here.
        """
        common = self.batch.common
        if not self._are_alike and common is not None:
            self._are_alike = are_alike(self.batch, common, self._writer(common))
        return self._are_alike

    @lazy_property
    def _groups(self) -> list[tuple[Messages, Ints | None]]:
        """The messages of each schema that rows are written in, and their rows; None stands for all rows."""
        batch = self.batch
        starts, ends = batch.message_starts, batch.message_ends
        prints = np.array([shape.fingerprint for shape in batch.shapes], np.uint64)
        if len(set(prints.tolist())) == 1:
            return [(Messages(self.reader.writer(int(prints[0])), batch.body, starts, ends), None)]
        of_row = prints[batch.prelude("shape")]
        groups: list[tuple[Messages, Ints | None]] = []
        for fingerprint in np.unique(of_row):
            rows = np.flatnonzero(of_row == fingerprint)
            schema = self.reader.writer(int(fingerprint))
            groups.append((Messages(schema, batch.body, starts[rows], ends[rows]), rows))
        return groups

    def _field(self, path: Path) -> Column:
        item = self.reader.type_of(path)
        if item is None:
            return absent_column(STRING, self.count)
        if not isinstance(item, Atomic):
            return self._values(path, item)
        even = self._even_column(path)
        if even is not None:
            return _fitted(even, item, self.count)
        parts = [(_atomic_column(messages, path, item), rows) for messages, rows in self._groups]
        if len(parts) == 1 and parts[0][1] is None:
            return parts[0][0]
        return _combined(item, parts, self.count)

    def _even_column(self, path: Path) -> Column | None:
        """The column of a field in the writer's type, if it lies at the same place in rows of one size.

        None if that takes a closer look, or if a message is damaged.
        """
        common = self.batch.common
        if common is None:
            return None
        schema = self._writer(common)
        if self._are_alike:
            return alike_column(self.batch, schema, path)
        return even_column(self.batch, common, schema, path)

    def _writer(self, common: Prelude) -> Schema:
        """The schema that all rows are written in, whose prelude is `common`."""
        return self.reader.writer(self.batch.shapes[common.shape].fingerprint)

    def _values(self, path: Path, item: Type) -> Column:
        """The column of a field that no array holds: Python values, None where the field is absent."""
        values: list[Any] = [None] * self.count
        present = np.zeros(self.count, np.bool_)
        for messages, rows in self._groups:
            if messages.schema.holder(path) is None:
                continue
            access = self.reader.resolution(messages.schema.fingerprint).accessor(path)
            column = messages.values(path, access)
            if rows is None:
                return Column(item, column.values, column.valid)
            present[rows] = True if column.valid is None else column.valid
            for row, value in zip(rows.tolist(), cast(Sequence[Any], column.values), strict=True):
                values[row] = value
        return Column(item, values, present)


def _atomic_column(messages: Messages, path: Path, item: Atomic) -> Column:
    """The column at `path` in the reader's type.

    All rows are invalid if the writer's type does not fit it.
    """
    column = messages.column(path)
    return absent_column(item, len(messages)) if column is None else _fitted(column, item, len(messages))


def _fitted(column: Column, item: Atomic, count: int) -> Column:
    """The column, of `count` rows, in the reader's type; all rows are invalid if its type does not fit."""
    if not isinstance(column.type, Atomic):
        return absent_column(item, count)
    if column.type.kind is Kind.DECIMAL and item.kind is Kind.DECIMAL:
        return Column(item, _rescaled(cast(Decimals, column.values), item.scale), column.valid)
    if column.type.kind is item.kind:
        return Column(item, column.values, column.valid)
    integers, doubles = (Kind.INT, Kind.LONG), (Kind.FLOAT, Kind.DOUBLE)
    if column.type.kind in integers and item.kind is Kind.LONG:
        return Column(item, column.values, column.valid)
    if column.type.kind in integers + doubles and item.kind is Kind.DOUBLE:
        return Column(item, cast(Ints, column.values).astype(np.float64), column.valid)
    return absent_column(item, count)


def _rescaled(values: Decimals, scale: int) -> Decimals:
    if values.scale == scale:
        return values
    assert values.scale < scale, "a reader's decimal is at least as wide as any writer's"
    factor = 10 ** (scale - values.scale)
    wide = [value * factor for value in values.tolist()]
    low = np.array([value & 0xFFFF_FFFF_FFFF_FFFF for value in wide], np.uint64)
    return Decimals(low, np.array([value >> 64 for value in wide], np.int64), scale)


def absent_column(item: Atomic, count: int) -> Column:
    """A column of `count` rows in which the field is absent."""
    return Column(item, _zeros(item, count), np.zeros(count, np.bool_))


def _zeros(item: Atomic, count: int) -> Any:
    match item.kind:
        case Kind.BOOLEAN:
            return np.zeros(count, np.bool_)
        case Kind.FLOAT | Kind.DOUBLE:
            return np.zeros(count, np.float64)
        case Kind.STRING | Kind.BYTES:
            return Spans(np.zeros(0, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64))
        case Kind.DECIMAL:
            return Decimals(np.zeros(count, np.uint64), np.zeros(count, np.int64), item.scale)
        case _:
            return np.zeros(count, np.int64)


def _combined(item: Atomic, parts: list[tuple[Column, Ints | None]], count: int) -> Column:
    """One column of all rows from the columns of disjoint groups of rows."""
    valid = np.ones(count, np.bool_)
    for column, rows in parts:
        if column.valid is not None:
            valid[rows] = column.valid
    return Column(item, _combined_values(item, parts, count), None if valid.all() else valid)


def _combined_values(item: Atomic, parts: list[tuple[Column, Ints | None]], count: int) -> Any:
    if item.kind in (Kind.STRING, Kind.BYTES):
        return _combined_spans(parts, count)
    result = _zeros(item, count)
    for column, rows in parts:
        if isinstance(result, Decimals):
            source = cast(Decimals, column.values)
            result.low[rows], result.high[rows] = source.low, source.high
        else:
            result[rows] = column.values
    return result


def _combined_spans(parts: list[tuple[Column, Ints | None]], count: int) -> Spans:
    """The spans of all groups, into one body.

    Groups may have different bodies, since an enumeration brings its own; then the bodies are joined.
    """
    bodies: dict[int, tuple[Bytes, int]] = {}
    size = 0
    starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for column, rows in parts:
        spans = cast(Spans, column.values)
        if id(spans.body) not in bodies:
            bodies[id(spans.body)] = (spans.body, size)
            size += len(spans.body)
        base = bodies[id(spans.body)][1]
        starts[rows], ends[rows] = spans.starts + base, spans.ends + base
    only = [body for body, _ in bodies.values()]
    return Spans(only[0] if len(only) == 1 else np.concatenate(only), starts, ends)


def _named(names: Sequence[str], of_row: NDArray[Any]) -> Column:
    """The column of the strings names[of_row[row]]; the names, end to end, are its body."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0] + [len(name) for name in encoded])
    body = np.frombuffer(b"".join(encoded), np.uint8)
    return Column(STRING, Spans(body, ends[of_row], ends[of_row.astype(np.int64) + 1]))


def _priority(batch: EventBatch) -> Column:
    return Column(INT, batch.prelude("priority").astype(np.int64))


def _key(batch: EventBatch) -> Column:
    """The keys as strings; NULL where an event has none, or one that is no UTF-8."""
    starts: Ints = batch.message_ends
    ends: Ints = batch.ends.astype(np.int64)
    valid: Bools = ends > starts
    beyond_ascii: Ints = np.concatenate((np.zeros(1, np.int64), np.cumsum(batch.body >= 0x80)))
    for row in np.flatnonzero(beyond_ascii[ends] > beyond_ascii[starts]).tolist():
        try:
            batch.key(row).decode()
        except UnicodeDecodeError:
            valid[row] = False
    return Column(STRING, Spans(batch.body, np.where(valid, starts, 0), np.where(valid, ends, 0)), valid)


_HEADERS: dict[str, Callable[[EventBatch], Column]] = {
    "_topic": lambda batch: _named([shape.topic for shape in batch.shapes], batch.prelude("shape")),
    "_tick": lambda batch: Column(LONG, batch.ticks),
    "_priority": _priority,
    "_publisher": lambda batch: _named(
        [publisher_of(name) for name in batch.publishers], batch.prelude("publisher")
    ),
    "_key": _key,
    "_time": lambda batch: Column(TIMESTAMP, batch.ticks),
}


def is_header(path: Path) -> bool:
    """Return whether `path` names something of the event besides its message, such as its tick."""
    return len(path) == 1 and path[0] in _HEADERS
