"""Blocks in a log stream: writing their records, reading them back, finding them again after a crash.

A damaged record makes its ticks unknown, and with them those of later records of its block that name a set
which the damaged one defined. A block whose head is damaged is lost as a whole; its records count as the last
ones of the block before it. Nothing is guessed and nothing is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tidemark.errors import DecodeError, UnknownFormatError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.stream import Undo
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.record import Ids, Index, PfsRecord, Summary, decode, encode
from tidemark.ticks import RangeSet

#: Beyond this, records do not wait in the volume for the owner's next sync.
PENDING_BYTES_MAX = 8 << 20


class LoadedBlock(NamedTuple):
    """What could be read of a block."""

    columns: BlockColumns
    #: the ticks of which the columns know whom they matched
    known: RangeSet


class FoundBlock(NamedTuple):
    """A block that recovery found."""

    #: index of its first record
    first: int
    summary: Summary
    #: its contents, if they had to be read
    loaded: LoadedBlock | None


class BlockLog:
    """The log stream with the blocks of one pubend."""

    def __init__(self, volume: LogVolume, stream: str, taken_back: Undo) -> None:
        """`taken_back` is called when the volume has taken back records that were written last."""
        self._volume = volume
        self._stream = stream
        self._taken_back = taken_back

    def write(self, record: PfsRecord) -> int:
        """Append a record. Returns its index. Raises DiskFullError or DiskFailedError."""
        if self._volume.pending_bytes >= PENDING_BYTES_MAX:
            self._volume.flush()
        return self._volume.append(self._stream, encode(record), undo=self._taken_back)

    def chop(self, upto_index: int) -> None:
        """Chop the records up to this index."""
        self._volume.chop(self._stream, upto_index)

    def lags(self) -> bool:
        """Returns whether the stream keeps a segment alive that the volume no longer writes to."""
        return self._volume.segments_behind(self._stream) > 0

    def load(self, first: int, last: int) -> LoadedBlock | None:
        """Returns what can be read of the block of these records; None if nothing can.

        Raises UnknownFormatError if another version wrote them.
        """
        found = self._volume.read_some(self._stream, first, last, bytes_max=None).records
        records = [(each.index, self._decoded(each.payload)) for each in found]
        whole = [record for index, record in records if record.back == index - first]
        return _assemble(whole) if whole and whole[0].head else None

    def recover(self) -> list[FoundBlock]:
        """Returns every block of the stream, in the order they were written.

        Recovery reads the last block, and one record of each other block; a block whose successor has no
        readable head is read too.
        """
        first, last = self._volume.bounds(self._stream)
        found: list[FoundBlock] = []
        # What the head of the next block says of the block that ends at `probe`.
        said: Summary | None = None
        probe = last
        while probe >= first:
            start = probe + 1 - said.records if said else probe - self._back(probe)
            head = self._record(start) if start >= first else None
            if head is not None and head.head is not None:
                found.append(self._found(start, last, said))
                last = start - 1
            said = _shared(head.head.before if head and head.head else None, said)
            probe = start - 1
        return found[::-1]

    def _found(self, first: int, last: int, said: Summary | None) -> FoundBlock:
        if said is not None:
            return FoundBlock(first, said, None)
        loaded = self.load(first, last)
        assert loaded is not None, "its head has been read"
        span = loaded.known.span
        assert span is not None, "its head is known"
        columns, records = loaded.columns, last + 1 - first
        rows, bits, present = len(columns.ticks), columns.group_bits, columns.present()
        return FoundBlock(first, Summary(records, *span, rows, bits, present), loaded)

    def _back(self, index: int) -> int:
        """Returns how many records of its block precede this one; 0 if the record is damaged."""
        record = self._record(index)
        return record.back if record else 0

    def _record(self, index: int) -> PfsRecord | None:
        found = self._volume.read_some(self._stream, index, index).records
        return self._decoded(found[0].payload) if found else None

    def _decoded(self, payload: Buffer) -> PfsRecord:
        try:
            return decode(payload)
        except DecodeError as error:
            # The bytes pass the volume's check, so they are what another version wrote.
            raise UnknownFormatError(
                f"{error}; start the version that wrote it", path=self._stream
            ) from error


def _shared(summary: Summary | None, later: Summary | None) -> Summary | None:
    """Returns the summary, with the array of the block after it if both have the same groups present.

    A long history has ten thousand blocks and more, and most of them have the same subscribers.
    """
    if summary is None or later is None or not np.array_equal(summary.present, later.present):
        return summary
    return replace(summary, present=later.present)


def _lengths(records: list[PfsRecord]) -> Ids | None:
    """Returns lengths[row] of all records; None if one of them does not say."""
    found = [record.lengths for record in records if record.lengths is not None]
    return np.concatenate(found) if len(found) == len(records) else None


def _assemble(records: list[PfsRecord]) -> LoadedBlock:
    """Returns the rows of all records that name no lost set; sets whose definition is lost are left empty."""
    head = records[0].head
    assert head is not None
    sizes: list[Index] = []
    defined = 0
    for record in records:
        lost = record.first_set - defined
        assert lost >= 0, "sets are numbered on"
        sizes += [np.zeros(lost, np.int64), record.new.sizes]
        defined += lost + len(record.new.sizes)
    size_of = np.concatenate(sizes)
    whole = [record for record in records if size_of[record.sets].all()]
    columns = BlockColumns(
        np.concatenate([record.ticks for record in whole]),
        np.concatenate([record.sets for record in whole]),
        _lengths(whole),
        size_of.cumsum(),
        np.concatenate([record.new.members for record in records]),
        head.group_bits,
    )
    return LoadedBlock(columns, RangeSet((record.base, record.upto) for record in whole))
