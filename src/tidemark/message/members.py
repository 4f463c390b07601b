"""The keys that a value's dict can have: the members of a tuple, the cases of a variant, and options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.message.types import (
    Field,
    Tuple,
    Type,
    Variant,
    absent_case,
    is_spliced,
    names_of,
    option_item,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A key of a tuple's dict."""

    name: str
    type: Type
    #: The key is a case of a spliced variant: the dict has it only when the case is chosen.
    chosen: bool


def members(item: Tuple) -> Iterator[Member]:
    """Every key that the dict of `item` can have, in order, spliced ones included."""
    for field, name in zip(item.fields, names_of(item.fields), strict=True):
        if not is_spliced(field):
            yield Member(name, field.type, chosen=False)
        elif isinstance(field.type, Tuple):
            yield from members(field.type)
        elif isinstance(field.type, Variant):
            yield from (Member(case.name, case.type, chosen=True) for case in cases(field.type))


def cases(item: Variant) -> list[Field]:
    """The cases of a variant but for the absent one, by the names that they have in a value."""
    absent = absent_case(item)
    named = zip(names_of(item.cases), item.cases, strict=True)
    return [Field(name, case.type) for at, (name, case) in enumerate(named) if at != absent]


def split_option(item: Type) -> tuple[Type, bool]:
    """The type inside the options around `item`, and whether None is a value of `item`."""
    nullable = False
    while (some := option_item(item)) is not None:
        item, nullable = some, True
    return item, nullable or (isinstance(item, Variant) and absent_case(item) is not None)
