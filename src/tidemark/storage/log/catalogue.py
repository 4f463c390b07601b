"""The catalogue of a log volume: its streams' names, and how far each is chopped.

    record := kind u8 | 0 u8 | 0 u16 | count u32 | entries
    entry  := stream u32 | name bytes u32 | last i64 | chopped i64 | chopped mark i64 | name

Every segment starts with a whole catalogue, so an older segment can be removed as soon as its records are
chopped; later changes are logged as they happen. Each catalogue record is written twice, so that losing one
to damage costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

from tidemark.errors import DecodeError

#: Streams are named by the program, after pubends and the like, whose names have at most 255 bytes.
STREAM_NAME_BYTES_MAX = 512

#: The mark that is below every other.
MARK_MIN = -(2**63)

WHOLE, CHANGE = 1, 2
_HEAD = Struct("<BBHI")
_ENTRY = Struct("<IIqqq")


class Entry(NamedTuple):
    """One stream in the catalogue."""

    stream: int
    name: str
    #: index of the stream's last record when the entry was written
    last: int
    #: records up to this index are chopped, and the mark of the last of them
    chopped: int
    chopped_mark: int


def encode_catalogue(entries: Iterable[Entry], *, whole: bool) -> bytes:
    """Returns the payload of a catalogue record; `whole` if it names all streams."""
    parts: list[bytes] = []
    for entry in entries:
        name = entry.name.encode()
        parts += (_ENTRY.pack(entry.stream, len(name), entry.last, entry.chopped, entry.chopped_mark), name)
    return _HEAD.pack(WHOLE if whole else CHANGE, 0, 0, len(parts) // 2) + b"".join(parts)


def decode_catalogue(data: memoryview) -> tuple[bool, list[Entry]]:
    """Returns whether the record is a whole catalogue, and its entries. Raises DecodeError."""
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
