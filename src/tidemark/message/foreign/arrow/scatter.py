"""Messages of one schema out of Arrow arrays, nested fields too: the inverse of `arrow.gather`.

The arrays tell for all rows which cases are chosen, which gives the multi-choice codes, and the values of
each leaf; `message.batches.scatter` writes the messages. Lists are packed for all rows at once, the innermost
first. The arrays have the types that `arrow.gather` makes, or like ones; all of them may be nullable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import EncodeError
from tidemark.message.batches.columns import Bools, Bytes, Column, Ints, Spans
from tidemark.message.batches.scatter import stored_bytes, write_messages
from tidemark.message.batches.spans import copy_spans, joined
from tidemark.message.codec.flat import (
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
from tidemark.message.foreign.arrow.columns import array_column
from tidemark.message.foreign.json.text import from_json_text
from tidemark.message.members import split_option
from tidemark.message.schema import Schema
from tidemark.message.types import Atomic, Dynamic, Path, Reference, Type, path_text

if TYPE_CHECKING:
    import pyarrow as pa

#: Multi-choice codes up to this width fit into an array.
_CODE_BYTES_MAX = 4
_COUNT_BYTES = 4


@lru_cache(maxsize=1_000)
def is_columnar(schema: Schema) -> bool:
    """Can messages of this schema be made from arrays?"""
    flat = schema.flat
    return isinstance(flat.root, TupleNode) and _is_columnar(flat)


def _is_columnar(flat: Flat) -> bool:
    inner = [leaf.basic.flat for leaf in flat.leaves if isinstance(leaf.basic, Box)]
    return flat.code_width <= _CODE_BYTES_MAX and _is_plain(flat.root) and all(map(_is_columnar, inner))


def _is_plain(node: Node) -> bool:
    """True if no list is without leaves, and no reference is text in Arrow but written out in messages.

    The length of a list without leaves would be stored nowhere.
    """
    match node:
        case LeafNode():
            return True
        case ListNode():
            return bool(node.leaves) and not _is_reference(node.type.item, node.item) and _is_plain(node.item)
        case TupleNode():
            types: Sequence[Type] = [field.type for field in node.type.fields]
        case VariantNode():
            types = [case.type for case in node.type.cases]
    pairs = list(zip(types, node.nodes, strict=True))
    return not any(_is_reference(item, child) for item, child in pairs) and all(
        _is_plain(child) for _, child in pairs
    )


def _is_reference(item: Type, node: Node) -> bool:
    recurs = isinstance(node, LeafNode) and isinstance(node.leaf.basic, Recursive)
    return isinstance(split_option(item)[0], Reference) and not recurs


def encode_arrays(schema: Schema, arrays: Mapping[str, pa.Array], count: int) -> Spans:
    """The messages of `count` rows; a member without an array is absent in all of them.

    EncodeError if a row does not fit. The schema must be one that `is_columnar`.
    """
    assert is_columnar(schema)
    return _Scatter(schema.flat, schema, count).encode(_Keys(arrays, count))


class _Keys:
    """The arrays of a tuple's fields or a variant's cases, by key; a key without an array is all null."""

    def __init__(self, arrays: Mapping[str, pa.Array], count: int) -> None:
        self._arrays = arrays
        self._count = count

    @classmethod
    def of(cls, array: pa.Array) -> _Keys:
        """The fields of a struct array; they are null where the struct is."""
        names = [array.type.field(at).name for at in range(array.type.num_fields)]
        return cls(dict(zip(names, array.flatten(), strict=True)), len(array))

    def __getitem__(self, name: str) -> pa.Array:
        import pyarrow as pa

        found = self._arrays.get(name)
        return pa.nulls(self._count) if found is None else found


class _Scatter:
    """Makes messages of one flat form: the codes, and a column for each leaf."""

    def __init__(self, flat: Flat, nested: Schema, count: int) -> None:
        self._flat = flat
        self._nested = nested
        self._count = count
        self._columns: dict[int, Column] = {}

    def encode(self, source: pa.Array | _Keys) -> Spans:
        """The messages of the rows of `source`, the array or the keys of the root node."""
        everyone = np.ones(self._count, np.bool_)
        codes = self._codes(self._flat.root, source, everyone)
        return write_messages(self._flat, codes, self._columns, self._count)

    def _codes(self, node: Node, source: pa.Array | _Keys, present: Bools) -> Ints:
        """codes[row] of the node; the columns of its leaves are added to `_columns`.

        Only rows that are present matter. EncodeError if a mandatory value is null in one of them.
        """
        match node:
            case TupleNode():
                return self._tuple_codes(node, source, present)
            case VariantNode():
                return self._variant_codes(node, source, present)
            case LeafNode():
                array = cast("pa.Array", source)
                _require(_valid(array), present, node.leaf.path)
                self._columns[node.leaf.index] = self._column(node.leaf, array)
            case ListNode():
                array = cast("pa.Array", source)
                _require(_valid(array), present, node.path)
                for index, spans in self._lists(node, array).items():
                    self._columns[index] = Column(node.type, cast(Any, spans))
        return np.zeros(self._count, np.int64)

    def _tuple_codes(self, node: TupleNode, source: pa.Array | _Keys, present: Bools) -> Ints:
        codes = np.zeros(self._count, np.int64)
        if not node.nodes:
            if not isinstance(source, _Keys):
                _require(_valid(source), present, node.path)
            return codes
        keys = self._keys(source, present, node.path)
        weight = 1
        for name, child, spliced in zip(node.names, node.nodes, node.spliced, strict=True):
            codes += weight * self._codes(child, keys if spliced else keys[name], present)
            weight *= child.count
        return codes

    def _keys(self, source: pa.Array | _Keys, present: Bools, path: Path) -> _Keys:
        if isinstance(source, _Keys):
            return source
        _require(_valid(source), present, path)
        return _Keys.of(source)

    def _variant_codes(self, node: VariantNode, source: pa.Array | _Keys, present: Bools) -> Ints:
        if node.style == "option":
            assert node.absent is not None
            some = 1 - node.absent
            # An option is never spliced, so `source` is an array.
            array = cast("pa.Array", source)
            valid = _valid(array) & present
            codes = node.starts[some] + self._codes(node.nodes[some], array, valid)
            return np.where(valid, codes, node.starts[node.absent])
        if node.style == "enumeration":
            return self._enumeration_codes(node, cast("pa.Array", source), present)
        return self._named_codes(node, source, present)

    def _enumeration_codes(self, node: VariantNode, array: pa.Array, present: Bools) -> Ints:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(array.cast(pa.string()), pa.array(node.names, pa.string()))
        cases = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if node.absent is not None:
            cases = np.where(_valid(array), cases, node.absent)
        _require(cases >= 0, present, node.path)
        codes: Ints = np.array(node.starts, np.int64)[np.maximum(cases, 0)]
        return codes

    def _named_codes(self, node: VariantNode, source: pa.Array | _Keys, present: Bools) -> Ints:
        if isinstance(source, _Keys):
            keys, there = source, present
        else:
            there = _valid(source) & present
            keys = _Keys.of(source)
        chosen = np.zeros(self._count, np.int64)
        codes = np.full(self._count, 0 if node.absent is None else node.starts[node.absent], np.int64)
        for at, (name, child) in enumerate(zip(node.names, node.nodes, strict=True)):
            if at == node.absent:
                continue
            array = keys[name]
            here = _valid(array) & there
            chosen += here
            inner = _Keys.of(array)["value"] if _is_boxed(node, at) else array
            codes = np.where(here, node.starts[at] + self._codes(child, inner, here), codes)
        if (chosen > 1).any() or (node.absent is None and (chosen[present] == 0).any()):
            raise EncodeError("one case must be set", path=path_text(node.path))
        return codes

    def _column(self, leaf: Leaf, array: pa.Array) -> Column:
        if isinstance(leaf.basic, Atomic):
            return array_column(array, leaf.basic, leaf.path)
        return Column(Dynamic(), cast(Any, self._dynamic(leaf, array)))

    def _dynamic(self, leaf: Leaf, array: pa.Array) -> Spans:
        """The messages of dynamic values and of references that recur, made from JSON texts one by one."""
        basic, nested = leaf.basic, self._nested
        made = []
        for text in array.to_pylist():
            if text is None:
                made.append(b"")
            elif isinstance(basic, Recursive):
                made.append(nested.encode_named(basic.name, from_json_text(text), 1))
            else:
                made.append(nested.encode_dynamic(from_json_text(text), 1))
        ends = np.cumsum([len(each) for each in made], dtype=np.int64)
        starts = ends - np.array([len(each) for each in made], np.int64)
        return Spans(np.frombuffer(b"".join(made), np.uint8), starts, ends)

    # Lists.

    def _lists(self, node: ListNode, array: pa.Array) -> dict[int, Spans]:
        """index of a leaf -> the packed list of each row; null is packed like an empty list."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_null(array.type):
            array = array.cast(pa.list_(pa.null()))
        counts = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        items = self._items(node.item, array.flatten(), int(counts.sum()))
        return {index: _packed(counts, data) for index, data in items.items()}

    def _items(self, node: Node, source: pa.Array | _Keys, count: int) -> dict[int, Bytes | Spans]:
        """index of a leaf -> its items of all lists: rows of bytes if of fixed width, else spans."""
        match node:
            case LeafNode():
                return {node.leaf.index: self._item(node.leaf, source, count)}
            case ListNode():
                array = cast("pa.Array", source)
                _require(_valid(array), np.ones(count, np.bool_), node.path)
                return dict(self._lists(node, array))
            case TupleNode():
                found: dict[int, Bytes | Spans] = {}
                keys = self._keys(source, np.ones(count, np.bool_), node.path) if node.nodes else None
                for name, child, spliced in zip(node.names, node.nodes, node.spliced, strict=True):
                    assert keys is not None
                    found |= self._items(child, keys if spliced else keys[name], count)
                return found
            case VariantNode():
                raise AssertionError("a variant in a list is a box")

    def _item(self, leaf: Leaf, source: pa.Array | _Keys, count: int) -> Bytes | Spans:
        if isinstance(leaf.basic, Box):
            return _Scatter(leaf.basic.flat, self._nested, count).encode(source)
        array = cast("pa.Array", source)
        _require(_valid(array), np.ones(count, np.bool_), leaf.path)
        column = self._column(leaf, array)
        if isinstance(column.values, Spans):
            return column.values
        assert isinstance(leaf.basic, Atomic)
        return stored_bytes(leaf.basic, column)


