"""Load: the events that system benchmarks publish, and which of them each subscriber must get.

Event `n` of a run has 250 bytes and a kind that depends on `n` alone. So a batch of any size is filled by a
few array operations, and the events that a selector should pass can be computed instead of stored.
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
#: Bytes of a row of a batch: the prelude of the event and its message.
ROW_BYTES = PRELUDE.size + MESSAGE_BYTES
#: The sequence of kinds is random and repeats after this many events.
PERIOD_EVENTS = 1_000
#: What a subscriber wants: events of one kind, or (None) all events.
Kind = int | None

#: Offsets of these fields in a row.
_N, _SENT, _KIND = PRELUDE.size, PRELUDE.size + 8, PRELUDE.size + 16


@dataclass(frozen=True, slots=True)
class Expected:
    """What a subscriber gets: the number of events, the sum of their numbers, and the sum of the squares."""

    count: int
    total: int
    squares: int


@dataclass(frozen=True, slots=True)
class Load:
    """Events whose kinds are 0 to `kinds` - 1, equally often."""

    kinds: int = 4

    def kinds_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """numbers[event] -> kind[event]."""
        return _pattern(self.kinds)[numbers % PERIOD_EVENTS]

    def kinds_between(self, first: int, last: int) -> NDArray[np.int32]:
        """Returns the kinds of the events `first <= n < last`."""
        return self.kinds_of(np.arange(first, last))

    def event(self, number: int, sent: int = 0) -> dict[str, Any]:
        """Returns one event as an application would publish it."""
        kind = int(self.kinds_of(np.array([number]))[0])
        return {"n": number, "kind": kind, "sent": sent, "payload": PAYLOAD}

    def expected(self, kind: Kind, first: int, last: int) -> Expected:
        """Returns what a subscriber of `kind` gets of the events `first <= n < last`."""
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
    """Makes batches of one size of consecutive events."""

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
        """Returns a batch of the events from number `first` on."""
        template = self._template
        batch = EventBatch(bytearray(template.data), template.shapes, template.publishers)
        numbers = np.arange(first, first + self.events)
        column(batch, _N, "<i8")[:] = numbers
        column(batch, _KIND, "<i4")[:] = self._load.kinds_of(numbers)
        return batch


def column(batch: EventBatch, offset: int, dtype: str) -> NDArray[Any]:
    """Returns a view of one field of every row; all rows have one size."""
    assert len(batch.body) == batch.count * ROW_BYTES
    return np.ndarray((batch.count,), dtype, batch.body.data, offset, (ROW_BYTES,))


def numbers_of(batch: EventBatch) -> NDArray[np.int64]:
    """n[row]"""
    return column(batch, _N, "<i8")


def sent_in(batch: EventBatch) -> NDArray[np.int64]:
    """sent[row]"""
    return column(batch, _SENT, "<i8")


def kinds_in(batch: EventBatch) -> NDArray[np.int32]:
    """kind[row]"""
    return column(batch, _KIND, "<i4")


def payloads(batch: EventBatch) -> NDArray[np.uint8]:
    """payload[row, byte]; the last bytes of a row."""
    return batch.body.reshape(batch.count, ROW_BYTES)[:, -len(PAYLOAD) :]


def squares(numbers: NDArray[np.int64]) -> int:
    """Returns the sum of the squares, modulo 2**64."""
    return int(np.dot(numbers, numbers))


def selector(kind: Kind) -> str:
    """Returns the selector of a subscriber that wants this kind."""
    return "kind >= 0" if kind is None else f"kind = {kind}"
