"""The event batch: many events in one contiguous buffer (docs/messages.md).

    header | ticks int64[n] | ends uint32[n] | body

    header := "TMB1" | count u32 | dictionary bytes u32 | body bytes u32 | dictionary, padded to 8 bytes
    dictionary := shapes u16, publishers u16, then (fingerprint u64, topic) per shape, (name) per publisher
    body := rows; row r ends at ends[r] and starts where the one before ended
    row := shape u16 | publisher u16 | priority u8 | 0 u8 | key bytes u16 | validity ms u32 | message | key

A shape is a topic and the schema that a message is written in. The dictionary names each shape and publisher
once, and rows refer to them by number. A publisher's client builds the bytes, the pubend writes the ticks
into them, and the same bytes are logged, sent and delivered, viewed with numpy and never rebuilt. Rows that
are taken into another batch are copied as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import DecodeError
from tidemark.message.batches.columns import Bools, Bytes, Ints, Spans
from tidemark.message.batches.spans import joined, stretches
from tidemark.message.codec.lazy import lazy_property

#: Bytes in any of the forms that Python has for them.
Buffer = bytes | bytearray | memoryview
Item = TypeVar("Item", bound=Hashable)

BATCH_BYTES_MAX = 16 << 20
EVENT_BYTES_MAX = 1 << 20
PRIORITY_MAX = 9
PRIORITY_DEFAULT = 4
KEY_BYTES_MAX = 0xFFFF
VALIDITY_MS_MAX = 0xFFFF_FFFF

#: Parsed dictionaries that are kept, since batch after batch has the same one; larger ones are parsed again.
_DICTIONARIES_MAX = 256
_DICTIONARY_BYTES_MAX = 1 << 10

#: Columns of ends that are kept, of batches whose rows all have the same size, and the rows of the largest.
_EVEN_ENDS_KEPT = 256
_EVEN_ROWS_MAX = 1 << 10

#: What a batch takes in memory besides its buffer: its objects, and for each of several rows what is derived
#: from `ends` and the preludes and then kept. A dictionary that is not shared takes many times its bytes.
BATCH_OBJECT_BYTES = 2_560
_ROW_BYTES = 36
_NAMES_FACTOR = 16

MAGIC = b"TMB1"
HEADER = Struct("<4sIII")
_COUNTS = Struct("<HH")
_SHAPE = Struct("<QH")
_NAME = Struct("<H")
#: the tick and the end of the only row
_ROW_OF_ONE = Struct("<qI")
#: shape, publisher, priority, zero, key bytes, validity in milliseconds from the tick (0: for ever)
PRELUDE = Struct("<HHBBHI")
#: where the size of the key is among its numbers
_KEY_BYTES = 4


class Shape(NamedTuple):
    """What a row's message is: an event of this topic, written in the schema of this fingerprint."""

    topic: str
    fingerprint: int


class Prelude(NamedTuple):
    """What stands before the message of a row: see the module's docstring."""

    shape: int
    publisher: int
    priority: int
    reserved: int
    key_bytes: int
    validity_ms: int


class Verdict(NamedTuple):
    """Whether all messages of a batch can be decoded: the first problem, or None if there is none."""

    problem: DecodeError | None