def _is_boxed(node: VariantNode, at: int) -> bool:
    """May the case's own value be None? Then Arrow has it in a struct, which shows that it is chosen."""
    return split_option(node.type.cases[at].type)[1]


def _packed(counts: Ints, items: Bytes | Spans) -> Spans:
    """The packed list of each row; `items` are the items of all rows, end to end, counts[row] for each."""
    ends = np.cumsum(counts)
    if not isinstance(items, Spans):
        width = items.shape[1]
        return Spans(items.reshape(-1), (ends - counts) * width, ends * width)
    bytes_, item_ends = joined(items)
    marks = np.concatenate(([0], item_ends)).astype(np.int64)
    sizes = marks[ends] - marks[ends - counts]
    heads = _COUNT_BYTES * (1 + counts)
    starts = np.cumsum(heads + sizes) - heads - sizes
    body = np.zeros(int((heads + sizes).sum()), np.uint8)
    view = np.ndarray((max(0, len(body) - 3),), "<u4", body, strides=(1,))
    view[starts] = counts
    of_item = np.repeat(np.arange(len(counts)), counts)
    at = np.arange(len(of_item)) - (ends - counts)[of_item]
    view[starts[of_item] + _COUNT_BYTES * (1 + at)] = marks[1:] - marks[ends - counts][of_item]
    copy_spans(body, starts + heads, Spans(bytes_, marks[ends - counts], marks[ends]))
    return Spans(body, starts, starts + heads + sizes)


def _valid(array: pa.Array) -> Bools:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _require(valid: Bools, present: Bools, path: Path) -> None:
    missing = present & ~valid
    if missing.any():
        raise EncodeError(f"is missing in row {int(np.argmax(missing))}", path=path_text(path))
