"""A durable subscription as its host keeps it: its name, its selectors, and since when each selector holds.

A selector holds from a tick on, which each pubend chooses for itself. An event at tick t has to match the
version that was in force at t, also years later.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import CheckpointToken, Tick


@dataclass(frozen=True, slots=True)
class SelectorVersion:
    """A selector and its number. In pubend p it holds for the ticks beyond since[p]."""

    version: int
    wanted: TopicSelector
    #: pubend -> the tick after which the version holds; without the pubends that have not applied it yet
    since: CheckpointToken


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A row of the table of subscriptions. A row never changes; a changed subscription is another row."""

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
