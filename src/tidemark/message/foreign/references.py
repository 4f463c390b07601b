"""Named schemas and what leads back to itself.

`Named` turns a graph (classes, JSON pointers) into a tree: a node that is met inside itself becomes a
reference and a definition, every other is written out where it stands. `write_out` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import assert_never

from tidemark.errors import SchemaError
from tidemark.message.error_path import name_problem
from tidemark.message.text import KEYWORDS
from tidemark.message.types import Atomic, Dynamic, Field, List, Reference, Tuple, Type, Variant


class Named:
    """Reads nodes that may contain each other. `definitions` has exactly those that recur."""

    def __init__(self) -> None:
        self.definitions: dict[str, Type] = {}
        self._keys: dict[str, Hashable] = {}  # the node each reference stands for
        self._open: set[Hashable] = set()  # nodes being read around the current place

    def visit(self, key: Hashable, name: str, build: Callable[[], Type]) -> Type:
        """The type of node `key`: what `build` makes of it, or a reference when it recurs."""
        if key in self._open or self._keys.get(name) == key:
            return self._refer(key, name)
        self._open.add(key)
        item = build()
        self._open.remove(key)
        if self._keys.get(name) != key:
            return item
        self.definitions[name] = item
        return Reference(name)

    def _refer(self, key: Hashable, name: str) -> Reference:
        problem = name_problem(name)
        if name in KEYWORDS or not all(name.split(".")):
            problem = "it recurs, so it needs a name that the schema language can write"
        if self._keys.setdefault(name, key) != key:
            problem = "two different schemas that recur have this name"
        if problem:
            raise SchemaError(f"{name!r}: {problem}")
        return Reference(name)


def write_out(item: Type, definitions: Mapping[str, Type]) -> Type:
    """`item` without references: each is replaced by its definition, inside itself by `dynamic`."""
    match item:
        case Reference():
            rest = {name: found for name, found in definitions.items() if name != item.name}
            found = definitions.get(item.name)
            return Dynamic() if found is None else write_out(found, rest)
        case Tuple():
            return Tuple(_write_out_all(item.fields, definitions))
        case Variant():
            return Variant(_write_out_all(item.cases, definitions))
        case List():
            return List(write_out(item.item, definitions))
        case Atomic() | Dynamic():
            return item
    assert_never(item)


def _write_out_all(fields: tuple[Field, ...], definitions: Mapping[str, Type]) -> tuple[Field, ...]:
    return tuple(Field(field.name, write_out(field.type, definitions)) for field in fields)
