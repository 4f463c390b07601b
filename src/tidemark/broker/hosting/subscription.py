"""HostedSubscription: one subscriber as its host knows it, with every selector that it may still need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.access.rights import Hidden
from tidemark.broker.effects import SelectorSince
from tidemark.message.topic_selector import TopicSelector
from tidemark.ticks import TICK_MAX, CheckpointToken
from tidemark.wire.frames import Line

#: Selectors of one subscriber that are remembered at once.
SELECTORS_MAX = 16


@dataclass(slots=True)
class SelectorPeriod:
    """A selector that a subscriber has, or had before it changed it, and the ticks from which it holds."""

    wanted: TopicSelector
    #: the number under which the audience of this host matches it
    member: int = 0
    #: the interest version of this broker that first asks for it
    version: int = 0
    #: pubend -> it holds for the ticks beyond, up to where the next period begins
    since: dict[str, int] = field(default_factory=dict)
    #: the pubends whose entry of `since` is on disk, so that the subscriber may be told of it
    kept: set[str] = field(default_factory=set)


@dataclass(slots=True)
class DurableTotals:
    """What the durable subscriptions of a host are together, those that are away included."""

    subscriptions: int = 0
    #: of their patterns and selectors, older selectors that are still needed included
    selector_bytes: int = 0

    def count(self, subscription: HostedSubscription, period: SelectorPeriod, times: int = 1) -> None:
        """Count a selector of a subscription, if that is durable; `times` is -1 when it is forgotten."""
        if subscription.durable:
            self.selector_bytes += times * bytes_of(period.wanted)


@dataclass(slots=True)
class Holding:
    """What decides whether this broker or another one holds a durable subscription (`handover.py`)."""

    #: the time of day when the subscription was made here
    made_at: int = 0
    #: the epoch under which this broker claims the subscription; 0 while it never came from another broker
    epoch: int = 0
    #: the broker that has claimed the subscription, while that claim is not settled
    moved_to: str | None = None
    #: the time of day when the present connection came
    connected_at: int = 0


@dataclass(frozen=True, slots=True)
class RuledView:
    """What the rules of a principal show of the topics of a subscription, since its connection came."""

    #: the events, as a selector; "" is all
    seen: str = ""
    #: the fields that are hidden
    hidden: Hidden = ()
    #: no rule keeps events, or fields of them, from the principal
    sees_all: bool = False


#: The view of a subscription that was never connected.
NEVER_CONNECTED = RuledView()


@dataclass(slots=True)
class HostedSubscription:
    """A subscriber, connected or not. At each pubend it is not started, catching up, live, or away."""

    # Who the subscriber is.
    id: int
    name: str
    durable: bool
    # What the subscriber wants.
    #: oldest first, the last one is current; an older one stays until everything of its time is acknowledged
    periods: list[SelectorPeriod]
    # What the subscriber has consumed, and what is kept for it. A host goes through these for thousands of
    # subscribers at a time, so they are not an object of their own.
    #: pubend -> acknowledged up to; at least the start
    released: dict[str, int] = field(default_factory=dict)
    #: the part of `released` that is on disk: only this lets anything go
    saved: dict[str, int] = field(default_factory=dict)
    #: pubend -> nothing up to this tick is kept for it, acknowledged or not: it was over its quota
    let_go: dict[str, int] = field(default_factory=dict)
    is_over_quota: bool = False
    #: pubend -> beyond this tick the PFS of this host knows what matched the subscriber. Set once a selector
    #: is in force there; the subscriber's token may be older, if it came from another broker
    known: dict[str, int] = field(default_factory=dict)
    #: it is not durable, and goes on from a token: nothing is held for it, but what there is it gets
    replays: bool = False
    #: the subscription is on disk, or does not have to be
    is_kept: bool = True
    # To whom the subscription belongs: a principal, and a broker.
    #: the principal that the subscription belongs to; "" if it was made while the broker was open
    owner: str = ""
    holding: Holding = field(default_factory=Holding)
    # The present connection. Every delivery changes `credit` and `told`, so these are no object of their own.
    #: the present connection; None while the subscriber is away
    client: int | None = None
    #: bytes of events it can take before it grants more; below 0 when the last part was larger
    credit: int = 0
    #: pubend -> told up to, on this connection
    told: dict[str, int] = field(default_factory=dict)
    #: what rules show the principal of the present connection
    view: RuledView = NEVER_CONNECTED
    # What is counted since this broker started.
    #: gaps that it was told, and how often it was live and could not take more
    gaps: int = 0
    slow: int = 0

    @property
    def current(self) -> SelectorPeriod:
        """The period of the selector that the subscriber has now."""
        return self.periods[-1]

    @property
    def starts(self) -> dict[str, int]:
        """pubend -> where the subscriber starts: it gets what lies beyond."""
        return self.periods[0].since

    @property
    def history(self) -> tuple[SelectorSince, ...]:
        """The periods as the tables keep them."""
        return tuple(SelectorSince(each.wanted, CheckpointToken(each.since)) for each in self.periods)

    @property
    def since(self) -> CheckpointToken:
        """From where on the current selector holds, for the pubends of which the subscriber may be told."""
        return CheckpointToken({name: self.current.since[name] for name in sorted(self.current.kept)})

    def has_changed_since(self, pubend: str, base: int) -> bool:
        """Return whether an earlier selector may have chosen what lies beyond `base` of a pubend."""
        return len(self.periods) > 1 and self.periods[-1].since.get(pubend, TICK_MAX) > base

    def in_force(self, pubend: str, base: int, upto: int) -> Iterator[tuple[SelectorPeriod, int, int]]:
        """Yield the periods that hold in `(base, upto]` of a pubend, oldest first, each with its range."""
        ends = [each.since.get(pubend, TICK_MAX) for each in self.periods[1:]] + [TICK_MAX]
        for period, end in zip(self.periods, ends, strict=True):
            first, last = max(period.since.get(pubend, TICK_MAX), base), min(end, upto)
            if first < last:
                yield period, first, last

    def lines(self, pubend: str, base: int, upto: int) -> tuple[Line, ...]:
        """Return what the subscriber wants of `(base, upto]` of a pubend, as a recall asks for it."""
        return tuple(Line(each.wanted, *span) for each, *span in self.in_force(pubend, base, upto))

    def holds_beyond(self, pubend: str) -> int:
        """Return the tick up to which nothing has to be kept for the subscriber at a pubend it started at."""
        saved = self.saved.get(pubend, self.starts[pubend])
        return max(saved, self.let_go.get(pubend, saved))

    def token(self) -> CheckpointToken:
        """Return what the subscriber has been told on this connection."""
        return CheckpointToken(self.told)

    def acknowledge(self, token: CheckpointToken) -> None:
        """The subscriber has consumed up to `token`; pubends where it has not started, and older ticks, are
        ignored.
        """
        starts, released = self.starts, self.released
        for pubend, tick in token.items():
            before = released.get(pubend)
            if pubend in starts and (before is None or before < tick):
                released[pubend] = tick

    def outlived(self, pubends: list[str]) -> SelectorPeriod | None:
        """Return the oldest period if nothing of its time is unacknowledged on disk any more, else None."""
        if len(self.periods) < 2:
            return None
        oldest, since = self.periods[0], self.periods[1].since
        done = all(pubend in since and self.saved.get(pubend, -1) >= since[pubend] for pubend in pubends)
        return oldest if done else None

    def leave(self) -> None:
        """The connection is gone, and with it all that belonged to it."""
        self.client = None
        self.credit = 0
        self.told.clear()


@dataclass(frozen=True, slots=True)
class SavedSubscription:
    """A durable subscription as the tables keep it."""

    id: int
    name: str
    #: every selector that it may still need, oldest first; never empty
    history: tuple[SelectorSince, ...]
    released: Mapping[str, int]
    #: the PFS knows what matched the subscriber beyond this; None if that is since its first selector holds
    known: Mapping[str, int] | None = None
    epoch: int = 0
    made_at: int = 0
    owner: str = ""


def bytes_of(wanted: TopicSelector) -> int:
    """Return the bytes of a pattern and a selector."""
    return len(wanted.pattern.encode()) + len(wanted.selector.encode())
