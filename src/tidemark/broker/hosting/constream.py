"""Constream: the one consolidated stream of a pubend that feeds every live subscriber (DSN'03 4.1).

Owns latest_delivered and which selectors are in force. A constream moves up to the doubt horizon, stops
wherever a subscriber starts or a changed selector comes into force, and finds for each piece which rows
matched which subscriber. It never passes an event whose schema is not known yet.

A piece has at most PIECE_BYTES_MAX, PIECE_ROWS_MAX and PIECE_TOPICS_MAX, and in one turn of the broker
constreams match about one such piece (`Ration`): a large batch, or one of thousands of topics, is matched
in several turns, and others are served between them. A piece for many subscribers is handed to some of them
in each turn (`TURN_DELIVERIES_MAX`). Until all have it, the constream does not move, and no selector comes
into force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidemark.broker.hosting.catchup import Catchup
from tidemark.broker.streams.stream import Stream
from tidemark.broker.streams.window import unexpired
from tidemark.broker.turn import Turn
from tidemark.matching.audience import Audience, Members, Rows
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN

if TYPE_CHECKING:
    from tidemark.broker.hosting.delivery import Fanout

Subscribers = NDArray[np.uint32]
#: For sets of at most so many members the subscribers they stand for are remembered.
FEW_MEMBERS = 16
#: Sets of members for which that is remembered.
FOUND_MAX = 1_024
#: What is matched and delivered at once; each topic has a matcher of its own.
PIECE_BYTES_MAX = 1 << 20
PIECE_ROWS_MAX = 4_096
PIECE_TOPICS_MAX = 32
#: Deliveries to one subscriber each in one turn, which take about 5 ms.
TURN_DELIVERIES_MAX = 512
#: Bytes that are copied for subscribers who want other rows, and lines that say which rows a subscriber
#: wants, that take as long as one delivery.
DELIVERY_COPIED_BYTES = 8 << 10
DELIVERY_LINES = 64


class ActiveSelectors:
    """Which member of the audience stands for which subscriber at one pubend; 0 for a member not in force."""

    def __init__(self) -> None:
        #: of[member]: the subscriber's id, or 0 where the member is not in force.
        self.of: Subscribers = np.zeros(64, np.uint32)
        #: durable[member]: the subscriber's id, or 0 where it is not durable or not in force.
        self.durable: Subscribers = np.zeros(64, np.uint32)
        #: results of `chosen` for few members, since the last change
        self._found: dict[tuple[bool, bytes], Subscribers] = {}

    def set(self, member: int, subscriber: int, *, durable: bool) -> None:
        """The member's selector is in force for the subscriber from here on."""
        while member >= len(self.of):
            self.of = np.concatenate((self.of, np.zeros_like(self.of)))
            self.durable = np.concatenate((self.durable, np.zeros_like(self.durable)))
        self.of[member] = subscriber
        self.durable[member] = subscriber if durable else 0
        self._found.clear()

    def clear(self, member: int) -> None:
        """The member's selector is not in force any more."""
        if member < len(self.of):
            self.of[member] = self.durable[member] = 0
            self._found.clear()

    def chosen(self, members: Members, *, durable: bool = False) -> Subscribers:
        """Return the subscribers that these members stand for: all, or only the durable ones, sorted."""
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
    """What the constream delivers at once: `(base, upto]`, its events, and which rows matched whom."""

    base: int
    upto: int
    batch: EventBatch | None
    matches: list[tuple[Rows, Members]]
    #: the number of events that were left out because their validity has passed
    expired: int = 0

    def part(self, groups: Sequence[int]) -> EventBatch:
        """Return the rows of these groups of `matches`, in order."""
        assert self.batch is not None
        if self.batch.count == 1:
            return self.batch
        rows = [self.matches[at][0] for at in groups]
        if sum(len(each) for each in rows) == self.batch.count:
            return self.batch
        return self.batch.take(rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows)))


