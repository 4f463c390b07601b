"""Messages that are alike: of one schema and one size, with the same fields in the same places.

Publishers that send many events at once mostly send such. Where every variable field begins and ends at the
same byte in all messages, one message shows for all of them that their fields tile them, and what is left is
to look at the values of the kinds of which not every stored form is a value. A number that lies at the same
byte in messages of one size is a column as it is, and need not be gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import PRELUDE, EventBatch, Prelude
from tidemark.message.batches.columns import STORED_DTYPES, Column, Decimals, Spans
from tidemark.message.codec.decode import CHECKED_KINDS
from tidemark.message.codec.flat import Leaf, LeafNode, held
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.codec.scalars import TIMESTAMP_MAX, TIMESTAMP_MIN
from tidemark.message.schema import Schema
from tidemark.message.types import Atomic, Kind, Path

#: Layouts for which it is kept which of their bytes to look at.
_LAYOUTS_KEPT = 256
_EXTENT = Struct("<II")
#: The kinds that `even_column` reads, and what their columns have.
_NUMBERS: dict[Kind, type[np.generic]] = {
    **dict.fromkeys((Kind.INT, Kind.LONG, Kind.TIMESTAMP), np.int64),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), np.float64),
}


class _Plan:
    """Which bytes of the messages of one layout are looked at."""

    def __init__(self, places: Sequence[tuple[int, int]], checked: Sequence[tuple[Kind, int]]) -> None:
        #: those that say which fields there are and where they lie: from and up to these offsets
        self.places = places
        #: the fields of which not every stored form is a value, and where each of them lies
        self.checked = checked
        #: size of a message, and its bytes at `places`, where its fields were found to tile it
        self._sound: tuple[int, list[bytes]] | None = None

    def knows(self, message: bytes) -> bool:
        """Return whether the fields of the message lie where those of the one that was noted last do."""
        return self._sound == self._places_in(message)

    def note(self, message: bytes) -> None:
        """The fields of this message tile it."""
        self._sound = self._places_in(message)

    def _places_in(self, message: bytes) -> tuple[int, list[bytes]]:
        return len(message), [message[start:stop] for start, stop in self.places]


def are_alike(batch: EventBatch, common: Prelude, schema: Schema) -> bool:
    """Return whether all messages of a batch are alike and can be decoded; `common` is their prelude.

    False says nothing of any message: they are not alike, or some cannot be decoded.
    """
    if not schema.is_plain:
        return False
    first = batch.body[PRELUDE.size : batch.row_bytes - common.key_bytes].tobytes()
    flat = schema.flat
    try:
        plan = _plan(flat.layout_of(first), flat.code_width)
        if not plan.knows(first):
            schema.check(first)
            plan.note(first)
    except DecodeError:
        return False
    for start, stop in plan.places:
        if _stored(batch, start, stop) != first[start:stop] * batch.count:
            return False
    return all(_has_values(batch, first, kind, at) for kind, at in plan.checked)


def even_column(batch: EventBatch, common: Prelude, schema: Schema, path: Path) -> Column | None:
    """The field at `path` of all messages, if it is a number and they are of one size and one case.

    `common` is the prelude of all rows. None if the messages are not so, or if one of them cannot be read.
    """
    leaf = _single_leaf(schema, path)
    layout = _only_case(batch, common, schema) if leaf is not None else None
    slot = layout.slots.get(leaf.index) if leaf is not None and layout is not None else None
    return None if leaf is None or slot is None else _number(batch, leaf, slot)


def alike_column(batch: EventBatch, schema: Schema, path: Path) -> Column | None:
    """The field at `path` of messages that `are_alike`: one message says where it lies in all of them.

    None if it takes a closer look: the field is no single value, or the messages do not have it.
    """
    leaf = _single_leaf(schema, path)
    if leaf is None:
        return None
    first = batch.body[PRELUDE.size : batch.row_bytes].tobytes()
    slot = schema.flat.layout_of(first).slots.get(leaf.index)
    if slot is None:
        return None
    assert isinstance(leaf.basic, Atomic)
    match leaf.basic.kind:
        case Kind.STRING | Kind.BYTES:
            return Column(leaf.basic, _even_spans(batch, *_EXTENT.unpack_from(first, slot)))
        case Kind.BOOLEAN:
            return Column(leaf.basic, _strided(batch, "u1", slot).astype(np.bool_))
        case Kind.DECIMAL:
            halves = _strided(batch, "<u8", slot).copy(), _strided(batch, "<i8", slot + 8).copy()
            return Column(leaf.basic, Decimals(*halves, leaf.basic.scale))
        case _:
            return _number(batch, leaf, slot)


def _single_leaf(schema: Schema, path: Path) -> Leaf | None:
    """The leaf of the field at `path`, if it is one single value."""
    node = held(schema.flat.nodes[path]) if schema.holder(path) == path else None
    if isinstance(node, LeafNode) and not node.leaf.depth and isinstance(node.leaf.basic, Atomic):
        return node.leaf
    return None


def _number(batch: EventBatch, leaf: Leaf, slot: int) -> Column | None:
    """The numbers at an offset of each message; None if the leaf is none."""
    assert isinstance(leaf.basic, Atomic)
    kind = leaf.basic.kind
    if kind not in _NUMBERS:
        return None
    return Column(leaf.basic, _strided(batch, STORED_DTYPES[kind], slot).astype(_NUMBERS[kind]))


def _even_spans(batch: EventBatch, start: int, stop: int) -> Spans:
    """The bytes from `start` up to `stop` of each message."""
    rows = np.arange(PRELUDE.size, len(batch.body), batch.row_bytes)
    return Spans(batch.body, rows + start, rows + stop)


def _only_case(batch: EventBatch, common: Prelude, schema: Schema) -> CaseLayout | None:
    """The layout of the case that all messages are of; None if they are not, or have no room for it."""
    flat, code = schema.flat, 0
    size = batch.row_bytes - PRELUDE.size - common.key_bytes
    if size < flat.code_width or flat.code_width > 8:
        return None
    if flat.code_width:
        codes = _strided(batch, f"<u{flat.code_width}", 0)
        code = int(codes[0])
        if code >= flat.count or (codes != code).any():
            return None
    layout = flat.layout(code)
    return layout if size >= layout.size else None


def _strided(batch: EventBatch, dtype: str, offset: int) -> NDArray[Any]:
    """A view of what lies at an offset of each message, which has room for it."""
    at = PRELUDE.size + offset
    return np.ndarray((batch.count,), dtype, batch.body, at, (batch.row_bytes,))


@lru_cache(_LAYOUTS_KEPT)
def _plan(layout: CaseLayout, code_width: int) -> _Plan:
    marks = layout.marks
    places = [(0, code_width), *((at, end + 4) for at, end in (marks[:2], marks[2:]) if at >= 0)]
    kinds = [(leaf.basic.kind, leaf.index) for leaf in layout.leaves if isinstance(leaf.basic, Atomic)]
    checked = [(kind, layout.slots[index]) for kind, index in kinds if kind in CHECKED_KINDS]
    return _Plan([each for each in places if each[0] < each[1]], checked)


def _has_values(batch: EventBatch, first: bytes, kind: Kind, at: int) -> bool:
    """Return whether the field at `at` has a value in every message; False if that takes a closer look."""
    if kind is Kind.BOOLEAN:
        return bool(_strided(batch, "u1", at).max() <= 1)
    if kind is Kind.TIMESTAMP:
        times = np.frombuffer(_stored(batch, at, at + 8), "<i8")
        return bool(times.min() >= TIMESTAMP_MIN and times.max() <= TIMESTAMP_MAX)
    assert kind is Kind.STRING
    return _stored(batch, *_EXTENT.unpack_from(first, at)).isascii()


def _stored(batch: EventBatch, start: int, stop: int) -> bytes:
    """The bytes from `start` up to `stop` of each message, one after the other.

    They are copied as items of that size: numpy takes four times as long for a table of bytes.
    """
    if stop <= start:
        return b""
    return _strided(batch, f"V{stop - start}", start).tobytes()
