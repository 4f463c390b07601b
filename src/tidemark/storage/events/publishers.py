"""Publishers: the last event of each publisher, so that a batch that is sent again is not logged again.

The number of publishers is bounded: beyond PUBLISHERS_MAX, the one that has not published for the longest
time is forgotten. If it comes back after that and repeats a batch for which it had no answer, the batch is
logged twice; nothing else goes wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np

from tidemark.storage.log.stream import Undo
from tidemark.ticks.tick import Tick

PUBLISHERS_MAX = 65_536

_HEAD = Struct("<qI")


class LastPublished(NamedTuple):
    """The last event of a publisher: its sequence number and its tick."""

    sequence: int
    tick: Tick


class Publishers:
    """The last event of each publisher."""

    def __init__(self) -> None:
        #: name -> its last event, in the order of the ticks
        self._last: dict[str, LastPublished] = {}

    def __len__(self) -> int:
        return len(self._last)

    def get(self, name: str) -> LastPublished | None:
        """Returns the publisher's last event; None if the publisher is not remembered."""
        return self._last.get(name)

    def as_dict(self) -> dict[str, LastPublished]:
        """Returns all publishers, the one that has been idle the longest first."""
        return dict(self._last)

    def note(self, name: str, published: LastPublished) -> Undo:
        """Remember `published` as the publisher's last event. Returns the function that takes that back."""
        before = self._last.pop(name, None)
        self._last[name] = published
        forgotten: tuple[str, LastPublished] | None = None
        if len(self._last) > PUBLISHERS_MAX:
            idle = next(iter(self._last))
            forgotten = idle, self._last.pop(idle)

        def undo() -> None:
            del self._last[name]
            for old, event in ((name, before), forgotten or (name, None)):
                if event is not None:
                    self._last[old] = event

        return undo

    def encode(self, covered: int) -> list[bytes]:
        """Returns a snapshot of all publishers, for the batches up to the index `covered`.

        snapshot := covered i64 | count u32 | sequences i64[n] | ticks i64[n] | sizes u16[n] | names
        """
        names = [name.encode() for name in self._last]
        events = np.array(list(self._last.values()), "<i8").reshape(-1, 2)
        lengths = np.array([len(name) for name in names], "<u2")
        return [_HEAD.pack(covered, len(names)), events.T.tobytes(), lengths.tobytes(), *names]


def decode_publishers(data: bytes) -> tuple[int, Publishers]:
    """Returns `covered`, which `encode` was given, and the publishers of a snapshot."""
    covered, count = _HEAD.unpack_from(data)
    sequences, ticks = np.frombuffer(data, "<i8", 2 * count, _HEAD.size).reshape(2, count).tolist()
    names = _HEAD.size + 16 * count
    ends = names + 2 * count + np.frombuffer(data, "<u2", count, names).cumsum(dtype=np.int64)
    publishers = Publishers()
    start = names + 2 * count
    for end, sequence, tick in zip(ends.tolist(), sequences, ticks, strict=True):
        publishers.note(data[start:end].decode(), LastPublished(sequence, tick))
        start = end
    return covered, publishers
