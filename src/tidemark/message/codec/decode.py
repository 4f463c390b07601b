"""Bytes to Python values, strictly.

Whatever the bytes are, a decoder returns a value or raises one DecodeError with the field's path. It takes
time and memory proportional to the bytes, because it checks a count against the bytes that remain before it
builds anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, assert_never

from tidemark.errors import DecodeError
from tidemark.message.codec.flat import (
    Basic,
    Box,
    Flat,
    Leaf,
    LeafNode,
    ListNode,
    Node,
    Recursive,
    TupleNode,
    VariantNode,
    case_codes,
)
from tidemark.message.codec.layout import FORMAT, CaseLayout
from tidemark.message.codec.lists import unpack_list
from tidemark.message.codec.nested import NestedMessages
from tidemark.message.codec.scalars import loader
from tidemark.message.types import FIXED_WIDTH, NESTING_MAX, Atomic, Dynamic, Kind, path_text

#: Kinds of which not every stored form is a value.
CHECKED_KINDS = frozenset((Kind.BOOLEAN, Kind.STRING, Kind.TIMESTAMP))

#: Stored form and the number of messages around it -> Python value.
_Load = Callable[[Any, int], Any]


class MessageDecoder:
    """Decodes messages of one flat form."""

    def __init__(self, flat: Flat, nested: NestedMessages | None) -> None:
        """`nested` reads messages inside messages; None if the flat form has none."""
        self._flat = flat
        self._nested = nested
        #: of each leaf, what makes its value; None until the leaf is first met: of thousands of fields most
        #: messages have few, and a broker looks into few messages
        self._loads: list[_Load | None] = [None] * len(flat.leaves)
        #: whether some stored forms are no values, of any case; None until that is asked for
        self._is_checked: bool | None = None

    def decode(self, data: bytes, depth: int = 0) -> Any:
        """The value of a message that lies in `depth` others; DecodeError if the bytes are not a message."""
        if depth > NESTING_MAX:
            raise DecodeError(f"nested deeper than {NESTING_MAX} messages")
        layout = self._flat.layout_of(data)
        values = self._load_all(layout, data, depth)
        return _rebuild(self._flat.root, layout.code, iter(values))

    def check(self, data: bytes) -> None:
        """Raise what `decode` would raise, for a flat form whose leaves are all atomic."""
        layout = self._flat.layout_of(data)
        if self._is_checked is None:
            kinds = (getattr(leaf.basic, "kind", None) for leaf in self._flat.leaves)
            self._is_checked = any(kind in CHECKED_KINDS for kind in kinds)
        if not self._is_checked:
            layout.checked(data)
            return
        for leaf, stored in zip(layout.leaves, layout.unpack(data), strict=True):
            if leaf.basic.kind in CHECKED_KINDS:  # type: ignore[union-attr]  # all leaves are atomic
                (self._loads[leaf.index] or self._leaf(leaf))(stored, 0)

    def load(self, leaf: Leaf, stored: Any) -> Any:
        """The Python value of one leaf's stored form; DecodeError if the form is damaged."""
        return (self._loads[leaf.index] or self._leaf(leaf))(stored, 0)

    def _load_all(self, layout: CaseLayout, data: bytes, depth: int) -> list[Any]:
        loads = self._loads
        return [
            (loads[leaf.index] or self._leaf(leaf))(stored, depth)
            for leaf, stored in zip(layout.leaves, layout.unpack(data), strict=True)
        ]

    def _leaf(self, leaf: Leaf) -> _Load:
        """Make what makes the value of a leaf, and keep it."""
        basic, path = leaf.basic, path_text(leaf.path)
        load = self._loader(basic)
        letter, width = None, 0
        if isinstance(basic, Atomic):
            letter, width = FORMAT.get(basic.kind), FIXED_WIDTH.get(basic.kind, 0)

        def load_leaf(stored: Any, depth: int) -> Any:
            try:
                if leaf.depth == 0:
                    return load(stored, depth)
                nested = unpack_list(stored, letter, width, leaf.depth)
                return _map_nested(nested, leaf.depth, lambda item: load(item, depth))
            except DecodeError as error:
                raise DecodeError(error.reason, path=error.path or path) from None

        self._loads[leaf.index] = load_leaf
        return load_leaf

    def _loader(self, basic: Basic) -> _Load:
        if isinstance(basic, Atomic):
            load = loader(basic)
            return lambda stored, _: load(stored)
        nested = self._nested
        assert nested is not None, "only a flat form of atomic leaves has no messages inside"
        match basic:
            case Dynamic():
                return lambda stored, depth: nested.decode_dynamic(stored, depth + 1)
            case Recursive():
                return lambda stored, depth: nested.decode_named(basic.name, stored, depth + 1)
            case Box():
                inner = MessageDecoder(basic.flat, nested)
                return lambda stored, depth: inner.decode(stored, depth + 1)
        assert_never(basic)


def _map_nested(items: list[Any], depth: int, load: Callable[[Any], Any]) -> list[Any]:
    if depth == 1:
        return [load(item) for item in items]
    return [_map_nested(item, depth - 1, load) for item in items]


def _rebuild(node: Node, code: int, leaves: Iterator[Any]) -> Any:
    """The natural value of `node` under `code`; its leaves' values are taken off the iterator."""
    match node:
        case LeafNode():
            return next(leaves)
        case TupleNode():
            return _rebuild_tuple(node, code, leaves)
        case VariantNode():
            return _rebuild_variant(node, code, leaves)
        case ListNode():
            columns = [next(leaves) for _ in node.leaves]
            if any(len(column) != len(columns[0]) for column in columns):
                raise DecodeError("the lists of its fields differ in length", path=path_text(node.path))
            return [_rebuild(node.item, 0, iter(row)) for row in zip(*columns, strict=True)]
    assert_never(node)


def _rebuild_tuple(node: TupleNode, code: int, leaves: Iterator[Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    parts = zip(node.names, node.nodes, node.spliced, case_codes(node, code), strict=True)
    for name, child, spliced, digit in parts:
        inner = _rebuild(child, digit, leaves)
        if not spliced:
            value[name] = inner
        elif inner is not None:
            value.update(inner)
    return value


def _rebuild_variant(node: VariantNode, code: int, leaves: Iterator[Any]) -> Any:
    case = node.case_of(code)
    if case == node.absent:
        return None
    inner = _rebuild(node.nodes[case], code - node.starts[case], leaves)
    if node.style == "option":
        return inner
    if node.style == "enumeration":
        return node.names[case]
    return {node.names[case]: inner}
