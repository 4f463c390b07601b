"""What an event log writes into its streams.

    events := kind u8 | 0 u8 | name bytes u16 | 0 u32 | sequence i64 | name, padded to 8 bytes | event batch
    resume := kind u8 | zeros; its mark says up to which tick whatever was here is lost
    marks  := lease i64 | lost i64

The publisher's name is left out where it is the first in the batch's own dictionary, as it usually is.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidemark.message.batches.batch import Buffer, EventBatch
from tidemark.ticks.tick import Tick

_EVENTS, _EVENTS_OF_FIRST, _RESUME = 1, 2, 3
_PREFIX = Struct("<BBHIq")
_MARKS = Struct("<qq")


class PublishedBatch(NamedTuple):
    """A batch as it was published: its first event has this sequence number."""

    batch: EventBatch
    publisher: str
    sequence: int


class Marks(NamedTuple):
    """Ticks up to `lease` may have been advertised; those up to `lost` are L."""

    lease: Tick
    lost: Tick


def encode_events(batch: EventBatch, publisher: str, sequence: int) -> list[Buffer]:
    """The pieces of a record; the batch's own bytes are one of them."""
    if batch.publishers[:1] == (publisher,):
        return [_PREFIX.pack(_EVENTS_OF_FIRST, 0, 0, 0, sequence), batch.data]
    name = publisher.encode()
    prefix = _PREFIX.pack(_EVENTS, 0, len(name), 0, sequence)
    return [prefix, name + bytes(-len(name) % 8), batch.data]


def encode_resume() -> list[Buffer]:
    """A record without events."""
    return [_PREFIX.pack(_RESUME, 0, 0, 0, 0)]


def decode_events(payload: bytes | memoryview) -> PublishedBatch | None:
    """What was published, or None for a record without events."""
    data = memoryview(payload)
    kind, _, length, _, sequence = _PREFIX.unpack_from(data)
    if kind == _RESUME:
        return None
    start = _PREFIX.size + length + -length % 8
    batch = EventBatch.parse(data[start:])
    if kind == _EVENTS_OF_FIRST:
        return PublishedBatch(batch, batch.publishers[0], sequence)
    assert kind == _EVENTS
    return PublishedBatch(batch, str(data[_PREFIX.size : _PREFIX.size + length], "utf-8"), sequence)


def encode_marks(marks: Marks) -> list[Buffer]:
    """The pieces of a record."""
    return [_MARKS.pack(*marks)]


def decode_marks(payload: bytes | memoryview) -> Marks:
    """What was marked."""
    return Marks(*_MARKS.unpack(payload))
