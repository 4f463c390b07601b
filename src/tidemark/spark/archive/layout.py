"""The columns of an archive table: where each field of each topic under one root lies.

A table holds the events of all topics with the same first level, in all versions of their schemas. A field's
column has the field's name. Fields of one name share a column when their types go together: equal types, or
structs and lists of which one has fields that the other lacks. Where the types do not go together, the later
field gets a column of its own, `price@2`, so no value is ever cast. A column's type only grows, so the column
of a field is found by the field's name and type alone, whatever has been added since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import cast

import pyarrow as pa

from tidemark.message.foreign.arrow.batches import as_read
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.members import members
from tidemark.message.schema import Schema
from tidemark.message.types import Tuple

#: Columns of every event: its headers, the schema it was written in, and its message where that cannot be
#: encoded again from the columns. `_validity` is milliseconds from the tick, null for an event that never
#: expires.
HEADERS = pa.schema(
    [
        ("_pubend", pa.string()),
        ("_tick", pa.int64()),
        ("_topic", pa.string()),
        ("_publisher", pa.string()),
        ("_priority", pa.int32()),
        ("_validity", pa.int64()),
        ("_key", pa.binary()),
        ("_shape", pa.int64()),
        ("_raw", pa.binary()),
    ]
)

#: The tick as a timestamp, by which Parquet readers skip row groups. No field's column has such a name. Files
#: of tables that are older than this column lack it.
TIME = pa.field("_time@tick", pa.timestamp("us", tz="UTC"))

#: Characters that the name of a Delta column cannot have, or that have a meaning in Spark SQL or here.
_ESCAPED = frozenset(" ,;{}()\n\t=.%@`")


class ArchiveLayout:
    """The columns of one table. Immutable."""

    def __init__(self, schema: pa.Schema = HEADERS) -> None:
        self.schema = schema
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in schema}
        self._names = {name.casefold(): name for name in self._types}

    def column_of(self, name: str, item: pa.DataType) -> str | None:
        """The column that holds the field `name` of this type; None if no column does yet."""
        for column in self._candidates(name):
            there = self._types.get(column)
            if there is None or (merged := merge_types(there, item)) == there:
                return column if there is not None else None
            if merged is not None:
                return None
        raise AssertionError("candidates never end")

    def extended(self, fields: Iterable[tuple[str, pa.DataType]]) -> ArchiveLayout:
        """A layout that has a column for each of these fields too; this one, if it has them all."""
        types = dict(self._types)
        grown = self
        for name, item in fields:
            if grown.column_of(name, item) is not None:
                continue
            for column in grown._candidates(name):
                merged = merge_types(types[column], item) if column in types else item
                if merged is not None:
                    types[column] = merged
                    break
            grown = ArchiveLayout(pa.schema(list(types.items())))
        return grown

    def timed(self) -> ArchiveLayout:
        """The layout with the column TIME."""
        if TIME.name in self._types:
            return self
        return ArchiveLayout(pa.schema([*HEADERS, TIME, *list(self.schema)[len(HEADERS) :]]))

    @classmethod
    def from_bytes(cls, data: bytes) -> ArchiveLayout:
        """The layout that `to_bytes` made the bytes of."""
        return cls(pa.ipc.read_schema(pa.py_buffer(data)))

    def to_bytes(self) -> bytes:
        """The layout as an Arrow schema in bytes, for the way to a Spark task."""
        data: bytes = self.schema.serialize().to_pybytes()
        return data

    def changes(self, before: ArchiveLayout) -> pa.Schema:
        """The columns that `before` does not have, or has with another type."""
        return pa.schema([field for field in self.schema if before._types.get(field.name) != field.type])

    def type_of(self, column: str) -> pa.DataType:
        """The type of an existing column."""
        return self._types[column]

    def _candidates(self, name: str) -> Iterator[str]:
        """`name`, `name@2`, `name@3` ... without those that differ from another column only in case."""
        plain = "".join(f"%{ord(ch):02X}" if ch in _ESCAPED else ch for ch in name)
        for number in count(1):
            column = plain if number == 1 else f"{plain}@{number}"
            # Spark and Delta do not distinguish names by case; the names of headers are taken.
            if self._names.get(column.casefold(), column) == column and column not in HEADERS.names:
                yield column


def fields_of(schema: Schema) -> dict[str, pa.DataType]:
    """The fields of events written in this schema, by name, as the types of nullable columns."""
    root = cast(Tuple, as_read(schema.flat.root.type))
    return {member.name: loose(arrow_type(member.type)) for member in members(root)}


def loose(item: pa.DataType) -> pa.DataType:
    """The type with everything inside it nullable, as Delta tables and Spark read it."""
    if pa.types.is_struct(item):
        return pa.struct([pa.field(field.name, loose(field.type)) for field in item])
    if pa.types.is_list(item):
        return pa.list_(pa.field("element", loose(item.value_type)))
    return item


def merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The least type that holds the values of both types exactly; None if there is none."""
    if a == b:
        return a
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _merge_structs(a, b)
    if pa.types.is_list(a) and pa.types.is_list(b):
        item = merge_types(a.value_type, b.value_type)
        return None if item is None else pa.list_(pa.field("element", item))
    return None


def _merge_structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    merged: dict[str, pa.DataType | None] = {field.name: field.type for field in a}
    for field in b:
        there = merged.get(field.name)
        merged[field.name] = field.type if there is None else merge_types(there, field.type)
    if any(item is None for item in merged.values()):
        return None
    return pa.struct([pa.field(name, item) for name, item in merged.items()])


def columns_of(table: pa.Table, fields: Mapping[str, pa.DataType], layout: ArchiveLayout) -> pa.Table:
    """The fields by their own names, out of the columns that hold them; null where a column is missing."""
    arrays, names = [], []
    for name, item in fields.items():
        column = layout.column_of(name, item)
        if column is None or column not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, item))
        else:
            held = table.column(column)
            arrays.append(held if held.type == item else held.cast(item))
        names.append(name)
    return pa.table(arrays, names=names)


def laid_out(arrays: Mapping[str, pa.Array], rows: int, layout: ArchiveLayout) -> pa.Table:
    """A table with all columns of the layout: those in `arrays`, by name, and the others as nulls.

    The column TIME is made from the ticks.
    """
    columns = []
    for field in layout.schema:
        found = arrays.get("_tick" if field.name == TIME.name else field.name)
        if found is None:
            columns.append(pa.nulls(rows, field.type))
        else:
            columns.append(found if found.type == field.type else found.cast(field.type))
    return pa.table(columns, schema=layout.schema)
