"""SyncedStream: a file whose bytes go to the platter while more of them are being made.

The owner syncs the file once it is complete. If that were the only sync, all bytes would wait for it: whoever
makes them and the disk would take turns. So a thread syncs what there is whenever SYNCED_BYTES more have been
written, one sync at a time. Nobody waits for it before the end.
"""

from __future__ import annotations

import io
import os
from threading import Thread
from typing import Any

#: Bytes that are written between the beginnings of two syncs, at the least.
SYNCED_BYTES = 16 << 20


class SyncedStream(io.BufferedWriter):
    """A new file, of which `settle` has to be called before it is synced for the last time and closed."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        #: written since the last sync began
        self._unsynced_bytes = 0
        self._thread: Thread | None = None
        #: the first failure of a sync: the operating system tells it once, and the last sync may succeed
        self._error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, and begin a sync if there is enough for one."""
        count = super().write(data)
        self._unsynced_bytes += count
        is_syncing = self._thread is not None and self._thread.is_alive()
        if self._unsynced_bytes >= SYNCED_BYTES and not is_syncing:
            self._unsynced_bytes = 0
            self._thread = Thread(target=self._sync, name="tidemark write-behind", daemon=True)
            self._thread.start()
        return count

    def settle(self) -> None:
        """Wait for a sync that is under way. Raises the OSError of the first sync that has failed."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _sync(self) -> None:
        try:
            # Some systems have only the other one.
            getattr(os, "fdatasync", os.fsync)(self.fileno())
        except OSError as error:
            self._error = self._error or error
