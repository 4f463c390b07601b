"""Constream: the one consolidated stream of a pubend that feeds every live subscriber (DSN'03 4.1).

Owns latest_delivered and who is in force: it moves up to the doubt horizon, stops wherever somebody starts
or a changed selector comes into force, and says of each piece which rows matched which subscriber.
Never passes an event whose schema is not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.broker.hosting.catchup import Catchup
from tidemark.broker.streams.stream import Stream
from tidemark.broker.streams.window import unexpired
from tidemark.matching.audience import Audience, Members, Rows
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN

Subscribers = NDArray[np.uint32]
#: Whom so few members speak for is remembered, for so many different sets of them.
FEW_MEMBERS = 16
FOUND_MAX = 1_024


class ActiveSelectors:
    """Which member speaks for which subscriber at one pubend; a member that is not in force for none."""

    def __init__(self) -> None:
        #: of[member] is the subscriber, durable[member] too unless it is not durable; 0 is nobody
        self.of: Subscribers = np.zeros(64, np.uint32)
        self.durable: Subscribers = np.zeros(64, np.uint32)
        #: what was found for few members, since the last change
        self._found: dict[tuple[bool, bytes], Subscribers] = {}

    def set(self, member: int, subscriber: int, *, durable: bool) -> None:
        """From here on the member speaks for the subscriber."""
        while member >= len(self.of):
            self.of = np.concatenate((self.of, np.zeros_like(self.of)))
            self.durable = np.concatenate((self.durable, np.zeros_like(self.durable)))
        self.of[member] = subscriber
        self.durable[member] = subscriber if durable else 0
        self._found.clear()

    def clear(self, member: int) -> None:
        """The member speaks for nobody."""
        if member < len(self.of):
            self.of[member] = self.durable[member] = 0
            self._found.clear()

    def chosen(self, members: Members, *, durable: bool = False) -> Subscribers:
        """The subscribers that these members speak for: all, or, sorted, those that are durable."""
        if len(members) > FEW_MEMBERS:
            return self._choose(members, durable)
        key = durable, members.tobytes()
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            found = self._found[key] = self._choose(members, durable)
        return found

    def _choose(self, members: Members, durable: bool) -> Subscribers:
        table = self.durable if durable else self.of
        found = table[members[members < len(table)]]
        found = found if found.all() else found[found > 0]
        return np.sort(found) if durable else found


@dataclass(frozen=True, slots=True)
class MatchedPiece:
    """What the constream delivers at once: `(base, upto]`, its events, and whom which rows matched."""

    base: int
    upto: int
    batch: EventBatch | None
    matches: list[tuple[Rows, Members]]
    #: events that are not among them because their validity has passed
    expired: int = 0


@dataclass(slots=True)
class Constream:
    """The consolidated stream of one pubend."""

    stream: Stream
    #: latest_delivered: everything at or below has gone to all live subscribers; None before the first
    delivered: int | None = None
    #: the part of it that the PFS has on disk
    synced: int | None = None
    #: the last event that was delivered or found silent: who has been told less is told of silence
    last_event: int = TICK_MIN
    #: members that are not in force here yet and wait for knowledge that accounts for them -> the end of the
    #: knowledge that came meanwhile and does not
    waiting: dict[int, int] = field(default_factory=dict)
    #: member -> the tick from which silence accounts for it, until the constream gets there
    starting: dict[int, int] = field(default_factory=dict)
    #: changes that have come into force here and are not on disk yet: nothing moves before they are
    changing: int = 0
    active: ActiveSelectors = field(default_factory=ActiveSelectors)
    #: subscriber -> its private stream while it is behind
    catchups: dict[int, Catchup] = field(default_factory=dict)
    #: the least that any durable subscriber has released, None when it has to be found again
    held: int | None = None
    #: the PFS was told to let go up to here
    chopped: int = TICK_MIN

    def begin(self, tick: int) -> None:
        """The first subscriber is here: the stream goes on from `tick`."""
        self.delivered = self.synced = tick
        self.stream.position = max(self.stream.position, tick)
        self.stream.window.raise_floor(tick)

    def end(self) -> None:
        """The last subscriber has gone."""
        self.delivered = self.synced = self.held = None

    def forget(self, member: int) -> None:
        """A member is gone."""
        self.waiting.pop(member, None)
        self.starting.pop(member, None)
        self.active.clear(member)

    def expected(self, tag: int, base: int, upto: int, versions: dict[int, int]) -> None:
        """Knowledge of `(base, upto]` accounts for interest up to `tag`: who waited for that may start there.

        Not before the end of what came earlier and does not account for it, though: of two frames the one
        with the later ticks may have been sent, and things left out of it, first.
        """
        for member in sorted(self.waiting):
            if tag >= versions[member]:
                self.starting[member] = max(base, self.waiting.pop(member))
            elif upto > base:
                self.waiting[member] = max(self.waiting[member], upto)

    def next_stop(self) -> int | None:
        """How far it can move now; None when it cannot."""
        if self.delivered is None or self.changing:
            return None
        horizon = self.stream.window.knowledge.horizon(self.delivered)
        stops = [tick for tick in self.starting.values() if tick > self.delivered]
        upto = min([horizon, *stops]) if stops else horizon
        if upto <= self.delivered:
            return None
        return self.stream.window.reach(self.delivered, upto)

    def gap(self, upto: int) -> int | None:
        """Where a gap ends that begins here, if there is one; `upto` is the next stop."""
        assert self.delivered is not None
        window = self.stream.window
        if window.knowledge.lost > self.delivered:
            return min(window.knowledge.lost, upto)
        damaged = window.damaged.parts(self.delivered, upto)
        return damaged[0][1] if damaged and damaged[0][0] == self.delivered else None

    def piece(self, upto: int, audience: Audience, wall: int) -> MatchedPiece | None:
        """The next piece, at most up to `upto`; None while the schema of its first event is not known."""
        assert self.delivered is not None
        damaged = self.stream.window.damaged.parts(self.delivered, upto)
        if damaged:
            upto = damaged[0][0]
        batch = self.stream.window.events(self.delivered, upto)
        if batch is None:
            return MatchedPiece(self.delivered, upto, None, [])
        strange = audience.unknown_from(batch)
        if strange is not None:
            upto = int(batch.ticks[strange]) - 1
            batch = batch.slice(0, strange) if strange else None
            if upto <= self.delivered:
                return None
        expired = 0
        if batch is not None:
            self.last_event = int(batch.ticks[-1])
            alive = unexpired(batch, wall)
            expired = batch.count - (alive.count if alive is not None else 0)
            batch = alive
        matches = list(audience.matches(batch)) if batch is not None else []
        return MatchedPiece(self.delivered, upto, batch, matches, expired)
