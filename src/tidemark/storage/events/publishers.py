"""Publishers: the last batch of each, so that one that is sent again is not logged again (DESIGN 6).

Bounded: beyond PUBLISHERS_MAX the one that has not published for the longest time is forgotten. If it comes
back after that and repeats a batch it had no answer to, the batch is logged twice; nothing else goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import numpy as np

from tidemark.ticks.tick import Tick

PUBLISHERS_MAX = 65_536

_HEAD = Struct("<qI")


class LastPublished(NamedTuple):
    """A publisher's last event: its sequence number, and the tick it got."""

    sequence: int
    tick: Tick


class Publishers:
    """name -> what it published last, in the order of those ticks."""

    def __init__(self) -> None:
        self._last: dict[str, LastPublished] = {}

    def __len__(self) -> int:
        return len(self._last)

    def get(self, name: str) -> LastPublished | None:
        """What the publisher published last, as far as it is remembered."""
        return self._last.get(name)

    def as_dict(self) -> dict[str, LastPublished]:
        """All of them, the longest idle first."""
        return dict(self._last)

    def note(self, name: str, published: LastPublished) -> Callable[[], None]:
        """The publisher's last event is this one; what takes that back."""
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
        """A snapshot: covered i64 | count u32 | sequences i64[n] | ticks i64[n] | sizes u16[n] | names."""
        names = [name.encode() for name in self._last]
        events = np.array(list(self._last.values()), "<i8").reshape(-1, 2)
        lengths = np.array([len(name) for name in names], "<u2")
        return [_HEAD.pack(covered, len(names)), events.T.tobytes(), lengths.tobytes(), *names]


def decode_publishers(data: bytes) -> tuple[int, Publishers]:
    """What `encode` was given, and the publishers."""
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
