"""Recalls: history that a broker asks back from the archive, for those who keep one. For pipelines only.

A client that has offered to answer gets a recall for every subscriber that comes from beyond what pubends
still hold. It answers in parts, in the order of the ticks and without holes, and never has more bytes of
events under way than the broker has granted: `answer` waits for that. All recalls end with the connection;
the broker makes them again on the next one, from where its subscribers really are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from tidemark.client.connecting.link import Link
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.frames import Line, Offer, Range, Recalled, RecallMore, RecallOver
from tidemark.wire.frames import Recall as RecallFrame


class IncomingRecall:
    """What one subscriber wants of `(base, upto]` of a pubend. `position` is answered up to."""

    def __init__(self, owner: IncomingRecalls, frame: RecallFrame) -> None:
        self._owner = owner
        self._ticket = frame.ticket
        self.pubend = frame.pubend
        self.upto = frame.upto
        self.lines: tuple[Line, ...] = frame.lines
        self.position = frame.base
        #: nobody waits for the rest: it is answered, was given up, or the connection is gone
        self.is_over = False
        self._credit = frame.credit
        #: bytes of events that may be sent now; below 0 after a part that was larger than the credit
        self._room = frame.credit
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Everything that was sent has been taken."""
        return self._room >= self._credit

    def has_room(self, size: int) -> bool:
        """May so many bytes of events be sent now? What is larger than all credit goes alone."""
        return size <= self._room or self.is_idle

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        """All there is in `(position, upto]`, once it may be sent; False if nobody wants it any more."""
        assert self.position < upto <= self.upto
        size = 0 if batch is None else len(batch.body)
        while not self.is_over and not self.has_room(size):
            await self.granted()
        await self._owner.writable()
        if self.is_over:
            self._owner.writing()  # whose turn it was
            return False
        self._room -= size
        self._owner.send(Recalled(self._ticket, self.position, upto, batch, tuple(gone)))
        self.position = upto
        if upto == self.upto:
            self.is_over = True
            self._owner.forget(self._ticket)
        return True

    async def granted(self) -> None:
        """Return when more may be sent, or nobody waits any more."""
        assert self._waiter is None, "one task answers a recall"
        if self.is_over:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def more(self, size: int) -> None:
        """The broker has granted more."""
        self._room += size
        self._wake()

    def end(self) -> None:
        """Nobody waits any more."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class IncomingRecalls:
    """The recalls of one client, as they come: iterate, and answer each."""

    def __init__(self, link: Link, recalls_max: int) -> None:
        self._link = link
        self._recalls_max = recalls_max
        self._under_way: dict[int, IncomingRecall] = {}
        #: bounded by `recalls_max`, to which the broker holds
        self._new: deque[IncomingRecall] = deque()
        self._waiter: asyncio.Future[None] | None = None
        #: those that wait for the socket, one after the other
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def __aiter__(self) -> IncomingRecalls:
        return self

    async def __anext__(self) -> IncomingRecall:
        """The next recall that somebody waits for; it ends when the client is closed."""
        while not self._is_closed:
            while self._new:
                recall = self._new.popleft()
                if not recall.is_over:
                    return recall
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        raise StopAsyncIteration

    # What a recall needs.

    def send(self, frame: Recalled) -> None:
        """Send a part; whoever waits for the socket may go on if there is room."""
        self._link.send(frame)
        self.writing()

    async def writable(self) -> None:
        """Return when what is sent would leave at once, or nobody is there."""
        while self._link.is_up and self._link.is_congested:
            waiter = asyncio.get_running_loop().create_future()
            self._queue.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.writing()
                raise

    def forget(self, ticket: int) -> None:
        """A recall is answered."""
        self._under_way.pop(ticket, None)

    # From the link.

    def up(self) -> None:
        """A connection is there: offer."""
        self._link.send(Offer(self._recalls_max))

    def down(self) -> None:
        """The connection is gone, and all recalls with it."""
        under_way, self._under_way = self._under_way, {}
        for recall in under_way.values():
            recall.end()
        while self._queue:
            self._release()

    def close(self) -> None:
        """No more will come."""
        self._is_closed = True
        self.down()
        self._wake()

    def recall(self, frame: RecallFrame) -> None:
        """A broker asks."""
        recall = self._under_way[frame.ticket] = IncomingRecall(self, frame)
        self._new.append(recall)
        self._wake()

    def more(self, frame: RecallMore) -> None:
        """A broker can take more."""
        recall = self._under_way.get(frame.ticket)
        if recall is not None:
            recall.more(frame.bytes)

    def over(self, frame: RecallOver) -> None:
        """A broker does not need the rest."""
        recall = self._under_way.pop(frame.ticket, None)
        if recall is not None:
            recall.end()

    def writing(self) -> None:
        """The socket takes more: the next one may go on, and then the one after it."""
        if self._queue and not self._link.is_congested:
            self._release()

    def _release(self) -> None:
        waiter = self._queue.popleft()
        if not waiter.done():
            waiter.set_result(None)
        elif self._queue:
            self.writing()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
