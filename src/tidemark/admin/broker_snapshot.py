"""A snapshot: what one broker says of itself at one moment, and the rates between two snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.admin.connection import ANSWER_SECONDS
from tidemark.wire.answers import (
    LINKS,
    METRICS,
    PUBENDS,
    STATUS,
    STREAMS,
    SUBSCRIPTIONS,
    BrokerStatus,
    FrameCount,
    LinkStatus,
    PubendStatus,
    StreamStatus,
    SubscriptionStatus,
)
from tidemark.wire.json_objects import JsonObject

if TYPE_CHECKING:
    from tidemark.sync import Client


@dataclass(frozen=True, slots=True)
class SubscriptionLag(JsonObject):
    """What a durable subscription is owed: events that matched and that it has not acknowledged."""

    name: str
    connected: bool
    catching_up: bool
    #: history from the archive: "waiting" for a pipeline, or "under way"
    recall: str | None
    #: the age of the oldest event that is owed; 0 if none is, None if the subscription has not begun
    lag_seconds: float | None
    #: pubend -> the age of the oldest event of it; None if the subscription has not begun there
    pubends: Mapping[str, float | None]
    owed_events: int = 0
    owed_bytes: int = 0
    #: False if more may be owed than its broker knows
    is_exact: bool = True
    #: the broker that hosts the subscription; None if only one was asked
    broker: str | None = None
    #: what it wants: a topic, or a pattern of topics
    topic: str = ""


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """Answers of one broker that belong together."""

    #: monotonic seconds
    at: float
    status: BrokerStatus
    metrics: Mapping[str, float]
    pubends: Sequence[PubendStatus] = ()
    streams: Sequence[StreamStatus] = ()
    subscriptions: Sequence[SubscriptionStatus] = ()
    #: counter -> how much it grew a second; empty in a first snapshot
    rates: Mapping[str, float] = field(default_factory=dict)
    links: Sequence[LinkStatus] = ()
    #: neighbour -> kind of frame -> frames and bytes a second that were sent to it; as `rates`
    link_rates: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    @property
    def lags(self) -> list[SubscriptionLag]:
        """The durable subscriptions, the one that is furthest behind first."""
        return lags_of(self.subscriptions)


def take_snapshot(client: Client, before: BrokerSnapshot | None = None) -> BrokerSnapshot:
    """Ask a broker how it is; with an earlier snapshot `before`, the rates since then are in the new one."""
    status = client.ask(STATUS, timeout=ANSWER_SECONDS)
    metrics = client.ask(METRICS, timeout=ANSWER_SECONDS)
    pubends = client.ask(PUBENDS, timeout=ANSWER_SECONDS)
    streams = client.ask(STREAMS, timeout=ANSWER_SECONDS)
    subscriptions = client.ask(SUBSCRIPTIONS, timeout=ANSWER_SECONDS)
    links = client.ask(LINKS, timeout=ANSWER_SECONDS)
    at = time.monotonic()
    rates: dict[str, float] = {}
    link_rates: dict[str, dict[str, tuple[float, float]]] = {}
    # Counters begin at 0 again when a broker restarts.
    if before is not None and before.status.incarnation == status.incarnation:
        rates = rates_between(before.metrics, metrics, at - before.at)
        link_rates = link_rates_between(before.links, links, at - before.at)
    return BrokerSnapshot(
        at, status, metrics, pubends, streams, subscriptions, rates, links=links, link_rates=link_rates
    )


def link_rates_between(
    before: Iterable[LinkStatus], after: Iterable[LinkStatus], seconds: float
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return neighbour -> kind -> frames and bytes a second; nothing if no time has passed."""
    known = {each.peer: each.sent for each in before}
    nothing = FrameCount(0, 0)
    return {
        link.peer: {
            kind: (
                (count.frames - known[link.peer].get(kind, nothing).frames) / seconds,
                (count.bytes - known[link.peer].get(kind, nothing).bytes) / seconds,
            )
            for kind, count in link.sent.items()
        }
        for link in after
        if link.peer in known and seconds
    }


def rates_between(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Return how much each number that is in both grew a second; nothing if no time has passed."""
    return {
        name: (value - before[name]) / seconds for name, value in after.items() if name in before and seconds
    }


def lags_of(subscriptions: Iterable[SubscriptionStatus], broker: str | None = None) -> list[SubscriptionLag]:
    """Return the durable subscriptions of a broker with their lag, the greatest first."""
    found = [
        SubscriptionLag(
            name=each.name,
            connected=each.connected,
            catching_up=is_catching_up(each),
            recall=recall_of(each),
            lag_seconds=worst_lag(each),
            pubends={
                pubend: None if one.lag_us is None else one.lag_us / 1e6
                for pubend, one in each.pubends.items()
            },
            owed_events=sum(one.owed_events for one in each.pubends.values()),
            owed_bytes=sum(one.owed_bytes for one in each.pubends.values()),
            is_exact=all(one.is_exact for one in each.pubends.values()),
            broker=broker,
            topic=each.pattern,
        )
        for each in subscriptions
        if each.durable
    ]
    return furthest_behind_first(found)


def furthest_behind_first(lags: Iterable[SubscriptionLag]) -> list[SubscriptionLag]:
    """Return the lags in the order in which people look at them."""
    return sorted(lags, key=lambda each: (-(each.lag_seconds or 0.0), -each.owed_events, each.name))


def is_catching_up(subscription: SubscriptionStatus) -> bool:
    """Whether the subscription has a catchup stream of any pubend."""
    return any(each.catching_up for each in subscription.pubends.values())


def recall_of(subscription: SubscriptionStatus) -> str | None:
    """Return "waiting" if a recall from the archive waits for a pipeline, else "under way"; None without."""
    states = {each.recall for each in subscription.pubends.values()}
    return next((each for each in ("waiting", "under way") if each in states), None)


def worst_lag(subscription: SubscriptionStatus) -> float | None:
    """Return the age of the oldest event that is owed, in seconds; None if the subscription has not begun."""
    lags = [each.lag_us for each in subscription.pubends.values() if each.lag_us is not None]
    return max(lags) / 1e6 if lags else None
