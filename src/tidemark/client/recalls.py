"""Recalls: history that a broker asks back from the archive. For Tidemark's own pipeline only.

A client that has offered to answer gets a recall for every subscriber that needs events older than those that
pubends still hold. It answers in parts, in the order of the ticks and without holes, and never has more bytes
of events under way than the broker has granted: `answer` waits for credit. All recalls end with the
connection; the broker makes them again on the next one, from where its subscribers really are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from tidemark.client.connecting.link import Link
from tidemark.client.wakeup import Wakeup
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import Range
from tidemark.wire.frames import Line, Offer, Recalled, RecallMore, RecallOver
from tidemark.wire.frames import Recall as RecallFrame


class IncomingRecall:
    """What one subscriber wants of `(base, upto]` of a pubend; everything up to `position` is answered."""

    def __init__(self, owner: IncomingRecalls, frame: RecallFrame) -> None:
        self._owner = owner
        self._ticket = frame.ticket
        self.pubend = frame.pubend
        self.upto = frame.upto
        self.lines: tuple[Line, ...] = frame.lines
        self.position = frame.base
        #: the broker waits for no more: the recall is answered, was given up, or the connection is lost
        self.is_over = False
        self._credit = frame.credit
        #: bytes of events that may be sent now; negative after a part that was larger than the credit
        self._room = frame.credit
        self._wakeup = Wakeup()

    @property
    def is_idle(self) -> bool:
        """The subscriber has taken everything that was sent."""
        return self._room >= self._credit

    def has_room(self, size: int) -> bool:
        """May so many bytes of events be sent now? A part that is larger than all credit is sent alone."""
        return size <= self._room or self.is_idle

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        """Send all there is in `(position, upto]`, once it may be sent; False if the recall is over.

        `batch` has the events; the ranges `gone` are lost, all else is silence.
        """
        assert self.position < upto <= self.upto
        size = 0 if batch is None else len(batch.body)
        while not self.is_over and not self.has_room(size):
            await self.granted()
        await self._owner.writable()
        if self.is_over:
            self._owner.writing()  # the turn at the socket goes to the next one
            return False
        self._room -= size
        self._owner.send(Recalled(self._ticket, self.position, upto, batch, tuple(gone)))
        self.position = upto
        if upto == self.upto:
            self.is_over = True
            self._owner.forget(self._ticket)
        return True

    async def granted(self) -> None:
        """Return when more may be sent, or the recall is over."""
        if not self.is_over:
            await self._wakeup.wait()

    def more(self, size: int) -> None:
        """The broker has granted more."""
        self._room += size
        self._wakeup.wake()

    def end(self) -> None:
        """The recall is over."""
        self.is_over = True
        self._wakeup.wake()


class IncomingRecalls:
    """The recalls of one client, as they arrive: iterate, and answer each of them."""

    def __init__(self, link: Link, recalls_max: int) -> None:
        self._link = link
        self._recalls_max = recalls_max
        self._under_way: dict[int, IncomingRecall] = {}
        #: recalls that were not iterated over yet; the broker sends at most `recalls_max`
        self._new: deque[IncomingRecall] = deque()
        self._wakeup = Wakeup()
        #: calls of `writable` that wait for the socket, served one after the other
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def __aiter__(self) -> IncomingRecalls:
        return self

    async def __anext__(self) -> IncomingRecall:
        """The next recall that is not over; the iteration ends when the client is closed."""
        while not self._is_closed:
            while self._new:
                recall = self._new.popleft()
                if not recall.is_over:
                    return recall
            await self._wakeup.wait()
        raise StopAsyncIteration

    # What a recall needs.

    def send(self, frame: Recalled) -> None:
        """Send a part; the next call of `writable` returns if the socket takes more."""
        self._link.send(frame)
        self.writing()

    async def writable(self) -> None:
        """Return when a frame that is sent would leave at once, or no broker is connected."""
        while self._link.is_up and self._link.is_congested:
            waiter = asyncio.get_running_loop().create_future()
            self._queue.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.writing()
                raise

    def forget(self, ticket: int) -> None:
        """A recall is answered completely."""
        self._under_way.pop(ticket, None)

    # From the link.

    def up(self) -> None:
        """A new connection: offer to answer recalls."""
        self._link.send(Offer(self._recalls_max))

    def down(self) -> None:
        """The connection is lost, and all recalls with it."""
        under_way, self._under_way = self._under_way, {}
        for recall in under_way.values():
            recall.end()
        while self._queue:
            self._release()

    def close(self) -> None:
        """The client is closed: the iteration ends."""
        self._is_closed = True
        self.down()
        self._wakeup.wake()

    def recall(self, frame: RecallFrame) -> None:
        """The broker recalls a part of a pubend."""
        recall = self._under_way[frame.ticket] = IncomingRecall(self, frame)
        self._new.append(recall)
        self._wakeup.wake()

    def more(self, frame: RecallMore) -> None:
        """The broker grants more credit to a recall."""
        recall = self._under_way.get(frame.ticket)
        if recall is not None:
            recall.more(frame.bytes)

    def over(self, frame: RecallOver) -> None:
        """The broker needs no more of a recall."""
        recall = self._under_way.pop(frame.ticket, None)
        if recall is not None:
            recall.end()

    def writing(self) -> None:
        """The socket takes more: the call of `writable` that has waited longest returns."""
        if self._queue and not self._link.is_congested:
            self._release()

    def _release(self) -> None:
        waiter = self._queue.popleft()
        if not waiter.done():
            waiter.set_result(None)
        elif self._queue:
            self.writing()
