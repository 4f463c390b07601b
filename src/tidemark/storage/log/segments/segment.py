"""A segment file: a header, records, and once it is sealed a footer with the places of the records.

    segment := "TMSEGMNT" | version u32 | check u32 | identity u64 | number u64 | records | [footer | trailer]
    footer  := a record of the stream FOOTER_STREAM: the rows of all others
    trailer := "TMSEGEND" | offset of the footer u32 | check u32

The first record of a segment is the catalogue of all streams (catalogue.py), written twice. A segment is
sealed and synced before the next one is created, so only the last one can have a torn tail.

What a crash may lose: of the last segment, what was written since its last sync; any prefix of it may
survive. That is safe because the volume's owner is told that records are durable only after the sync. A
sealed segment loses nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct

from tidemark.errors import DamagedError, UnknownFormatError
from tidemark.storage.disk.disk import File
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.record import FOOTER_STREAM, HEADER_BYTES, header_at, payload_at, seed_of
from tidemark.storage.log.rows import RecordRows
from tidemark.storage.log.segments.scan import Region, scan

VERSION = 1
SEGMENT_BYTES = 64 << 20
#: A segment that cannot be read as a whole is read in pieces of this size.
_SECTOR_BYTES = 4_096

_HEADER = Struct("<8sIIQQ")
_HEADED = Struct("<8sIQQ")
_TRAILER = Struct("<8sII")
_MAGIC = b"TMSEGMNT"
_END_MAGIC = b"TMSEGEND"
_NAME = re.compile(r"(\d{10})\.(segment|damaged)")

SEGMENT_HEADER_BYTES = _HEADER.size


def segment_name(number: int) -> str:
    """Returns the file name of a segment."""
    return f"{number:010d}.segment"


def quarantine_name(number: int) -> str:
    """Returns the file name of a dead segment that is kept because it is damaged."""
    return f"{number:010d}.damaged"


def parse_name(name: str) -> tuple[int, bool] | None:
    """Returns a segment's number, and whether it is in quarantine; None if the name is not a segment's."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2] == "damaged") if found else None


def encode_segment_header(identity: int, number: int) -> bytes:
    """Returns the first bytes of a segment."""
    check = crc32c(_HEADED.pack(_MAGIC, VERSION, identity, number))
    return _HEADER.pack(_MAGIC, VERSION, check, identity, number)


def encode_trailer(footer: int, seed: int) -> bytes:
    """Returns the last bytes of a sealed segment, whose footer is at the offset `footer`."""
    return _TRAILER.pack(_END_MAGIC, footer, crc32c(_END_MAGIC + footer.to_bytes(4, "little"), seed))


@dataclass(slots=True)
class SegmentContents:
    """What is in a segment file."""

    number: int
    #: `homes` are streams
    rows: RecordRows
    #: where the last whole record ends
    end: int
    size: int
    #: whether it is not sealed, and only a torn tail can be behind `end`
    growing: bool
    #: the greatest epoch of its records, 0 if there are none
    epoch: int
    #: bytes that are not whole records; in a growing segment, those before `end`
    damage: list[Region] = field(default_factory=list)


def read_contents(file: File, identity: int, number: int, *, last: bool, synced: int = 0) -> SegmentContents:
    """Returns what is in a segment, from its footer or else from its records.

    `last`: it is the last segment, which may have a torn tail, but not before `synced`: so many of its bytes
    are known to have been on the platter. Raises UnknownFormatError if the file belongs to another volume, or
    another version wrote it.
    """
    headed = _check_header(file, identity, number)
    seed, size = seed_of(identity, number), file.size()
    sealed = _from_footer(file, number, size, seed)
    if sealed is not None:
        return sealed
    data, readable = read_all(file)
    scanned = scan(data, SEGMENT_HEADER_BYTES, seed)
    # A crash tears what was being written. It makes no bytes unreadable and does not harm the first records.
    growing = last and readable and scanned.rows.size > 0 and scanned.end >= synced
    damage = [region for region in scanned.regions if not growing or region.offset < scanned.end]
    if last and scanned.end < synced:
        damage = [region._replace(synced=True) for region in damage if region.offset < synced]
        if size < synced:
            damage.append(Region(size, synced, None, True))
    if not headed:
        damage.append(Region(0, SEGMENT_HEADER_BYTES, None, True))
    return SegmentContents(number, scanned.rows, scanned.end, size, growing, scanned.epoch, damage)


def _check_header(file: File, identity: int, number: int) -> bool:
    """Returns whether the header passes its check. Raises UnknownFormatError if it is of another volume."""
    data = _sector(file, 0, _HEADER.size)
    if len(data) < _HEADER.size:
        return False
    magic, version, check, volume, own = _HEADER.unpack(data)
    if crc32c(_HEADED.pack(magic, version, volume, own)) != check:
        return False
    if magic != _MAGIC or version != VERSION:
        raise UnknownFormatError(f"a segment of version {version}; this is version {VERSION}", path=file.path)
    if (volume, own) != (identity, number):
        raise UnknownFormatError(
            f"this is segment {own} of volume {volume:016x}, not segment {number} of {identity:016x}; "
            "move it back to where it belongs",
            path=file.path,
        )
    return True


def newborn(file: File, identity: int, number: int) -> bool:
    """Returns whether a crash came before the first sync: the file has a part of the header, or no record."""
    header = encode_segment_header(identity, number)
    data, readable = read_all(file)
    return readable and (data.startswith(header) or header.startswith(data.rstrip(b"\0")))


def read_all(file: File) -> tuple[bytes, bool]:
    """Returns all bytes of a file, zeros where they cannot be read, and whether all could be read."""
    size = file.size()
    try:
        return file.pread(0, size), True
    except DamagedError:
        sectors = range(0, size, _SECTOR_BYTES)
        return b"".join(_sector(file, at, min(_SECTOR_BYTES, size - at)) for at in sectors), False


def _sector(file: File, at: int, length: int) -> bytes:
    try:
        return file.pread(at, length)
    except DamagedError:
        return bytes(length)


def _from_footer(file: File, number: int, size: int, seed: int) -> SegmentContents | None:
    """Returns what the footer of a sealed segment says; None if there is no footer that can be trusted."""
    trailer = size - _TRAILER.size
    if trailer < SEGMENT_HEADER_BYTES:
        return None
    try:
        last = file.pread(trailer, _TRAILER.size)
        _, footer, _ = _TRAILER.unpack(last)
        if footer > trailer or last != encode_trailer(footer, seed):
            return None
        data = memoryview(file.pread(footer, trailer - footer))
    except DamagedError:
        return None
    header = header_at(data, 0, footer, seed)
    if header is None or header.stream != FOOTER_STREAM or header.serial != number:
        return None
    payload = payload_at(data, 0, header)
    if payload is None:
        return None
    return SegmentContents(number, RecordRows.frombytes(payload), footer, size, False, header.epoch)


def read_record(file: File, offset: int, length: int, seed: int) -> memoryview | None:
    """Returns the payload of one record of this length; None if the record is damaged."""
    try:
        data = memoryview(file.pread(offset, HEADER_BYTES + length))
    except DamagedError:
        return None
    header = header_at(data, 0, offset, seed)
    return payload_at(data, 0, header) if header and header.length == length else None
