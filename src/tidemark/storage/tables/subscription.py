"""A durable subscription as its host keeps it: who, what, since when, and what it wanted before.

A selector holds from a tick on, which each pubend gives by itself: what an event at tick t has to match is
the version in force at t, also years later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken, Tick

SUBSCRIBER_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class SelectorVersion:
    """A selector and its number. In pubend p it holds for the ticks beyond since[p]."""

    version: int
    wanted: TopicSelector
    #: a pubend that has not applied this version yet is not in it
    since: CheckpointToken


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A row of the table of subscriptions. Never changed; the methods make changed ones."""

    #: given out once: the PFS names subscribers by it
    id: int
    name: str
    principal: str
    #: goes up each time the subscription moves to a host; the higher one decides
    epoch: int
    #: from where on the PFS of this host knows what matched it; it may have begun elsewhere, and before
    start: CheckpointToken
    created: Tick
    #: oldest first, never empty; the last one is what the subscriber wants now
    history: tuple[SelectorVersion, ...]

    @property
    def current(self) -> SelectorVersion:
        """What the subscriber wants now."""
        return self.history[-1]

    def in_force(self, pubend: str, tick: Tick) -> SelectorVersion | None:
        """What an event of this pubend had to match at `tick`; None when nothing was in force there yet."""
        for version in reversed(self.history):
            if pubend in version.since and version.since[pubend] < tick:
                return version
        return None

    def with_selector(self, wanted: TopicSelector, since: CheckpointToken) -> SubscriptionRow:
        """It wants something else now, in the pubends that have said so from their tick on."""
        new = SelectorVersion(self.current.version + 1, wanted, since)
        return replace(self, history=(*self.history, new))

    def applied(self, version: int, pubend: str, tick: Tick) -> SubscriptionRow:
        """A pubend has said from which tick on this version holds. The first answer stands."""
        history = tuple(
            replace(each, since=each.since.advance(pubend, tick))
            if each.version == version and pubend not in each.since
            else each
            for each in self.history
        )
        return replace(self, history=history)

    def with_epoch(self, epoch: int) -> SubscriptionRow:
        """It has moved here."""
        assert epoch >= self.epoch
        return replace(self, epoch=epoch)