class EventBatch:
    """A view of one batch.

    `ticks`, `ends` and `body` are arrays over the buffer `data` itself, which everything that was made from
    the batch without a copy shares: columns, spans, and the frames that carry it. Only the pubend changes it,
    when it writes the ticks (`fill_ticks`, `count_ticks`) before anyone else has the batch.
    """

    def __init__(self, data: Buffer, shapes: tuple[Shape, ...], publishers: tuple[str, ...]) -> None:
        """Does not check its arguments: use `parse` for bytes that come from outside."""
        _, count, names, body = HEADER.unpack_from(data)
        self.data = data
        self.count: int = count
        self.shapes = shapes
        self.publishers = publishers
        #: the bytes of the dictionary: the topics, schemas and publishers that the rows refer to
        self.names_bytes: int = names
        #: what `checking` has found of the messages already; None before it has looked
        self.verdict: Verdict | None = None
        at = HEADER.size + names
        self.ticks: Ints = np.frombuffer(data, _TICK_DTYPE, count, at)
        self.ends: NDArray[np.uint32] = np.frombuffer(data, _END_DTYPE, count, at + 8 * count)
        self.body: Bytes = np.frombuffer(data, _BYTE_DTYPE, body, at + 12 * count)

    @classmethod
    def parse(cls, data: Buffer) -> EventBatch:
        """The batch in untrusted bytes; DecodeError unless every number in them is right."""
        if len(data) > BATCH_BYTES_MAX:
            raise DecodeError(f"a batch of {len(data)} bytes is over the limit of {BATCH_BYTES_MAX}")
        if len(data) < HEADER.size or bytes(data[:4]) != MAGIC:
            raise DecodeError("not an event batch")
        _, count, names, body = HEADER.unpack_from(data)
        if HEADER.size + names + 12 * count + body != len(data) or names % 8:
            raise DecodeError("the parts of the batch do not add up to its size")
        batch = cls(data, *parsed_names(bytes(data[HEADER.size : HEADER.size + names])))
        batch._check_rows()
        return batch

    @classmethod
    def trusted(cls, data: Buffer) -> EventBatch:
        """The batch in bytes that `parse` has checked before, and a checksum since."""
        _, _, names, _ = HEADER.unpack_from(data)
        return cls(data, *parsed_names(bytes(data[HEADER.size : HEADER.size + names])))

    @property
    def size(self) -> int:
        """The bytes of the batch: those of `data`."""
        return HEADER.size + self.names_bytes + 12 * self.count + len(self.body)

    @property
    def held_bytes(self) -> int:
        """How much memory the batch takes, which for a single small event is twenty times its bytes."""
        held = HEADER.size + self.names_bytes + 12 * self.count + len(self.body) + BATCH_OBJECT_BYTES
        if self.count > 1:
            held += _ROW_BYTES * self.count
        if self.names_bytes > _DICTIONARY_BYTES_MAX:
            held += _NAMES_FACTOR * self.names_bytes
        return held

    @lazy_property
    def starts(self) -> Ints:
        """starts[row]: where each row starts in the body."""
        starts = np.zeros(self.count, np.int64)
        starts[1:] = self.ends[:-1]
        return starts

    @lazy_property
    def message_starts(self) -> Ints:
        """message_starts[row]: where each row's message starts in the body."""
        return self.starts + PRELUDE.size

    @lazy_property
    def message_ends(self) -> Ints:
        """message_ends[row]: where each row's message ends in the body."""
        ends: Ints = self.ends.astype(np.int64) - self.prelude("key_bytes")
        return ends

    def prelude(self, field: str) -> NDArray[Any]:
        """One field of every row's prelude: shape, publisher, priority, key_bytes or validity_ms."""
        column: NDArray[Any] = self._preludes[field]
        return column

    @lazy_property
    def _preludes(self) -> NDArray[Any]:
        """The preludes of all rows, gathered at once."""
        if self.count < 2:
            return np.frombuffer(self.body, PRELUDE_DTYPE, self.count)
        shape = (len(self.body) - PRELUDE.size + 1,)
        # The preludes are gathered as plain bytes: of a structured type numpy copies one field at a time,
        # which takes ten times as long.
        return np.ndarray(shape, _PRELUDE_BYTES, self.body, strides=(1,))[self.starts].view(PRELUDE_DTYPE)

    @lazy_property
    def row_bytes(self) -> int:
        """The bytes of each row, if all rows have the same size; else 0."""
        width, rest = divmod(len(self.body), self.count) if self.count else (0, 0)
        if rest or not width or self.ends[0] != width:
            return 0
        if self.count == 1:
            return width
        return width if self.ends.tobytes() == even_ends(width, self.count) else 0

    @lazy_property
    def common(self) -> Prelude | None:
        """The prelude that all rows have, if they have the same one and the same size; else None."""
        width = self.row_bytes
        if width < PRELUDE.size:
            return None
        first = bytes(self.body.data[: PRELUDE.size])
        if self.count > 1:
            all_of_them = np.ndarray((self.count,), _PRELUDE_BYTES, self.body, strides=(width,)).tobytes()
            if all_of_them != first * self.count:
                return None
        return Prelude(*PRELUDE.unpack(first))

    def lengths(self, rows: Ints) -> NDArray[np.uint32]:
        """The bytes that each of these rows takes in the body: prelude, message and key."""
        if self.row_bytes:
            return np.full(len(rows), self.row_bytes, np.uint32)
        return (self.ends[rows] - self.starts[rows]).astype(np.uint32)

    def message(self, row: int) -> bytes:
        """The message of one row."""
        if self.count == 1 and row == 0:  # the arrays below take several times as long for one row
            key_bytes = PRELUDE.unpack_from(self.body.data)[_KEY_BYTES]
            return bytes(self.body.data[PRELUDE.size : len(self.body) - key_bytes])
        return self.body[self.message_starts[row] : self.message_ends[row]].tobytes()

    def key(self, row: int) -> bytes:
        """The key of one row, b"" if it has none."""
        return self.body[self.message_ends[row] : self.ends[row]].tobytes()

    def count_ticks(self, first: int) -> None:
        """Write the ticks first, first + 1, ... into the buffer, which must be writable (a bytearray)."""
        if self.count == 1:
            self.ticks[0] = first
        else:
            self.ticks[:] = np.arange(first, first + self.count)

    def fill_ticks(self, ticks: Ints) -> None:
        """Write these ticks into the buffer, which must be writable (a bytearray)."""
        assert len(ticks) == self.count
        self.ticks[:] = ticks

    def take(self, rows: Ints | Bools) -> EventBatch:
        """A new batch of these rows (indices in any order, or a mask)."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, np.int64)
        width = self.row_bytes
        if width:
            body = self.body.reshape(self.count, width)[chosen].ravel()
            ends = np.frombuffer(even_ends(width, len(chosen)), _END_DTYPE)
            return self._with_rows(self.ticks[chosen], ends, body)
        first, last = self._runs(chosen)
        body, _ = joined(Spans(self.body, first, last))
        ends = np.cumsum(self.ends[chosen] - self.starts[chosen])
        return self._with_rows(self.ticks[chosen], ends, body)

    def slice(self, first: int, last: int) -> EventBatch:
        """A new batch of the rows first <= row < last."""
        base = int(self.ends[first - 1]) if first else 0
        stop = int(self.ends[last - 1]) if last else 0
        return self._with_rows(
            self.ticks[first:last], self.ends[first:last] - np.uint32(base), self.body[base:stop]
        )

    def split(self, bytes_max: int) -> list[EventBatch]:
        """The rows in batches of at most `bytes_max` bytes, in order; a larger row is a batch by itself."""
        if self.size <= bytes_max:
            return [self]
        overhead = HEADER.size + self.names_bytes
        reach = self.ends.astype(np.int64) + 12 * np.arange(1, self.count + 1)
        return [self.slice(rows.start, rows.stop) for rows in stretches(reach, bytes_max - overhead)]

    def with_used_names(self) -> EventBatch:
        """The same events with a dictionary of what they name; this batch itself if it names nothing else."""
        for field, names in (("shape", self.shapes), ("publisher", self.publishers)):
            if len(names) > 1 and len(np.unique(self.prelude(field))) < len(names):
                return self._with_used_names(self.ticks, self.ends, self.body)
        return self

    def _with_rows(self, ticks: Ints, ends: NDArray[np.integer], body: Bytes) -> EventBatch:
        narrow = ends.astype(_END_DTYPE, copy=False)
        if self.names_bytes > _DICTIONARY_BYTES_MAX and self.names_bytes > len(body):
            return self._with_used_names(ticks, narrow, body)
        made = assemble(self.dictionary, self.shapes, self.publishers, ticks, narrow, [body.data])
        if made.count and self.__dict__.get("common") is not None:
            made.row_bytes, made.common = self.row_bytes, self.common
        return made

    @property
    def dictionary(self) -> bytes:
        """The bytes that name shapes and publishers."""
        return bytes(self.data[HEADER.size : HEADER.size + self.names_bytes])

    def _with_used_names(self, ticks: Ints, ends: NDArray[np.uint32], body: Bytes) -> EventBatch:
        """A batch of these rows with a dictionary of what they name: a few rows do not carry it all."""
        renamed = body.copy()
        view, starts = sliding(renamed, "<u2"), np.concatenate((np.zeros(1, np.int64), ends))[:-1]
        used: list[list[int]] = []
        for offset in (_SHAPE_AT, _PUBLISHER_AT):
            numbers, view[starts + offset] = np.unique(view[starts + offset], return_inverse=True)
            used.append(numbers.tolist())
        shapes = tuple(self.shapes[number] for number in used[0])
        publishers = tuple(self.publishers[number] for number in used[1])
        return assemble(write_names(shapes, publishers), shapes, publishers, ticks, ends, [renamed.data])

    def _runs(self, rows: Ints) -> tuple[Ints, Ints]:
        """Where the stretches of bytes of these rows start and end.

        Rows that are neighbours are one stretch.
        """
        if len(rows) < 2:
            return self.starts[rows], self.ends[rows].astype(np.int64)
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        first = rows[np.concatenate(([0], breaks))]
        last = rows[np.concatenate((breaks - 1, [len(rows) - 1]))]
        return self.starts[first], self.ends[last].astype(np.int64)

    def _check_rows(self) -> None:
        if self.count == 0:
            if len(self.body):
                raise DecodeError("a batch without rows has a body")
            return
        size = len(self.body)
        if self.count == 1 and (size < PRELUDE.size or self.ends[0] != size):
            raise DecodeError("the rows of the batch do not tile its body")
        if self.count == 1:
            self._check_prelude(PRELUDE.unpack_from(self.body.data), size)
            return
        if self.common is not None:
            self._check_prelude(self.common, self.row_bytes)
            return
        lengths = self.ends - self.starts
        if lengths.min() < PRELUDE.size or self.ends[-1] != len(self.body):
            raise DecodeError("the rows of the batch do not tile its body")
        if lengths.max() > EVENT_BYTES_MAX:
            raise DecodeError(f"an event is over the limit of {EVENT_BYTES_MAX} bytes")
        if self.prelude("shape").max() >= len(self.shapes):
            raise DecodeError("a row names a shape that the batch does not define")
        if self.prelude("publisher").max() >= len(self.publishers):
            raise DecodeError("a row names a publisher that the batch does not define")
        if self.prelude("priority").max() > PRIORITY_MAX or self.prelude("reserved").any():
            raise DecodeError("a row has a priority or flags that this version does not know")
        if (self.prelude("key_bytes") > lengths - PRELUDE.size).any():
            raise DecodeError("a row's key is longer than the row")

    def _check_prelude(self, prelude: tuple[int, ...], size: int) -> None:
        """What `_check_rows` checks, of a row of this size: for one row, or for rows that are all alike.

        `prelude` has the fields of a Prelude.
        """
        shape, publisher, priority, reserved, key_bytes, _ = prelude
        if size > EVENT_BYTES_MAX:
            raise DecodeError(f"an event is over the limit of {EVENT_BYTES_MAX} bytes")
        if shape >= len(self.shapes):
            raise DecodeError("a row names a shape that the batch does not define")
        if publisher >= len(self.publishers):
            raise DecodeError("a row names a publisher that the batch does not define")
        if priority > PRIORITY_MAX or reserved:
            raise DecodeError("a row has a priority or flags that this version does not know")
        if key_bytes > size - PRELUDE.size:
            raise DecodeError("a row's key is longer than the row")

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventBatch) and bytes(self.data) == bytes(other.data)

    __hash__ = None  # type: ignore[assignment]  # ticks are written in place, so a batch cannot be a key

    def __repr__(self) -> str:
        return f"<EventBatch of {self.count} events, {self.size} bytes>"


PRELUDE_DTYPE = np.dtype(
    [
        ("shape", "<u2"),
        ("publisher", "<u2"),
        ("priority", "u1"),
        ("reserved", "u1"),
        ("key_bytes", "<u2"),
        ("validity_ms", "<u4"),
    ]
)
_PRELUDE_BYTES = np.dtype((np.void, PRELUDE.size))
_TICK_DTYPE, _END_DTYPE, _BYTE_DTYPE = np.dtype("<i8"), np.dtype("<u4"), np.dtype(np.uint8)
#: byte offsets in a prelude
_SHAPE_AT, _PUBLISHER_AT, KEY_BYTES_AT = 0, 2, 6


def even_ends(width: int, count: int) -> bytes:
    """The column `ends` of a batch of `count` rows of `width` bytes each."""
    make = _made_ends if count > _EVEN_ROWS_MAX else _kept_ends
    return make(width, count)


def _made_ends(width: int, count: int) -> bytes:
    return np.arange(width, width * count + 1, width, dtype=np.uint32).astype("<u4").tobytes()


_kept_ends = lru_cache(maxsize=_EVEN_ENDS_KEPT)(_made_ends)


def batch_names_bytes(data: Buffer, at: int) -> int:
    """The bytes of the dictionary of the batch that begins at data[at]; 0 if no batch does."""
    if len(data) - at < HEADER.size:
        return 0
    names: int = HEADER.unpack_from(data, at)[2]
    return names


def sliding(body: Bytes, dtype: str) -> NDArray[Any]:
    """A view with view[at] = the number that starts at byte `at`, so that one fancy index gathers many."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((max(0, len(body) - width + 1),), dtype, body, strides=(1,))


