"""The natural schema: the tree of types that a person writes (gryphon-scalability IV.B).

A type is atomic, a tuple, a list, a variant, `dynamic`, or a reference to a named schema. Types are
immutable values: equal trees are equal types. `message.parse` makes them from text, `message.foreign.infer`
from Python and JSON Schema, `message.codec.flat` flattens them.

How a type looks as a Python value:

| type                           | value                                                         |
|--------------------------------|---------------------------------------------------------------|
| `boolean`                      | bool                                                          |
| `int`, `long`                  | int of 32 / 64 bits (never bool)                              |
| `float`, `double`              | float (an int is taken too); `float` rounds to 32 bits        |
| `decimal(p, s)`                | decimal.Decimal with at most s digits after the point         |
| `string`, `bytes`              | str, bytes                                                    |
| `timestamp`                    | timezone-aware datetime, microseconds, read back in UTC       |
| `[a: T, b: U]`                 | {"a": ..., "b": ...}                                          |
| `*( T )*`                      | list                                                          |
| `T?`, which is `{ [] | T }`    | the value, or None (the key may be missing)                   |
| `{ a: T | b: U }`              | {"a": ...} or {"b": ...}; None for the case `absent: []`      |
| `{ red: [] | green: [] }`      | "red" or "green" (every case is empty: an enumeration)        |
| `dynamic`                      | any of the above; its schema is inferred and travels with it  |

An unnamed tuple inside a tuple, and an unnamed variant inside a tuple whose cases have names, are spliced:
their names appear in the enclosing dict. Any other unnamed field or case is called `_0`, `_1`, ... by its
position.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: A field of a message, named from the top: ("payload", "request", "topic").
Path = tuple[str, ...]

#: Levels of tuples, lists, variants and dynamics within each other; deeper schemas and values are refused.
NESTING_MAX = 16
NAME_BYTES_MAX = 255

#: The name of the empty case that None stands for; an empty case without a name is one, too.
ABSENT = "absent"


class Kind(Enum):
    """The atomic types. The value is the keyword of the schema language."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"

    __hash__ = object.__hash__  # members are singletons, and Enum's own hash is a call of a Python function


#: Width in bytes of the kinds that have one; strings and bytes are variable.
FIXED_WIDTH: dict[Kind, int] = {
    Kind.BOOLEAN: 1,
    Kind.INT: 4,
    Kind.LONG: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.DECIMAL: 16,
    Kind.TIMESTAMP: 8,
}


@dataclass(frozen=True, slots=True)
class Atomic:
    """One value. `precision` and `scale` are those of a decimal, 0 for every other kind."""

    kind: Kind
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a tuple, or a case of a variant. `name` is "" when it was written without one."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Tuple:
    """A value for each of its fields, in order."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class List:
    """Zero or more values of its item."""

    item: Type


@dataclass(frozen=True, slots=True)
class Variant:
    """A value of exactly one of its cases."""

    cases: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A value whose schema travels with it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The named schema `name`. A reference that leads back to itself is stored as a nested message."""

    name: str


Type = Atomic | Tuple | List | Variant | Dynamic | Reference

EMPTY = Tuple(())
#: The case of an option that has no value.
NOTHING = Field("", EMPTY)
BOOLEAN = Atomic(Kind.BOOLEAN)
INT = Atomic(Kind.INT)
LONG = Atomic(Kind.LONG)
FLOAT = Atomic(Kind.FLOAT)
DOUBLE = Atomic(Kind.DOUBLE)
STRING = Atomic(Kind.STRING)
BYTES = Atomic(Kind.BYTES)
TIMESTAMP = Atomic(Kind.TIMESTAMP)
#: What `decimal` without numbers means: wide enough for money and quantities of every usual size.
DECIMAL = Atomic(Kind.DECIMAL, 38, 9)


def decimal(precision: int, scale: int) -> Atomic:
    """The decimal of `precision` digits in all, `scale` of them after the point."""
    assert 1 <= precision <= 38
    assert 0 <= scale <= precision
    return Atomic(Kind.DECIMAL, precision, scale)


def optional(item: Type) -> Variant:
    """`T?`: the value or nothing."""
    return Variant((NOTHING, Field("", item)))


def absent_case(variant: Variant) -> int | None:
    """The index of the case that None stands for; None if the variant has no such case."""
    for index, case in enumerate(variant.cases):
        if case.type == EMPTY and case.name in ("", ABSENT):
            return index
    return None


def option_item(item: Type) -> Type | None:
    """T when `item` is an option of T (an absent case and one unnamed other), else None."""
    if not isinstance(item, Variant) or len(item.cases) != 2:
        return None
    absent = absent_case(item)
    if absent is None or item.cases[1 - absent].name:
        return None
    return item.cases[1 - absent].type


def is_enumeration(variant: Variant) -> bool:
    """Is every case a named empty tuple? Then the Python value is the name of the case."""
    return all(case.type == EMPTY and case.name for case in variant.cases)


def is_spliced(field: Field) -> bool:
    """Is this an unnamed field whose own names are keys of the enclosing tuple's dict?"""
    if field.name:
        return False
    if isinstance(field.type, Tuple):
        return True
    if not isinstance(field.type, Variant) or is_enumeration(field.type):
        return False
    absent = absent_case(field.type)
    return all(case.name for index, case in enumerate(field.type.cases) if index != absent)


def names_of(fields: tuple[Field, ...]) -> tuple[str, ...]:
    """The key of each field or case in a Python value: its name, or `_` and its position."""
    names = tuple([field.name for field in fields])
    return names if all(names) else tuple([name or name_at(at) for at, name in enumerate(names)])


def name_at(position: int) -> str:
    """The key of a field or case that was written without a name, by its position."""
    return f"_{position}"


def path_text(path: Path) -> str:
    """A path as a selector writes it: joined by dots, names that are no identifiers in double quotes."""
    return ".".join(part if part.isidentifier() else '"' + part.replace('"', '""') + '"' for part in path)


def name_problem(name: object) -> str | None:
    """Why `name` cannot be the name of a field, a case or a schema; None when it can."""
    if not isinstance(name, str):
        return f"a name is a string, not {type(name).__name__}"
    if not name.isprintable() and any(ch < " " or "\ud800" <= ch <= "\udfff" for ch in name):
        return "a name has no control characters and no lone surrogates"
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        return f"a name has 1 to {NAME_BYTES_MAX} bytes"
    return None
