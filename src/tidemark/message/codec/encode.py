"""Python values to bytes.

An encoder walks a value along the schema's tree once. It collects the stored form of each leaf in natural
order and works out the multi-choice code; the layout of that code then packs the leaves. A value that does
not fit the schema raises EncodeError with the field's path: nothing is dropped, defaulted or rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from operator import itemgetter
from struct import error as struct_error
from typing import Any

from tidemark.errors import EncodeError
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
)
from tidemark.message.codec.layout import FORMAT
from tidemark.message.codec.lists import pack_list
from tidemark.message.codec.nested import NestedMessages
from tidemark.message.codec.scalars import storer
from tidemark.message.members import members
from tidemark.message.types import NESTING_MAX, Atomic, Dynamic, Kind, path_text


class StoredLeaves(list[Any]):
    """The stored forms of leaves in natural order, and how many messages lie around the one being made."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth


#: `collect(value, stored)` appends the stored leaves of a value and returns the multi-choice code of the part
#: of the tree that it walked.
_Collect = Callable[[Any, StoredLeaves], int]


class MessageEncoder:
    """Encodes values of one flat form."""

    def __init__(self, flat: Flat, nested: NestedMessages) -> None:
        self._flat = flat
        self._nested = nested
        self._collect = self._collector(flat.root)
        self._quick = quick_record(flat)

    def encode(self, value: Any, depth: int = 0) -> bytes:
        """The message of a value that lies in `depth` other messages; EncodeError if it does not fit."""
        if self._quick is not None:
            message = self._quick(value)
            if message is not None:
                return message
        if depth > NESTING_MAX:
            raise EncodeError(f"nested deeper than {NESTING_MAX} messages")
        stored = StoredLeaves(depth)
        code = self._collect(value, stored)
        return self._flat.layout(code).pack(stored)

    def store(self, leaf: Leaf, value: Any) -> Any:
        """The stored form of a value of one fixed-width leaf; EncodeError if it does not fit."""
        stored = StoredLeaves(0)
        self._leaf(leaf, spliced=False)(value, stored)
        return stored[0]

    def _collector(self, node: Node, *, spliced: bool = False, in_list: bool = False) -> _Collect:
        """The function that collects the leaves of `node`.

        `spliced`: the value that it gets is the enclosing tuple's dict. `in_list`: the node lies in a list,
        so a list in it is collected as columns of items, which the outer list packs.
        """
        match node:
            case LeafNode():
                return self._leaf(node.leaf, spliced=spliced)
            case ListNode():
                return self._list_column(node) if in_list else self._list(node)
            case TupleNode():
                return self._tuple(node, spliced=spliced, in_list=in_list)
            case VariantNode():
                return self._variant(node, spliced=spliced)

    def _leaf(self, leaf: Leaf, *, spliced: bool) -> _Collect:
        store, path = self._storer(leaf.basic), path_text(leaf.path)

        def collect(value: Any, stored: StoredLeaves) -> int:
            if spliced:
                assert isinstance(leaf.basic, Box)
                value = _chosen(leaf.basic.flat.root, value, path)
            try:
                stored.append(store(value, stored.depth))
            except EncodeError as error:
                reason = "is missing" if value is None else error.reason
                raise EncodeError(reason, path=error.path or path) from None
            return 0

        return collect

    def _storer(self, basic: Basic) -> Callable[[Any, int], Any]:
        match basic:
            case Atomic():
                store = storer(basic)
                return lambda value, _: store(value)
            case Dynamic():
                return lambda value, depth: self._nested.encode_dynamic(value, depth + 1)
            case Recursive():
                return lambda value, depth: self._nested.encode_named(basic.name, value, depth + 1)
            case Box():
                inner = MessageEncoder(basic.flat, self._nested)
                return lambda value, depth: inner.encode(value, depth + 1)

    def _tuple(self, node: TupleNode, *, spliced: bool, in_list: bool) -> _Collect:
        known = frozenset(member.name for member in members(node.type))
        path = path_text(node.path)
        parts: list[tuple[str, _Collect, int]] = []
        weight = 1
        for name, child, inlined in zip(node.names, node.nodes, node.spliced, strict=True):
            collector = self._collector(child, spliced=inlined, in_list=in_list)
            parts.append(("" if inlined else name, collector, weight))
            weight *= child.count

        def collect(value: Any, stored: StoredLeaves) -> int:
            if not spliced:  # otherwise the enclosing tuple has checked all keys
                value = _checked(value, known, path)
            code = 0
            for name, part, weight in parts:
                code += weight * part(value.get(name) if name else value, stored)
            return code

        return collect

    def _variant(self, node: VariantNode, *, spliced: bool) -> _Collect:
        parts = [self._collector(child) for child in node.nodes]
        path = path_text(node.path)

        def collect(value: Any, stored: StoredLeaves) -> int:
            if spliced:
                value = _chosen(node, value, path)
            if value is None and node.absent is not None:
                return node.starts[node.absent]
            if node.style == "option":
                assert node.absent is not None
                case, inner = 1 - node.absent, value
            else:
                case, inner = _case(node, value, path)
            return node.starts[case] + parts[case](inner, stored)

        return collect

    def _list(self, node: ListNode) -> _Collect:
        columns = self._columns(node)
        packers = [(_letter(leaf.basic), leaf.depth) for leaf in node.leaves]

        def collect(value: Any, stored: StoredLeaves) -> int:
            for column, (letter, depth) in zip(columns(value, stored.depth), packers, strict=True):
                stored.append(pack_list(column, letter, depth))
            return 0

        return collect

    def _list_column(self, node: ListNode) -> _Collect:
        columns = self._columns(node)

        def collect(value: Any, stored: StoredLeaves) -> int:
            stored.extend(columns(value, stored.depth))
            return 0

        return collect

    def _columns(self, node: ListNode) -> Callable[[Any, int], list[list[Any]]]:
        """The function that turns a list of items into one list for each leaf of the item."""
        item = self._collector(node.item, in_list=True)
        path, width = path_text(node.path), len(node.leaves)

        def collect(value: Any, depth: int) -> list[list[Any]]:
            if not isinstance(value, Sequence) or isinstance(value, str | bytes):
                reason = "is missing" if value is None else f"{type(value).__name__} is not a list"
                raise EncodeError(reason, path=path)
            rows: list[StoredLeaves] = []
            for at, element in enumerate(value):
                rows.append(StoredLeaves(depth))
                try:
                    item(element, rows[-1])
                except EncodeError as error:
                    raise EncodeError(f"item {at}: {error.reason}", path=error.path or path) from None
            return [[row[column] for row in rows] for column in range(width)]

        return collect


