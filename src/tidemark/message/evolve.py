"""Schema evolution: reading messages that were written in another version (gryphon-scalability IV.D).

Two properties make the untagged format as extensible as a tagged one: a reader ignores what it does not
know, and notices what is not there. The fields of writer and reader are matched by name once per pair of
schemas (`Resolution`), and every message of that pair is read through the result.

- A field that only the writer has is ignored.
- A field that only the reader has is None (NULL to a selector), also where it is not optional.
- A variant case that the reader does not have becomes UnknownCase with its name.
- A number of a narrower type is widened where nothing is lost; long to double is allowed too, since an
  open topic's shapes meet there (1 and 1.5 in one field).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.errors import IncompatibleSchemaError
from tidemark.message.codec.flat import (
    Basic,
    Box,
    Leaf,
    LeafNode,
    ListNode,
    Node,
    Recursive,
    TupleNode,
    VariantNode,
    held,
)
from tidemark.message.codec.node_members import node_members
from tidemark.message.schema import Schema
from tidemark.message.text import type_text
from tidemark.message.types import Atomic, Dynamic, Kind, Path, path_text

_Project = Callable[[Any], Any]

#: kind in the reader's schema -> other kinds in the writer's schema that it can take values from
_WIDENS: dict[Kind, tuple[Kind, ...]] = {
    Kind.LONG: (Kind.INT,),
    Kind.DOUBLE: (Kind.INT, Kind.LONG, Kind.FLOAT),
}


@dataclass(frozen=True, slots=True)
class UnknownCase:
    """What a reader sees of a variant case that a newer writer added."""

    name: str


class Resolution:
    """How a reader of one schema reads the messages of another."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self.writer = writer
        self.reader = reader
        self._named: dict[str, _Project] = {}
        self._project = _same if writer == reader else self._projection(writer.flat.root, reader.flat.root)

    def decode(self, message: bytes) -> Any:
        """The value of a message of the writer's schema, in the shape of the reader's schema."""
        return self._project(self.writer.decode(message))

    def accessor(self, path: str | Path) -> Callable[[bytes], Any]:
        """A function that reads the field at `path` of the reader's schema from a message of the writer's."""
        key = self.reader.path(path)
        holder = self.writer.holder(key)
        if holder is None:
            return _nothing
        access = self.writer.accessor(key)
        if holder != key or key not in self.reader.flat.nodes:
            return access  # inside a dynamic field of either: as it is
        project = self._projection(self.writer.flat.nodes[key], self.reader.flat.nodes[key])
        return access if project is _same else lambda message: project(access(message))

    def _projection(self, writer: Node, reader: Node) -> _Project:
        """A function from a value of the writer's node to the value of the reader's node."""
        writer, reader = held(writer), held(reader)
        match writer, reader:
            case TupleNode(), TupleNode():
                return self._tuple(writer, reader)
            case VariantNode(), VariantNode():
                return self._variant(writer, reader)
            case ListNode(), ListNode():
                item = self._projection(writer.item, reader.item)
                return lambda value: None if value is None else [item(part) for part in value]
            case LeafNode(), LeafNode():
                return self._leaf(writer.leaf.basic, reader.leaf.basic)
            case _, LeafNode(leaf=Leaf(basic=Dynamic(), depth=0)):
                return _same
            case _:
                return _nothing

    def _tuple(self, writer: TupleNode, reader: TupleNode) -> _Project:
        theirs = {field.name: field.node for field in node_members(writer)}
        parts = [
            (field, self._projection(theirs[field.name], field.node) if field.name in theirs else _nothing)
            for field in node_members(reader)
        ]

        def project(value: Any) -> Any:
            if value is None:
                return None
            projected = {field.name: part(value.get(field.name)) for field, part in parts}
            for field, _ in parts:
                if field.chosen and projected[field.name] is None:
                    del projected[field.name]
            return projected

        return project

    def _variant(self, writer: VariantNode, reader: VariantNode) -> _Project:
        theirs = dict(zip(reader.names, reader.nodes, strict=True))
        cases = {
            name: self._projection(node, theirs[name])
            for name, node in zip(writer.names, writer.nodes, strict=True)
            if name in theirs
        }

        def project(value: Any) -> Any:
            if value is None:
                return None
            name, inner = (value, {}) if isinstance(value, str) else next(iter(value.items()))
            if name not in cases:
                return UnknownCase(name)
            return name if reader.style == "enumeration" else {name: cases[name](inner)}

        return project

    def _leaf(self, source: Basic, target: Basic) -> _Project:
        match source, target:
            case Atomic(), Atomic() if source.kind in _WIDENS.get(target.kind, ()):
                widen = float if target.kind is Kind.DOUBLE else int
                return lambda value: None if value is None else widen(value)
            case Atomic(), Atomic() if source.kind is target.kind:
                return _same
            case _, Dynamic():
                return _same
            case Box(), Box():
                return self._projection(source.flat.root, target.flat.root)
            case Recursive(), Recursive() if source.name == target.name:
                return lambda value: self._named_projection(source.name)(value)
            case _:
                return _nothing

    def _named_projection(self, name: str) -> _Project:
        """The projection of a named schema; made when first needed, since it may contain itself."""
        if name not in self._named:
            writer, reader = self.writer.named(name), self.reader.named(name)
            self._named[name] = self._projection(writer.flat.root, reader.flat.root)
        return self._named[name]


def check_compatible(old: Schema, new: Schema) -> None:
    """Raise IncompatibleSchemaError unless readers of either read the messages of the other rightly.

    A new version may add, drop and move fields, make them optional or mandatory, and add cases. A field that
    keeps its name keeps its type: programs that read the old version could not take a wider number.
    """
    _check(old.flat.root, new.flat.root, ())
    for name in sorted(old.definitions.keys() & new.definitions.keys()):
        _check(old.named(name).flat.root, new.named(name).flat.root, (name,))


def _check(before: Node, after: Node, path: Path) -> None:
    before, after = held(before), held(after)
    match before, after:
        case TupleNode(), TupleNode():
            theirs = {field.name: field.node for field in node_members(after)}
            for field in node_members(before):
                if field.name in theirs:
                    _check(field.node, theirs[field.name], (*path, field.name))
        case VariantNode(), VariantNode():
            _check_cases(before, after, path)
        case ListNode(), ListNode():
            _check(before.item, after.item, path)
        case LeafNode(leaf=Leaf(basic=Box() as old)), LeafNode(leaf=Leaf(basic=Box() as new)):
            _check(old.flat.root, new.flat.root, path)
        case LeafNode(), LeafNode() if before.leaf.basic == after.leaf.basic:
            pass
        case _:
            change = f"was {type_text(before.type)}, would be {type_text(after.type)}"
            reason = f"{change}: keep the type, or add a field of another name"
            raise IncompatibleSchemaError(reason, path=path_text(path))


def _check_cases(before: VariantNode, after: VariantNode, path: Path) -> None:
    theirs = dict(zip(after.names, after.nodes, strict=True))
    for name, node in zip(before.names, before.nodes, strict=True):
        if name not in theirs:
            reason = f"its case {name!r} is gone: keep it, messages already written may have it"
            raise IncompatibleSchemaError(reason, path=path_text(path))
        _check(node, theirs[name], (*path, name))


def _same(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    return None
