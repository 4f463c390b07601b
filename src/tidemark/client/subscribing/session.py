"""SubscriptionSession: one subscription at its broker. It subscribes, takes deliveries in, acknowledges.

The session lives as long as the subscription is open and outlasts connections: after each reconnection it
subscribes again and presents what was consumed. `Subscription` is what applications hold of it, `Inbox` keeps
what was delivered, `OpenSubscriptions` hands it the frames that carry its name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import time_ns
from typing import Any, Protocol

from tidemark.client.connecting.link import Link
from tidemark.client.connecting.refusals import error_of
from tidemark.client.events import Batch, Event, EventRows, Gap
from tidemark.client.subscribing.acks import Acks
from tidemark.client.subscribing.arguments import SubscribeArguments
from tidemark.client.subscribing.inbox import NOT_KEPT, RECONNECTED, Inbox, InboxCursor
from tidemark.client.subscribing.start_position import Start
from tidemark.client.topics import ClientTopics
from tidemark.client.wakeup import Wakeup
from tidemark.errors import ClientError, ClosedError, GapError, TidemarkError, TimedOutError
from tidemark.message.foreign.dataclasses import from_value
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Credit, Deliver, Refused, Subscribe, Subscribed, Unsubscribe
from tidemark.wire.frames import Gap as GapFrame

#: The ways of acknowledging in which the application need not do anything.
_BY_ITSELF = ("auto", "gathered")
#: What can be acknowledged: all up to one of these, or with None all that was handed out.
Upto = Event | Gap | Batch | CheckpointToken | None


class Owner(Protocol):
    """What a session needs of its client. All sessions of a client share one owner."""

    link: Link
    topics: ClientTopics
    acks: Acks
    #: seconds that the broker has to answer
    timeout: float

    def enter(self, session: SubscriptionSession) -> None:
        """Hand frames for the name of `session` to it from now on; ClientError if another has the name."""

    def leave(self, session: SubscriptionSession) -> None:
        """Hand no more frames to `session`."""

    def fresh_name(self) -> str:
        """A name that no other subscription has."""

    async def unsubscribe(self, name: str) -> None:
        """End the durable subscription `name` for good."""

    async def starting_token(self, name: str | None, start: Start) -> CheckpointToken | None:
        """The token at which the subscription `name` starts; None if the broker has it already."""


class SubscriptionSession:
    """The state of one subscription, from opening to closing."""

    def __init__(self, owner: Owner, arguments: SubscribeArguments) -> None:
        self._owner = owner
        self._arguments = arguments
        self._durable = arguments.durable
        self._into = arguments.into
        self._mode = arguments.mode
        self._is_held = arguments.is_held
        #: the token to subscribe with before the broker has answered once
        self._given = arguments.token
        self.inbox = Inbox(arguments.window_bytes_max, self._given)
        self.name = arguments.durable or ""
        #: the stamp of the last Subscribe frame; of two connections with one name the later stamp wins
        self._stamp = 0
        #: the broker that was asked last
        self._asked = ""
        #: pubend -> the tick from which a changed selector holds
        self.since = CheckpointToken()
        #: the broker on this connection delivers
        self.is_subscribed = False
        self._was_subscribed = False
        #: pubend -> tick that the application acknowledged. The application has stored the token that it gave
        #: when it subscribed, so that counts as acknowledged.
        self._acknowledged: dict[str, int] = dict(self._given or {})
        #: pubend -> tick that was acknowledged to the broker on this connection
        self._sent: dict[str, int] = {}
        #: in the mode "auto": pubend -> tick that was handed out and is on the broker's disk
        self._committed: dict[str, int] = {}
        self._opened: asyncio.Future[None] | None = None
        self._wakeup = Wakeup()
        #: the events that the inbox's cursor goes through; None while it is at a gap
        self._rows: EventRows | None = None
        self._error: TidemarkError | None = None
        #: nothing more is handed out, while the broker learns what was consumed
        self._is_closing = False
        self._is_closed = False

    # Opening and closing.

    async def open(self) -> None:
        """Subscribe and wait until delivery has started; see Subscription.open."""
        if self._opened is not None:
            self.check_open()
            return
        self._opened = asyncio.get_running_loop().create_future()
        try:
            await self._find_start()
            if self._durable is not None:
                self._owner.enter(self)
            self.up()
            async with asyncio.timeout(self._owner.timeout):
                await self._opened
        except TimeoutError:
            self._end()
            pattern = self._arguments.pattern
            raise TimedOutError(
                f"the broker did not answer to the subscription of {pattern!r} in time: try again"
            ) from None
        except BaseException:
            self._end()
            raise

    async def _find_start(self) -> None:
        """If a start was given, and no checkpoint to go on from, start at the token of that start."""
        if self._arguments.start is None or self._given is not None:
            return
        token = await self._owner.starting_token(self._durable, self._arguments.start)
        if token is not None:
            self._given = token
            from_oldest = self._arguments.start == "earliest"
            self.inbox = Inbox(self.inbox.window_bytes_max, token, from_oldest=from_oldest)
            self._acknowledged = dict(token)

    async def close(self, timeout: float) -> None:
        """End the session; a durable subscription stays at the broker, which learns what was consumed."""
        if self._is_closed:
            return
        # What would be handed out from now on would be missing in the token, and be delivered again.
        self._is_closing = True
        if self.is_subscribed and self._durable is not None:
            token = self.to_acknowledge()
            if token:
                # Events whose acknowledgement the broker does not get are delivered again: no reason to fail.
                with suppress(ClientError):
                    await self._owner.acks.commit([(self, token)], timeout)
        elif self.is_subscribed:
            self._owner.link.send(Unsubscribe(self.name))
        self._end()

    async def unsubscribe(self) -> None:
        """End the subscription for good."""
        await self._owner.unsubscribe(self.name)
        self._end()

    def fail(self, error: TidemarkError) -> None:
        """End the session with an error, which is raised where the application opens, iterates or acks."""
        self._error = error
        self.is_subscribed = False
        self._owner.acks.forget(self)
        self._owner.leave(self)
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)
        self._wakeup.wake()

    def _end(self) -> None:
        self._is_closed = True
        self.is_subscribed = False
        self._owner.acks.forget(self)
        self._owner.leave(self)
        self._wakeup.wake()

    def check_open(self) -> None:
        """Raise the error that the session has ended with; ClosedError if it was closed."""
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClosedError("the subscription is closed: open it again with subscribe(...)")

    # Handing out.

    def step(self) -> Any:
        """Hand out the next row of what is loaded; all rows before it are consumed. None if none is left.

        Returns an Event, or an instance of the dataclass that the application wants; DecodeError if the event
        does not fit that class. Returns a Gap, or raises it as a GapError, as the application wants. A row
        that raised an error counts as handed out.
        """
        cursor = self.inbox.cursor
        if cursor is None or cursor.out == len(cursor.positions) or self._is_closing:
            return None
        row = cursor.done = cursor.out
        cursor.out = row + 1
        if self._rows is None:
            return self._gap(cursor)
        event = Event(self._rows, row)
        return event if self._into is None else from_value(self._into, event.value)

    def step_batch(self) -> Batch | Gap | None:
        """Hand out all rows of what is loaded that were not handed out yet; None if none is left.

        A gap is returned or raised as `step` does.
        """
        cursor = self.inbox.cursor
        if cursor is None or cursor.is_finished or self._is_closing:
            return None
        first = cursor.done = cursor.out
        cursor.out = len(cursor.positions)
        return Batch(self._rows, first) if self._rows is not None else self._gap(cursor)

    def _gap(self, cursor: InboxCursor) -> Gap:
        entry = cursor.entry
        if not self._arguments.gaps:
            raise GapError(entry.reason, pubend=entry.pubend, base=entry.base, upto=entry.upto)
        token = CheckpointToken({**cursor.before, entry.pubend: entry.upto})
        return Gap(entry.pubend, entry.base, entry.upto, entry.reason, token)

    async def load(self) -> bool:
        """Wait until there is something to hand out; all that was handed out is consumed.

        Opens a session that was not opened. False if the session was closed. ClientError if another task
        waits already; the error of the session if it has failed; DecodeError if the broker does not know the
        schema of an event.
        """
        if self._wakeup.is_awaited:
            raise ClientError("somebody else iterates over this subscription: open another one")
        if self._opened is None:
            await self.open()
        topics = self._owner.topics
        while True:
            batch = self.inbox.next_batch
            if batch is not None and topics.missing(batch):
                try:
                    await topics.fetch(batch)
                except ClosedError:
                    return False
                continue  # after a reconnection another batch may be the next one
            if batch is not None:
                kept, damaged = topics.without_damaged(batch)
                if damaged:
                    self.inbox.leave_out(kept, damaged)
            if self._error is not None:
                raise self._error
            if self._is_closed or self._is_closing:
                return False
            cursor = self.inbox.take()
            self._consumed()
            if cursor is not None:
                self._rows = EventRows(cursor, topics, self) if cursor.entry.batch is not None else None
                return True
            await self._wakeup.wait()

    def _consumed(self) -> None:
        granted = self.inbox.grant()
        if granted and self.is_subscribed:
            self._owner.link.send(Credit(self.name, granted))
        self._owner.acks.soon(self)

    # Acknowledging.

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of everything that was handed out."""
        return CheckpointToken(self.inbox.handed())

    @property
    def must_commit(self) -> bool:
        """Before anything more is handed out, what was handed out has to be on the broker's disk."""
        cursor = self.inbox.cursor
        if self._mode != "auto" or cursor is None or cursor.done == cursor.out:
            return False
        return self.inbox.handed() != self._committed

    async def commit(self) -> None:
        """Acknowledge everything that was handed out; return when the broker has that on disk.

        Raises what `Acks.commit` raises: then whether the broker has it is not known.
        """
        self.check_open()
        handed = self.inbox.handed()
        await self._owner.acks.commit([(self, CheckpointToken(handed))], self._owner.timeout)
        self._sent = {**self._sent, **handed}
        self._committed = handed

    async def ack(self, upto: Upto, *, sync: bool) -> None:
        """Acknowledge all up to `upto`; see Subscription.ack."""
        if self._durable is None:
            return
        token = self.token_upto(upto)
        self.acknowledged(token)
        if sync:
            self.check_open()
            await self._owner.acks.commit([(self, token)], self._owner.timeout)

    def token_upto(self, upto: Upto) -> CheckpointToken:
        """The token of having consumed all up to `upto`; ClientError if it cannot be acknowledged."""
        match upto:
            case None:
                return self.checkpoint
            case CheckpointToken():
                return upto
            case Event() | Batch():
                pubend, position = upto._position
                return CheckpointToken({pubend: position})
            case Gap():
                return CheckpointToken({upto.pubend: upto.upto})
        # Programs that are not type-checked can get here.
        given = type(upto).__name__  # type: ignore[unreachable]
        raise ClientError(f"an event, gap, batch or token can be acknowledged, not {given}")

    def acknowledged(self, token: CheckpointToken) -> None:
        """The application has consumed everything that `token` covers; the broker is told soon."""
        mine = self._acknowledged
        for pubend, tick in token.items():
            mine[pubend] = max(tick, mine.get(pubend, tick))
        self._owner.acks.soon(self)

    def to_acknowledge(self) -> CheckpointToken | None:
        """The token to acknowledge now; None if the broker was told as much on this connection."""
        if self._durable is None:
            return None
        known = self.inbox.consumed() if self._mode in _BY_ITSELF else {}
        # Silence behind a token that the application keeps is not in that token yet. If the silence were
        # acknowledged and released, the application would be told of a gap when it returns with the token.
        mine = self._acknowledged if self._is_held else self.inbox.quiet(self._acknowledged)
        for pubend, tick in mine.items():
            known[pubend] = max(tick, known.get(pubend, tick))
        # In the mode "auto" what was handed out last is committed, though it does not count as consumed yet.
        for pubend, tick in self._sent.items():
            known[pubend] = max(tick, known.get(pubend, tick))
        if known == self._sent:
            return None
        self._sent = known
        return CheckpointToken(known)

    def to_grant(self, *, with_commit: bool = False) -> int:
        """Bytes of credit to grant to the broker now; in the mode "auto" few of them wait for a commit."""
        return self.inbox.grant(is_idle=with_commit or self._mode != "auto")

    @property
    def is_busy(self) -> bool:
        """Events are being handed out one by one, so there will soon be more to acknowledge."""
        cursor = self.inbox.cursor
        return self._mode == "gathered" and cursor is not None and cursor.done < len(cursor.positions)

    # From the broker.

    def up(self) -> None:
        """A new connection: subscribe, with the token of what was consumed."""
        self.is_subscribed = False
        self._sent = {}
        if self._durable is None:
            self._owner.leave(self)
            self.name = self._owner.fresh_name()
            self._owner.enter(self)
        token = self._given
        if self._keeps_place and self._was_subscribed:
            token = CheckpointToken(self.inbox.consumed()) or None
        self._stamp = max(self._stamp + 1, time_ns() // 1_000)
        last, welcome = self._asked, self._owner.link.welcome
        self._asked = welcome.broker if welcome is not None else ""
        frame = Subscribe(
            self.name,
            self._arguments.pattern,
            self._arguments.selector,
            self._durable is not None,
            self.inbox.credit,
            token,
            self._stamp,
            last if last != self._asked else "",
        )
        self._owner.link.send(frame)

    def down(self) -> None:
        """The connection is lost. Events that were delivered before can still be handed out."""
        self.is_subscribed = False

    def subscribed(self, frame: Subscribed) -> None:
        """The broker delivers from now on; or it says from where on a changed selector holds."""
        self.since = self.since.merge(frame.since)
        if self.is_subscribed:
            return
        repeats = self._was_subscribed and self._keeps_place
        has_gaps = self.inbox.connected(frame.token, repeats=repeats, missed=self._missed)
        self.is_subscribed = self._was_subscribed = True
        if has_gaps:
            self._wakeup.wake()
        self._check_started()
        self._owner.acks.soon(self)
        self._owner.acks.resend()

    def _check_started(self) -> None:
        """The subscription is open once the broker has named a start for each of its own pubends.

        Everything that is published at this broker from then on is delivered.
        """
        opened, welcome = self._opened, self._owner.link.welcome
        is_started = welcome is not None and self.inbox.started.issuperset(welcome.pubends)
        if is_started and opened is not None and not opened.done():
            opened.set_result(None)

    def delivered(self, frame: Deliver) -> None:
        """The broker delivered events, or silence."""
        if self.is_subscribed:
            self._arrived(self.inbox.delivered(frame, missed=self._missed))

    def gap(self, frame: GapFrame) -> None:
        """The broker reports ticks that were released before this subscriber got them."""
        if self.is_subscribed:
            self._arrived(self.inbox.let_go(frame, missed=self._missed))

    @property
    def _keeps_place(self) -> bool:
        """Whether the subscription goes on where it was after a break: it is durable, or began at a token."""
        return self._durable is not None or self._given is not None

    @property
    def _missed(self) -> str:
        return RECONNECTED if self._durable is None else NOT_KEPT

    def _arrived(self, is_new: bool) -> None:
        if self._opened is not None and not self._opened.done():
            self._check_started()
        if is_new:
            self._wakeup.wake()
        elif self._durable is not None:
            self._owner.acks.soon(self)

    def refused(self, frame: Refused) -> None:
        """The broker does not deliver, or no longer."""
        self.fail(error_of(frame))
