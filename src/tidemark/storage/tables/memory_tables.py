"""Tables in memory, for tests and the simulator. A crash loses what was not committed, as it does on disk."""

from __future__ import annotations

from tidemark.errors import DiskFullError
from tidemark.storage.tables.tables import TableRows, Tables


class MemoryTables(Tables):
    """Tables whose commits go to a second copy, which is what a crash leaves."""

    def __init__(self, committed: TableRows | None = None) -> None:
        #: whether commits find no space; a test sets it
        self.is_full = False
        #: the next commit finds space also on a full disk, because the reserve was given up for it
        self._has_room_once = False
        #: what a crash leaves; shared with the tables that `crash` returns
        self._committed = committed or TableRows()
        super().__init__(_copy(self._committed))

    def crash(self) -> MemoryTables:
        """Returns the tables that the next start finds. These must not be used any more."""
        after = MemoryTables(self._committed)
        after.is_full = self.is_full
        return after

    def copy(self) -> MemoryTables:
        """Returns tables of their own with what is committed here now: a copy that somebody made."""
        return MemoryTables(_copy(self._committed))

    def copy_to(self, path: str) -> None:
        """Tables in memory are copied by `copy`."""
        raise AssertionError(path)

    def _write(self, changes: TableRows, removed: set[int]) -> None:
        if self.is_full and not self._has_room_once:
            raise DiskFullError("no space left on device", path="memory")
        self._has_room_once = False
        self._committed.merge(changes, removed)

    def _spend_reserve(self) -> bool:
        self._has_room_once = True
        return True


def _copy(contents: TableRows) -> TableRows:
    """Returns a copy that shares nothing that changes.

    Rows never do, and `merge` makes its own dictionaries.
    """
    copy = TableRows()
    copy.merge(contents, ())
    return copy