def concatenate(batches: Sequence[EventBatch]) -> EventBatch:
    """One batch of the rows of all batches, in order; a single batch is returned itself.

    DecodeError if the rows do not fit into one batch.
    """
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return BatchBuilder().build()
    first = batches[0]
    size = sum(len(batch.body) for batch in batches)
    if size > BATCH_BYTES_MAX:
        raise DecodeError(f"{size} bytes in one batch are over the limit of {BATCH_BYTES_MAX}")
    counts = [batch.count for batch in batches]
    ticks = np.concatenate([batch.ticks for batch in batches])
    width = first.row_bytes if all(batch.row_bytes == first.row_bytes for batch in batches) else 0
    if width:
        ends: NDArray[np.uint32] = np.frombuffer(even_ends(width, len(ticks)), _END_DTYPE)
    else:
        base = np.cumsum([0, *(len(batch.body) for batch in batches)])[:-1].astype("<u4")
        ends = np.concatenate([batch.ends for batch in batches]) + np.repeat(base, counts)
    bodies = [batch.body.data for batch in batches]
    if all(batch.shapes == first.shapes and batch.publishers == first.publishers for batch in batches):
        whole = assemble(first.dictionary, first.shapes, first.publishers, ticks, ends, bodies)
        if width and first.common is not None and all(batch.common == first.common for batch in batches):
            whole.row_bytes, whole.common = width, first.common
        return whole
    shapes = [batch.shapes for batch in batches]
    publishers = [batch.publishers for batch in batches]
    of_shape, of_publisher = _united(shapes), _united(publishers)
    united = tuple(of_shape), tuple(of_publisher)
    whole = assemble(write_names(*united), *united, ticks, ends, bodies)
    _rename(whole, _SHAPE_AT, shapes, of_shape, counts)
    _rename(whole, _PUBLISHER_AT, publishers, of_publisher, counts)
    return whole


