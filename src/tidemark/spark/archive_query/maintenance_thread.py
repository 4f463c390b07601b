"""Maintenance of the archive beside the query: Spark jobs that merge files, and the end of old history."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType

from tidemark.spark.archive.compaction import Maintenance

#: How often it is looked whether the archive has got events.
LOOK_SECONDS = 1.0
#: When the thread is stopped, a job is waited for so long.
STOP_SECONDS = 5.0


class MaintenanceThread:
    """Runs the maintenance of one archive, for the length of a `with` block."""

    def __init__(self, maintenance: Maintenance) -> None:
        self._maintenance = maintenance
        self._changed, self._stopped = Event(), Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tidemark maintenance", daemon=True)

    def __enter__(self) -> MaintenanceThread:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(STOP_SECONDS)

    def changed(self) -> None:
        """The archive has got events."""
        self._changed.set()

    def check(self) -> None:
        """Raise the error that ended the maintenance, if one has."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopped.wait(LOOK_SECONDS):
                is_changed = self._changed.is_set()
                self._changed.clear()
                self._maintenance.run(is_changed=is_changed)
        except BaseException as error:
            # After the stop, a job fails because the session ends.
            if not self._stopped.is_set():
                self._error = error
