"""Outgoing: the events of one publisher on their way to one pubend, numbered, until they are acknowledged.

Events are numbered from 1 without gaps. They gather in an open batch, which is sealed when it can leave. A
sealed batch never changes, so that the pubend recognises it by its numbers when it is sent again. This module
knows no clock and no socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from tidemark.errors import TidemarkError
from tidemark.message.batches.batch import PRIORITY_DEFAULT, BatchBuilder, EventBatch, Shape
from tidemark.message.batches.trace_context import with_traceparent

#: An open batch is sealed at this size even if it cannot leave yet.
SEAL_BYTES = 1 << 20
#: ... or with so many shapes, or trace contexts: a broker takes only so much that one batch names.
SEAL_SHAPES = 512
SEAL_TRACES = 256

#: The ticks of events, in their order. None: the event was acknowledged together with later ones, and its own
#: tick is not known.
Ticks = list[int | None]


class Promise(Protocol):
    """Where the outcome of a call goes: an asyncio.Future."""

    def done(self) -> bool:
        """The caller has an outcome already, or does not wait any more."""

    def set_result(self, result: Any, /) -> None:
        """The events are on disk, at these ticks."""

    def set_exception(self, exception: TidemarkError, /) -> None:
        """The events are not on disk, or it is not known whether they are."""


class Receipt:
    """Consecutive events of one batch whose outcome one caller waits for."""

    __slots__ = ("count", "deadline", "first", "is_single", "promise", "wants_ticks")

    def __init__(
        self, promise: Promise, deadline: float, *, is_single: bool, wants_ticks: bool = True
    ) -> None:
        self.promise = promise
        #: when waiting ends, on the caller's clock
        self.deadline = deadline
        #: the promise is for one tick, not for a list of ticks
        self.is_single = is_single
        #: without this the promise is for an empty list
        self.wants_ticks = wants_ticks
        self.first = 0
        self.count = 0

    def settle(self, ticks: Ticks) -> None:
        """The events are on disk, at `ticks`."""
        if not self.promise.done():
            self.promise.set_result(ticks[0] if self.is_single else ticks)

    def settle_one(self, tick: int | None) -> None:
        """The only event, whose promise is for one tick, is on disk at `tick`."""
        if not self.promise.done():
            self.promise.set_result(tick)


class OutgoingBatch:
    """One batch: open while events are added, then sealed, then sent."""

    __slots__ = ("batch", "builder", "bytes", "count", "first", "receipts")

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        self.bytes = 0
        self.builder = BatchBuilder()
        self.batch: EventBatch | None = None
        self.receipts: list[Receipt] = []

    @property
    def last(self) -> int:
        """The number of the last event in this batch."""
        return self.first + self.count - 1


class PublisherStream:
    """The events of one publisher for one pubend."""

    def __init__(self, publisher: str, pubend: str, first: int = 1, *, is_named: bool = False) -> None:
        self.publisher = publisher
        #: a publisher that moves goes on at another one; only `PublisherPlace` changes it
        self.pubend = pubend
        #: the application named the publisher and numbers its events; it may repeat events of an earlier run
        self.is_named = is_named
        #: the number of the next event
        self.next = first
        #: how often a sequence number was refused, in a row
        self.refusals = 0
        #: why the broker does not take batches just now
        self.refusal: TidemarkError | None = None
        self._open = OutgoingBatch(first)
        self._sealed: deque[OutgoingBatch] = deque()
        #: how many of the sealed batches have been sent on this connection
        self._sent = 0
        #: the last number that was acknowledged to this stream; 0 if none was
        self._acknowledged = 0

    # Adding.

    def add(
        self,
        shape: Shape,
        message: bytes,
        receipt: Receipt,
        *,
        key: bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity_ms: int = 0,
        traceparent: str = "",
    ) -> int:
        """Add an event; return the number of bytes that it takes."""
        batch = self._open
        before = batch.builder.size
        publisher = with_traceparent(self.publisher, traceparent) if traceparent else self.publisher
        batch.builder.add(
            shape, message, publisher=publisher, key=key, priority=priority, validity_ms=validity_ms
        )
        self._receive(receipt, 1)
        size = batch.builder.size - before
        batch.bytes += size
        shapes, publishers = batch.builder.shapes, batch.builder.publishers
        if batch.bytes >= SEAL_BYTES or len(shapes) >= SEAL_SHAPES or len(publishers) >= SEAL_TRACES:
            self.seal()
        return size

    def add_batch(self, batch: EventBatch, receipt: Receipt) -> int:
        """Add a batch that is sent as it is; return the number of bytes that it takes."""
        self.seal()
        self._receive(receipt, batch.count)
        self._open.batch = batch
        size = self._open.bytes = len(batch.body)
        self.seal()
        return size

    def _receive(self, receipt: Receipt, count: int) -> None:
        receipts = self._open.receipts
        if not receipts or receipts[-1] is not receipt:
            receipt.first = self.next
            receipts.append(receipt)
        receipt.count += count
        self._open.count += count
        self.next += count

    @property
    def opened(self) -> int:
        """The number of the first event of the open batch. (A receipt is for events of one batch.)"""
        return self._open.first

    def seal(self) -> None:
        """Seal the open batch, if it has events, and open another one."""
        batch = self._open
        if batch.count:
            if batch.batch is None:
                batch.batch = batch.builder.build()
            self._sealed.append(batch)
            self._open = OutgoingBatch(self.next)

    # Sending.

    def unsent(self) -> Iterator[tuple[int, EventBatch]]:
        """The first number, and the batch, of each batch to send; taking one counts as sending it."""
        while True:
            if self._sent == len(self._sealed):
                self.seal()
            if self._sent == len(self._sealed):
                return
            outgoing = self._sealed[self._sent]
            self._sent += 1
            assert outgoing.batch is not None
            yield outgoing.first, outgoing.batch

    def rewind(self) -> None:
        """`unsent` begins again with the first batch that is not acknowledged."""
        self._sent = 0

    @property
    def is_empty(self) -> bool:
        """Everything is acknowledged."""
        return not self._sealed and not self._open.count

    # Outcomes.

    @property
    def acknowledged(self) -> int:
        """The last number that was acknowledged to this stream; 0 if none was."""
        return self._acknowledged

    def published(self, sequence: int, tick: int | None) -> int:
        """Everything up to `sequence` is on disk, the last event at `tick`; return the bytes this frees.

        `tick` is None if it is not known.
        """
        freed = 0
        self.refusals, self.refusal = 0, None
        while self._sealed and self._sealed[0].last <= sequence:
            outgoing = self._sealed.popleft()
            self._sent = max(0, self._sent - 1)
            freed += outgoing.bytes
            if outgoing.count == 1 and outgoing.last == sequence and outgoing.receipts[0].is_single:
                outgoing.receipts[0].settle_one(tick)
                continue
            for receipt in outgoing.receipts:
                receipt.settle(self._ticks(outgoing, receipt, sequence, tick))
        self._acknowledged = max(self._acknowledged, sequence)
        return freed

    def _ticks(self, outgoing: OutgoingBatch, receipt: Receipt, sequence: int, tick: int | None) -> Ticks:
        """The ticks of the events of `receipt`, as far as they are known from the last one's.

        A pubend gives consecutive ticks to a batch, so the last tick tells all of them. The exception is the
        first batch of a named publisher, a part of which an earlier run may have published.
        """
        if not receipt.wants_ticks:
            return []
        end = receipt.first + receipt.count
        if outgoing.last != sequence or tick is None:
            return [None] * receipt.count
        if self.is_named and not self._acknowledged:
            return [tick if number == sequence else None for number in range(receipt.first, end)]
        first = tick - (sequence - receipt.first)
        return list(range(first, first + receipt.count))

    def overdue(self, now: float) -> Iterator[Receipt]:
        """Receipts whose deadline has passed and which have no outcome."""
        for receipt in self._waiting():
            if receipt.deadline <= now:
                yield receipt

    def deadline(self) -> float | None:
        """The earliest deadline of a receipt without an outcome; None if there is none."""
        return min((receipt.deadline for receipt in self._waiting()), default=None)

    def _waiting(self) -> Iterator[Receipt]:
        for outgoing in (*self._sealed, self._open):
            for receipt in outgoing.receipts:
                if not receipt.promise.done():
                    yield receipt

    def abandon(self, error: TidemarkError | None) -> int:
        """Send nothing of this any more; callers that wait get `error`. Return how many bytes that frees."""
        freed = self._open.bytes + sum(outgoing.bytes for outgoing in self._sealed)
        for receipt in list(self._waiting()):
            if error is not None:
                receipt.promise.set_exception(error)
        self._sealed.clear()
        self._sent = 0
        self._open = OutgoingBatch(self.next)
        return freed
