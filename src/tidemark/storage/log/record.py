"""A record of the log volume: a header that says whose it is and where it belongs, then the payload.

    record := check u32 | length u32 | payload check u32 | stream u32 | index i64 | mark i64 | epoch u32 |
              synced u32 | payload, padded with zeros to 8 bytes

- `check` is the CRC32C of the volume's identity, the segment's number, the record's offset in it, and the
  rest of the header. A block of another volume or segment, or one that lies in the wrong place, does not
  pass, and neither do bytes that a publisher made up to look like a record: it does not know the identity.
- A header that holds tells whose record it is and where the next one starts, also if the payload is rotten.
- `mark` is the owner's, never decreasing in a stream: an event log puts its last tick there.
- `epoch` counts openings of the volume, never decreasing in a segment: a block of an earlier life does not
  pass.
- `synced`: all bytes of the segment below this offset were on the platter when the record was written. So a
  hole below it was not made by a crash.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.checksum import crc32c

#: Payload of one record; the largest is an event batch and its publisher.
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
    """What a record says of itself."""

    length: int
    payload_check: int
    stream: int
    #: the record's index in its stream
    serial: int
    mark: int
    epoch: int
    synced: int


def seed_of(identity: int, segment: int) -> int:
    """What the check of every header in this segment of this volume starts from."""
    return crc32c(_PLACE.pack(identity, segment))


def record_bytes(length: int) -> int:
    """Bytes that a record with a payload of this length takes."""
    return HEADER_BYTES + length + -length % ALIGNMENT


def encode_header(header: Header, offset: int, seed: int) -> bytes:
    """The header's bytes, for this place only."""
    checked = _CHECKED.pack(offset, *header)
    return _CHECK.pack(crc32c(checked, seed)) + checked[8:]


def header_at(data: Buffer, at: int, offset: int, seed: int) -> Header | None:
    """The header at data[at:], which was read from `offset`; None unless its check holds."""
    if at + HEADER_BYTES > len(data):
        return None
    check, *fields = _HEADER.unpack_from(data, at)
    if crc32c(_CHECKED.pack(offset, *fields), seed) != check:
        return None
    return Header(*fields)


def payload_at(data: memoryview, at: int, header: Header) -> memoryview | None:
    """The payload of the record at data[at:]; None unless it is all there and its check holds."""
    payload = data[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
    if len(payload) < header.length or crc32c(payload) != header.payload_check:
        return None
    return payload
