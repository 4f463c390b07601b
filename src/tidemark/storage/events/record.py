"""The records that an event log writes into its streams.

    events := kind u8 | 0 u8 | name bytes u16 | row bytes u32 | sequence i64 | name, padded to 8 bytes | batch
    resume := kind u8 | zeros; ticks up to its mark that have no event are lost
    moved  := kind u8 | 0 u8 | name bytes u16 | pubend bytes u32 | sequence i64 | tick i64 | move i64 | name |
              pubend | owner; a publisher left for the pubend, or came to this one if there is none, or has
              got an owner, if the number of the move is that of before
    marks  := lease i64 | lost i64 | expired i64; the last is missing in marks of earlier versions

The publisher's name is left out if it is the first in the batch's own dictionary, as it usually is. The batch
is in its compact form (`message.batches.compact`), whose last tick is the mark of the record: without ticks,
and without the ends of rows that all have the same size (`row bytes`). Records of versions before 0.2.0, and
those of batches whose ticks do not count up one by one, have the whole batch.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidemark.errors import UnknownFormatError
from tidemark.message.batches.batch import Buffer, EventBatch
from tidemark.message.batches.compact import compacted, restored
from tidemark.message.publisher_names import PublisherMove
from tidemark.ticks.tick import TICK_MIN, Tick

_EVENTS, _EVENTS_OF_FIRST, _RESUME, _MOVED, _COUNTED, _COUNTED_OF_FIRST = 1, 2, 3, 4, 5, 6
_PREFIX = Struct("<BBHIq")
_MOVE = Struct("<qq")
_MARKS = Struct("<qqq")
_MARKS_BEFORE = Struct("<qq")


class PublishedBatch(NamedTuple):
    """A batch as it was published; `sequence` is the number of its first event."""

    batch: EventBatch
    publisher: str
    sequence: int


class MovedPublisher(NamedTuple):
    """A publisher left, came or got an owner; its last event has this number, and this tick if it is here."""

    publisher: str
    sequence: int
    tick: Tick
    move: PublisherMove


class Marks(NamedTuple):
    """Ticks up to `lease` may have been advertised as silence; ticks up to `lost` are L.

    Ticks beyond that up to `expired` had events that have all expired, and are silence.
    """

    lease: Tick
    lost: Tick
    expired: Tick


def encode_events(batch: EventBatch, publisher: str, sequence: int) -> list[Buffer]:
    """Returns the pieces of a record with events; views of the batch's own bytes are among them."""
    is_of_first = batch.publishers[:1] == (publisher,)
    name = b"" if is_of_first else publisher.encode()
    compact = compacted(batch)
    if compact is None:
        kind, parts, width = _EVENTS_OF_FIRST if is_of_first else _EVENTS, [batch.data], 0
    else:
        kind = _COUNTED_OF_FIRST if is_of_first else _COUNTED
        parts, width = compact
    prefix = _PREFIX.pack(kind, 0, len(name), width, sequence)
    return [prefix + name + bytes(-len(name) % 8), *parts]


def encode_resume() -> list[Buffer]:
    """Returns the pieces of a record without events, which follows lost ones."""
    return [_PREFIX.pack(_RESUME, 0, 0, 0, 0)]


def encode_moved(moved: MovedPublisher) -> list[Buffer]:
    """Returns the pieces of a record without events: that a publisher left or came, and whose it is."""
    name, to = moved.publisher.encode(), moved.move.to.encode()
    prefix = _PREFIX.pack(_MOVED, 0, len(name), len(to), moved.sequence)
    return [prefix + _MOVE.pack(moved.tick, moved.move.number) + name + to + moved.move.owner.encode()]


def decode_moved(payload: bytes | memoryview) -> MovedPublisher | None:
    """Returns which publisher left, came or got an owner; None for any other record."""
    data = bytes(payload)
    kind, _, length, to_length, sequence = _PREFIX.unpack_from(data)
    if kind != _MOVED:
        return None
    tick, number = _MOVE.unpack_from(data, _PREFIX.size)
    start = _PREFIX.size + _MOVE.size
    end = start + length + to_length
    name, to, owner = data[start : start + length], data[start + length : end], data[end:]
    move = PublisherMove(number, to.decode(), owner.decode())
    return MovedPublisher(name.decode(), sequence, tick, move)


def decode_events(payload: bytes | memoryview, mark: Tick) -> PublishedBatch | None:
    """Returns what was published in a record with this mark; None for a record without events.

    Raises UnknownFormatError for a record of a later version.
    """
    data = memoryview(payload)
    kind, _, length, width, sequence = _PREFIX.unpack_from(data)
    if kind in (_RESUME, _MOVED):
        return None
    start = _PREFIX.size + length + -length % 8
    if kind in (_EVENTS, _EVENTS_OF_FIRST):
        batch = EventBatch.trusted(data[start:])
    elif kind in (_COUNTED, _COUNTED_OF_FIRST):
        batch = restored(data[start:], mark, width)
    else:
        reason = f"a record of events of kind {kind}, which a later version wrote; start that version"
        raise UnknownFormatError(reason, path="")
    if kind in (_EVENTS_OF_FIRST, _COUNTED_OF_FIRST):
        return PublishedBatch(batch, batch.publishers[0], sequence)
    return PublishedBatch(batch, str(data[_PREFIX.size : _PREFIX.size + length], "utf-8"), sequence)


def encode_marks(marks: Marks) -> list[Buffer]:
    """Returns the pieces of a record with marks."""
    return [_MARKS.pack(*marks)]


def decode_marks(payload: bytes | memoryview) -> Marks:
    """Returns the marks of a record."""
    if len(payload) == _MARKS_BEFORE.size:
        lease, lost = _MARKS_BEFORE.unpack(payload)
        return Marks(lease, lost, TICK_MIN)
    return Marks(*_MARKS.unpack(payload))
