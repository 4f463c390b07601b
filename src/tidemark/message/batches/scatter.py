"""Messages out of columns: the inverse of `message.batches.gather`.

Rows are grouped by their multi-choice codes; in a plain record the absent fields give the code. The headers
of a group are one matrix that is filled a column at a time, and variable fields are copied in whole
stretches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import EncodeError
from tidemark.message.batches.columns import STORED_DTYPES, Bools, Bytes, Column, Decimals, Ints, Spans
from tidemark.message.batches.spans import copy_spans, put_rows
from tidemark.message.codec.flat import Flat, Leaf, LeafNode, TupleNode, VariantNode, held
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.schema import Schema
from tidemark.message.types import FIXED_WIDTH, Atomic, Path, path_text

#: room(length[row]) -> a body to write messages of these lengths into, and start[row]: where each begins
Room = Callable[[Ints], tuple[Bytes, Ints]]


def is_flat_record(schema: Schema) -> bool:
    """Is the schema a tuple of atomic fields, optional or not, whose codes fit into an array?"""
    root = schema.flat.root
    if not isinstance(root, TupleNode) or schema.flat.code_width > 4 or any(root.spliced):
        return False
    return all(
        isinstance(leaf := held(node), LeafNode)
        and isinstance(leaf.leaf.basic, Atomic)
        and leaf.leaf.depth == 0
        for node in root.nodes
    )


def end_to_end(lengths: Ints) -> tuple[Bytes, Ints]:
    """A `Room` in which messages follow one another in a body of their own."""
    ends = np.cumsum(lengths)
    return np.empty(int(ends[-1]) if len(ends) else 0, np.uint8), ends - lengths


def encode_columns(
    schema: Schema, columns: Mapping[Path, Column], count: int, room: Room = end_to_end
) -> Spans:
    """The messages of `count` rows, written where there is room for them.

    `columns` has a column for every field, in the field's own type. EncodeError if a row lacks a mandatory
    field. The schema must be a flat record.
    """
    assert is_flat_record(schema)
    codes = _codes(schema.flat, columns, count)
    by_leaf = {leaf.index: columns[leaf.path] for leaf in schema.flat.leaves}
    return write_cases(schema.flat, _grouped(codes), by_leaf, count, room)


def write_messages(flat: Flat, codes: Ints, columns: Mapping[int, Column], count: int) -> Spans:
    """The messages of `count` rows, end to end in a body of their own.

    `codes[row]` is the multi-choice code of each row. `columns` is by the index of the leaf: for a leaf of
    fixed width its values, for any other the spans of its bytes. The value of a leaf that the row's code does
    not have is ignored.
    """
    return write_cases(flat, _grouped(codes), columns, count)


def write_cases(
    flat: Flat,
    cases: Sequence[tuple[int, Ints]],
    columns: Mapping[int, Column],
    count: int,
    room: Room = end_to_end,
) -> Spans:
    """The same, for each code the rows that have it: codes may be wider than an array can hold."""
    lengths = np.zeros(count, np.int64)
    groups = [(flat.layout(code), rows) for code, rows in cases]
    for layout, rows in groups:
        lengths[rows] = layout.size + sum(_spans(leaf, columns).lengths[rows] for leaf in _variable(layout))
    body, starts = room(lengths)
    for layout, rows in groups:
        _write(layout, flat.code_width, columns, rows, body, starts[rows])
    return Spans(body, starts, starts + lengths)


def stored_bytes(item: Atomic, column: Column) -> Bytes:
    """bytes[row, width]: values of fixed width as messages store them."""
    raw = np.ascontiguousarray(_stored(item, column, slice(None)))
    return raw.view(np.uint8).reshape(len(raw), FIXED_WIDTH[item.kind])


def _grouped(codes: Ints) -> list[tuple[int, Ints]]:
    """Each distinct code, and the rows that have it."""
    if len(codes) and (codes == codes[0]).all():
        return [(int(codes[0]), np.arange(len(codes)))]
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, first[1:]), strict=True)) if len(codes) else []


def _codes(flat: Flat, columns: Mapping[Path, Column], count: int) -> Ints:
    """codes[row]: the multi-choice code, which tells which optional fields the row has."""
    assert isinstance(flat.root, TupleNode)
    codes = np.zeros(count, np.int64)
    weight = 1
    for node in flat.root.nodes:
        leaf = held(node)
        assert isinstance(leaf, LeafNode)
        valid = columns[leaf.leaf.path].valid
        if isinstance(node, VariantNode):
            assert node.absent is not None
            absent, present = node.starts[node.absent], node.starts[1 - node.absent]
            codes += weight * (present if valid is None else np.where(valid, present, absent))
        else:
            _require(leaf.leaf, valid)
        weight *= node.count
    return codes


def _require(leaf: Leaf, valid: Bools | None) -> None:
    if valid is not None and not valid.all():
        row = int(np.argmin(valid))
        raise EncodeError(f"is missing in row {row}", path=path_text(leaf.path))


def _variable(layout: CaseLayout) -> list[Leaf]:
    """The layout's variable fields in the order of their bytes."""
    return sorted(
        (leaf for leaf in layout.leaves if leaf.width is None), key=lambda leaf: layout.slots[leaf.index]
    )


def _spans(leaf: Leaf, columns: Mapping[int, Column]) -> Spans:
    return cast(Spans, columns[leaf.index].values)


def _write(
    layout: CaseLayout, code_width: int, columns: Mapping[int, Column], rows: Ints, body: Bytes, starts: Ints
) -> None:
    """Write the messages of the rows of one case into the body, each at its start."""
    header = np.zeros((len(rows), layout.size), np.uint8)
    header[:, :code_width] = np.frombuffer(layout.code.to_bytes(code_width, "little"), np.uint8)
    for leaf in layout.leaves:
        if leaf.width is not None:
            assert isinstance(leaf.basic, Atomic)
            _put(header, layout.slots[leaf.index], _stored(leaf.basic, columns[leaf.index], rows))
    mark = np.full(len(rows), layout.size, np.int64)
    for leaf in _variable(layout):
        spans = _spans(leaf, columns)
        chosen = Spans(spans.body, spans.starts[rows], spans.ends[rows])
        copy_spans(body, starts + mark, chosen)
        slot = layout.slots[leaf.index]
        _put(header, slot, mark.astype("<u4"))
        mark = mark + chosen.lengths
        _put(header, slot + 4, mark.astype("<u4"))
    put_rows(body, starts, header)


def _stored(item: Atomic, column: Column, rows: Ints | slice) -> NDArray[np.generic]:
    if isinstance(column.values, Decimals):
        return np.stack((column.values.low[rows], column.values.high[rows].view(np.uint64)), axis=1)
    values = cast("NDArray[np.generic]", column.values)[rows]
    return values.astype(STORED_DTYPES[item.kind])


def _put(header: Bytes, at: int, values: NDArray[np.generic]) -> None:
    """Write values[row] into each row's header from byte `at` on."""
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(header), -1)
    header[:, at : at + raw.shape[1]] = raw
