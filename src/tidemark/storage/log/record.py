"""A record of the log volume: a header that names its stream and its place, then the payload.

    record := check u32 | length u32 | payload check u32 | stream u32 | index i64 | mark i64 | epoch u32 |
              synced u32 | payload, padded with zeros to 8 bytes

- `check` is the CRC32C of the volume's identity, the segment's number, the record's offset in it, and the
  rest of the header. A block of another volume or segment, or one in the wrong place, does not pass the
  check; nor do bytes that a publisher made up to look like a record, because it does not know the identity.
- A header that passes the check names the stream and leads to the next record, also if the payload is rotten.
- `mark` is a number of the stream's owner that never decreases in a stream: an event log puts the last tick
  of a record there.
- `epoch` counts how often the volume was opened and never decreases in a segment: a block that was written
  before the last opening, and comes back, is recognised.
- `synced`: all bytes of the segment below this offset were on the platter when the record was written, so a
  hole below it does not come from a crash.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.checksum import crc32c

#: How long the payload of one record may be; the largest is an event batch and its publisher.
RECORD_BYTES_MAX = 32 << 20
ALIGNMENT = 8

#: The volume's own streams.
CATALOGUE_STREAM = 0
FOOTER_STREAM = 0xFFFF_FFFF

_HEADER = Struct("<IIIIqqII")
_CHECKED = Struct("<QIIIqqII")
_CHECK = Struct("<I")
_PLACE = Struct("<QQ")

HEADER_BYTES = _HEADER.size


class Header(NamedTuple):
    """The header of a record, without its check."""

    length: int
    payload_check: int
    stream: int
    #: the record's index in its stream
    serial: int
    mark: int
    epoch: int
    synced: int


def seed_of(identity: int, segment: int) -> int:
    """Returns the value from which the check of every header in this segment of this volume starts."""
    return crc32c(_PLACE.pack(identity, segment))


def record_bytes(length: int) -> int:
    """Returns how many bytes a record takes whose payload has this length."""
    return HEADER_BYTES + length + -length % ALIGNMENT


def encode_header(header: tuple[int, ...], offset: int, seed: int) -> bytes:
    """Returns the bytes of the fields of a Header, in order; they pass the check at this offset only."""
    checked = _CHECKED.pack(offset, *header)
    return _CHECK.pack(crc32c(checked, seed)) + checked[8:]


def header_at(data: Buffer, at: int, offset: int, seed: int) -> Header | None:
    """Returns the header at data[at:], which was read from `offset`; None unless it passes the check."""
    if at + HEADER_BYTES > len(data):
        return None
    check, *fields = _HEADER.unpack_from(data, at)
    if crc32c(_CHECKED.pack(offset, *fields), seed) != check:
        return None
    return Header(*fields)


def payload_at(data: memoryview, at: int, header: Header) -> memoryview | None:
    """Returns the payload of the record at data[at:]; None unless it is complete and passes its check."""
    payload = data[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
    if len(payload) < header.length or crc32c(payload) != header.payload_check:
        return None
    return payload
