"""Outgoing: the events of one publisher on their way to one pubend, numbered, until they are acknowledged.

Events are numbered from 1 without gaps. They gather in an open batch, which is sealed when it can leave; a
sealed batch never changes, so that it is the same when it is sent again and the pubend knows it by its
numbers. No clock and no socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from tidemark.errors import TidemarkError
from tidemark.message.batches.batch import PRIORITY_DEFAULT, BatchBuilder, EventBatch, Shape

#: An open batch is sealed at this size even if it cannot leave yet.
SEAL_BYTES = 1 << 20

#: The tick of an event that was acknowledged together with later ones is not known.
Ticks = list[int | None]


class Promise(Protocol):
    """Where the outcome goes: an asyncio.Future, to those who wait."""

    def done(self) -> bool:
        """Nobody waits any more."""

    def set_result(self, result: Any, /) -> None:
        """The events are on disk, at these ticks."""

    def set_exception(self, exception: TidemarkError, /) -> None:
        """They are not, or nobody knows."""


class Receipt:
    """Consecutive events of one batch whose outcome somebody waits for."""

    __slots__ = ("count", "deadline", "first", "is_single", "promise")

    def __init__(self, promise: Promise, deadline: float, *, is_single: bool) -> None:
        self.promise = promise
        #: when, in the caller's time, waiting ends
        self.deadline = deadline
        #: the promise is of one tick, not of a list
        self.is_single = is_single
        self.first = 0
        self.count = 0

    def settle(self, ticks: Ticks) -> None:
        """The events are on disk."""
        if not self.promise.done():
            self.promise.set_result(ticks[0] if self.is_single else ticks)


class OutgoingBatch:
    """One batch: open, sealed, sent."""

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
        """The number of its last event."""
        return self.first + self.count - 1


class PublisherStream:
    """One publisher's events for one pubend."""

    def __init__(self, publisher: str, pubend: str, first: int = 1, *, is_named: bool = False) -> None:
        self.publisher = publisher
        self.pubend = pubend
        #: named by the application, which numbers events itself and may repeat some from a former life
        self.is_named = is_named
        self.next = first
        #: refusals in a row
        self.refusals = 0
        self.refusal: TidemarkError | None = None
        self._open = OutgoingBatch(first)
        self._sealed: deque[OutgoingBatch] = deque()
        #: how many of the sealed have been sent on this connection
        self._sent = 0
        #: acknowledged in this life
        self._acknowledged = 0

    # In.

    def add(
        self,
        shape: Shape,
        message: bytes,
        receipt: Receipt,
        *,
        key: bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity_ms: int = 0,
    ) -> int:
        """One more event; how many bytes it takes."""
        batch = self._open
        before = batch.builder.size
        batch.builder.add(
            shape, message, publisher=self.publisher, key=key, priority=priority, validity_ms=validity_ms
        )
        self._receive(receipt, 1)
        size = batch.builder.size - before
        batch.bytes += size
        if batch.bytes >= SEAL_BYTES:
            self.seal()
        return size

    def add_batch(self, batch: EventBatch, receipt: Receipt) -> int:
        """A batch that is ready as it is."""
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
        """The number that the open batch starts with: a receipt is for events of one batch."""
        return self._open.first

    def seal(self) -> None:
        """What has gathered becomes a batch that can be sent."""
        batch = self._open
        if batch.count:
            if batch.batch is None:
                batch.batch = batch.builder.build()
            self._sealed.append(batch)
            self._open = OutgoingBatch(self.next)

    # Out.

    def unsent(self) -> Iterator[tuple[int, EventBatch]]:
        """Sequence number and batch of each that can be sent now; taking one counts as sending it."""
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
        """All that is not acknowledged will be sent again."""
        self._sent = 0

    @property
    def is_empty(self) -> bool:
        """Everything is acknowledged."""
        return not self._sealed and not self._open.count

    # Outcomes.

    def published(self, sequence: int, tick: int) -> int:
        """All up to `sequence` is on disk, the last at `tick`; how many bytes that frees."""
        freed = 0
        self.refusals, self.refusal = 0, None
        while self._sealed and self._sealed[0].last <= sequence:
            outgoing = self._sealed.popleft()
            self._sent = max(0, self._sent - 1)
            freed += outgoing.bytes
            for receipt in outgoing.receipts:
                receipt.settle(self._ticks(outgoing, receipt, sequence, tick))
        self._acknowledged = max(self._acknowledged, sequence)
        return freed

    def _ticks(self, outgoing: OutgoingBatch, receipt: Receipt, sequence: int, tick: int) -> Ticks:
        """A batch gets consecutive ticks, so its last tells all; unless a part is from a former life."""
        end = receipt.first + receipt.count
        if outgoing.last != sequence:
            return [None] * receipt.count
        if self.is_named and not self._acknowledged:
            return [tick if number == sequence else None for number in range(receipt.first, end)]
        return [tick - (sequence - number) for number in range(receipt.first, end)]

    def overdue(self, now: float) -> Iterator[Receipt]:
        """Receipts whose time is over and which nobody has settled."""
        for receipt in self._waiting():
            if receipt.deadline <= now:
                yield receipt

    def deadline(self) -> float | None:
        """When the next receipt's time is over."""
        return min((receipt.deadline for receipt in self._waiting()), default=None)

    def _waiting(self) -> Iterator[Receipt]:
        for outgoing in (*self._sealed, self._open):
            for receipt in outgoing.receipts:
                if not receipt.promise.done():
                    yield receipt

    def abandon(self, error: TidemarkError | None) -> int:
        """Nothing of this will be sent again; how many bytes that frees."""
        freed = self._open.bytes + sum(outgoing.bytes for outgoing in self._sealed)
        for receipt in list(self._waiting()):
            if error is not None:
                receipt.promise.set_exception(error)
        self._sealed.clear()
        self._sent = 0
        self._open = OutgoingBatch(self.next)
        return freed
