"""Load: the events that system benches publish, and what each subscriber must get of them.

Event `n` of a run has 250 bytes and a kind that follows from `n` alone. So a batch of any size is laid out at
once, and what a selector should have let through is known without keeping it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.message.batches.batch import PRELUDE, BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema

TOPIC = "bench.load"
SCHEMA = Schema.parse("[n: long, sent: long, kind: int, payload: bytes]")
MESSAGE_BYTES = 250
PAYLOAD = bytes(range(256))[: MESSAGE_BYTES - 28]
#: A row of a batch: what every event has besides its message goes before it.
ROW_BYTES = PRELUDE.size + MESSAGE_BYTES
#: Kinds repeat after this many events, in an order without a pattern of its own.
PERIOD_EVENTS = 1_000
#: Anything a subscriber can want: events of one kind, or (None) all.
Kind = int | None

#: Where these fields are in a row.
_N, _KIND = PRELUDE.size, PRELUDE.size + 16


@dataclass(frozen=True, slots=True)
class Expected:
    """What a subscriber gets: how many events, and the sums of their numbers and of the squares of those."""

    count: int
    total: int
    squares: int


@dataclass(frozen=True, slots=True)
class Load:
    """Events whose kinds are 0 to `kinds` - 1, each as often as the others."""

    kinds: int = 4

    def kinds_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """numbers[event] -> kind[event]."""
        return _pattern(self.kinds)[numbers % PERIOD_EVENTS]

    def kinds_between(self, first: int, last: int) -> NDArray[np.int32]:
        """Of the events `first <= n < last`."""
        return self.kinds_of(np.arange(first, last))

    def event(self, number: int, sent: int = 0) -> dict[str, Any]:
        """One event as an application gives it."""
        kind = int(self.kinds_of(np.array([number]))[0])
        return {"n": number, "kind": kind, "sent": sent, "payload": PAYLOAD}

    def expected(self, kind: Kind, first: int, last: int) -> Expected:
        """What is wanted of the events `first <= n < last`."""
        numbers = np.arange(first, last, dtype=np.int64)
        if kind is not None:
            numbers = numbers[self.kinds_of(numbers) == kind]
        return Expected(len(numbers), int(numbers.sum()), squares(numbers))


@cache
def _pattern(kinds: int) -> NDArray[np.int32]:
    pattern = [at % kinds for at in range(PERIOD_EVENTS)]
    Random(kinds).shuffle(pattern)
    return np.array(pattern, np.int32)


class Batches:
    """Batches of one size, of consecutive events."""

    def __init__(self, load: Load, events: int, topic: str = TOPIC) -> None:
        builder = BatchBuilder()
        for number in range(events):
            message = SCHEMA.encode(load.event(number))
            assert len(message) == MESSAGE_BYTES
            builder.add(Shape(topic, SCHEMA.fingerprint), message)
        self.events = events
        self._load = load
        self._template = builder.build()

    def batch(self, first: int) -> EventBatch:
        """The events from number `first` on."""
        template = self._template
        batch = EventBatch(bytearray(template.data), template.shapes, template.publishers)
        numbers = np.arange(first, first + self.events)
        column(batch, _N, "<i8")[:] = numbers
        column(batch, _KIND, "<i4")[:] = self._load.kinds_of(numbers)
        return batch


def column(batch: EventBatch, offset: int, dtype: str) -> NDArray[Any]:
    """A field at the same place of every row, which are all of one size here."""
    assert len(batch.body) == batch.count * ROW_BYTES
    return np.ndarray((batch.count,), dtype, batch.body.data, offset, (ROW_BYTES,))


def numbers_of(batch: EventBatch) -> NDArray[np.int64]:
    """n[row]"""
    return column(batch, _N, "<i8")


def kinds_in(batch: EventBatch) -> NDArray[np.int32]:
    """kind[row]"""
    return column(batch, _KIND, "<i4")


def payloads(batch: EventBatch) -> NDArray[np.uint8]:
    """payload[row, byte]; the last bytes of a row."""
    return batch.body.reshape(batch.count, ROW_BYTES)[:, -len(PAYLOAD) :]


def squares(numbers: NDArray[np.int64]) -> int:
    """The sum of the squares, as far as 64 bits hold it."""
    return int(np.dot(numbers, numbers))


def selector(kind: Kind) -> str:
    """The selector of those who want this kind."""
    return "kind >= 0" if kind is None else f"kind = {kind}"
