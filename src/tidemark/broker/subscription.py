"""Subscription: one subscriber as its host knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.broker.catchup import Catchup
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Wanted


@dataclass(slots=True)
class Subscription:
    """A subscriber, connected or not. Per pubend it is not started, catching up, live, or away."""

    id: int
    name: str
    pattern: str
    selector: str
    durable: bool
    #: the version of interest here that asks for its selector
    version: int
    #: pubend -> where it starts: it gets what lies beyond
    starts: dict[str, int] = field(default_factory=dict)
    #: pubend -> acknowledged up to; at least the start
    released: dict[str, int] = field(default_factory=dict)
    #: its connection, None while it is away
    client: int | None = None
    #: events it can take before it grants more
    credit: int = 0
    #: pubend -> told up to, on this connection
    told: dict[str, int] = field(default_factory=dict)
    #: pubend -> its private stream while it is behind the constream
    catchups: dict[str, Catchup] = field(default_factory=dict)

    @property
    def wanted(self) -> Wanted:
        """Its line in the interest of this broker."""
        return Wanted(self.pattern, self.selector)

    def is_live(self, pubend: str) -> bool:
        """Fed by the constream."""
        return self.client is not None and pubend in self.told and pubend not in self.catchups

    def token(self) -> CheckpointToken:
        """What it has been told on this connection."""
        return CheckpointToken(self.told)

    def acknowledge(self, token: CheckpointToken) -> None:
        """It has consumed up to `token`; what it never started, and what went before, changes nothing."""
        for pubend, tick in token.items():
            if pubend in self.starts:
                self.released[pubend] = max(self.released[pubend], tick)

    def leave(self) -> None:
        """Its connection is gone, and all that belonged to it."""
        self.client = None
        self.credit = 0
        self.told.clear()
        self.catchups.clear()
