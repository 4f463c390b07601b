"""LoggedSizes: where each batch in a pubend's log lies and how large it is.

Policy lets go the oldest by bytes, and release tells events from the silence between them.

There is an entry for every batch that the log still has, which may be a hundred million single events: an
entry takes 16 bytes, and no entry is looked at more than once for the same bound. A release may let millions
of them go in one turn, so their place is searched for and their bytes are added up as an array.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

#: Bounds whose places are remembered. Policy asks for two: what may be held, and what is kept for newcomers.
BOUNDS_MAX = 4
#: An entry has the bytes of its batch in so many bits, and above them how far before its last event the first
#: one is. A batch has at most 32 MiB.
_SIZE_BITS = 32
_SIZE = (1 << _SIZE_BITS) - 1
#: Numbers that are added up one by one, since an array would take longer; and in one array at the most.
_FEW, _MANY = 64, 1 << 17


class _Excess:
    """How far batches must go for one bound of bytes: `at` is the place of the first batch that may stay."""

    __slots__ = ("at", "left")

    def __init__(self, at: int, left: int) -> None:
        self.at = at
        #: bytes of the batches from `at` on
        self.left = left


class LoggedSizes:
    """Last tick, bytes and span of each batch in the log, the oldest first."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        """`sizes`: the last tick and the bytes of each batch of earlier lives, of which no more is known."""
        #: tick, bytes and span, tick, bytes and span ...; what lies before `_first` was let go
        self._numbers = array("q", [number for entry in sizes for number in entry])
        self._first = 0
        #: of all batches that are still there
        self.bytes = sum(self._numbers[1::2])
        #: bytes_max -> how far batches must go for it; at most BOUNDS_MAX
        self._excesses: dict[int, _Excess] = {}

    def append(self, tick: int, size: int, count: int = 1) -> None:
        """A batch of so many events was logged, whose ticks count up to this one."""
        self._numbers.extend((tick, size | count - 1 << _SIZE_BITS))
        self.bytes += size
        for excess in self._excesses.values():
            excess.left += size

    def lose(self, upto: int) -> None:
        """Everything up to this tick was let go."""
        numbers, at = self._numbers, self._after(upto)
        self.bytes -= self._bytes_of(self._first, at)
        self._first = at
        for excess in self._excesses.values():
            if excess.at < at:
                excess.at, excess.left = at, self.bytes
        if 2 * at > len(numbers):
            del numbers[:at]
            self._first = 0
            for excess in self._excesses.values():
                excess.at -= at

    def last_event(self, upto: int) -> int | None:
        """Return the tick of the last event up to a tick; None if there is none.

        Of a batch of an earlier life that is its last event only.
        """
        numbers, at = self._numbers, self._after(upto)
        if at < len(numbers) and numbers[at] - (numbers[at + 1] >> _SIZE_BITS) <= upto:
            return upto  # it is within a batch
        return numbers[at - 2] if at > self._first else None

    def _after(self, tick: int) -> int:
        """Return the place of the first batch that ends after a tick."""
        numbers = self._numbers
        places = range(self._first, len(numbers), 2)
        if not places or numbers[places[0]] > tick:
            return self._first
        return self._first + 2 * bisect_right(places, tick, key=numbers.__getitem__)

    def _bytes_of(self, begin: int, end: int) -> int:
        """Return the bytes of the batches from one place to another."""
        numbers = self._numbers
        if end - begin <= _FEW:
            return sum([size & _SIZE for size in numbers[begin + 1 : end : 2]])
        whole = 0
        for at in range(begin, end, _MANY):
            sizes = np.frombuffer(numbers, np.int64)[at + 1 : min(at + _MANY, end) : 2]
            whole += int((sizes & _SIZE).sum())
            del sizes  # while it is there, `numbers` cannot grow
        return whole

    def beyond(self, bytes_max: int) -> int | None:
        """Return up to which tick batches must go so that `bytes_max` bytes are left; None if none must."""
        excess = self._excesses.get(bytes_max)
        if excess is None:
            if len(self._excesses) >= BOUNDS_MAX:
                self._excesses.clear()
            excess = self._excesses[bytes_max] = _Excess(self._first, self.bytes)
        numbers, at = self._numbers, excess.at
        while excess.left > bytes_max and at < len(numbers):
            excess.left -= numbers[at + 1] & _SIZE
            at += 2
        excess.at = at
        return numbers[at - 2] if at > self._first else None
