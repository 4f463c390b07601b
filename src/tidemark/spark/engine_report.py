"""How the engine of an archive is doing, written beside the archive and told to its brokers.

`_archive/engine.json` is what `tidemark pipeline status` reads; brokers show the same on `/metrics`. Both are
only for people: nothing is decided by them, and a report that cannot be made is left out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tidemark.errors import StorageError, TidemarkError, WireError
from tidemark.spark.archive.state import FOLDER, ArchiveState
from tidemark.spark.connections import ArchiveBrokers
from tidemark.spark.locations import Place, folder_at
from tidemark.wire.answers import REPORT_ENGINE, REPORTED_CHARACTERS_MAX, EngineStatus

if TYPE_CHECKING:
    from tidemark.spark.archive.archive import Archive

FILE = "engine.json"
#: How often a report is made.
REPORT_SECONDS = 5.0
#: A person waits for the archive to stop, so a broker that is away is given up this soon.
_CONNECT_SECONDS = 1.0


class EngineReporter:
    """Reports on one engine, for the length of a `with` block."""

    def __init__(self, urls: Sequence[str], path: Place, engine: str, master: str) -> None:
        self._brokers = ArchiveBrokers(urls, patience=_CONNECT_SECONDS)
        self._folder = folder_at(path) / FOLDER
        self._engine = engine
        self._master = master
        #: the address of Spark's web interface, if there is one
        self.ui = ""
        self._reported = float("-inf")

    def __enter__(self) -> EngineReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._brokers.close()

    def report(self, archive: Archive, error: str) -> None:
        """Report, if the last report is REPORT_SECONDS old; `error` is what went wrong last."""
        if time.monotonic() < self._reported + REPORT_SECONDS:
            return
        self._reported = time.monotonic()
        state, (files, file_bytes) = archive.state, archive.extent()
        status = EngineStatus(
            engine=self._engine,
            master=self._master[:REPORTED_CHARACTERS_MAX],
            process=os.getpid(),
            ui=self.ui[:REPORTED_CHARACTERS_MAX],
            batch=state.batch,
            events=state.events,
            events_per_second=round(rate_of(state) or 0.0, 3),
            error=error[:REPORTED_CHARACTERS_MAX],
            at=time.time(),
            files=files,
            file_bytes=file_bytes,
        )
        with suppress(StorageError):
            self._folder.replace(FILE, json.dumps(status.to_json()).encode())
        for url in self._brokers.urls:
            if url not in self._brokers.away:
                with suppress(TidemarkError):
                    self._brokers.client(url).ask(REPORT_ENGINE, **status.to_json())


def rate_of(state: ArchiveState) -> float | None:
    """Events a second over the rounds that the state remembers, by the time that those took."""
    seconds = sum(each.seconds for each in state.rounds)
    return sum(each.events for each in state.rounds) / seconds if seconds else None


def load_report(path: Place) -> EngineStatus | None:
    """The last report that was written beside the archive; None if there is none that can be read."""
    try:
        return EngineStatus.from_json(json.loads((folder_at(path) / FOLDER).read(FILE) or b""))
    except (StorageError, ValueError, WireError):
        return None
