"""Recovery: finds out from the files alone what a log volume holds.

Recovery reads the footers of sealed segments and every record of the last segment. It changes only two
things: it cuts a torn tail behind the last whole record, and removes a last segment that a crash left without
records. It can be interrupted anywhere and done again. What it finds is on the platter when it returns: the
process may have died between a write and its sync while the machine went on, and what is reported to be in
the log must not vanish later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidemark.errors import DamagedError
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.catalogue import Entry, decode_catalogue
from tidemark.storage.log.damage import Damage
from tidemark.storage.log.record import CATALOGUE_STREAM
from tidemark.storage.log.segments.durable_end import NOWHERE, DurableEnd
from tidemark.storage.log.segments.open_segments import Segments
from tidemark.storage.log.segments.scan import Region
from tidemark.storage.log.segments.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentContents,
    newborn,
    parse_name,
    read_contents,
    read_record,
    segment_name,
)
from tidemark.storage.log.segments.tail import TailSegment
from tidemark.storage.log.stream import LogStream

#: What an administrator can do about a volume of which nobody knows which streams it has.
ADVICE = (
    "put a copy back, or move all segments of this directory away: the broker starts without them and "
    "tells what is missing"
)


@dataclass(slots=True)
class RecoveredVolume:
    """What recovery found in a volume, for `LogVolume` and `VolumeWriter` to go on with."""

    segments: Segments
    #: number -> stream
    streams: dict[int, LogStream] = field(default_factory=dict)
    #: the segment to go on writing to; None if a new one has to be created
    tail: TailSegment | None = None
    #: the greatest number of a segment, of those in quarantine too
    last_number: int = 0
    #: one more than the greatest epoch of a record
    epoch: int = 1
    #: the greatest index of a catalogue record
    catalogue_last: int = 0
    #: greater than every stream's number
    next_stream: int = CATALOGUE_STREAM + 1
    #: all segments are gone, so that nobody knows which streams there were
    is_emptied: bool = False
    damage: list[Damage] = field(default_factory=list)


def recover(disk: Disk, identity: int, synced: DurableEnd = NOWHERE) -> RecoveredVolume:
    """Returns what is in the directory. Raises UnknownFormatError or DamagedError if that cannot be told.

    Everything before `synced` is known to have been on the platter: what is missing of it is damage and no
    torn tail.
    """
    found = RecoveredVolume(Segments(disk, identity))
    try:
        _read_segments(disk, identity, found, synced)
    except Exception:
        found.segments.close_all()
        raise
    return found


def _read_segments(disk: Disk, identity: int, found: RecoveredVolume, synced: DurableEnd) -> None:
    numbers = _numbers(disk, found)
    if numbers:
        disk.open(segment_name(numbers[-1]), uncached=True).close()
    contents = [
        read_contents(
            found.segments.file(number),
            identity,
            number,
            last=number == numbers[-1],
            synced=synced.offset if number == synced.segment else 0,
        )
        for number in numbers
    ]
    if contents and not contents[-1].rows.size:
        number = contents[-1].number
        if number > synced.segment and newborn(found.segments.file(number), identity, number):
            _unmake(disk, contents.pop().number, found)
    is_cut = synced.segment > (contents[-1].number if contents else 0)
    if is_cut:
        # New segments get numbers beyond those that are missing, so that this is not found again for them.
        found.last_number = max(found.last_number, synced.segment)
        found.damage.append(Damage(None, 0, 0, 0, 0, True))
    if not contents:
        found.is_emptied = is_cut
        return
    told = _read_catalogue(found, contents)
    for content in contents:
        _take_rows(found, content)
    _take_damage(found, contents, is_cut=is_cut)
    found.epoch = max(content.epoch for content in contents) + 1
    is_whole = told == contents[-1].number and not is_cut
    _settle_tail(disk, identity, contents[-1], found, synced, whole=is_whole)


def _numbers(disk: Disk, found: RecoveredVolume) -> list[int]:
    """Returns the numbers of the segments, in order, without those in quarantine."""
    parsed = [place for place in map(parse_name, disk.list()) if place]
    found.last_number = max((number for number, _ in parsed), default=0)
    return sorted(number for number, quarantined in parsed if not quarantined)


def _unmake(disk: Disk, number: int, found: RecoveredVolume) -> None:
    """Remove a last segment in which a crash left no record."""
    found.segments.close(number)
    disk.remove(segment_name(number))
    disk.sync_directory()


def _read_catalogue(found: RecoveredVolume, contents: list[SegmentContents]) -> int:
    """Learn the streams from the newest whole catalogue and the changes since.

    Returns the number of the segment with that catalogue. Raises DamagedError if no segment has one.
    """
    newer: list[list[tuple[bool, list[Entry]]]] = []
    for content in reversed(contents):
        newer.append(_catalogue_of(found.segments, content))
        if any(whole for whole, _ in newer[-1]):
            break
    else:
        path = found.segments.file(contents[-1].number).path
        raise DamagedError(f"no segment has a catalogue that can be read; {ADVICE}", path=path, offset=0)
    for _, entries in (record for records in reversed(newer) for record in records):
        for entry in entries:
            _learn(found, entry)
    return content.number


def _catalogue_of(segments: Segments, content: SegmentContents) -> list[tuple[bool, list[Entry]]]:
    """Returns the catalogue records of one segment that can be read."""
    rows = content.rows.select(content.rows.homes == CATALOGUE_STREAM)
    file, seed = segments.file(content.number), segments.seed(content.number)
    places = zip(rows.offsets.tolist(), rows.lengths.tolist(), strict=True)
    payloads = [read_record(file, offset, length, seed) for offset, length in places]
    return [decode_catalogue(payload) for payload in payloads if payload is not None]


def _learn(found: RecoveredVolume, entry: Entry) -> None:
    known = found.streams.get(entry.stream)
    if known is None:
        known = found.streams[entry.stream] = LogStream(entry)
    known.last = max(known.last, entry.last)
    if entry.chopped > known.chopped:
        known.chopped, known.chopped_mark = entry.chopped, entry.chopped_mark
    found.next_stream = max(found.next_stream, entry.stream + 1)


def _take_rows(found: RecoveredVolume, content: SegmentContents) -> None:
    """Give each stream its rows of this segment."""
    number, rows = content.number, content.rows
    found.segments.live[number] = 0
    for home in np.unique(rows.homes).tolist():
        own = rows.select(rows.homes == home)
        if home == CATALOGUE_STREAM:
            found.catalogue_last = max(found.catalogue_last, int(own.indexes[-1]))
            continue
        found.next_stream = max(found.next_stream, home + 1)
        stream = found.streams.get(home)
        if stream is None:
            # The stream's name is lost. Its records are kept: an administrator may know what they are.
            found.damage.append(Damage(None, 0, 0, number, int(own.offsets[0]), True))
            found.segments.damaged.add(number)
            found.segments.live[number] += own.size
            continue
        own = own.select(own.indexes > max(stream.chopped, *stream.table.rows.indexes[-1:].tolist(), 0))
        stream.table.extend(own._replace(homes=np.full(own.size, number, np.uint32)))
        stream.last = max(stream.last, *own.indexes[-1:].tolist(), 0)
        found.segments.live[number] += own.size


def _take_damage(found: RecoveredVolume, contents: list[SegmentContents], *, is_cut: bool) -> None:
    """Find out which records are missing, and report them as damage. `is_cut`: the last segments are gone."""
    places: dict[tuple[int, int], tuple[int, Region]] = {}
    doubt: Region | None = None
    for content in contents:
        for region in content.damage:
            found.segments.damaged.add(content.number)
            if region.header is None:
                found.damage.append(Damage(None, 0, 0, content.number, region.offset, region.synced))
                is_records = region.end > SEGMENT_HEADER_BYTES
                doubt = region if content is contents[-1] and is_records else doubt
                continue
            places[region.header.stream, region.header.serial] = content.number, region
            stream = found.streams.get(region.header.stream)
            if stream is not None:
                stream.last = max(stream.last, region.header.serial)
    if is_cut:
        _suspect(found, 0, Region(0, 0, None, True))
    elif doubt is not None:
        _suspect(found, contents[-1].number, doubt)
    for stream in found.streams.values():
        for first, last in stream.holes():
            number, region = places.get((stream.id, first), (0, Region(0, 0, None, True)))
            found.damage.append(Damage(stream.name, first, last, number, region.offset, region.synced))


def _suspect(found: RecoveredVolume, number: int, region: Region) -> None:
    """Bytes of the last segment are unreadable, with the headers in them; segment 0 for one that is missing.

    A stream without a record after these bytes may have lost its last records there. It gets a hole at its
    end, which the owner of the stream sees like any other hole.
    """
    for stream in found.streams.values():
        rows = stream.table.rows
        after = rows.size and rows.homes[-1] == number and rows.offsets[-1] >= region.end
        whole = stream.last == (int(rows.indexes[-1]) if rows.size else stream.chopped)
        if not after and whole:
            stream.last += 1


def _settle_tail(
    disk: Disk,
    identity: int,
    content: SegmentContents,
    found: RecoveredVolume,
    synced: DurableEnd,
    *,
    whole: bool,
) -> None:
    """Cut a torn tail and sync the rest.

    A segment without a readable catalogue, or whose end is damaged, is not written to again.
    """
    file = disk.open(segment_name(content.number))
    if content.growing and content.size != content.end:
        file.truncate(content.end)
    elif content.number == synced.segment and content.end < synced.offset < content.size:
        file.truncate(synced.offset)
    file.sync()
    disk.sync_directory()
    if content.growing and whole:
        found.tail = TailSegment(file, identity, content.number, content.end, content.rows, found.epoch)
    else:
        file.close()
