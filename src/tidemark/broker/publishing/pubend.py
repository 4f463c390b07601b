"""Pubend: a publishing endpoint, the root of one stream (DSN'03 3; docs/architecture.md).

Owns the ticks of its events, the sequence numbers of its publishers, and what may be let go. Promises: an
acknowledged event is on disk; a retried event is not logged again; what a publisher sends that has left for
another pubend is not logged, until it comes back; whose a publisher's name is, is on disk with its first
event; ticks that were told to be silent stay silent, also after a crash with a clock that went back; a tick
turns L only when every durable subscriber has released it, or when policy says so and every subscriber that
is not catching up has it. Events whose validity has passed are let go as silence, whoever has not got them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendMove,
    DrainNotice,
    ExpireLog,
    LogExpired,
    LoseLog,
    RecoveredPubend,
    SendClient,
)
from tidemark.broker.publishing.joined_batches import Fresh, Gathered, in_a_row, merged
from tidemark.broker.publishing.logged_sizes import LoggedSizes
from tidemark.broker.publishing.remembered_publishers import RememberedPublishers
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.message.batches.validity import may_expire
from tidemark.message.publisher_names import PublisherMove
from tidemark.ticks import TICK_MAX, TICK_MIN
from tidemark.wire.answers import PubendStatus
from tidemark.wire.frames import Publish, Published, Refused
from tidemark.wire.limits import MOVES_AHEAD_US
from tidemark.wire.moving.frames import Come, Leave, Left

SECOND = 1_000_000

TOO_MANY_NAMES = (
    "this pubend remembers as many named publishers as it can and takes no new name, since forgetting one "
    "could log its events twice: publish under a name that was used before, at another pubend, or without one"
)


FULL = "the disk is full: nothing was logged, send again when there is room"


@dataclass(frozen=True, slots=True)
class PubendPolicy:
    """Thresholds in microseconds and bytes; None means no limit."""

    #: Silence is made explicit at least this often.
    heartbeat: int = SECOND // 10
    #: While nothing happens silence is made explicit ever more rarely, down to once in this time.
    heartbeat_idle: int = 2 * SECOND
    #: Ticks promised ahead on disk, so that heartbeats need no sync of their own.
    lease_ahead: int = 10 * SECOND
    #: AET: if the last event is not released for this long, its tick is announced again.
    ack_expected: int = 2 * SECOND
    #: Early release of events older than this, and of the oldest events beyond this many bytes.
    max_retain: int | None = None
    max_bytes: int | None = None
    #: What everybody has released is kept for this long, but never more of it than so many bytes.
    min_retain: int = 0
    min_retain_bytes: int = 0
    #: There is an archive: nothing is let go before the archive has it.
    archive: bool = False
    #: Policy may let go what the archive does not have yet.
    release_unarchived: bool = False
    #: How often the log is looked through for events whose validity has passed, if there may be any.
    expiry: int = SECOND


class RootStream(Protocol):
    """The stream that begins at a pubend, as the pubend sees it."""

    def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
        """Take durable first-time knowledge of `(base, upto]`; everything at or below `lost` is L."""

    def tell_lost(self, lost: int) -> None:
        """Everything at or below `lost` is L, and everybody who follows is told at once."""


class Pubend:
    """One pubend at the broker that hosts it."""

    def __init__(
        self, name: str, state: RecoveredPubend, policy: PubendPolicy, turn: Turn, stream: RootStream
    ) -> None:
        self.name = name
        self._policy = policy
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._stream = stream
        #: the last tick given to an event, durable or not
        self._last = state.last
        #: no event will get a tick at or below this: others were, or may have been, told that it is silent
        self._silent = max(state.lease, state.last)
        #: the promise that is on disk; silence is advertised only up to here
        self._lease = state.lease
        self._leasing = False
        #: monotonic time when silence was advertised last
        self._beat_at = 0
        #: microseconds after which it is advertised next
        self._pace = policy.heartbeat
        #: everything at or below has been passed on, or will never be anything but silence. It includes the
        #: lease: neighbours may have heard that far before a crash, and the stream must not fall behind that
        self.position = max(state.last, state.lost, state.lease)
        self.lost = state.lost
        self._publishers = RememberedPublishers(state.publishers, state.moves)
        #: The log has lost events: a publisher that goes on further than expected is right, the first time
        #: that it comes in this life. `_heard` has those that came.
        self._is_damaged = state.is_damaged
        self._heard: set[str] = set()
        #: batches that came and are not yet durable, and those of them that were not given to the log yet
        self._unsynced = 0
        self._gathered: list[Gathered] = []
        #: what is durable and not passed on yet
        self._fresh: list[Fresh] = []
        self._sizes = LoggedSizes(state.sizes)
        #: The disk had no room for the last group: nothing is kept that nobody waits for.
        self._is_full = False
        #: The broker is being drained, so nothing is kept that nobody waits for; only `Broker` sets it.
        self.is_draining = False
        self._released = TICK_MIN
        self._delivered = TICK_MIN
        #: the archive has reported to have everything up to here; None if there is no archive
        self.archived: int | None = TICK_MIN if policy.archive else None
        #: whoever keeps the archive has asked to let go, early, what it has up to here
        self._dismissed = TICK_MIN
        #: A batch in the log may have a validity. Of what earlier lives logged, nothing is known yet.
        self._may_expire = bool(state.sizes)
        #: when the oldest batch will have expired, TICK_MAX if never; and when the log was last asked, None
        #: while it has not answered
        self._expires_at = TICK_MIN
        self._expiry_asked: int | None = 0
        self._release_heard = TICK_MIN
        self._announce = state.last > state.lost

    @property
    def bytes(self) -> int:
        """The bytes of the events that have not been let go."""
        return self._sizes.bytes

    @property
    def publishers_bytes(self) -> int:
        """The memory of the named publishers that are remembered."""
        return self._publishers.bytes

    # Publishing.

    def owner(self, publisher: str) -> str:
        """Return the principal that a publisher's name belongs to here; "" if it belongs to nobody."""
        return self._publishers.owner(publisher)

    def received(self, client: int, frame: Publish, owner: str = "") -> None:
        """A publisher's batch: log the events that are new, and acknowledge the batch once it is durable.

        The publisher's name belongs to `owner` from now on, unless that is "".
        """
        name, batch = frame.publisher, frame.batch
        last = frame.sequence + batch.count - 1
        has_left = self._has_left(name)
        if self._is_damaged and not has_left:
            self._take_word(frame)
        known = self._publishers.get(name)
        expected = known[0] + 1 if known is not None else 1
        if has_left and last >= expected:
            self._refuse(client, name, "moved", self._gone(name))
            return
        if frame.sequence > expected:
            # Taking a later batch first would make the earlier one look like a repetition when it comes.
            self._refuse(client, name, "sequence", _out_of_order(frame, known))
            return
        if known is None and not self._publishers.has_room(name):
            self._refuse(client, name, "limit", TOO_MANY_NAMES)
            return
        if frame.sequence < expected:
            self._counters["publishes_repeated"] += 1
        if known is None or last > known[0]:
            if known is not None and frame.sequence <= known[0]:
                batch = batch.slice(known[0] + 1 - frame.sequence, batch.count)
            if owner and owner != self._publishers.owner(name):
                self._give(name, owner)
            self._append(name, last, batch)
            known = last, self._last
        # Also for a duplicate: the original may still be on its way to the disk.
        self._acknowledge(client, Published(self.name, name, *known))

    def expects(self, frame: Publish) -> bool:
        """Return whether a batch, of one or of several frames, begins with its publisher's next event."""
        known = self._publishers.get(frame.publisher)
        if known is None or self._is_damaged or self._has_left(frame.publisher):
            return False
        return frame.sequence == known[0] + 1

    def received_joined(self, client: int, frame: Publish, owner: str = "") -> None:
        """A batch that `expects` is true of, made of several frames: log it, and acknowledge each of them."""
        assert frame.parts
        self._give(frame.publisher, owner)
        last = frame.sequence + frame.batch.count - 1
        self._append(frame.publisher, last, frame.batch)
        self._acknowledge(client, Published(self.name, frame.publisher, last, self._last, frame.parts))

    def _acknowledge(self, client: int, answer: Published) -> None:
        """Send the answer once all that was appended is durable; refuse each frame if the disk is full."""

        def acknowledge() -> None:
            self._out.add(SendClient(client, answer))

        def refuse() -> None:
            for _ in range(len(answer.parts) or 1):
                self._refuse(client, answer.publisher, "full", FULL)

        self._when_durable(acknowledge, refuse)

    def _take_word(self, frame: Publish) -> None:
        """The log has lost events: believe a publisher, once, how many of its events were acknowledged."""
        name = frame.publisher
        sequence, tick = self._publishers.get(name) or (0, self._last)
        is_ahead = name not in self._heard and frame.sequence > sequence + 1
        if is_ahead and self._publishers.has_room(name):
            self._counters["sequences_believed"] += 1
            believed = frame.sequence - 1, tick
            self._publishers.appended(name, believed)
            self._publishers.durable(name, believed)
        self._heard.add(frame.publisher)

    def _give(self, name: str, owner: str) -> None:
        """Note, unless it is known, whose a publisher's name is; `_append_move` has it on disk."""
        move = self._publishers.move(name) or PublisherMove(0)
        if owner and owner != move.owner:
            last = self._publishers.get(name) or (0, self._last)
            self._append_move(name, last, move._replace(owner=owner))

    # Publishers that move.

    def leave(self, frame: Leave, answer: Callable[[Left], None]) -> None:
        """A publisher wants to go to another pubend: say, once that is on disk, where it is and what is here.

        The publisher goes if the move is the next one after the last that is known here, or a later one: then
        it was on its way to this pubend, of which nobody has heard here.
        """
        name = frame.publisher
        move = self._publishers.move(name) or PublisherMove(0)
        last = self._publishers.get(name) or (0, self._last)
        has_come = frame.move > move.number + 1  # in a move that this pubend has not heard of
        if frame.to != self.name and (has_come or (frame.move == move.number + 1 and not move.to)):
            if not self._may_move(name, frame.move, move):
                return
            last = (max(last[0], frame.sequence), last[1])
            move = PublisherMove(frame.move, frame.to, move.owner)
            self._append_move(name, last, move)
            self._counters["publishers_left"] += 1
        left = Left(self.name, name, *last, move.number, move.to or self.name)
        self._when_durable(lambda: answer(left), lambda: None)

    def come(self, client: int, frame: Come, owner: str = "") -> None:
        """A publisher goes on here after what earlier pubends have; it is told so once that is on disk.

        The publisher's name belongs to `owner` from now on, unless that is "".
        """
        name = frame.publisher
        move = self._publishers.move(name) or PublisherMove(0)
        last = self._publishers.get(name) or (0, self._last)
        if not self._publishers.has_room(name):
            self._refuse(client, name, "limit", TOO_MANY_NAMES)
            return
        if frame.move < move.number or (frame.move == move.number and move.to):
            self._refuse(client, name, "moved", self._gone(name))
            return
        if frame.move > move.number:
            if not self._may_move(name, frame.move, move):
                self._refuse(client, name, "limit", f"the move {frame.move} is too far from the last one")
                return
            last = (max(last[0], frame.sequence), last[1])
            self._append_move(name, last, PublisherMove(frame.move, owner=owner or move.owner))
            self._counters["publishers_came"] += 1
        else:
            self._give(name, owner)
        self._acknowledge(client, Published(self.name, name, *last))

    def _may_move(self, name: str, number: int, last: PublisherMove) -> bool:
        """Return whether a publisher of this name is remembered, or can be, and its move is no leap.

        A leap would leave no room for the moves of honest clients; they count, or begin with a time of day.
        """
        is_leap = number > max(last.number + 1, self._turn.wall + MOVES_AHEAD_US)
        return self._publishers.has_room(name) and not is_leap

    def _has_left(self, name: str) -> bool:
        move = self._publishers.move(name)
        return move is not None and bool(move.to)

    def _gone(self, name: str) -> str:
        move = self._publishers.move(name)
        where = f" for the pubend {move.to!r}" if move is not None and move.to else ""
        return f"the publisher {name!r} has left{where}: ask there which of its events are logged"

    def _append_move(self, name: str, last: tuple[int, int], move: PublisherMove) -> None:
        self.log()  # the log has events of before the move before it has the move
        self._publishers.moved(name, last, move)
        self._out.add(AppendMove(self.name, name, *last, move))
        self._unsynced += 1
        self._turn.log.after(lambda: self._move_durable(name, last, move), self._forgotten)

    def _move_durable(self, name: str, last: tuple[int, int], move: PublisherMove) -> None:
        self._unsynced -= 1
        self._publishers.move_durable(name, last, move)

    def has(self, frame: Publish) -> bool:
        """Return whether every event of the batch has come before."""
        sequence, _ = self._publishers.get(frame.publisher) or (0, 0)
        return frame.sequence + frame.batch.count - 1 <= sequence

    def turn_away(self, client: int, frame: Publish, notice: DrainNotice) -> None:
        """Refuse a batch because the broker is being drained, after what came before it is acknowledged."""

        def refuse() -> None:
            self._refuse(client, frame.publisher, "draining", notice.reason, notice.addresses)

        self._when_durable(refuse, refuse)

    def _refuse(
        self, client: int, publisher: str, code: str, reason: str, addresses: tuple[str, ...] = ()
    ) -> None:
        self._counters["publishes_refused"] += 1
        self._out.add(SendClient(client, Refused("publish", publisher, code, reason, addresses)))

    def _append(self, publisher: str, last: int, batch: EventBatch) -> None:
        wall = self._turn.wall
        first = max(self._last + 1, self._silent + 1, wall)
        self._counters["clock_back"] += first > wall + SECOND
        batch.count_ticks(first)
        if self._released >= self._last:
            self._release_heard = self._turn.now  # nothing was waited for until now
        self._last = self._silent = first + batch.count - 1
        self._publishers.appended(publisher, (last, self._last))
        self._unsynced += 1
        self._gathered.append((publisher, last, batch))

    def log(self) -> None:
        """Append what has come since the last call: what a publisher has sent in a row becomes one batch."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        if len(gathered) == 1:
            self._log(*gathered[0], 1)
            return
        for publisher, last, batches in in_a_row(gathered):
            self._log(publisher, last, concatenate(batches), len(batches))

    def _log(self, publisher: str, last: int, batch: EventBatch, came_in: int) -> None:
        """Append a batch that has come in so many parts."""
        self._out.add(AppendEvents(self.name, publisher, last - batch.count + 1, batch))
        self._turn.log.after(partial(self._durable, publisher, last, batch, came_in), self._forgotten)

    def _durable(self, publisher: str, last: int, batch: EventBatch, came_in: int) -> None:
        """A batch, which has come in so many parts, is durable."""
        self._unsynced -= came_in
        self._is_full = False
        base, upto = self.position, int(batch.ticks[-1])
        self._publishers.durable(publisher, (last, upto))
        self.position = upto
        self._sizes.append(upto, len(batch.data), batch.count)
        self._may_expire = self._may_expire or may_expire(batch)
        self._counters["events_published"] += batch.count
        self._beat_at = self._turn.now  # an event moves the stream as silence does
        self._fresh.append((base, upto, batch))
        if self._turn.observer.is_tracing:
            self._turn.observer.logged(self.name, batch)

    def settle(self) -> None:
        """Pass on what has become durable; its publishers were answered already."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            for base, upto, batch in fresh if len(fresh) == 1 else merged(fresh):
                self._pass_on(base, upto, batch)

    def _pass_on(self, base: int, upto: int, batch: EventBatch | None) -> None:
        self._stream.first(base, upto, self.lost, 0, batch)

    def _forgotten(self) -> None:
        """The disk had no room: what was not durable was discarded. The ticks of those events stay used."""
        self._unsynced = 0
        self._is_full = True
        self._publishers.discarded()

    def _when_durable(self, action: Callable[[], None], failed: Callable[[], None]) -> None:
        if self._unsynced:
            self._turn.log.after(action, failed)
        else:
            action()

    # Silence.

    def beat(self) -> None:
        """Make silence explicit up to now, as far as the lease on disk reaches; renew the lease in time.

        If the clock has gone back, silence advances one tick at a time: a new subscriber, which waits for the
        stream to move, must not wait until the clock has caught up.
        """
        now, time = self._turn.now, max(self._turn.wall, self.position + 1)
        if self._lease < time + self._policy.lease_ahead // 2 and not self._leasing:
            reserved = time + self._policy.lease_ahead
            self._leasing = True
            self._out.add(AppendLease(self.name, reserved))
            self._turn.log.after(lambda: self._leased(reserved), self._not_leased)
        if self._unsynced or now - self._beat_at < self._pace:
            return
        assert not self._fresh
        upto = min(time, self._lease)
        if upto > self.position:
            self._beat_at = now
            self._pace = min(2 * self._pace, max(self._policy.heartbeat_idle, self._policy.heartbeat))
            base, self.position = self.position, upto
            self._silent = max(self._silent, upto)
            self._pass_on(base, upto, None)

    def _leased(self, upto: int) -> None:
        self._leasing = False
        self._lease = max(self._lease, upto)

    def _not_leased(self) -> None:
        self._leasing = False

    def announcement(self) -> int | None:
        """Return the tick for an AckExpected: that of the last event, if it was not released for too long.

        After recovery it is due at once. None if nothing is due.
        """
        now = self._turn.now
        pending = self._released < self._last and self._last <= self.position
        overdue = pending and now - self._release_heard > self._policy.ack_expected
        if not overdue and not (self._announce and pending):
            return None
        self._announce = False
        self._release_heard = now
        return self._last

    # Release.

    def released(self, released: int, delivered: int) -> None:
        """Take the minima over all subscriber hosting brokers.

        They may be lower than before: a host has come, or holds for a subscriber that starts in the past or
        has moved there. What was kept until then, for newcomers or for the archive, is kept for it too.
        """
        if released > self._released:
            self._release_heard = self._turn.now
        self._released = released
        self._delivered = delivered
        self.release()

    def hold(self) -> None:
        """Let nothing more go until every host has reported how far it is; at least one has not."""
        self._released = self._delivered = TICK_MIN

    def release(self) -> None:
        """Turn to L what may be let go, but nothing that a subscriber that is not catching up still lacks.

        Events turn L, and the silence behind the last of them does not: a reader that has read that event,
        or that begins in silence, has lost nothing.
        """
        archived = self._released if self.archived is None else self.archived
        let_go = min(self._released, archived, self._kept_for_newcomers())
        early = min(self._delivered, self._early())
        if not self._policy.release_unarchived and self.archived is not None:
            early = min(early, self.archived)
        upto = min(max(let_go, early), self.position)
        is_dismissed = self.lost < self._dismissed
        lost = max(self._last_event(upto), min(upto, self._dismissed)) if upto > self.lost else self.lost
        if lost > self.lost:
            self._counters["released" if lost <= let_go else "released_early"] += 1
            self.lost = lost
            self._sizes.lose(lost)
            self._expires_at = TICK_MIN
            self._out.add(LoseLog(self.name, lost))
            if is_dismissed:
                # At once, and not with the next event: no broker is to tell from memory what was erased.
                self._stream.tell_lost(lost)

    def _last_event(self, upto: int) -> int:
        """Return the tick of the last event up to a tick; TICK_MIN if there is none.

        That is `_last` also if damage, or a full disk, has taken the event.
        """
        if self._last <= upto:
            return self._last
        found = self._sizes.last_event(upto)
        return TICK_MIN if found is None else found

    def dismiss(self, upto: int) -> None:
        """Let go, as policy would, what the archive has up to this tick: who lacks it gets it from there."""
        assert self.archived is not None
        self._dismissed = max(self._dismissed, min(upto, self.archived))
        self.release()
        # What was let go before may not have been told to other brokers yet.
        self._stream.tell_lost(self.lost)

    def expire(self) -> None:
        """Let what has expired go, as silence, whether or not anybody lacks it; the archive gets it first."""
        asked = self._expiry_asked
        if not self._may_expire or asked is None or self._turn.now - asked < self._policy.expiry:
            return
        if not self._sizes.bytes or self._turn.wall < self._expires_at:
            return
        is_archived = self.archived is None or self._policy.release_unarchived
        upto = self.position if is_archived or self.archived is None else min(self.archived, self.position)
        self._expiry_asked = None
        self._out.add(ExpireLog(self.name, self._turn.wall, upto))

    def expired(self, answer: LogExpired) -> None:
        """The log has let go what had expired."""
        before = self._sizes.bytes
        self._sizes.lose(answer.upto)
        has_let_go = self._sizes.bytes < before
        self._counters["logs_expired"] += has_let_go
        self._expires_at = TICK_MAX if answer.due is None else answer.due
        self._expiry_asked = self._turn.now
        if has_let_go:
            # The log looks at a part of what there is at a time: the rest is not to wait for a second each.
            self._expiry_asked -= self._policy.expiry
            self.expire()

    def describe(self) -> PubendStatus:
        """Return how the pubend stands, for administrators."""
        return PubendStatus(
            pubend=self.name,
            position=self.position,
            last_event=None if self._last == TICK_MIN else self._last,
            lost=None if self.lost == TICK_MIN else self.lost,
            released=None if self._released == TICK_MIN else self._released,
            archived=self.archived,
            bytes=self.bytes,
            publishers=len(self._publishers),
        )

    def _kept_for_newcomers(self) -> int:
        """Return the tick up to which nothing is kept for subscribers that may come and ask for the past."""
        policy = self._policy
        if not policy.min_retain or self._is_full or self.is_draining:
            return TICK_MAX
        beyond = self._sizes.beyond(policy.min_retain_bytes)
        old = self._turn.wall - policy.min_retain
        return old if beyond is None else max(old, beyond)

    def _early(self) -> int:
        """Return the tick up to which the administrator's policy, or the archive, would let history go."""
        upto = self._dismissed
        if self._policy.max_retain is not None:
            upto = max(upto, self._turn.wall - self._policy.max_retain)
        if self._policy.max_bytes is not None:
            beyond = self._sizes.beyond(self._policy.max_bytes)
            upto = upto if beyond is None else max(upto, beyond)
        return upto


def _out_of_order(frame: Publish, known: tuple[int, int] | None) -> str:
    """Return why a batch that does not begin with the publisher's next number is refused, and what to do."""
    if known is not None:
        return f"expected sequence {known[0] + 1}, got {frame.sequence}: send again from there"
    # "Send again from 1" would log for a second time what the pubend has forgotten.
    return (
        f"got sequence {frame.sequence}, and nothing is remembered of the publisher {frame.publisher!r}: "
        "send again from 1 if none of its events was ever acknowledged, else go on under another name, from 1"
    )
