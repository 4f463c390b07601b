"""A snapshot of stores in this process, read without a broker's connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemark.node.disk.data_directory import SNAPSHOT
from tidemark.node.disk.snapshots import take_of_log, take_of_pfs_and_tables
from tidemark.persistence.store import Store
from tidemark.wire.answers import Setting, SnapshotStatus


class LocalSnapshot:
    """The stores in a data directory at one moment."""

    settings: tuple[Setting, ...] = ()

    def __init__(
        self, store: Store, data: Path, now: int, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """`meanwhile` is done between the snapshot of the log and that of the other stores."""
        self._directory = data / SNAPSHOT
        of_log, place = take_of_log(store, data)
        meanwhile()
        others, generation = take_of_pfs_and_tables(store, data)
        self.status = SnapshotStatus("s", "b1", 1, now, place.segment, generation, (*of_log, *others))
        #: files that were read
        self.read_files: list[str] = []
        #: what to do before the next piece
        self.before_read: Callable[[], None] = lambda: None

    def read(self, file: str, offset: int, length: int) -> bytes:
        """A piece of a file."""
        self.before_read()
        self.read_files.append(file)
        return (self._directory / file).read_bytes()[offset : offset + length]
