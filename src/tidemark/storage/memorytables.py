"""Tables in memory, for tests and the simulator: a crash loses what was not committed, as on disk."""

from __future__ import annotations

from copy import deepcopy

from tidemark.storage.tables import Contents, Tables


class MemoryTables(Tables):
    """Tables whose commits go to a second copy."""

    def __init__(self, committed: Contents | None = None) -> None:
        #: what a crash leaves
        self._committed = committed or Contents()
        super().__init__(deepcopy(self._committed))

    def crash(self) -> MemoryTables:
        """What the next start finds. This one is to be used no more."""
        return MemoryTables(self._committed)

    def _write(self, changes: Contents, removed: set[int]) -> None:
        self._committed.merge(deepcopy(changes), removed)
