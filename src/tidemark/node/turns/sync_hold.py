"""SyncHold: whether the next sync of the event logs waits a moment for what publishers are about to send.

A publisher that keeps a number of events under way sends more as soon as it is answered. What comes first
would get a sync of its own, and the rest, which comes a moment later, the next one: two small groups, each of
which costs as much as one large one. So after much was answered at once, a sync for less waits until nearly
as much has come, but no longer than HOLD_SECONDS. A publisher that sent at least half of it in that time is
waited for until half has come for some time, and nobody is waited for after one has sent less.
"""

from __future__ import annotations

from tidemark.node.clock import Clock

#: How long a sync waits after publishers were answered.
HOLD_SECONDS = 0.002
#: Less than so many bytes, answered at once, are not waited for.
ANSWERED_BYTES_MIN = 64 << 10
#: One part in so many of what was answered is not waited for: events differ a little in size.
SPARE_PART = 16
#: Syncs that wait for half, or do not wait at all, after one has waited in vain.
RESTS = 64


class SyncHold:
    """What one runtime expects of its publishers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: bytes that were answered last, and how many of them the next sync waits for; 0 if it does not wait
        self._answered = 0
        self._expected = 0
        self._until = 0.0
        #: how many of the next syncs do not wait, and how many wait for half
        self._rests = 0
        self._halves = 0

    def answered(self, size: int) -> None:
        """A sync has made so many bytes durable, whose publishers are answered now."""
        self._rests, self._halves = max(self._rests - 1, 0), max(self._halves - 1, 0)
        self._answered, self._expected = size, 0
        if size >= ANSWERED_BYTES_MIN and not self._rests:
            self._expected = size // 2 if self._halves else size - size // SPARE_PART
        self._until = self._clock() + HOLD_SECONDS

    def holds(self, came: int) -> bool:
        """Return whether a sync for `came` bytes waits for more."""
        return 0 < came < self._expected and self._clock() < self._until

    def has_come(self, came: int) -> bool:
        """Return whether `came` bytes are what a sync waits for, so that nothing more is expected soon."""
        return 0 < self._expected <= came

    def gave_up(self, came: int = 0) -> None:
        """What was expected has not come in time, but `came` bytes of it."""
        if 2 * came >= self._answered > 0:
            self._halves = RESTS
        else:
            self._rests = RESTS
        self._expected = 0
