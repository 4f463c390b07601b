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

from collections.abc import Callable, Iterable, Iterator
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
    history = SchemaHistory()
    history.add(old)
    history.check(new)


class SchemaHistory:
    """All that the versions of one schema had, so that a new version is checked against all of them at once.

    A version may drop a field, and a later one have it again; so the newest version does not say enough. The
    history has every field and case that any version had. Checking and adding a version take time
    proportional to that version, however many there were before.
    """

    def __init__(self) -> None:
        self._root: _Known | None = None
        #: name of a named schema -> what is known of it
        self._named: dict[str, _Known] = {}

    def check(self, new: Schema) -> None:
        """Raise what `check_compatible` raises of any version so far and `new`."""
        if self._root is not None:
            self._root.check(new.flat.root, ())
        for name in sorted(self._named.keys() & new.definitions.keys()):
            self._named[name].check(new.named(name).flat.root, (name,))

    def add(self, new: Schema) -> None:
        """Add a version, which `check` must allow."""
        self._root = self._root or _Known()
        self._root.add(new.flat.root)
        for name in new.definitions:
            self._named.setdefault(name, _Known()).add(new.named(name).flat.root)


class _Known:
    """What is known of one field or case, options left out: the same in all versions that have it."""

    __slots__ = ("kind", "leaf", "members")

    def __init__(self, leaf: Basic | None = None) -> None:
        #: the class of its nodes
        self.kind: type[Node] | None = None if leaf is None else LeafNode
        #: of a tuple its fields, of a variant its cases, by name; what a list holds or a box is under "". Of
        #: a leaf only what it holds is kept: a topic may have thousands.
        self.members: dict[str, _Known | Basic] = {}
        #: of a leaf that is no box: what it holds
        self.leaf = leaf

    def add(self, node: Node) -> None:
        """Take in a node that `check` allows."""
        node = held(node)
        self.kind = type(node)
        members = self.members
        for name, inner in _inner(node):
            known = members.get(name)
            if known is None:
                plain = _plain(held(inner))
                known = members[name] = plain if plain is not None else _Known()
            if type(known) is _Known:
                known.add(inner)
        self.leaf = _plain(node)

    def check(self, node: Node, path: Path) -> None:
        """Raise IncompatibleSchemaError unless `node` may follow what is known."""
        node = held(node)
        if self.kind is not type(node) or _plain(node) != self.leaf:
            change = f"was {self.text()}, would be {type_text(node.type)}"
            reason = f"{change}: keep the type, or add a field of another name"
            raise IncompatibleSchemaError(reason, path=path_text(path))
        inner = dict(_inner(node))
        if isinstance(node, VariantNode):
            for name in self.members:
                if name not in inner:
                    reason = f"its case {name!r} is gone: keep it, messages already written may have it"
                    raise IncompatibleSchemaError(reason, path=path_text(path))
        for name, each in inner.items():
            known = self.members.get(name)
            if known is not None and _plain(held(each)) is not known:
                found = known if isinstance(known, _Known) else _Known(known)
                found.check(each, (*path, name) if name else path)

    def text(self) -> str:
        """What is known, in the words of the schema language, with every field that a version had."""
        if self.kind is LeafNode:
            return self._text_of("") if self.leaf is None else _leaf_text(self.leaf)
        if self.kind is ListNode:
            return f"*({self._text_of('')})*"
        left, right = ("[", "]") if self.kind is TupleNode else ("{", "}")
        return left + ", ".join(f"{name}: {self._text_of(name)}" for name in self.members) + right

    def _text_of(self, name: str) -> str:
        known = self.members[name]
        return known.text() if isinstance(known, _Known) else _leaf_text(known)


def _leaf_text(leaf: Basic) -> str:
    if isinstance(leaf, Recursive):
        return leaf.name
    assert not isinstance(leaf, Box)
    return type_text(leaf)


def _plain(node: Node) -> Basic | None:
    """What a leaf that is no box holds; None for all other nodes."""
    return node.leaf.basic if type(node) is LeafNode and type(node.leaf.basic) is not Box else None


def _inner(node: Node) -> Iterable[tuple[str, Node]]:
    """The parts of a node by the names that they have in a path; "" for one that adds nothing to the path."""
    if isinstance(node, TupleNode) and not any(node.spliced):
        return zip(node.names, node.nodes, strict=True)
    return _few_inner(node)


def _few_inner(node: Node) -> Iterator[tuple[str, Node]]:
    match node:
        case TupleNode():
            yield from ((field.name, field.node) for field in node_members(node))
        case VariantNode():
            yield from zip(node.names, node.nodes, strict=True)
        case ListNode():
            yield "", node.item
        case LeafNode(leaf=Leaf(basic=Box() as box)):
            yield "", box.flat.root


def _same(value: Any) -> Any:
    return value


def _nothing(_: Any) -> None:
    return None
