"""The catalogue of a log volume: its streams' names, and how far each is chopped.

    record := kind u8 | 0 u8 | 0 u16 | count u32 | entries
    entry  := stream u32 | name bytes u32 | last i64 | chopped i64 | chopped mark i64 | name

Every segment starts with a whole catalogue, so older segments can go as soon as their records are dead; what
changes later is logged as it changes. Everything is said in two records: losing one costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

from tidemark.errors import DecodeError

#: Streams are named by the program, after pubends and the like, whose names have at most 255 bytes.
STREAM_NAME_BYTES_MAX = 512

#: Below every mark.
MARK_MIN = -(2**63)

WHOLE, CHANGE = 1, 2
_HEAD = Struct("<BBHI")
_ENTRY = Struct("<IIqqq")


class Entry(NamedTuple):
    """What the catalogue says of a stream."""

    stream: int
    name: str
    #: index of the last record in the volume when this was written
    last: int
    #: records up to this index are gone, and the mark of the last of them
    chopped: int
    chopped_mark: int


def encode_catalogue(entries: Iterable[Entry], *, whole: bool) -> bytes:
    """The payload of a catalogue record."""
    parts: list[bytes] = []
    for entry in entries:
        name = entry.name.encode()
        parts += (_ENTRY.pack(entry.stream, len(name), entry.last, entry.chopped, entry.chopped_mark), name)
    return _HEAD.pack(WHOLE if whole else CHANGE, 0, 0, len(parts) // 2) + b"".join(parts)


def decode_catalogue(data: memoryview) -> tuple[bool, list[Entry]]:
    """Whether it is a whole catalogue, and its entries."""
    try:
        kind, _, _, count = _HEAD.unpack_from(data)
        at = _HEAD.size
        entries: list[Entry] = []
        for _ in range(count):
            stream, length, *numbers = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size + length
            entries.append(Entry(stream, str(data[at - length : at], "utf-8"), *numbers))
    except (error, UnicodeDecodeError):
        raise DecodeError("the catalogue of the log volume cannot be read") from None
    return kind == WHOLE, entries
