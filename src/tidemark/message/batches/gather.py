"""Columns out of many messages by array operations (docs/messages.md).

In the flat-tuple format a field's offset is a constant of the multi-choice code. So the codes of all rows
are read first, the offset is looked up once for each distinct code, and then one fancy index over the body
fetches the field of all rows. No message is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import sliding
from tidemark.message.batches.columns import STORED_DTYPES, Bools, Bytes, Column, Decimals, Ints, Spans
from tidemark.message.batches.spans import joined
from tidemark.message.codec.access import Accessor
from tidemark.message.codec.decode import CHECKED_KINDS
from tidemark.message.codec.flat import Leaf, LeafNode, Node, VariantNode, code_finder, held
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.codec.lazy import lazy_property
from tidemark.message.codec.scalars import TIMESTAMP_MAX, TIMESTAMP_MIN
from tidemark.message.schema import Schema
from tidemark.message.types import STRING, Atomic, Dynamic, Kind, Path, path_text

#: Where a string is longer than this, all are decoded at once rather than checked word by word.
_ASCII_BYTES_MAX = 256
#: _HIGH_BITS[n]: the highest bit of each of the first n bytes of a little-endian word.
_HIGH_BITS = np.array([0x8080808080808080 & ((1 << 8 * n) - 1) for n in range(9)], np.uint64)


class Messages:
    """Messages of one schema in a body that is shared with the batch: row r is body[starts[r]:ends[r]].

    The constructor raises DecodeError unless every row begins with the header of some case.
    """

    def __init__(self, schema: Schema, body: Bytes, starts: Ints, ends: Ints) -> None:
        self.schema = schema
        self.body = body
        self.starts = starts
        self.ends = ends
        #: columns of single values that were read, by the index of their leaf; nobody changes them
        self._atomics: dict[int, Column] = {}
        self._check_headers()

    def __len__(self) -> int:
        return len(self.starts)

    def column(self, path: Path) -> Column | None:
        """The field at `path` in the writer's own type; None when the schema has no such field."""
        if self.schema.holder(path) != path:
            return None if self.schema.holder(path) is None else self.values(path)
        node = held(self.schema.flat.nodes[path])
        if isinstance(node, LeafNode) and node.leaf.depth == 0 and isinstance(node.leaf.basic, Atomic):
            return self.atomic(node.leaf, node.leaf.basic)
        if isinstance(node, VariantNode) and node.style == "enumeration":
            return self.enumeration(node)
        return self.values(path)

    def per_code(self, value_of: Callable[[int], int]) -> Ints:
        """value[row]: `value_of` each row's multi-choice code, called once for each distinct code."""
        codes, inverse = self._codes
        values = np.array([value_of(code) for code in codes], np.int64)
        return values[inverse] if inverse is not None else np.broadcast_to(values, len(self))

    @lazy_property
    def _codes(self) -> tuple[list[int], NDArray[np.intp] | None]:
        """The distinct codes, and the index of each row's code among them (None when there is only one)."""
        width = self.schema.flat.code_width
        if width == 0 or len(self) == 0:
            return [0], None
        if int((self.ends - self.starts).min()) < width:
            raise DecodeError("a message is shorter than its multi-choice code")
        if width > 8:
            wide = self.body[self.starts[:, None] + np.arange(width)]
            rows, inverse = np.unique(wide, axis=0, return_inverse=True)
            return [int.from_bytes(row.tobytes(), "little") for row in rows], inverse.reshape(-1)
        raw = sliding(self.body, f"<u{width}")[self.starts]
        if (raw == raw[0]).all():
            return [int(raw[0])], None
        distinct, inverse = np.unique(raw, return_inverse=True)
        return distinct.tolist(), inverse

    def _check_headers(self) -> None:
        """DecodeError unless every message has its case's header; so no gather reads another row's bytes."""
        flat = self.schema.flat
        codes, _ = self._codes
        if any(code >= flat.count for code in codes):
            raise DecodeError(f"no case has the multi-choice code {max(codes)}")
        if len(self) and (self.ends - self.starts < self.per_code(lambda code: flat.layout(code).size)).any():
            raise DecodeError("a message is shorter than the header of its case")

    def _slots(self, leaf: Leaf) -> tuple[Ints, Bools | None]:
        """Where the leaf's slot lies in the body, and which rows have the leaf (None: all of them)."""
        flat = self.schema.flat
        if not leaf.optional:
            return self.starts + flat.layout(0).slots[leaf.index], None
        slots = self.per_code(lambda code: flat.layout(code).slots.get(leaf.index, -1))
        valid = slots >= 0
        return self.starts + np.maximum(slots, 0), None if valid.all() else valid

    def atomic(self, leaf: Leaf, item: Atomic) -> Column:
        """The column of a leaf that is one atomic value; DecodeError if a value is damaged."""
        found = self._atomics.get(leaf.index)
        if found is None:
            found = self._atomics[leaf.index] = self._read_atomic(leaf, item)
        return found

    def _read_atomic(self, leaf: Leaf, item: Atomic) -> Column:
        at, valid = self._slots(leaf)
        if len(self) and valid is not None:
            # A row without the field reads from the start of the body instead; its value is never used.
            at = np.where(valid, at, 0)
        if item.kind is Kind.DECIMAL:
            return Column(item, self._decimals(at, item, valid), valid)
        if item.kind in (Kind.STRING, Kind.BYTES):
            spans = self._spans(leaf, at, valid)
            if item.kind is Kind.STRING and not is_text(spans):
                raise DecodeError("not UTF-8", path=path_text(leaf.path))
            return Column(item, spans, valid)
        raw = self._gather(at, STORED_DTYPES[item.kind], valid)
        if item.kind is Kind.BOOLEAN:
            wrong = raw > 1 if valid is None else (raw > 1) & valid
            if wrong.any():
                raise DecodeError("a byte is neither false nor true", path=path_text(leaf.path))
            return Column(item, raw.astype(np.bool_), valid)
        if item.kind in (Kind.FLOAT, Kind.DOUBLE):
            return Column(item, raw.astype(np.float64, copy=False), valid)
        return Column(item, raw.astype(np.int64, copy=False), valid)

    def check(self) -> None:
        """DecodeError unless every message can be decoded, for a schema whose leaves are all atomic."""
        self._check_tiling()
        for leaf in self.schema.flat.leaves:
            assert isinstance(leaf.basic, Atomic)
            if leaf.basic.kind is Kind.TIMESTAMP:
                self._check_times(leaf, leaf.basic)
            elif leaf.basic.kind in CHECKED_KINDS or leaf.width is None:
                self.atomic(leaf, leaf.basic)

    def _check_times(self, leaf: Leaf, item: Atomic) -> None:
        column = self.atomic(leaf, item)
        times = cast(Ints, column.values)
        wrong = (times < TIMESTAMP_MIN) | (times > TIMESTAMP_MAX)
        if (wrong if column.valid is None else wrong & column.valid).any():
            raise DecodeError("a time lies outside the years 1 to 9999", path=path_text(leaf.path))

    def _check_tiling(self) -> None:
        """DecodeError unless the variable fields of each message follow one another up to its end."""
        codes, inverse = self._codes
        if inverse is None:
            self._check_tiling_of_one(self.schema.flat.layout(codes[0]))
            return
        layout, numbers = self.schema.flat.layout, sliding(self.body, "<u4")
        end = self.per_code(lambda code: layout(code).size)
        marks = [
            (lambda code: layout(code).marks[0], lambda code: layout(code).marks[1]),
            (lambda code: layout(code).marks[2], lambda code: layout(code).marks[3]),
        ]
        for first_of, last_of in marks:
            first, last = self.per_code(first_of), self.per_code(last_of)
            has = first >= 0
            if not has.any():
                continue
            # A row without such fields reads from the start of the body instead; its number is not used.
            start = numbers[np.where(has, self.starts + first, 0)].astype(np.int64)
            if (has & (start != end)).any():
                raise DecodeError("damaged: its variable fields do not meet")
            end = np.where(has, numbers[np.where(has, self.starts + last, 0)].astype(np.int64), end)
        if (end != self.ends - self.starts).any():
            raise DecodeError("damaged: its variable fields do not tile the message")

    def _check_tiling_of_one(self, layout: CaseLayout) -> None:
        """The same where all messages are of one case."""
        numbers = sliding(self.body, "<u4")
        end: NDArray[Any] = np.array(layout.size)
        for first, last in (layout.marks[:2], layout.marks[2:]):
            if first < 0:
                continue
            if (numbers[self.starts + first] != end).any():
                raise DecodeError("damaged: its variable fields do not meet")
            end = numbers[self.starts + last]
        if (end != self.ends - self.starts).any():
            raise DecodeError("damaged: its variable fields do not tile the message")

    def _gather(self, at: Ints, dtype: str, valid: Bools | None) -> NDArray[Any]:
        view = sliding(self.body, dtype)
        if len(view) == 0:
            return np.zeros(len(at), dtype)
        if valid is not None:
            # Only rows without the field can have an offset with fewer bytes behind it than `dtype` has.
            at = np.minimum(at, len(view) - 1)
        # `view.take(at)` would copy the whole body first, because the view's items overlap.
        return view[at]

    def _decimals(self, at: Ints, item: Atomic, valid: Bools | None) -> Decimals:
        return Decimals(self._gather(at, "<u8", valid), self._gather(at + 8, "<i8", valid), item.scale)

    def variable(self, leaf: Leaf) -> tuple[Spans, Bools | None]:
        """The spans of a leaf without a fixed width, and which rows have it (None: all of them)."""
        at, valid = self._slots(leaf)
        if len(self) and valid is not None:
            at = np.where(valid, at, 0)
        return self._spans(leaf, at, valid), valid

    def _spans(self, leaf: Leaf, at: Ints, valid: Bools | None) -> Spans:
        pairs = self._gather(at, "<u8", valid).view("<u4").reshape(-1, 2).astype(np.int64)
        first, last = pairs[:, 0], pairs[:, 1]
        if valid is not None:
            first, last = np.where(valid, first, 0), np.where(valid, last, 0)
        if ((first > last) | (last > self.ends - self.starts)).any():
            raise DecodeError("a field reaches beyond its message", path=path_text(leaf.path))
        return Spans(self.body, self.starts + first, self.starts + last)

    def enumeration(self, node: VariantNode) -> Column:
        """The column of an enumeration: spans into a body of the cases' names, laid end to end."""
        find = code_finder(self.schema.flat.root, node)
        names = [name.encode() for name in node.names]
        ends = np.cumsum([0] + [len(name) for name in names])

        def case(code: int) -> int:
            inner = find(code)
            return -1 if node.name_of(inner) is None else node.case_of(inner or 0)

        cases = self.per_code(case)
        valid = cases >= 0
        chosen = np.maximum(cases, 0)
        lengths = np.where(valid, ends[chosen + 1] - ends[chosen], 0)
        body = np.frombuffer(b"".join(names), np.uint8)
        spans = Spans(body, ends[chosen], ends[chosen] + lengths)
        return Column(STRING, spans, None if valid.all() else valid)

    def values(self, path: Path, access: Accessor | None = None) -> Column:
        """The column of a field that no array holds: Python values, each read by `access` when asked for."""
        values = LazyValues(self, access or self.schema.accessor(path))
        holder = self.schema.holder(path)
        assert holder is not None
        if holder != path:
            return Column(Dynamic(), values, np.array([value is not None for value in values], np.bool_))
        node = self.schema.flat.nodes[path]
        valid = self._slots(node.leaf)[1] if isinstance(node, LeafNode) else self.reached(node)
        return Column(self.schema.type_of(path) or self.schema.root, values, valid)

    def reached(self, node: Node) -> Bools | None:
        """The rows whose case has `node`, unless as its absent case (None: all rows)."""
        find = code_finder(self.schema.flat.root, node)

        def reached(code: int) -> int:
            inner = find(code)
            absent = (
                isinstance(node, VariantNode) and inner is not None and node.case_of(inner) == node.absent
            )
            return int(inner is not None and not absent)

        valid = self.per_code(reached).astype(np.bool_)
        return None if valid.all() else valid


