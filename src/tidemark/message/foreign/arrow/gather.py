"""Messages of one schema as Arrow arrays, nested fields too, without a step for each value.

Fields outside lists are gathered by the multi-choice codes, as in `message.batches.gather`, and put together
to structs. A list is opened for all rows at once: its lengths become offsets, its items arrays. A variant
under a list is a nested message: those of all rows are read as one more set of messages. Only dynamic values,
and references that recur, are converted one by one, to JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tidemark.errors import DecodeError
from tidemark.message.batches.columns import STORED_DTYPES, Bools, Bytes, Column, Decimals, Ints, Spans
from tidemark.message.batches.gather import Messages, is_text
from tidemark.message.batches.spans import joined
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
    code_finder,
    held,
)
from tidemark.message.codec.node_members import NodeMember, case_members, node_members
from tidemark.message.foreign.arrow.columns import bitmap, column_array
from tidemark.message.foreign.json.text import to_json_text
from tidemark.message.members import cases, members, split_option
from tidemark.message.schema import Schema
from tidemark.message.types import (
    FIXED_WIDTH,
    Atomic,
    Dynamic,
    Kind,
    List,
    Reference,
    Tuple,
    Type,
    Variant,
    path_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

_COUNT_BYTES = 4


class NotColumnarError(Exception):
    """The field can only be converted value by value. `arrow.batches` catches this error."""


def field_array(messages: Messages, name: str, item: Type, kind: pa.DataType) -> pa.Array:
    """The array of the member `name` of the messages' tuple.

    `item` is the member's type as readers see it, `kind` its Arrow type. NotColumnarError if only single
    values can be converted; DecodeError if the bytes are no messages.
    """
    root = messages.schema.flat.root
    assert isinstance(root, TupleNode)
    gather = _Gather(messages, messages.schema)
    for member in node_members(root):
        if member.name == name:
            return gather.member(member, item, kind)
    raise NotColumnarError


#: index of a leaf -> its items of all lists of one level, end to end: bytes of fixed width, or spans
_Items = Mapping[int, Bytes | Spans]


class _Gather:
    """Makes arrays out of messages; each message is a row."""

    def __init__(self, messages: Messages, nested: Schema) -> None:
        self._messages = messages
        #: decodes what lies in dynamic values and references
        self._nested = nested

    def member(self, member: NodeMember, item: Type, kind: pa.DataType) -> pa.Array:
        """The array of a key of a tuple, or of a case of a variant."""
        if member.chosen and split_option(item)[1]:
            # The value of the case may be None: a struct around it shows that the case was chosen.
            inner = self.array(member.node, item, kind.field("value").type)
            return _struct([inner], kind, self._entered(member.node))
        return self.array(member.node, item, kind)

    def array(self, node: Node, item: Type, kind: pa.DataType) -> pa.Array:
        """The array of a node's values, null where the node is absent."""
        core, _ = split_option(item)
        node = held(node)
        if isinstance(core, Dynamic | Reference) != _is_text_leaf(node):
            raise NotColumnarError
        match node:
            case LeafNode():
                return self._leaf(node.leaf, item)
            case VariantNode(style="enumeration"):
                return column_array(self._messages.enumeration(node))
            case VariantNode():
                assert isinstance(core, Variant)
                types = [case.type for case in cases(core)]
                children = zip(case_members(node), types, kind, strict=True)
                arrays = [self.member(member, each, field.type) for member, each, field in children]
                return _struct(arrays, kind, self._messages.reached(node))
            case TupleNode():
                assert isinstance(core, Tuple)
                return self._tuple(node, core, kind)
            case ListNode():
                assert isinstance(core, List)
                return self._list(node, core, kind)

    def _leaf(self, leaf: Leaf, item: Type) -> pa.Array:
        import pyarrow as pa

        if isinstance(leaf.basic, Atomic):
            return column_array(self._messages.atomic(leaf, leaf.basic))
        spans, valid = self._messages.variable(leaf)
        return pa.array(_texts(leaf, item, spans, valid, self._nested), pa.string())

    def _tuple(self, node: TupleNode, item: Tuple, kind: pa.DataType) -> pa.Array:
        valid = self._messages.reached(node)
        found = list(zip(node_members(node), members(item), strict=True))
        if not found:
            return _always(len(self._messages), valid)
        arrays = [self.member(member, each.type, kind.field(each.name).type) for member, each in found]
        return _struct(arrays, kind, valid)

    def _list(self, node: ListNode, item: List, kind: pa.DataType) -> pa.Array:
        if not node.leaves:
            raise NotColumnarError
        contents: dict[int, Spans] = {}
        valid: Bools | None = None
        for leaf in node.leaves:
            contents[leaf.index], valid = self._messages.variable(leaf)
        return self._lists(node, item, kind, contents, valid, 1)

    # Inside lists.

    def _lists(
        self,
        node: ListNode,
        item: List,
        kind: pa.DataType,
        contents: Mapping[int, Spans],
        valid: Bools | None,
        level: int,
    ) -> pa.Array:
        """The array of lists of one level; contents[leaf] has the bytes of each list.

        DecodeError if the leaves of a list differ in their number of items.
        """
        import pyarrow as pa

        counts: Ints | None = None
        items: dict[int, Bytes | Spans] = {}
        for leaf in node.leaves:
            found, items[leaf.index] = _opened(leaf, contents[leaf.index], leaf.depth - level, valid)
            if counts is not None and (counts != found).any():
                raise DecodeError("the lists of its fields differ in length", path=path_text(node.path))
            counts = found
        assert counts is not None
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        child = self._items(node.item, item.item, kind.value_type, items, int(offsets[-1]), level)
        buffers = [bitmap(valid), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(kind, len(counts), buffers, children=[child])

    def _items(
        self, node: Node, item: Type, kind: pa.DataType, items: _Items, count: int, level: int
    ) -> pa.Array:
        """The array of the items of all lists, end to end."""
        core, _ = split_option(item)
        is_box = isinstance(node, LeafNode) and isinstance(node.leaf.basic, Box)
        if not is_box and isinstance(core, Dynamic | Reference) != _is_text_leaf(node):
            raise NotColumnarError
        match node:
            case LeafNode():
                return self._item_leaf(node.leaf, item, kind, items[node.leaf.index])
            case ListNode():
                assert isinstance(core, List)
                if not node.leaves:
                    raise NotColumnarError
                inner = {leaf.index: cast(Spans, items[leaf.index]) for leaf in node.leaves}
                return self._lists(node, core, kind, inner, None, level + 1)
            case TupleNode():
                assert isinstance(core, Tuple)
                found = list(zip(node_members(node), members(core), strict=True))
                if not found:
                    return _always(count, None)
                arrays = []
                for member, each in found:
                    inside = kind.field(each.name).type
                    if member.box is None:
                        arrays.append(self._items(member.node, each.type, inside, items, count, level))
                    else:
                        box = self._boxed(member.box, items[member.box.index])
                        arrays.append(box.member(member, each.type, inside))
                return _struct(arrays, kind, None)
            case VariantNode():
                raise AssertionError("a variant in a list is a box")

    def _item_leaf(self, leaf: Leaf, item: Type, kind: pa.DataType, data: Bytes | Spans) -> pa.Array:
        import pyarrow as pa

        basic = leaf.basic
        if isinstance(basic, Box):
            return self._boxed(leaf, data).array(basic.flat.root, item, kind)
        if isinstance(basic, Atomic):
            return column_array(_item_column(leaf, basic, data))
        return pa.array(_texts(leaf, item, cast(Spans, data), None, self._nested), pa.string())

    def _boxed(self, leaf: Leaf, data: Bytes | Spans) -> _Gather:
        assert isinstance(leaf.basic, Box)
        spans = cast(Spans, data)
        messages = Messages(cast(Schema, _Boxed(leaf.basic.flat)), spans.body, spans.starts, spans.ends)
        return _Gather(messages, self._nested)

    def _entered(self, node: Node) -> Bools | None:
        """The rows whose case has `node`, also as its absent case (None: all rows)."""
        find = code_finder(self._messages.schema.flat.root, node)
        valid = self._messages.per_code(lambda code: int(find(code) is not None)).astype(np.bool_)
        return None if valid.all() else valid


@dataclass(frozen=True, slots=True)
class _Boxed:
    """The part of a Schema that `Messages` uses, for the nested messages of a variant box."""

    flat: Flat


def _is_text_leaf(node: Node) -> bool:
    return isinstance(node, LeafNode) and isinstance(node.leaf.basic, Dynamic | Recursive)


def _texts(leaf: Leaf, item: Type, spans: Spans, valid: Bools | None, nested: Schema) -> list[str | None]:
    """The JSON texts of values whose types are known per value.

    None for absent ones, and for None in options.
    """
    load, nullable = _loader(leaf.basic, nested), split_option(item)[1]
    found: list[str | None] = []
    present = [True] * len(spans) if valid is None else valid.tolist()
    for data, here in zip(spans.tolist(), present, strict=True):
        value = load(data) if here else None
        found.append(None if value is None and (nullable or not here) else to_json_text(value))
    return found


def _loader(basic: Basic, nested: Schema) -> Callable[[bytes], Any]:
    if isinstance(basic, Dynamic):
        return lambda data: nested.decode_dynamic(data, 1)
    assert isinstance(basic, Recursive)
    return lambda data: nested.decode_named(basic.name, data, 1)


def _opened(leaf: Leaf, lists: Spans, deeper: int, valid: Bools | None) -> tuple[Ints, Bytes | Spans]:
    """counts[list], and the items of all lists; each item still has `deeper` levels of lists in it."""
    width = FIXED_WIDTH.get(leaf.basic.kind) if isinstance(leaf.basic, Atomic) else None
    if deeper or width is None:
        return _opened_variable(leaf, lists, valid)
    counts, rest = np.divmod(lists.lengths, width)
    if rest.any():
        raise DecodeError(f"a list does not hold whole items of {width} bytes", path=path_text(leaf.path))
    return counts, joined(lists)[0]


def _opened_variable(leaf: Leaf, lists: Spans, valid: Bools | None) -> tuple[Ints, Spans]:
    """counts[list], and the items of lists stored as `count u32 | ends u32[count] | bytes`.

    A list that is absent has no items. DecodeError if a list is damaged.
    """
    there = np.ones(len(lists), np.bool_) if valid is None else valid
    where = path_text(leaf.path)
    if (lists.lengths[there] < _COUNT_BYTES).any():
        raise DecodeError("a list is shorter than its count", path=where)
    counts = np.where(there, _numbers(lists.body, np.where(there, lists.starts, 0)), 0)
    first = lists.starts + _COUNT_BYTES * (1 + counts)
    if (there & (first > lists.ends)).any():
        raise DecodeError("a list claims more items than it has bytes", path=where)
    before = np.cumsum(counts) - counts
    of_item = np.repeat(np.arange(len(counts)), counts)
    at = np.arange(len(of_item)) - before[of_item]
    ends = _numbers(lists.body, lists.starts[of_item] + _COUNT_BYTES * (1 + at))
    starts = np.where(at == 0, 0, np.roll(ends, 1)) if len(ends) else ends
    sizes = np.zeros(len(counts), np.int64)
    sizes[counts > 0] = ends[(before + counts - 1)[counts > 0]]
    if (starts > ends).any() or (there & (sizes != lists.ends - first)).any():
        raise DecodeError("the items of a list do not tile it", path=where)
    return counts, Spans(lists.body, first[of_item] + starts, first[of_item] + ends)


def _numbers(body: Bytes, at: Ints) -> Ints:
    """The little-endian u32 at each offset; of an offset too near the end the value is arbitrary."""
    if len(body) < _COUNT_BYTES or not len(at):
        return np.zeros(len(at), np.int64)
    view = np.ndarray((len(body) - 3,), "<u4", body, strides=(1,))
    return view[np.minimum(at, len(view) - 1)].astype(np.int64)


def _item_column(leaf: Leaf, item: Atomic, data: Bytes | Spans) -> Column:
    if isinstance(data, Spans):
        if item.kind is Kind.STRING and not is_text(data):
            raise DecodeError("not UTF-8", path=path_text(leaf.path))
        return Column(item, data)
    if item.kind is Kind.DECIMAL:
        halves = data.view("<u8").reshape(-1, 2)
        return Column(item, Decimals(halves[:, 0].copy(), halves[:, 1].copy().view(np.int64), item.scale))
    values = data.view(STORED_DTYPES[item.kind])
    if item.kind is Kind.BOOLEAN:
        if (values > 1).any():
            raise DecodeError("a byte is neither false nor true", path=path_text(leaf.path))
        return Column(item, values.astype(np.bool_))
    return Column(item, values)


def _struct(arrays: Sequence[pa.Array], kind: pa.DataType, valid: Bools | None) -> pa.Array:
    return _from_children(kind, len(arrays[0]), valid, arrays)


def _from_children(
    kind: pa.DataType, count: int, valid: Bools | None, children: Sequence[pa.Array]
) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, count, [bitmap(valid)], children=list(children))


def _always(count: int, valid: Bools | None) -> pa.Array:
    """The array of a tuple without fields: true where the tuple is present."""
    import pyarrow as pa

    return pa.array(np.ones(count, np.bool_), mask=None if valid is None else ~valid)
