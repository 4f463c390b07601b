"""A durable subscription as its host keeps it: its name, its selectors, and since when each selector holds.

A selector holds from a tick on, which each pubend chooses for itself. An event at tick t has to match the
version that was in force at t, also years later.
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
    #: pubend -> the tick after which the version holds; without the pubends that have not applied it yet
    since: CheckpointToken


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A row of the table of subscriptions. A row never changes; the methods return changed copies."""

    #: the subscriber's number, by which the PFS knows it; never used again
    id: int
    name: str
    principal: str
    #: goes up each time the subscription moves to another host; the host with the higher epoch has it
    epoch: int
    #: the ticks after which the PFS of this host knows what matched; at another host it may have begun
    #: earlier
    start: CheckpointToken
    created: Tick
    #: oldest first, never empty; the last one is what the subscriber wants now
    history: tuple[SelectorVersion, ...]

    @property
    def current(self) -> SelectorVersion:
        """The selector that the subscriber wants now."""
        return self.history[-1]

    def in_force(self, pubend: str, tick: Tick) -> SelectorVersion | None:
        """Returns the selector that an event of `pubend` has to match at `tick`; None if none held yet."""
        for version in reversed(self.history):
            if pubend in version.since and version.since[pubend] < tick:
                return version
        return None

    def with_selector(self, wanted: TopicSelector, since: CheckpointToken) -> SubscriptionRow:
        """Returns the row with one more selector; `since` has the pubends that have applied it already."""
        new = SelectorVersion(self.current.version + 1, wanted, since)
        return replace(self, history=(*self.history, new))

    def applied(self, version: int, pubend: str, tick: Tick) -> SubscriptionRow:
        """Returns the row after `pubend` has said that `version` holds after `tick`.

        The first answer stands.
        """
        history = tuple(
            replace(each, since=each.since.advance(pubend, tick))
            if each.version == version and pubend not in each.since
            else each
            for each in self.history
        )
        return replace(self, history=history)

    def with_epoch(self, epoch: int) -> SubscriptionRow:
        """Returns the row after the subscription has moved here with this epoch."""
        assert epoch >= self.epoch
        return replace(self, epoch=epoch)