@dataclass(slots=True)
class Constream:
    """The consolidated stream of one pubend."""

    stream: Stream
    #: latest_delivered: everything at or below has gone to all live subscribers; None without subscribers
    delivered: int | None = None
    #: the part of `delivered` that the PFS has on disk
    synced: int | None = None
    #: the tick of the last event that was delivered; a subscriber told less is told of silence up to there
    last_event: int = TICK_MIN
    #: member that is not in force here yet and waits for knowledge that is complete for it -> the end of the
    #: knowledge that has come meanwhile and is not
    waiting: dict[int, int] = field(default_factory=dict)
    #: member -> the tick from which on knowledge is complete for it, until the constream gets there
    starting: dict[int, int] = field(default_factory=dict)
    #: the number of changed selectors that are in force here and not on disk yet: nothing moves before
    changing: int = 0
    active: ActiveSelectors = field(default_factory=ActiveSelectors)
    #: the piece up to `delivered`, while some of the live subscribers that it matched have still to be told
    fanout: Fanout | None = None
    #: subscriber -> its catchup stream while it is behind
    catchups: dict[int, Catchup] = field(default_factory=dict)
    #: the least that any durable subscriber has released on disk; None if that has to be computed again
    held: int | None = None
    #: the PFS was told to discard everything up to here
    chopped: int = TICK_MIN

    def begin(self, tick: int) -> None:
        """The first subscriber of the host has come: delivery begins beyond `tick`."""
        self.delivered = self.synced = tick
        self.stream.position = max(self.stream.position, tick)
        self.stream.window.raise_floor(tick)

    def end(self) -> None:
        """The last subscriber of the host has gone."""
        self.delivered = self.synced = self.held = self.fanout = None

    def forget(self, member: int) -> None:
        """A member has left the audience."""
        self.waiting.pop(member, None)
        self.starting.pop(member, None)
        self.active.clear(member)

    def expected(self, tag: int, base: int, upto: int, versions: dict[int, int]) -> None:
        """Knowledge of `(base, upto]` is complete for interest version `tag`: members it includes may start.

        They start not before the end of knowledge that came earlier and is not complete for them: of two
        frames, the one with the later ticks may have been sent first, with events left out.
        """
        for member in sorted(self.waiting):
            if tag >= versions[member]:
                self.starting[member] = max(base, self.waiting.pop(member))
            elif upto > base:
                self.waiting[member] = max(self.waiting[member], upto)

    def next_stop(self) -> int | None:
        """Return the tick up to which the constream can move now; None if it cannot."""
        if self.delivered is None or self.changing:
            return None
        horizon = self.stream.window.knowledge.horizon(self.delivered)
        upto = horizon
        if self.starting:
            upto = min([horizon, *(tick for tick in self.starting.values() if tick > self.delivered)])
        if upto <= self.delivered:
            return None
        return self.stream.window.reach(self.delivered, upto, PIECE_BYTES_MAX)

    def gap(self, upto: int) -> int | None:
        """Return the end of the gap that begins at `delivered`, at most `upto`; None if there is no gap."""
        assert self.delivered is not None
        window = self.stream.window
        if window.knowledge.lost > self.delivered:
            return min(window.knowledge.lost, upto)
        damaged = window.damaged.parts(self.delivered, upto)
        return damaged[0][1] if damaged and damaged[0][0] == self.delivered else None

    def piece(self, upto: int, audience: Audience, turn: Turn) -> MatchedPiece | None:
        """Return the next piece, at most up to `upto`; None while its first event's schema is unknown."""
        assert self.delivered is not None
        damaged = self.stream.window.damaged.parts(self.delivered, upto)
        if damaged:
            upto = damaged[0][0]
        batch = self.stream.window.events(self.delivered, upto)
        if batch is None:
            return MatchedPiece(self.delivered, upto, None, [])
        rows = rows_at_once(batch)
        if rows < batch.count:
            upto = int(batch.ticks[rows]) - 1
            batch = batch.slice(0, rows)
        strange = audience.unknown_from(batch)
        if strange is not None:
            upto = int(batch.ticks[strange]) - 1
            batch = batch.slice(0, strange) if strange else None
            if upto <= self.delivered:
                return None
        expired = 0
        if batch is not None:
            self.last_event = int(batch.ticks[-1])
            alive = unexpired(batch, turn.wall)
            expired = batch.count - (alive.count if alive is not None else 0)
            batch = alive
        if batch is None:
            return MatchedPiece(self.delivered, upto, None, [], expired)
        turn.observer.matching()
        matches = list(audience.matches(batch))
        turn.observer.matched(self.stream.pubend, batch, matches)
        return MatchedPiece(self.delivered, upto, batch, matches, expired)


def rows_at_once(batch: EventBatch) -> int:
    """Return how many of the first rows of a batch are one piece: all of a small one, and at least one."""
    rows = min(batch.count, PIECE_ROWS_MAX)
    if int(batch.ends[rows - 1]) > PIECE_BYTES_MAX:
        rows = max(1, int(np.searchsorted(batch.ends, PIECE_BYTES_MAX, side="right")))
    if len(batch.shapes) > PIECE_TOPICS_MAX:
        _, first = np.unique(batch.prelude("shape")[:rows], return_index=True)
        if len(first) > PIECE_TOPICS_MAX:
            rows = int(np.sort(first)[PIECE_TOPICS_MAX])
    return rows


class Ration:
    """What the constreams of a host may deliver in one turn, and which of them go on in another."""

    def __init__(self) -> None:
        self._left = PIECE_BYTES_MAX
        #: the pubend whose constream has delivered last
        self._last = ""
        #: the deliveries that fit into this turn beside those that were made
        self.deliveries = TURN_DELIVERIES_MAX
        #: pubends whose constreams have more to deliver than fitted into their turn; others only look at it
        self.unfinished: dict[str, None] = {}

    def begin(self) -> None:
        """A turn begins."""
        self._left = PIECE_BYTES_MAX
        self.deliveries = TURN_DELIVERIES_MAX

    def may_go_on(self, pubend: str) -> bool:
        """Return whether a constream may deliver now; if not, it is unfinished."""
        if self._left <= 0 or self.deliveries <= 0:
            self.unfinished[pubend] = None
        may = pubend not in self.unfinished
        self._last = pubend if may else self._last
        return may

    def took(self, piece: MatchedPiece) -> None:
        """A piece was delivered."""
        if piece.batch is not None:
            self._left -= max(
                len(piece.batch.data),
                piece.batch.count * (PIECE_BYTES_MAX // PIECE_ROWS_MAX),
                min(len(piece.batch.shapes), PIECE_TOPICS_MAX) * (PIECE_BYTES_MAX // PIECE_TOPICS_MAX),
            )

    def forget(self, pubend: str) -> None:
        """There is no such pubend any more."""
        self.unfinished.pop(pubend, None)

    def finish(self) -> dict[str, None]:
        """Take the unfinished ones, which may go on in the turn that begins, the last one that did last."""
        unfinished, self.unfinished = self.unfinished, {}
        if self._last in unfinished:
            del unfinished[self._last]
            unfinished[self._last] = None
        return unfinished