def _checked(value: Any, known: frozenset[str], path: str) -> Mapping[str, Any]:
    """The value as a dict of fields; EncodeError if it is none, or has a key that is not in the schema."""
    if isinstance(value, tuple | list) and len(value) == len(known):
        value = {f"_{at}": item for at, item in enumerate(value)}
    if not isinstance(value, Mapping):
        reason = "is missing" if value is None else f"{type(value).__name__} is not a dict of fields"
        raise EncodeError(reason, path=path)
    if not value.keys() <= known:
        odd = min(value.keys() - known, key=str)
        near = get_close_matches(str(odd), known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known)) or 'no fields'}"
        raise EncodeError(f"there is no field {odd!r}: {hint}", path=path)
    return value


def _chosen(node: Node, value: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """{case: value} of the case of a spliced variant that the enclosing dict sets; None if it sets none."""
    assert isinstance(node, VariantNode)
    chosen = {name: value[name] for name in node.names if value.get(name) is not None}
    if len(chosen) > 1:
        raise EncodeError(f"only one of {', '.join(chosen)} can be set", path=path)
    return chosen or None


def _case(node: VariantNode, value: Any, path: str) -> tuple[int, Any]:
    """The index of the case that a value {case: inner} chooses, and its inner value."""
    if isinstance(value, str):
        value = {value: {}}
    if value is None:
        raise EncodeError("is missing", path=path)
    if not isinstance(value, Mapping) or len(value) != 1:
        raise EncodeError(f"choose one case, as {{case: value}}, of {', '.join(node.names)}", path=path)
    ((name, inner),) = value.items()
    if name not in node.names:
        raise EncodeError(f"{name!r} is none of its cases {', '.join(node.names)}", path=path)
    return node.names.index(name), inner


def _letter(basic: Basic) -> str | None:
    return FORMAT.get(basic.kind) if isinstance(basic, Atomic) else None


#: The kinds whose stored form needs no checking beyond the Python type that struct or `encode` demands.
_QUICK: dict[Kind, type] = {
    Kind.BOOLEAN: bool,
    Kind.INT: int,
    Kind.LONG: int,
    Kind.FLOAT: float,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.BYTES: bytes,
}


def quick_record(flat: Flat) -> Callable[[Any], bytes | None] | None:
    """A fast encoder for a plain record of atomic fields; None if the schema is anything else.

    The fast encoder returns the message, or None for a value that may not fit. Then the ordinary encoder
    runs and finds out whether anything is wrong, and what.
    """
    root = flat.root
    if not isinstance(root, TupleNode) or len(root.nodes) < 2:
        return None
    kinds: list[Kind] = []
    for node in root.nodes:
        if not isinstance(node, LeafNode) or not isinstance(node.leaf.basic, Atomic):
            return None
        kinds.append(node.leaf.basic.kind)
    if any(kind not in _QUICK for kind in kinds):
        return None
    types = tuple(_QUICK[kind] for kind in kinds)
    strings = [at for at, kind in enumerate(kinds) if kind is Kind.STRING]
    fields, size, pack = itemgetter(*root.names), len(kinds), flat.layout(0).pack

    def encode(value: Any) -> bytes | None:
        try:
            values = fields(value)
            if len(value) != size or tuple(map(type, values)) != types:
                return None
            if strings:
                values = list(values)
                for at in strings:
                    values[at] = values[at].encode()
            return pack(values)
        except (KeyError, TypeError, IndexError, UnicodeEncodeError, OverflowError, struct_error):
            return None

    return encode
