"""Quotas: how much of a broker one principal may use, and the arithmetic of rates.

A role may state a quota. Of several roles of a principal that state one, the largest holds; a role that
states none does not lift it. A principal has its quotas at each broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

#: The largest quota that can be stated.
QUOTA_MAX = 1 << 53
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """What a principal may use at one broker; None is as much as it likes."""

    #: connections at a time
    connections: int | None = None
    #: subscriptions, durable ones that are away included
    subscriptions: int | None = None
    #: a second, over all its connections
    publish_bytes: int | None = None
    publish_events: int | None = None
    #: bytes of events that pubends keep for one durable subscription
    held_bytes: int | None = None

    @property
    def bounds_publishing(self) -> bool:
        """Whether publishing has a rate."""
        return self.publish_bytes is not None or self.publish_events is not None


QUOTAS = tuple(each.name for each in fields(Quota))


def largest(stated: Iterable[Mapping[str, int]]) -> Quota:
    """Return the quotas of who has all these roles."""
    found: dict[str, int] = {}
    for each in stated:
        for name, value in each.items():
            found[name] = max(value, found.get(name, 0))
    return Quota(**found)


class Allowance:
    """A rate. It may be overdrawn by what is spent at once, and is paid back before anything else is spent.

    One second's worth can be saved up. Times are microseconds of one monotonic clock.
    """

    __slots__ = ("_a_second", "_at", "_balance")

    def __init__(self, a_second: int, now: int) -> None:
        assert a_second > 0
        self._a_second = a_second
        #: in millionths; below 0 while it is overdrawn
        self._balance = a_second * _SECOND
        self._at = now

    def _grow(self, now: int) -> None:
        passed = max(0, now - self._at)
        self._balance = min(self._a_second * _SECOND, self._balance + passed * self._a_second)
        self._at += passed

    def spend(self, amount: int, now: int) -> None:
        """Take `amount` out."""
        self._grow(now)
        self._balance -= amount * _SECOND

    def wait(self, now: int) -> int:
        """Return after how many microseconds something may be spent again; 0 if it may be now."""
        self._grow(now)
        return max(0, -(self._balance // self._a_second))

    def is_full(self, now: int) -> bool:
        """Return whether one second's worth is saved up, as in the beginning."""
        self._grow(now)
        return self._balance == self._a_second * _SECOND


class PublishAllowance:
    """How much a principal may publish: bytes and events a second."""

    __slots__ = ("_bytes", "_events")

    def __init__(self, quota: Quota, now: int) -> None:
        self._bytes = Allowance(quota.publish_bytes, now) if quota.publish_bytes is not None else None
        self._events = Allowance(quota.publish_events, now) if quota.publish_events is not None else None

    def spend(self, size: int, events: int, now: int) -> None:
        """Events of this size are published."""
        if self._bytes is not None:
            self._bytes.spend(size, now)
        if self._events is not None:
            self._events.spend(events, now)

    def wait(self, now: int) -> int:
        """Return after how many microseconds the principal may publish again; 0 if it may now."""
        return max((each.wait(now) for each in (self._bytes, self._events) if each is not None), default=0)

    def is_full(self, now: int) -> bool:
        """Return whether the principal may publish as much as one that has published nothing."""
        return all(each.is_full(now) for each in (self._bytes, self._events) if each is not None)
