"""SyncHold: whether the next sync of the event logs waits a moment for what publishers are about to send.

A publisher that keeps a number of events under way sends more as soon as it is answered. What comes first
would get a sync of its own, and the rest, which comes a moment later, the next one: two small groups, each of
which costs as much as one large one. So after much was answered at once, a sync for little waits until more
has come, but no longer than HOLD_SECONDS, and not for some time after it has waited in vain.
"""

from __future__ import annotations

from tidemark.node.clock import Clock

#: How long a sync waits after publishers were answered.
HOLD_SECONDS = 0.002
#: Less than so many bytes, answered at once, are not waited for.
ANSWERED_BYTES_MIN = 64 << 10
#: The part of what was answered that is waited for.
PART = 2
#: Syncs that do not wait after one has waited in vain.
RESTS = 64


class SyncHold:
    """What one runtime expects of its publishers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected = 0
        self._until = 0.0
        self._rests = 0

    def answered(self, size: int) -> None:
        """A sync has made so many bytes durable, whose publishers are answered now."""
        self._rests = max(self._rests - 1, 0)
        is_much = size >= ANSWERED_BYTES_MIN and not self._rests
        self._expected = size // PART if is_much else 0
        self._until = self._clock() + HOLD_SECONDS

    def holds(self, came: int) -> bool:
        """Return whether a sync for `came` bytes waits for more."""
        return 0 < came < self._expected and self._clock() < self._until

    def gave_up(self) -> None:
        """What was expected has not come in time."""
        self._expected, self._rests = 0, RESTS
