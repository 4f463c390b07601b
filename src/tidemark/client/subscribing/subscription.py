"""Subscription: what a subscriber wants, iterated.

An event counts as *consumed* when the application asks for the next one, acknowledges it, or leaves the
`async with` block without an exception. `checkpoint` runs ahead of that by what the application is working
on: it is the token to store in the same transaction as what was made of the event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from enum import Enum
from time import time_ns
from types import TracebackType
from typing import Any, Literal, Protocol

from tidemark.client.connecting.link import Link
from tidemark.client.events import Batch, Event, EventRows, Gap
from tidemark.client.subscribing.acks import Acks
from tidemark.client.subscribing.inbox import NOT_KEPT, RECONNECTED, Inbox, InboxCursor
from tidemark.client.subscribing.start_position import Start
from tidemark.client.topics import ClientTopics
from tidemark.errors import ClientError, ClosedError, RefusedError, TidemarkError, TimedOutError
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Credit, Deliver, Refused, Subscribe, Subscribed, Unsubscribe
from tidemark.wire.frames import Gap as GapFrame

WINDOW_BYTES_MAX = 4 << 20
#: How long closing waits for the broker.
CLOSE_SECONDS = 5.0

AckMode = Literal["auto", "client", "transacted"]


class ServerKept(Enum):
    """In place of a checkpoint: the broker keeps the token."""

    SERVER_KEPT = "server kept"


SERVER_KEPT = ServerKept.SERVER_KEPT


class Owner(Protocol):
    """What a subscription needs of its client."""

    link: Link
    topics: ClientTopics
    acks: Acks
    timeout: float

    def enter(self, subscription: Subscription) -> None:
        """Frames for its name go to it from now on; ClientError if they go to another one."""

    def leave(self, subscription: Subscription) -> None:
        """Frames for its name are nobody's."""

    def fresh_name(self) -> str:
        """A name that no other subscription has."""

    async def unsubscribe(self, name: str) -> None:
        """End a subscription for good."""

    async def starting_token(self, name: str, start: Start) -> CheckpointToken | None:
        """The token of a start; None if the subscription is there already."""


