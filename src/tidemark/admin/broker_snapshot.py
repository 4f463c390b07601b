"""A snapshot: what one broker says of itself at one moment, and the rates between two snapshots."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.admin.connection import ANSWER_SECONDS
from tidemark.wire.answers import (
    METRICS,
    PUBENDS,
    STATUS,
    STREAMS,
    SUBSCRIPTIONS,
    BrokerStatus,
    PubendStatus,
    StreamStatus,
    SubscriptionStatus,
)
from tidemark.wire.json_objects import JsonObject

if TYPE_CHECKING:
    from tidemark.sync import Client


@dataclass(frozen=True, slots=True)
class SubscriptionLag(JsonObject):
    """How far behind a durable subscription is."""

    name: str
    connected: bool
    catching_up: bool
    #: history from the archive: "waiting" for a pipeline, or "under way"
    recall: str | None
    #: of the pubend where it is greatest; None if the subscription has not begun
    lag_seconds: float | None
    #: pubend -> seconds behind; None if the subscription has not begun there
    pubends: Mapping[str, float | None]


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
    at = time.monotonic()
    rates: dict[str, float] = {}
    # Counters begin at 0 again when a broker restarts.
    if before is not None and before.status.incarnation == status.incarnation:
        rates = rates_between(before.metrics, metrics, at - before.at)
    return BrokerSnapshot(at, status, metrics, pubends, streams, subscriptions, rates)


def rates_between(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Return how much each number that is in both grew a second; nothing if no time has passed."""
    return {
        name: (value - before[name]) / seconds for name, value in after.items() if name in before and seconds
    }


def lags_of(subscriptions: Iterable[SubscriptionStatus]) -> list[SubscriptionLag]:
    """Return the durable subscriptions with their lag, the greatest first."""
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
        )
        for each in subscriptions
        if each.durable
    ]
    return sorted(found, key=lambda each: (-(each.lag_seconds or 0.0), each.name))


def is_catching_up(subscription: SubscriptionStatus) -> bool:
    """Whether the subscription has a catchup stream of any pubend."""
    return any(each.catching_up for each in subscription.pubends.values())


def recall_of(subscription: SubscriptionStatus) -> str | None:
    """Return "waiting" if a recall from the archive waits for a pipeline, else "under way"; None without."""
    states = {each.recall for each in subscription.pubends.values()}
    return next((each for each in ("waiting", "under way") if each in states), None)


def worst_lag(subscription: SubscriptionStatus) -> float | None:
    """Return the seconds behind in the pubend where that is most; None if the subscription has not begun."""
    lags = [each.lag_us for each in subscription.pubends.values() if each.lag_us is not None]
    return max(lags) / 1e6 if lags else None
