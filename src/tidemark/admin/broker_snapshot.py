"""A snapshot: what one broker says of itself at one moment, and the rates between two of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemark.admin.connection import ANSWER_SECONDS

if TYPE_CHECKING:
    from tidemark.sync import Client


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """Answers that belong together."""

    #: monotonic seconds
    at: float
    status: Mapping[str, Any]
    metrics: Mapping[str, float]
    pubends: Sequence[Mapping[str, Any]] = ()
    streams: Sequence[Mapping[str, Any]] = ()
    subscriptions: Sequence[Mapping[str, Any]] = ()
    #: counter -> how much it grew a second; empty for the first snapshot
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def lags(self) -> list[dict[str, Any]]:
        """The durable subscriptions, the one that is furthest behind first."""
        return lags_of(self.subscriptions)


def take(tm: Client, before: BrokerSnapshot | None = None) -> BrokerSnapshot:
    """Ask everything; with the snapshot `before`, rates since then too."""
    answers = {
        what: tm.ask(what, timeout=ANSWER_SECONDS)
        for what in ("status", "metrics", "pubends", "streams", "subscriptions")
    }
    at = time.monotonic()
    rates: dict[str, float] = {}
    # Another incarnation counts from the start again.
    if before is not None and before.status["incarnation"] == answers["status"]["incarnation"]:
        rates = rates_between(before.metrics, answers["metrics"], at - before.at)
    return BrokerSnapshot(at, rates=rates, **answers)


def rates_between(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """How much each number grew a second."""
    return {
        name: (value - before[name]) / seconds for name, value in after.items() if name in before and seconds
    }


def lags_of(subscriptions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Durable subscriptions with their lag in seconds, the greatest first; None: not started yet."""
    found = [
        {
            "name": each["name"],
            "connected": each["connected"],
            "catching_up": any(one["catching_up"] for one in each["pubends"].values()),
            "recall": recall_of(each),
            "lag_seconds": worst_lag(each),
            "pubends": {
                pubend: None if one["lag_us"] is None else one["lag_us"] / 1e6
                for pubend, one in each["pubends"].items()
            },
        }
        for each in subscriptions
        if each["durable"]
    ]
    return sorted(found, key=lambda each: (-(each["lag_seconds"] or 0.0), each["name"]))


def recall_of(subscription: Mapping[str, Any]) -> str | None:
    """Does it wait for history from the archive: "waiting" for a pipeline, or "under way"; None if not."""
    states = {each.get("recall") for each in subscription["pubends"].values()}
    return next((each for each in ("waiting", "under way") if each in states), None)


def worst_lag(subscription: Mapping[str, Any]) -> float | None:
    """Seconds behind in the pubend where that is most; None if it has started nowhere."""
    lags = [each["lag_us"] for each in subscription["pubends"].values() if each["lag_us"] is not None]
    return max(lags) / 1e6 if lags else None
