"""Natural types as text: on one line for fingerprints and errors, indented for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import assert_never

from tidemark.message.codec.rest import REST_EVERY, Rest, no_rest, resting
from tidemark.message.types import (
    DECIMAL,
    EMPTY,
    NOTHING,
    Atomic,
    Dynamic,
    Field,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
)

#: Words that can be the name of a field only in quotes, and never the name of a schema.
KEYWORDS = frozenset({kind.value for kind in Kind} | {"dynamic"})

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: A type shorter than this stays on one line of the indented form.
_LINE_CHARS_MAX = 72


def type_text(item: Type, rest: Rest = no_rest) -> str:
    """The canonical one-line text: equal types have equal texts, and it parses back to the same type."""
    match item:
        case Atomic():
            return _atomic_text(item)
        case Tuple():
            return "[" + ", ".join(_field_texts(item.fields, rest)) + "]"
        case List():
            return f"*({type_text(item.item, rest)})*"
        case Variant():
            some = _canonical_option(item)
            if some is not None:
                return f"{type_text(some, rest)}?"
            return "{" + " | ".join(_field_texts(item.cases, rest)) + "}"
        case Dynamic():
            return "dynamic"
        case Reference():
            return ".".join(name_text(part) for part in item.name.split("."))
    assert_never(item)


def schema_text(root: Type, definitions: Mapping[str, Type], rest: Rest = no_rest) -> str:
    """The canonical text of a schema on one line: the root, then the named schemas, sorted by name."""
    others = sorted(definitions)
    parts = [type_text(root, rest)]
    if isinstance(root, Reference):
        others.remove(root.name)
        parts = [f"{parts[0]}: {type_text(definitions[root.name], rest)}"]
    for name in resting(others, rest):
        parts.append(f"{type_text(Reference(name))}: {type_text(definitions[name], rest)}")
    return "; ".join(parts)


def indented(item: Type, *, depth: int = 0) -> str:
    """The text of a type over several lines, for people."""
    line = type_text(item)
    if len(line) + 2 * depth <= _LINE_CHARS_MAX or isinstance(item, Atomic | Dynamic | Reference):
        return line
    match item:
        case Tuple():
            return _block("[", ",", item.fields, "]", depth)
        case Variant():
            some = _canonical_option(item)
            if some is not None:
                return indented(some, depth=depth) + "?"
            return _block("{", " |", item.cases, "}", depth)
        case List():
            return f"*({indented(item.item, depth=depth)})*"
    assert_never(item)


def name_text(name: str) -> str:
    """A name as the schema language writes it."""
    if _PLAIN_NAME.match(name) and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _canonical_option(item: Variant) -> Type | None:
    """T if `item` is exactly `{ [] | T }`, which is written `T?`; else None.

    The same choice in another order, or with the name `absent`, keeps its braces.
    """
    if len(item.cases) != 2 or (item.cases[0] is not NOTHING and item.cases[0] != NOTHING):
        return None
    some = item.cases[1]
    return some.type if not some.name and some.type != EMPTY else None


def _atomic_text(item: Atomic) -> str:
    if item.kind is Kind.DECIMAL and item != DECIMAL:
        return f"decimal({item.precision}, {item.scale})"
    return item.kind.value


def _field_texts(fields: tuple[Field, ...], rest: Rest) -> list[str]:
    """The text of each field; that of a type which several of them share is made once."""
    texts: dict[int, str] = {}
    parts: list[str] = []
    for field in fields:
        text = texts.get(id(field.type))
        if text is None:
            text = texts[id(field.type)] = type_text(field.type, rest)
        parts.append(f"{name_text(field.name)}: {text}" if field.name else text)
        if not len(parts) % REST_EVERY:
            rest()
    return parts


def _block(opening: str, separator: str, fields: tuple[Field, ...], closing: str, depth: int) -> str:
    pad = "  " * (depth + 1)
    lines = [
        pad + (f"{name_text(field.name)}: " if field.name else "") + indented(field.type, depth=depth + 1)
        for field in fields
    ]
    return f"{opening}\n" + f"{separator}\n".join(lines) + f"\n{'  ' * depth}{closing}"