class Subscription:
    """A subscription. `async with` opens it; iterate over events, or over `batches()`."""

    def __init__(
        self,
        owner: Owner,
        pattern: str,
        selector: str,
        durable: str | None,
        checkpoint: CheckpointToken | ServerKept | None,
        ack: AckMode | None,
        window_bytes_max: int,
        start: Start | None = None,
    ) -> None:
        self._owner = owner
        #: where it starts if it is not there yet
        self._start = start
        self._pattern = pattern
        self._selector = selector
        self._durable = durable
        #: when it came last
        self._stamp = 0
        #: the application keeps the token: only it knows what it has committed
        self._is_held = not isinstance(checkpoint, ServerKept)
        self._mode: AckMode = ack or ("client" if self._is_held else "auto")
        self._given = checkpoint if isinstance(checkpoint, CheckpointToken) else None
        self._inbox = Inbox(window_bytes_max, self._given)
        self.name = durable or ""
        #: pubend -> the tick from which a changed selector holds
        self.since = CheckpointToken()
        self.is_subscribed = False
        self._was_subscribed = False
        #: acknowledged by the application; what it showed at the start it has surely kept
        self._acknowledged: dict[str, int] = dict(self._given or {})
        #: said to the broker on this connection
        self._told: dict[str, int] = {}
        self._opened: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._rows: EventRows | None = None
        self._error: TidemarkError | None = None
        self._is_closed = False

    # Opening and closing.

    async def open(self) -> Subscription:
        """Subscribe, and wait until it has started: what is published at this broker from now on will come.

        RefusedError if the broker refuses, for a wrong selector say.
        """
        if self._opened is not None:
            self._check_open()
            return self
        self._opened = asyncio.get_running_loop().create_future()
        try:
            if self._durable is not None:
                await self._begin()
                self._owner.enter(self)
            self.up()
            async with asyncio.timeout(self._owner.timeout):
                await self._opened
        except TimeoutError:
            self._end()
            raise TimedOutError(
                f"the broker did not answer to the subscription of {self._pattern!r} in time: try again"
            ) from None
        except BaseException:
            self._end()
            raise
        return self

    async def _begin(self) -> None:
        """Find out where to start, if that was given and there is nothing to go on from."""
        if self._start is None or self._given is not None:
            return
        assert self._durable is not None
        token = await self._owner.starting_token(self._durable, self._start)
        if token is not None:
            self._given = token
            self._inbox = Inbox(self._inbox.window_bytes_max, token)
            self._acknowledged = dict(token)

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self.open().__await__()

    async def __aenter__(self) -> Subscription:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._inbox.finish()
        await self.close()

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop. A durable subscription stays at the broker, which learns what was consumed."""
        if self._is_closed:
            return
        if self.is_subscribed and self._durable is not None:
            token = self.to_acknowledge()
            if token:
                # What the broker does not learn comes again: no reason to fail now.
                with suppress(ClientError):
                    await self._owner.acks.commit({self: token}, timeout)
        elif self.is_subscribed:
            self._owner.link.send(Unsubscribe(self.name))
        self._end()

    def _end(self) -> None:
        self._is_closed = True
        self.is_subscribed = False
        self._owner.acks.forget(self)
        self._owner.leave(self)
        self._wake()

    async def unsubscribe(self) -> None:
        """End it for good: the broker keeps nothing for it any more."""
        await self._owner.unsubscribe(self.name)
        self.is_subscribed = False
        self._end()

    # Iterating.

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event | Gap:
        item = self.step()
        while item is None:
            if not await self.load():
                raise StopAsyncIteration
            item = self.step()
        return item

    async def next(self, timeout: float | None = None) -> Event | Gap | None:
        """The next event or gap; None when none came in time, or the subscription is closed."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except (TimeoutError, StopAsyncIteration):
            return None

    async def batches(self) -> AsyncIterator[Batch | Gap]:
        """All events of a pubend that came together, as arrays; and gaps."""
        while True:
            item = self.step_batch()
            if item is not None:
                yield item
            elif not await self.load():
                return

    def step(self) -> Event | Gap | None:
        """The next row of what is loaded; all before it is consumed. None when all is handed out."""
        cursor = self._inbox.cursor
        if cursor is None or cursor.out == len(cursor.positions):
            return None
        row = cursor.done = cursor.out
        cursor.out = row + 1
        return Event(self._rows, row) if self._rows is not None else self._gap(cursor)

    def step_batch(self) -> Batch | Gap | None:
        """All rows of what is loaded that were not handed out yet."""
        cursor = self._inbox.cursor
        if cursor is None or cursor.is_finished:
            return None
        first = cursor.done = cursor.out
        cursor.out = len(cursor.positions)
        return Batch(self._rows, first) if self._rows is not None else self._gap(cursor)

    def _gap(self, cursor: InboxCursor) -> Gap:
        piece = cursor.piece
        token = CheckpointToken({**cursor.before, piece.pubend: piece.upto})
        return Gap(piece.pubend, piece.base, piece.upto, piece.reason, token)

    async def load(self) -> bool:
        """Wait until there is something to hand out; what was handed out is consumed. False at the end."""
        if self._waiter is not None:
            raise ClientError("somebody else iterates over this subscription: open another one")
        while True:
            batch = self._inbox.next_batch
            if batch is not None and self._owner.topics.missing(batch):
                await self._owner.topics.fetch(batch)
                continue  # what comes next may be something else by now
            if self._error is not None:
                raise self._error
            if self._is_closed:
                return False
            cursor = self._inbox.take()
            self._consumed()
            if cursor is not None:
                self._rows = EventRows(cursor, self._owner.topics) if cursor.piece.batch is not None else None
                return True
            await self._more()

    def _consumed(self) -> None:
        granted = self._inbox.grant()
        if granted and self.is_subscribed:
            self._owner.link.send(Credit(self.name, granted))
        self._owner.acks.soon(self)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Acknowledging.

    @property
    def checkpoint(self) -> CheckpointToken:
        """All that was handed out, what the application is working on included: store it with your data."""
        return CheckpointToken(self._inbox.handed())

    async def ack(self, upto: object = None, *, sync: bool = False) -> None:
        """All up to an event, gap, batch or token, or all handed out, is consumed and may be let go.

        The broker is told in a moment; with `sync` this returns when the broker has it on disk. A
        subscription that is not durable has nothing to acknowledge: this does nothing then.
        """
        if self._durable is None:
            return
        token = self.token_upto(upto)
        self.acknowledged(token)
        if sync:
            self._check_open()
            await self._owner.acks.commit({self: token}, self._owner.timeout)

    def token_upto(self, upto: object) -> CheckpointToken:
        """The token of having consumed all up to an event, a gap, a batch; None is all handed out."""
        match upto:
            case None:
                return self.checkpoint
            case CheckpointToken():
                return upto
            case Event() | Batch():
                pubend, position = upto.position
                return CheckpointToken({pubend: position})
            case Gap():
                return CheckpointToken({upto.pubend: upto.upto})
        raise ClientError(f"an event, gap, batch or token can be acknowledged, not {type(upto).__name__}")

    def acknowledged(self, token: CheckpointToken) -> None:
        """The application has consumed this."""
        mine = self._acknowledged
        for pubend, tick in token.items():
            mine[pubend] = max(tick, mine.get(pubend, tick))
        self._owner.acks.soon(self)

    def to_acknowledge(self) -> CheckpointToken | None:
        """What can be acknowledged and has not been on this connection."""
        if self._durable is None:
            return None
        known = self._inbox.consumed() if self._mode == "auto" else {}
        # Silence behind a token that the application keeps is not in that token yet: were it acknowledged
        # and let go, the application would be told of a gap when it comes back with the token.
        mine = self._acknowledged if self._is_held else self._inbox.quiet(self._acknowledged)
        for pubend, tick in mine.items():
            known[pubend] = max(tick, known.get(pubend, tick))
        if known == self._told or not known:
            return None
        self._told = known
        return CheckpointToken(known)

    def to_grant(self) -> int:
        """Credit to give, however little."""
        return self._inbox.grant(is_idle=True)

    @property
    def is_busy(self) -> bool:
        """A piece is being handed out row by row: there will be more to acknowledge."""
        cursor = self._inbox.cursor
        return self._mode == "auto" and cursor is not None and cursor.done < len(cursor.positions)

    # From the broker.

    def up(self) -> None:
        """A new connection: subscribe, showing what was consumed."""
        self.is_subscribed = False
        self._told = {}
        if self._durable is None:
            self._owner.leave(self)
            self.name = self._owner.fresh_name()
            self._owner.enter(self)
        token = self._given
        if self._durable is not None and self._was_subscribed:
            token = CheckpointToken(self._inbox.consumed()) or None
        self._stamp = max(self._stamp + 1, time_ns() // 1_000)
        frame = Subscribe(
            self.name,
            self._pattern,
            self._selector,
            self._durable is not None,
            self._inbox.credit,
            token,
            self._stamp,
        )
        self._owner.link.send(frame)

    def down(self) -> None:
        """The connection is lost: what waits can still be consumed."""
        self.is_subscribed = False

    def subscribed(self, frame: Subscribed) -> None:
        """The broker delivers from now on; or a changed selector holds."""
        self.since = self.since.merge(frame.since)
        if self.is_subscribed:
            return
        self._inbox.connected(frame.token, repeats=self._was_subscribed and self._durable is not None)
        self.is_subscribed = self._was_subscribed = True
        self._check_started()
        self._owner.acks.soon(self)
        self._owner.acks.resend()

    def _check_started(self) -> None:
        """It is open once it has started wherever this broker can publish: what comes next is delivered."""
        opened, welcome = self._opened, self._owner.link.welcome
        is_started = welcome is not None and self._inbox.started.issuperset(welcome.pubends)
        if is_started and opened is not None and not opened.done():
            opened.set_result(None)

    def delivered(self, frame: Deliver) -> None:
        """Events, or silence."""
        if self.is_subscribed:
            self._arrived(self._inbox.delivered(frame, missed=self._missed))

    def gap(self, frame: GapFrame) -> None:
        """Something was let go."""
        if self.is_subscribed:
            self._arrived(self._inbox.let_go(frame, missed=self._missed))

    @property
    def _missed(self) -> str:
        return RECONNECTED if self._durable is None else NOT_KEPT

    def _arrived(self, is_new: bool) -> None:
        if self._opened is not None and not self._opened.done():
            self._check_started()
        if is_new:
            self._wake()
        elif self._durable is not None:
            self._owner.acks.soon(self)

    def refused(self, frame: Refused) -> None:
        """The broker will not, or no longer, deliver."""
        self.fail(RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code))

    def fail(self, error: TidemarkError) -> None:
        """Whoever iterates, or waits for the subscription, gets the error."""
        self._error = error
        self.is_subscribed = False
        self._owner.acks.forget(self)
        self._owner.leave(self)
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)
        self._wake()

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClosedError("the subscription is closed: open it again with subscribe(...)")


def check_arguments(
    durable: str | None, checkpoint: CheckpointToken | ServerKept | None, ack: AckMode | None
) -> None:
    """ClientError for what cannot be meant."""
    if durable is None and isinstance(checkpoint, CheckpointToken):
        raise ClientError("a checkpoint needs a durable subscription: give it a name with durable=...")
    if durable is None and ack is not None:
        raise ClientError("only a durable subscription is acknowledged: give it a name with durable=...")
    if durable == "":
        raise ClientError("the name of a durable subscription has at least one character")
    if ack is not None and ack not in ("auto", "client", "transacted"):
        raise ClientError(f'ack is "auto", "client" or "transacted", not {ack!r}')
