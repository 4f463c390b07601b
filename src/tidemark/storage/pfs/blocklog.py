"""Blocks in a log stream: writing their records, reading them back, finding them again after a crash.

A damaged record makes the ticks it spoke of unknown, and with them those of later records of its block that
name a set it defined. A block whose head is damaged is lost as a whole; its records count as the last ones of
the block before it. Nothing is guessed and nothing deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tidemark.errors import DecodeError, UnknownFormatError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.record import Index, PfsRecord, Summary, decode, encode
from tidemark.ticks import RangeSet

#: More than this does not wait in the volume for the owner's next sync.
PENDING_BYTES_MAX = 8 << 20


class LoadedBlock(NamedTuple):
    """What could be read of a block."""

    columns: BlockColumns
    #: the ticks that the columns speak of
    known: RangeSet


class FoundBlock(NamedTuple):
    """A block that recovery found, where its first record is, and its contents if they had to be read."""

    first: int
    summary: Summary
    loaded: LoadedBlock | None


class BlockLog:
    """The log stream of one pubend's blocks."""

    def __init__(self, volume: LogVolume, stream: str, taken_back: Callable[[], None]) -> None:
        """`taken_back` is called when the volume has had to give up records that were written last."""
        self._volume = volume
        self._stream = stream
        self._taken_back = taken_back

    def write(self, record: PfsRecord) -> int:
        """Append a record; its index."""
        if self._volume.pending_bytes >= PENDING_BYTES_MAX:
            self._volume.flush()
        return self._volume.append(self._stream, encode(record), undo=self._taken_back)

    def chop(self, upto_index: int) -> None:
        """Let go of the records up to this one."""
        self._volume.chop(self._stream, upto_index)

    def lags(self) -> bool:
        """Does the stream keep a segment alive that the volume no longer writes to?"""
        return self._volume.segments_behind(self._stream) > 0

    def load(self, first: int, last: int) -> LoadedBlock | None:
        """The block of these records, as far as it is whole; None when nothing of it is."""
        found = self._volume.read_some(self._stream, first, last, bytes_max=None).records
        records = [(each.index, self._decoded(each.payload)) for each in found]
        whole = [record for index, record in records if record.back == index - first]
        return _assemble(whole) if whole and whole[0].head else None

    def recover(self) -> list[FoundBlock]:
        """Every block of the stream, in the order they were written.

        Reads the last block, and one record of each other; where the heads' chain is broken, a block more.
        """
        first, last = self._volume.bounds(self._stream)
        found: list[FoundBlock] = []
        #: what the head that follows `probe` says of the block that ends there
        said: Summary | None = None
        probe = last
        while probe >= first:
            start = probe + 1 - said.records if said else probe - self._back(probe)
            head = self._record(start) if start >= first else None
            if head is not None and head.head is not None:
                found.append(self._found(start, last, said))
                last = start - 1
            said = head.head.before if head and head.head else None
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
        """How many records of its block precede this one; 0 when it cannot say."""
        record = self._record(index)
        return record.back if record else 0

    def _record(self, index: int) -> PfsRecord | None:
        found = self._volume.read_some(self._stream, index, index).records
        return self._decoded(found[0].payload) if found else None

    def _decoded(self, payload: Buffer) -> PfsRecord:
        try:
            return decode(payload)
        except DecodeError as error:
            # The volume vouches for the bytes, so they are what someone wrote who is not us.
            raise UnknownFormatError(
                f"{error}; start the version that wrote it", path=self._stream
            ) from error


def _assemble(records: list[PfsRecord]) -> LoadedBlock:
    """The rows of all records that name no lost set; sets whose definition is lost are left empty."""
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
        size_of.cumsum(),
        np.concatenate([record.new.members for record in records]),
        head.group_bits,
    )
    return LoadedBlock(columns, RangeSet((record.base, record.upto) for record in whole))
