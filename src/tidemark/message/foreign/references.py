"""References between schemas: which ones are needed, and how to do without them.

`RecurringSchemas` turns a graph of classes or JSON pointers into a tree: a node that is met inside itself
becomes a definition and references to it, every other node is written out where it stands. `write_out`
removes references again: it puts the definition in the place of each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import assert_never

from tidemark.errors import SchemaError
from tidemark.message.text import KEYWORDS
from tidemark.message.types import Atomic, Dynamic, Field, List, Reference, Tuple, Type, Variant, name_problem


class RecurringSchemas:
    """Collects the definitions of nodes that contain themselves, while their graph is read."""

    def __init__(self) -> None:
        #: name -> type of each node that recurs, and of no other
        self.definitions: dict[str, Type] = {}
        #: name of a reference -> key of the node it stands for
        self._keys: dict[str, Hashable] = {}
        #: keys of the nodes that are being read around the current one
        self._open: set[Hashable] = set()

    def visit(self, key: Hashable, name: str, build: Callable[[], Type]) -> Type:
        """The type of node `key`: what `build` returns, or a reference when the node contains itself.

        SchemaError if the node recurs and `name` cannot be the name of a definition.
        """
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
    """`item` with the definition in place of each reference, and `dynamic` where a definition recurs."""
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
