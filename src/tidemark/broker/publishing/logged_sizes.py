"""LoggedSizes: how large each batch in a pubend's log is, so that policy can let go the oldest by bytes.

There is an entry for every batch that the log still has, which may be a hundred million single events: an
entry takes 16 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class LoggedSizes:
    """Last tick and bytes of each batch in the log, the oldest first."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        #: tick, bytes, tick, bytes ...; what lies before `_first` was let go
        self._numbers = array("q", [number for entry in sizes for number in entry])
        self._first = 0
        #: of all batches that are still there
        self.bytes = sum(self._numbers[1::2])

    def append(self, tick: int, size: int) -> None:
        """A batch was logged, whose last event has this tick."""
        self._numbers.extend((tick, size))
        self.bytes += size

    def lose(self, upto: int) -> None:
        """Everything up to this tick was let go."""
        numbers, at = self._numbers, self._first
        while at < len(numbers) and numbers[at] <= upto:
            self.bytes -= numbers[at + 1]
            at += 2
        self._first = at
        if 2 * at > len(numbers):
            del numbers[:at]
            self._first = 0

    def has_upto(self, tick: int) -> bool:
        """Return whether there is a batch that ends at or before this tick."""
        return self._first < len(self._numbers) and self._numbers[self._first] <= tick

    def beyond(self, bytes_max: int) -> int | None:
        """Return up to which tick batches must go so that `bytes_max` bytes are left; None if none must."""
        excess, upto = self.bytes - bytes_max, None
        for at in range(self._first, len(self._numbers), 2):
            if excess <= 0:
                break
            upto = self._numbers[at]
            excess -= self._numbers[at + 1]
        return upto
