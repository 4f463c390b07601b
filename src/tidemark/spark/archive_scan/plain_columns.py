"""Which column of an archive table has a field just as a reader wants it, without any conversion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from tidemark.errors import TranslationError
from tidemark.message.foreign.arrow.batches import as_read
from tidemark.message.foreign.arrow.types import arrow_type
from tidemark.message.members import members, split_option
from tidemark.message.schema import Schema
from tidemark.message.types import Dynamic, Reference, Tuple, Type
from tidemark.spark.archive.layout import ArchiveLayout, loose


def member_types(schema: Schema) -> dict[str, Type]:
    """The fields of events of a schema, by name, with the types that a reader sees."""
    root = cast(Tuple, as_read(schema.flat.root.type))
    return {member.name: member.type for member in members(root)}


def is_json(item: Type) -> bool:
    """Is a column of this type JSON text?"""
    core, _ = split_option(item)
    return isinstance(core, Dynamic | Reference)


def plain_column(layout: ArchiveLayout, versions: Iterable[Schema], name: str, wanted: Type) -> str | None:
    """The one column that holds the field of events of all these schemas; None if none of them has the field.

    Raises TranslationError if the field lies in several columns, or in a type that has to be converted.
    """
    found: set[str] = set()
    for schema in versions:
        have = member_types(schema).get(name)
        if have is None:
            continue
        item = loose(arrow_type(have))
        column = layout.column_of(name, item)
        if column is None:
            continue
        if item != loose(arrow_type(wanted)) or (is_json(wanted) and not is_json(have)):
            raise TranslationError(f"{name}: is converted from another type")
        found.add(column)
    if len(found) > 1:
        raise TranslationError(f"{name}: lies in {len(found)} columns")
    return found.pop() if found else None