def _is_ascii(spans: Spans) -> bool:
    """True if no byte of any span is above 127. Looks at eight bytes at a time; False for long spans."""
    lengths = spans.lengths
    longest = int(lengths.max()) if len(spans) else 0
    if longest > _ASCII_BYTES_MAX or len(spans.body) < 8:
        return longest == 0
    words, last = sliding(spans.body, "<u8"), len(spans.body) - 8
    for offset in range(0, longest, 8):
        wanted = spans.starts + offset
        # A word that would reach beyond the end of the body is read earlier and shifted into place.
        places = np.minimum(wanted, last)
        word = words[places] >> (np.minimum(wanted - places, 7) * 8).astype(np.uint64)
        if (word & _HIGH_BITS[np.clip(lengths - offset, 0, 8)]).any():
            return False
    return True


def is_text(spans: Spans) -> bool:
    """Is every span UTF-8 by itself? Columns of strings are checked once, by this function."""
    if _is_ascii(spans):
        return True
    body, ends = joined(spans)
    data, marks = body.tobytes(), [0, *ends.tolist()]
    try:
        # A line feed between two spans is no part of a longer character, so one decoding checks them all.
        b"\n".join([data[start:end] for start, end in pairwise(marks)]).decode()
    except UnicodeDecodeError:
        return False
    return True


class LazyValues(Sequence[Any]):
    """The Python values of one field, each decoded when it is read; None where the field is absent."""

    def __init__(self, messages: Messages, access: Accessor) -> None:
        self._messages = messages
        self._access = access

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        messages = self._messages
        return self._access(messages.body[messages.starts[row] : messages.ends[row]].tobytes())
