"""The PFS of one pubend: blocks on disk, the open block in memory, and unknown ticks between them.

Each tick becomes known once: ticks that are appended again, as after a crash, change nothing, and ticks that
were unknown, as after damage, are filled in.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

import numpy as np

from tidemark.storage.pfs.blocklog import BlockLog, LoadedBlock
from tidemark.storage.pfs.cache import BlockCache
from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.counting import OwedCounts
from tidemark.storage.pfs.extents import Block, Extents
from tidemark.storage.pfs.openblock import MembersOf, OpenBlock
from tidemark.storage.pfs.reading import Stretch
from tidemark.storage.pfs.record import Ids, Summary
from tidemark.ticks import Range, Tick, Ticks

#: The groups present in each block are kept in memory up to so many bytes a pubend; other blocks have to be
#: read.
PRESENT_BYTES_MAX = 64 << 20


class FilteredStream:
    """Which ticks of a pubend matched which subscribers."""

    def __init__(self, log: BlockLog, cache: BlockCache, group_bits: int) -> None:
        #: the last tick that was appended; None before there was any
        self.last: Tick | None = None
        self._log = log
        #: shared by the streams of all pubends of the PFS
        self._cache = cache
        self._group_bits = group_bits
        #: the blocks on disk, in the order they were written; their ticks are in `_extents`
        self._blocks: deque[Block] = deque()
        self._extents = Extents()
        #: memory of `present` of all blocks
        self._present_bytes = 0
        #: the summary of the last block on disk
        self._before: Summary | None = None
        #: the block that is being written, whose ticks follow all extents
        self._open: OpenBlock | None = None
        #: what subscribers are owed; forgotten with this object when the volume takes something back
        self.owed = OwedCounts(self)
        self._recover()

    def append(
        self, base: Tick, upto: Tick, ticks: Ticks, sets: Ids, lengths: Ids, members: MembersOf
    ) -> None:
        """Append `(base, upto]`, as far as it was unknown; arguments as of `PersistentFiltering.append`."""
        assert base <= upto
        if not sets.all():
            rows = sets != 0
            ticks, sets, lengths = ticks[rows], sets[rows], lengths[rows]
        last = base if self.last is None else self.last
        if last <= base:
            self._extend(base, upto, ticks, sets, lengths, members)
        else:
            for start, stop in self.gaps(base, upto):
                low, high = ticks.searchsorted((start, stop), "right")
                fill = self._extend if start >= last else self._patch
                fill(start, stop, ticks[low:high], sets[low:high], lengths[low:high], members)
        self.last = max(last, upto)

    def gaps(self, base: Tick, upto: Tick) -> list[Range]:
        """Returns the parts of `(base, upto]` that are unknown, without reading: damage may not show yet."""
        opened = self._open
        if opened is None:
            return self._extents.gaps(base, upto)
        beyond = (max(base, opened.upto), upto)
        gaps = self._extents.gaps(base, min(upto, opened.base))
        return [*gaps, beyond] if beyond[0] < beyond[1] else gaps

    def check(self, base: Tick, upto: Tick) -> list[Range]:
        """Returns the parts of `(base, upto]` that are unknown, after reading all blocks of the range."""
        extent = self._extents.after(base)
        while extent is not None and extent.base < upto:
            self._columns(extent.block)
            extent = self._extents.after(extent.upto)
        return self.gaps(base, upto)

    def flush(self) -> None:
        """Hand everything to the log volume; it is durable after the volume's next sync."""
        if self._open is not None:
            self._write(self._open)
            if self._open.full:
                self._close()

    def chop(self, upto: Tick) -> None:
        """Remove the blocks at or below `upto`."""
        # The open block can only be removed as a whole. If the pubend is quiet it must be closed for that, or
        # it would keep its segment alive.
        if self._open is not None and self._open.upto <= upto and self._log.lags():
            self._close()
        if not self._blocks or self._blocks[0].upto > upto:
            return
        self.owed.chopped(
            max(block.upto for block in takewhile(lambda each: each.upto <= upto, self._blocks))
        )
        gone: list[Block] = []
        while self._blocks and self._blocks[0].upto <= upto:
            gone.append(self._blocks.popleft())
        self._log.chop(gone[-1].last)
        self._extents.remove(set(gone), upto)
        for block in gone:
            self._cache.drop(block)
        kept = {
            id(block.present): block.present.nbytes for block in self._blocks if block.present is not None
        }
        self._present_bytes = sum(kept.values())

    def stretch(self, tick: Tick, subscribers: Ids) -> Stretch | None:
        """Returns the first known stretch beyond `tick`; without columns if it has none of `subscribers`."""
        extent = self._extents.after(tick)
        while extent is not None:
            present = extent.block.present
            groups = subscribers >> np.uint32(extent.block.group_bits)
            if present is not None and not _has_any(present, groups):
                return Stretch(extent.base, extent.upto, None)
            columns = self._columns(extent.block)
            # Reading may have found damage, which changes the extents.
            same = self._extents.after(tick)
            if same == extent:
                return Stretch(extent.base, extent.upto, columns)
            extent = same
        if self._open is None or self._open.upto <= tick:
            return None
        return Stretch(self._open.base, self._open.upto, self._open.columns())

    def _extend(
        self, base: Tick, upto: Tick, ticks: Ticks, sets: Ids, lengths: Ids, members: MembersOf
    ) -> None:
        """Append behind the last tick, in as many records and blocks as it takes."""
        if self._open is not None and self._open.upto != base:
            self._close()
        while base < upto:
            opened = self._open = self._open or OpenBlock(base, self._group_bits)
            taken = opened.add(upto, ticks, sets, lengths, members)
            ticks, sets, lengths, base = ticks[taken:], sets[taken:], lengths[taken:], opened.upto
            if opened.full:
                self._close()
            elif opened.pressing:
                self._write(opened)

    def _patch(
        self, base: Tick, upto: Tick, ticks: Ticks, sets: Ids, lengths: Ids, members: MembersOf
    ) -> None:
        """Fill a gap before the last tick with blocks of its own."""
        self._close()
        self.owed.forget()
        while base < upto:
            patch = OpenBlock(base, self._group_bits)
            taken = patch.add(upto, ticks, sets, lengths, members)
            ticks, sets, lengths, base = ticks[taken:], sets[taken:], lengths[taken:], patch.upto
            self._finish(patch)

    def _write(self, opened: OpenBlock) -> None:
        if opened.unwritten:
            opened.written(self._log.write(opened.record(self._before)))

    def _close(self) -> None:
        if self._open is not None:
            self._finish(self._open)
            self._open = None

    def _finish(self, opened: OpenBlock) -> None:
        """Write the rest of a complete block; from now on it is read from disk."""
        self._write(opened)
        self._before = opened.summary()
        block = self._closed(opened.first, self._before)
        self._cache.put(block, opened.columns())

    def _closed(self, first: int, summary: Summary) -> Block:
        """Add a block that was written after all others. Returns it."""
        block = Block(
            first,
            first + summary.records - 1,
            summary.base,
            summary.upto,
            summary.rows,
            summary.group_bits,
            self._remembered(summary.present),
        )
        self._blocks.append(block)
        self._extents.put(block.base, block.upto, block)
        return block

    def _remembered(self, present: Ids) -> Ids | None:
        """Returns the array to keep: that of the block before if it is equal, as usual.

        None if memory is short.
        """
        before = self._blocks[-1].present if self._blocks else None
        if before is not None and np.array_equal(present, before):
            return before
        if self._present_bytes + present.nbytes > PRESENT_BYTES_MAX:
            return None
        self._present_bytes += present.nbytes
        return present

    def _columns(self, block: Block) -> BlockColumns:
        """Returns the block's columns, from the cache or from disk.

        What is damaged is unknown from now on.
        """
        columns = self._cache.get(block)
        if columns is None:
            columns = self._take_in(block, self._log.load(block.first, block.last))
        return columns

    def _take_in(self, block: Block, loaded: LoadedBlock | None) -> BlockColumns:
        if loaded is None:
            self._extents.cut(block, [(block.base, block.upto)])
            return BlockColumns.nothing(block.group_bits)
        holes = loaded.known.gaps(block.base, block.upto)
        if holes:
            self._extents.cut(block, holes)
        self._cache.put(block, loaded.columns)
        return loaded.columns

    def _recover(self) -> None:
        for found in self._log.recover():
            block = self._closed(found.first, found.summary)
            self._before = found.summary
            if found.loaded is not None:
                self._take_in(block, found.loaded)
        self.last = self._extents.last


def _has_any(present: Ids, groups: Ids) -> bool:
    """Returns whether one of the groups is in `present`, which is sorted; np.isin takes ten times as long."""
    if not len(present):
        return False
    places = np.minimum(present.searchsorted(groups), len(present) - 1)
    return bool((present[places] == groups).any())