def _united(dictionaries: Iterable[tuple[Item, ...]]) -> dict[Item, int]:
    """The number that each item of the dictionaries gets in the dictionary of the whole."""
    items = dict.fromkeys(item for each in dict.fromkeys(dictionaries) for item in each)
    return {item: at for at, item in enumerate(items)}


def _rename(
    whole: EventBatch,
    offset: int,
    dictionaries: Sequence[tuple[Item, ...]],
    place_of: Mapping[Item, int],
    counts: Sequence[int],
) -> None:
    """Write new numbers into the preludes: rows get the numbers that their items have in the whole.

    `dictionaries[part]` is what the next `counts[part]` rows refer to; `place_of` is the whole's dictionary.
    """
    places: list[int] = []
    firsts: dict[tuple[Item, ...], int] = {}
    for each in dict.fromkeys(dictionaries):
        firsts[each] = len(places)
        places += [place_of[item] for item in each]
    if len(firsts) == 1:
        return
    view, at = sliding(whole.body, "<u2"), whole.starts + offset
    of_row = np.repeat([firsts[each] for each in dictionaries], counts)
    view[at] = np.array(places, "<u2")[of_row + view[at]]


class BatchBuilder:
    """Collects the events of one turn of the event loop into one batch, with ticks 0."""

    def __init__(self) -> None:
        #: the different shapes and publishers so far, and the number of each in the dictionary
        self.shapes: dict[Shape, int] = {}
        self.publishers: dict[str, int] = {}
        self._pieces: list[bytes] = []
        self._ends: list[int] = []
        #: bytes of the body so far
        self.size = 0

    def __len__(self) -> int:
        return len(self._ends)

    def add(
        self,
        shape: Shape,
        message: bytes,
        *,
        publisher: str = "",
        key: bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity_ms: int = 0,
    ) -> None:
        """Append an event. `validity_ms` counts from its tick; 0 is for ever."""
        assert 0 <= priority <= PRIORITY_MAX
        assert 0 <= validity_ms <= VALIDITY_MS_MAX
        assert len(key) <= KEY_BYTES_MAX
        of_shape = self.shapes.setdefault(shape, len(self.shapes))
        of_publisher = self.publishers.setdefault(publisher, len(self.publishers))
        self._pieces += (
            PRELUDE.pack(of_shape, of_publisher, priority, 0, len(key), validity_ms),
            message,
            key,
        )
        self.size += PRELUDE.size + len(message) + len(key)
        self._ends.append(self.size)

    def build(self) -> EventBatch:
        """The batch of the events so far, in a new writable buffer."""
        shapes, publishers = tuple(self.shapes), tuple(self.publishers)
        if len(self._ends) == 1:  # the arrays below take several times as long for one row
            names = _names_of_one(shapes, publishers)
            head = HEADER.pack(MAGIC, 1, len(names), self.size)
            data = bytearray().join((head, names, _ROW_OF_ONE.pack(0, self.size), *self._pieces))
            return EventBatch(data, shapes, publishers)
        ticks, ends = np.zeros(len(self._ends), np.int64), np.array(self._ends, "<u4")
        return assemble(write_names(shapes, publishers), shapes, publishers, ticks, ends, self._pieces)


