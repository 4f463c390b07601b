"""Messages that are alike: of one schema and one size, with the same fields in the same places.

Publishers that send many events at once mostly send such. Where every variable field begins and ends at the
same byte in all messages, one message shows for all of them that their fields tile them, and what is left is
to look at the values of the kinds of which not every stored form is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.batch import PRELUDE, EventBatch, Prelude
from tidemark.message.codec.decode import CHECKED_KINDS
from tidemark.message.codec.layout import CaseLayout
from tidemark.message.codec.scalars import TIMESTAMP_MAX, TIMESTAMP_MIN
from tidemark.message.schema import Schema
from tidemark.message.types import Atomic, Kind

#: Layouts for which it is kept which of their bytes to look at.
_LAYOUTS_KEPT = 256
_EXTENT = Struct("<II")


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
    rows = batch.body.reshape(batch.count, batch.row_bytes)
    messages = rows[:, PRELUDE.size : batch.row_bytes - common.key_bytes]
    first = messages[0].tobytes()
    flat = schema.flat
    try:
        plan = _plan(flat.layout_of(first), flat.code_width)
        if not plan.knows(first):
            schema.check(first)
            plan.note(first)
    except DecodeError:
        return False
    for start, stop in plan.places:
        if messages[:, start:stop].tobytes() != first[start:stop] * batch.count:
            return False
    return all(_has_values(messages, first, kind, at) for kind, at in plan.checked)


@lru_cache(_LAYOUTS_KEPT)
def _plan(layout: CaseLayout, code_width: int) -> _Plan:
    marks = layout.marks
    places = [(0, code_width), *((at, end + 4) for at, end in (marks[:2], marks[2:]) if at >= 0)]
    kinds = [(leaf.basic.kind, leaf.index) for leaf in layout.leaves if isinstance(leaf.basic, Atomic)]
    checked = [(kind, layout.slots[index]) for kind, index in kinds if kind in CHECKED_KINDS]
    return _Plan([each for each in places if each[0] < each[1]], checked)


def _has_values(messages: NDArray[np.uint8], first: bytes, kind: Kind, at: int) -> bool:
    """Return whether the field at `at` has a value in every message; False if that takes a closer look."""
    if kind is Kind.BOOLEAN:
        return bool(messages[:, at].max() <= 1)
    if kind is Kind.TIMESTAMP:
        times = np.frombuffer(messages[:, at : at + 8].tobytes(), "<i8")
        return bool(times.min() >= TIMESTAMP_MIN and times.max() <= TIMESTAMP_MAX)
    assert kind is Kind.STRING
    start, stop = _EXTENT.unpack_from(first, at)
    return messages[:, start:stop].tobytes().isascii()
