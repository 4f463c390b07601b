"""Tables in memory, for tests and the simulator: a crash loses what was not committed, as on disk."""

from __future__ import annotations

from tidemark.errors import DiskFullError
from tidemark.storage.tables.tables import TableRows, Tables


class MemoryTables(Tables):
    """Tables whose commits go to a second copy."""

    def __init__(self, committed: TableRows | None = None) -> None:
        #: commits find no space from now on
        self.is_full = False
        #: what a crash leaves
        self._committed = committed or TableRows()
        super().__init__(_copy(self._committed))

    def crash(self) -> MemoryTables:
        """What the next start finds. This one is to be used no more."""
        after = MemoryTables(self._committed)
        after.is_full = self.is_full
        return after

    def _write(self, changes: TableRows, removed: set[int]) -> None:
        if self.is_full:
            raise DiskFullError("no space left on device", path="memory")
        self._committed.merge(changes, removed)


def _copy(contents: TableRows) -> TableRows:
    """Rows never change and `merge` makes dictionaries of its own, so the copy shares nothing that does."""
    copy = TableRows()
    copy.merge(contents, ())
    return copy
