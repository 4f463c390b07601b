"""Subscription: one subscriber as its host knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.broker.effects import Wish
from tidemark.ticks import TICK_MAX, CheckpointToken
from tidemark.wire.frames import Line, Wanted

#: Changes of a subscriber's selector that may be remembered at once.
WISHES_MAX = 16


@dataclass(slots=True)
class Desire:
    """What a subscriber wants, or wanted before it changed its mind. In pubend p beyond since[p]."""

    pattern: str
    selector: str
    #: its number in the audience
    member: int
    #: the version of interest here that asks for it
    version: int = 0
    since: dict[str, int] = field(default_factory=dict)
    #: the pubends of which that is on disk, so that it can be told
    kept: set[str] = field(default_factory=set)

    @property
    def wanted(self) -> Wanted:
        """Its line in the interest of this broker."""
        return Wanted(self.pattern, self.selector)


@dataclass(slots=True)
class Subscription:
    """A subscriber, connected or not. Per pubend it is not started, catching up, live, or away."""

    id: int
    name: str
    durable: bool
    #: what it wants, oldest first; the older ones as long as something of their time is not acknowledged
    desires: list[Desire]
    #: pubend -> acknowledged up to; at least the start
    released: dict[str, int] = field(default_factory=dict)
    #: the part of it that is on disk: only this lets anything go
    saved: dict[str, int] = field(default_factory=dict)
    #: pubend -> from where on the PFS here knows what matched it, once one of its desires is in force here;
    #: it may have come from elsewhere with a token from before that
    known: dict[str, int] = field(default_factory=dict)
    #: it is on disk, or does not have to be
    is_kept: bool = True
    #: the time of day when it was made here, and its epoch since it came from another broker; 0 before
    made_at: int = 0
    epoch: int = 0
    #: the broker that has claimed it, while that is not settled
    moved_to: str | None = None
    #: when its connection came, by the time of day
    connected_at: int = 0
    #: its connection, None while it is away
    client: int | None = None
    #: bytes of events it can take before it grants more; below 0 when the last part was larger
    credit: int = 0
    #: pubend -> told up to, on this connection
    told: dict[str, int] = field(default_factory=dict)

    @property
    def current(self) -> Desire:
        """What it wants now."""
        return self.desires[-1]

    @property
    def starts(self) -> dict[str, int]:
        """pubend -> where it starts: it gets what lies beyond."""
        return self.desires[0].since

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """For the tables."""
        return tuple(Wish(each.pattern, each.selector, CheckpointToken(each.since)) for each in self.desires)

    @property
    def since(self) -> CheckpointToken:
        """From where on it gets what it wants now, as far as it can be told."""
        return CheckpointToken({name: self.current.since[name] for name in sorted(self.current.kept)})

    def lines(self, pubend: str, base: int, upto: int) -> tuple[Line, ...]:
        """What it wants of `(base, upto]`."""
        ends = [each.since.get(pubend, TICK_MAX) for each in self.desires[1:]] + [TICK_MAX]
        found = (
            Line(each.pattern, each.selector, max(each.since.get(pubend, TICK_MAX), base), min(end, upto))
            for each, end in zip(self.desires, ends, strict=True)
        )
        return tuple(line for line in found if line.base < line.upto)

    def token(self) -> CheckpointToken:
        """What it has been told on this connection."""
        return CheckpointToken(self.told)

    def acknowledge(self, token: CheckpointToken) -> None:
        """It has consumed up to `token`; what it never started, and what went before, changes nothing."""
        for pubend, tick in token.items():
            if pubend in self.starts:
                self.released[pubend] = max(self.released[pubend], tick)

    def outlived(self, pubends: list[str]) -> Desire | None:
        """The oldest desire, if another holds for everything that is not acknowledged on disk."""
        if len(self.desires) < 2:
            return None
        oldest, since = self.desires[0], self.desires[1].since
        done = all(pubend in since and self.saved.get(pubend, -1) >= since[pubend] for pubend in pubends)
        return oldest if done else None

    def leave(self) -> None:
        """Its connection is gone, and all that belonged to it."""
        self.client = None
        self.credit = 0
        self.told.clear()