def assemble(
    names: bytes,
    shapes: tuple[Shape, ...],
    publishers: tuple[str, ...],
    ticks: Ints,
    ends: NDArray[np.uint32],
    pieces: Sequence[Buffer],
) -> EventBatch:
    """The batch of these parts, in a new writable buffer; `pieces` one after the other are its body."""
    body = int(ends[-1]) if len(ends) else 0
    header = HEADER.pack(MAGIC, len(ends), len(names), body)
    data = bytearray().join((header, names, ticks.tobytes(), ends.tobytes(), *pieces))
    return EventBatch(data, shapes, publishers)


def unwritten(
    shapes: tuple[Shape, ...], publishers: tuple[str, ...], ticks: Ints, ends: NDArray[np.uint32]
) -> EventBatch:
    """A batch of rows that end at `ends`, in a new writable buffer; its body is still to be written."""
    names = write_names(shapes, publishers)
    body = int(ends[-1]) if len(ends) else 0
    header = HEADER.pack(MAGIC, len(ends), len(names), body)
    head = b"".join((header, names, ticks.astype(_TICK_DTYPE, copy=False).tobytes(), ends.tobytes()))
    data = np.empty(len(head) + body, np.uint8)
    data[: len(head)] = np.frombuffer(head, np.uint8)
    return EventBatch(data.data, shapes, publishers)


