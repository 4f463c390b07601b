"""The audit's report: what was found for each subscriber, in numbers that do not grow with the ledgers.

Counts are exact. Of the events behind a count a few keys are kept, to look for them in the ledgers. Times are
microseconds; latency is from a publisher's line to a subscriber's, where both have a `time`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.spark.page_parts import Histogram

#: So many events of one fault of one subscriber are named, the first ones.
KEYS_SHOWN_MAX = 10
FAULTS = ("lost", "duplicated", "out_of_order", "wrong")
COUNTS = ("matched", "delivered", *FAULTS, "gaps", "in_gaps")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class Latency:
    """How long events took, in microseconds; the percentiles are within 0.01% of their rank."""

    events: int
    least: int
    #: by the names of PERCENTILES
    percentiles: Mapping[str, int]
    most: int

    def as_dict(self) -> dict[str, float]:
        """The latency as a JSON object, in milliseconds."""
        shown = {"min": self.least, **self.percentiles, "max": self.most}
        return {"events": self.events} | {f"{name}_ms": value / 1e3 for name, value in shown.items()}


@dataclass(slots=True)
class SubscriberAccount:
    """How one subscriber fared; the counts mean what docs/proof.md says."""

    subscriber: str
    topic: str
    where: str
    matched: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    wrong: int = 0
    gaps: int = 0
    in_gaps: int = 0
    #: fault -> keys of the first events with it
    keys: dict[str, list[str]] = field(default_factory=dict)
    #: reason -> (gaps with it, matched events in them)
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    latency: Latency | None = None

    @property
    def is_clean(self) -> bool:
        """Did the subscriber get its events exactly once and in order? An announced gap is not a fault."""
        return not any(getattr(self, fault) for fault in FAULTS)

    def as_dict(self) -> dict[str, Any]:
        """The account as a JSON object."""
        return {
            "subscriber": self.subscriber,
            "topic": self.topic,
            "where": self.where,
            **{name: getattr(self, name) for name in COUNTS},
            "keys": self.keys,
            "reasons": {
                why: {"gaps": gaps, "in_gaps": events} for why, (gaps, events) in sorted(self.reasons.items())
            },
            "latency": self.latency and self.latency.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the ledgers of publishers and subscribers say together."""

    published: int
    acknowledged: int
    accounts: list[SubscriberAccount]
    #: names of subscribers whose ledgers have no subscription
    idle: list[str]
    latency: Latency | None
    #: in milliseconds
    latencies: Histogram | None
    #: deliveries by their time, else by tick; in microseconds since 1970
    deliveries: Histogram | None

    @property
    def is_clean(self) -> bool:
        """Did every subscriber get its events exactly once and in order?"""
        return all(account.is_clean for account in self.accounts)

    def total(self, what: str) -> int:
        """The sum of one of COUNTS over all subscribers."""
        return sum(getattr(account, what) for account in self.accounts)

    def reasons(self) -> dict[str, tuple[int, int]]:
        """reason -> (gaps with it, matched events in them), over all subscribers."""
        found: dict[str, tuple[int, int]] = {}
        for account in self.accounts:
            for why, (gaps, events) in account.reasons.items():
                before = found.get(why, (0, 0))
                found[why] = before[0] + gaps, before[1] + events
        return found

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object, whose counts have the names of the single-process audit."""
        return {
            "ok": self.is_clean,
            "published": self.published,
            "acknowledged": self.acknowledged,
            **{name: self.total(name) for name in COUNTS},
            "reasons": {
                why: {"gaps": gaps, "in_gaps": events}
                for why, (gaps, events) in sorted(self.reasons().items())
            },
            "latency": self.latency and self.latency.as_dict(),
            "idle": self.idle,
            "subscribers": [account.as_dict() for account in self.accounts],
        }


def show_milliseconds(value: float) -> str:
    """Milliseconds to three digits, in milliseconds or seconds."""
    if value < 1e3:
        return f"{value:.3g} ms"
    return f"{value / 1e3:.3g} s" if value < 1e5 else f"{value / 1e3:,.0f} s"
