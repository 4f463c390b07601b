"""Catch-up: how fast what a subscription is owed becomes less, and when nothing is left.

Brokers tell how much is owed now. The console remembers what they told of the subscriptions that somebody
looks at, for a while, and estimates from that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

#: Subscriptions whose numbers are remembered, and for how many seconds.
SUBSCRIPTIONS_MAX = 256
REMEMBERED_SECONDS = 60.0
#: Two looks that are closer together say nothing.
SPAN_SECONDS_MIN = 1.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How a subscription gets on."""

    owed: int
    #: how many it was owed at most while somebody looked
    most: int
    #: events a second by which that becomes less; below 0 if it becomes more, None before that is known
    rate: float | None

    @property
    def share(self) -> float:
        """The share of the most that is done, from 0 to 1."""
        return 1.0 - self.owed / self.most if self.most else 1.0

    @property
    def seconds_left(self) -> float | None:
        """In how many seconds nothing is left, if it goes on like this; None if that is not to be seen."""
        if not self.owed:
            return 0.0
        return self.owed / self.rate if self.rate is not None and self.rate > 0 else None


class CatchUps:
    """What was owed to the subscriptions that somebody looks at."""

    def __init__(self) -> None:
        #: subscription -> (seconds of a clock, events), oldest first
        self._seen: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()

    def look(self, name: str, owed: int, now: float) -> CatchUp:
        """Note what a subscription is owed at a time; return how it gets on."""
        seen = self._seen.setdefault(name, deque(maxlen=64))
        self._seen.move_to_end(name)
        if len(self._seen) > SUBSCRIPTIONS_MAX:
            self._seen.popitem(last=False)
        while seen and seen[0][0] < now - REMEMBERED_SECONDS:
            seen.popleft()
        seen.append((now, owed))
        began, before = seen[0]
        span = now - began
        rate = (before - owed) / span if span >= SPAN_SECONDS_MIN else None
        return CatchUp(owed, max(events for _, events in seen), rate)
