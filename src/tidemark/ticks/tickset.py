"""TickSet: a set of single ticks, which is what the D ticks of a stream are.

The set is one sorted int64 array with room at both ends. New ticks are usually later than all others, the
oldest are removed first, and a catchup fills in history before the recent ticks: each of these moves an end
of the array without copying the rest. Ticks added in the middle move the shorter side, at memory speed.
"""

from __future__ import annotations

import numpy as np

from tidemark.ticks.tick import Mask, Tick, Ticks

ROOM_TICKS_MIN = 64


#: The answer to one tick that is new; nobody may change it.
_NEW: Mask = np.ones(1, np.bool_)
_NEW.flags.writeable = False


class TickSet:
    """A mutable set of ticks that rarely follow each other directly; for runs of ticks see RangeSet."""

    __slots__ = ("_buffer", "_start", "_stop")

    def __init__(self) -> None:
        self._buffer: Ticks = np.empty(ROOM_TICKS_MIN, np.int64)
        #: The set is buffer[start:stop], strictly increasing.
        self._start = 0
        self._stop = 0

    def add(self, ticks: Ticks) -> Mask:
        """Add strictly increasing ticks. Returns new[i]: ticks[i] was not in the set before."""
        if len(ticks) == 0 or self._start == self._stop or ticks[0] > self._buffer[self._stop - 1]:
            self._append(ticks)
            return _NEW if len(ticks) == 1 else np.ones(len(ticks), np.bool_)
        held = self._held()
        at = held.searchsorted(ticks)
        # A tick beyond the end is compared with the last one in the set, and differs from it.
        new: Mask = held.take(at, mode="clip") != ticks
        self._insert(ticks[new], at[new])
        return new

    def _append(self, ticks: Ticks) -> None:
        self._make_room(0, len(ticks))
        self._buffer[self._stop : self._stop + len(ticks)] = ticks
        self._stop += len(ticks)

    def _insert(self, ticks: Ticks, at: Ticks) -> None:
        """Insert ticks[i], none of which is in the set, before element at[i], moving the shorter side."""
        count = len(ticks)
        if count == 0:
            return
        low, high = int(at[0]), int(at[-1])
        ahead = high < len(self) - low
        self._make_room(count if ahead else 0, 0 if ahead else count)
        held = self._held()
        merged = np.insert(held[low:high], at - low, ticks)
        if ahead:
            self._start -= count
            self._held()[: high + count] = np.concatenate((held[:low], merged))
        else:
            self._stop += count
            self._held()[low:] = np.concatenate((merged, held[high:]))

    def _make_room(self, ahead: int, behind: int) -> None:
        """Make room for this many more ticks on either side.

        Where the buffer is too small the new one has as much room again, so that copies are rare.
        """
        if ahead <= self._start and behind <= len(self._buffer) - self._stop:
            return
        count = len(self)
        most = max(ROOM_TICKS_MIN, count + ahead + behind)
        start = most if ahead else 0
        # The room behind is kept even when none is asked for there: a set that grows at both ends in turn
        # must not copy each time.
        room = most if behind else min(len(self._buffer) - self._stop, most)
        buffer = np.empty(start + count + room, np.int64)
        buffer[start : start + count] = self._held()
        self._buffer, self._start, self._stop = buffer, start, start + count

    def remove(self, base: Tick, upto: Tick) -> int:
        """Remove the ticks in `(base, upto]`. Returns how many there were."""
        low, high = self._slice(base, upto)
        if low == 0:
            self._start += high
            return high
        held = self._held()
        behind = held[high:].copy()
        held[low : low + len(behind)] = behind
        self._stop -= high - low
        return high - low

    def within(self, base: Tick, upto: Tick) -> Ticks:
        """A copy of the ticks in `(base, upto]`."""
        low, high = self._slice(base, upto)
        return self._held()[low:high].copy()

    def contains(self, tick: Tick) -> bool:
        """Is `tick` in the set?"""
        held = self._held()
        at = held.searchsorted(tick)
        return bool(at < len(held) and held[at] == tick)

    def _slice(self, base: Tick, upto: Tick) -> tuple[int, int]:
        """Indices low:high of the ticks in `(base, upto]`."""
        assert base <= upto
        held = self._held()
        return int(held.searchsorted(base, "right")), int(held.searchsorted(upto, "right"))

    def _held(self) -> Ticks:
        return self._buffer[self._start : self._stop]

    def __len__(self) -> int:
        return self._stop - self._start

    def __repr__(self) -> str:
        return f"TickSet({self._held().tolist()})"
