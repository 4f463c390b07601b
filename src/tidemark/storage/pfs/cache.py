"""The cache of blocks that were read lately, so that subscribers who return together read each block once."""

from __future__ import annotations

from collections import OrderedDict

from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.extents import Block

CACHE_BYTES_MAX = 32 << 20


class BlockCache:
    """Columns by block, bounded in bytes.

    The block that was not used for the longest time is dropped first.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Block, BlockColumns] = OrderedDict()
        self._bytes = 0

    def get(self, block: Block) -> BlockColumns | None:
        """Returns the block's columns; None if they are not in the cache."""
        columns = self._held.get(block)
        if columns is not None:
            self._held.move_to_end(block)
        return columns

    def put(self, block: Block, columns: BlockColumns) -> None:
        """Keep the columns of a block as long as there is room."""
        self.drop(block)
        self._held[block] = columns
        self._bytes += columns.nbytes
        while self._bytes > self._bytes_max:
            self.drop(next(iter(self._held)))

    def drop(self, block: Block) -> None:
        """Drop a block, if it is in the cache."""
        columns = self._held.pop(block, None)
        if columns is not None:
            self._bytes -= columns.nbytes
