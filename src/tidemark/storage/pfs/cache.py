"""Blocks that were read lately, so that subscribers who return together read each once."""

from __future__ import annotations

from collections import OrderedDict

from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.extents import Block

CACHE_BYTES_MAX = 32 << 20


class BlockCache:
    """Columns by block; the one not asked for the longest goes first."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Block, BlockColumns] = OrderedDict()
        self._bytes = 0

    def get(self, block: Block) -> BlockColumns | None:
        """The block's columns, if they are here."""
        columns = self._held.get(block)
        if columns is not None:
            self._held.move_to_end(block)
        return columns

    def put(self, block: Block, columns: BlockColumns) -> None:
        """Keep them as long as there is room."""
        self.drop(block)
        self._held[block] = columns
        self._bytes += columns.nbytes
        while self._bytes > self._bytes_max:
            self.drop(next(iter(self._held)))

    def drop(self, block: Block) -> None:
        """Forget the block, if it is here."""
        columns = self._held.pop(block, None)
        if columns is not None:
            self._bytes -= columns.nbytes