def write_names(shapes: Sequence[Shape], publishers: Sequence[str]) -> bytes:
    """The dictionary of a batch with these shapes and publishers."""
    parts = [_COUNTS.pack(len(shapes), len(publishers))]
    for shape in shapes:
        topic = shape.topic.encode()
        parts += (_SHAPE.pack(shape.fingerprint, len(topic)), topic)
    for publisher in publishers:
        name = publisher.encode()
        parts += (_NAME.pack(len(name)), name)
    names = b"".join(parts)
    return names + bytes(-len(names) % 8)


def parsed_names(dictionary: bytes) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """The shapes and publishers of a dictionary; DecodeError if it is none."""
    return (_parse_names if len(dictionary) > _DICTIONARY_BYTES_MAX else _kept_names)(dictionary)


def _parse_names(data: bytes) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    try:
        shape_count, publisher_count = _COUNTS.unpack_from(data)
        at = _COUNTS.size
        shapes: list[Shape] = []
        publishers: list[str] = []
        for _ in range(shape_count):
            fingerprint, length = _SHAPE.unpack_from(data, at)
            at += _SHAPE.size + length
            shapes.append(Shape(data[at - length : at].decode(), fingerprint))
        for _ in range(publisher_count):
            (length,) = _NAME.unpack_from(data, at)
            at += _NAME.size + length
            publishers.append(data[at - length : at].decode())
    except (error, UnicodeDecodeError):
        raise DecodeError("the batch's dictionary is damaged") from None
    if at > len(data) or len(data) - at >= 8 or any(data[at:]):
        raise DecodeError("the batch's dictionary does not fill its place")
    if len(set(shapes)) < shape_count or len(set(publishers)) < publisher_count:
        raise DecodeError("the batch's dictionary names a thing twice")
    return tuple(shapes), tuple(publishers)


_kept_names = lru_cache(maxsize=_DICTIONARIES_MAX)(_parse_names)
_names_of_one = lru_cache(maxsize=_DICTIONARIES_MAX)(write_names)
