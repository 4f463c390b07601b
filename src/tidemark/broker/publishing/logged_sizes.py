"""LoggedSizes: how large each batch in a pubend's log is, so that policy can let go the oldest by bytes.

There is an entry for every batch that the log still has, which may be a hundred million single events: an
entry takes 16 bytes, and no entry is looked at more than once for the same bound.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

#: Bounds whose places are remembered. Policy asks for two: what may be held, and what is kept for newcomers.
BOUNDS_MAX = 4


class _Excess:
    """How far batches must go for one bound of bytes: `at` is the place of the first batch that may stay."""

    __slots__ = ("at", "left")

    def __init__(self, at: int, left: int) -> None:
        self.at = at
        #: bytes of the batches from `at` on
        self.left = left


class LoggedSizes:
    """Last tick and bytes of each batch in the log, the oldest first."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        #: tick, bytes, tick, bytes ...; what lies before `_first` was let go
        self._numbers = array("q", [number for entry in sizes for number in entry])
        self._first = 0
        #: of all batches that are still there
        self.bytes = sum(self._numbers[1::2])
        #: bytes_max -> how far batches must go for it; at most BOUNDS_MAX
        self._excesses: dict[int, _Excess] = {}

    def append(self, tick: int, size: int) -> None:
        """A batch was logged, whose last event has this tick."""
        self._numbers.extend((tick, size))
        self.bytes += size
        for excess in self._excesses.values():
            excess.left += size

    def lose(self, upto: int) -> None:
        """Everything up to this tick was let go."""
        numbers, at = self._numbers, self._first
        while at < len(numbers) and numbers[at] <= upto:
            self.bytes -= numbers[at + 1]
            at += 2
        self._first = at
        for excess in self._excesses.values():
            if excess.at < at:
                excess.at, excess.left = at, self.bytes
        if 2 * at > len(numbers):
            del numbers[:at]
            self._first = 0
            for excess in self._excesses.values():
                excess.at -= at

    def has_upto(self, tick: int) -> bool:
        """Return whether there is a batch that ends at or before this tick."""
        return self._first < len(self._numbers) and self._numbers[self._first] <= tick

    def beyond(self, bytes_max: int) -> int | None:
        """Return up to which tick batches must go so that `bytes_max` bytes are left; None if none must."""
        excess = self._excesses.get(bytes_max)
        if excess is None:
            if len(self._excesses) >= BOUNDS_MAX:
                self._excesses.clear()
            excess = self._excesses[bytes_max] = _Excess(self._first, self.bytes)
        numbers, at = self._numbers, excess.at
        while excess.left > bytes_max and at < len(numbers):
            excess.left -= numbers[at + 1]
            at += 2
        excess.at = at
        return numbers[at - 2] if at > self._first else None
