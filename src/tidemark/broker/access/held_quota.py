"""HeldQuota: durable subscriptions that are owed more than their owner's quota hold nothing any more.

While one is, pubends keep nothing for it alone. What they let go is a gap that it is told of when it comes;
what they keep for others it still gets.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.owed import OwedOf
from tidemark.broker.turn import Turn


class HeldQuota:
    """Holds the subscriptions of one host against the quotas of their owners."""

    def __init__(self, host: Host, turn: Turn, bytes_of: Callable[[str], int | None], period: int) -> None:
        """`bytes_of`: the owner of a subscription -> the bytes that pubends may hold for it, if bounded.

        What is owed is counted once in `period` microseconds.
        """
        self._host = host
        self._turn = turn
        self._bytes_of = bytes_of
        self._period = period
        self._looked_at = 0
        self._is_counting = False

    def wake(self) -> None:
        """Have what is owed to subscriptions with a quota counted, if that is due."""
        now = self._turn.now
        if self._is_counting or now - self._looked_at < self._period:
            return
        self._looked_at = now
        subscriptions = self._host.subscriptions.values()
        bounded = [
            each
            for each in subscriptions
            if each.durable and each.owner and self._bytes_of(each.owner) is not None
        ]
        if bounded:
            self._is_counting = True
            self._host.owed.count(bounded, self._counted)

    def _counted(self, owed: OwedOf) -> None:
        self._is_counting = False
        sums: dict[int, int] = {}
        for (number, _), each in owed.items():
            sums[number] = sums.get(number, 0) + each.bytes
        for number, held in sums.items():
            subscription = self._host.subscriptions.get(number)
            if subscription is None:
                continue
            most = self._bytes_of(subscription.owner)
            subscription.is_over_quota = most is not None and held > most
            if subscription.is_over_quota:
                self._turn.counters["quota_let_go"] += 1
                self._host.acknowledgements.let_go(subscription)
