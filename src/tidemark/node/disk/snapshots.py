"""Snapshots: the stores of a running broker as they were at one moment, for a backup to be read from.

A snapshot is the directory `snapshot` in the data directory. Segments of the log and of the PFS never change
below their synced end, so hard links to them are taken, which costs no space and no time, and keeps them
while the broker lets go of them. The tables are copied by SQLite, on the thread that writes them. The order
makes the stores agree: the log first, then the PFS and the tables together. So the tables know of every
subscriber in the PFS, and nothing that the log has let go is missing to somebody in the tables; the tables
may know of acknowledgements beyond the end of the log, which is what a lost end of a log looks like anyhow.

Whoever makes the backup reads the files in pieces (`SnapshotPiece`). One snapshot is there at a time. It ends
when it is told to, when nobody has read of it for IDLE_SECONDS, and when the broker starts again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

from tidemark.errors import StorageError
from tidemark.node.clock import wall_us
from tidemark.node.disk.data_directory import ACCESS_FILE, OVERLAY_FILE, SNAPSHOT
from tidemark.persistence.store import Store
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.segments.durable_end import DurableEnd
from tidemark.wire.answers import SnapshotFile, SnapshotPiece, SnapshotStatus

if TYPE_CHECKING:
    from tidemark.node.disk.disk_threads import DiskThreads

#: A snapshot that nobody has read of for so long ends: whoever made the backup is gone.
IDLE_SECONDS = 30.0
#: Bytes of one piece. A larger one would keep the loop busy for longer than a millisecond or two.
PIECE_BYTES_MAX = 512 << 10
TABLES_COPY = "tables/tables.sqlite"

_Result = TypeVar("_Result")


def remove_snapshot(data: Path) -> None:
    """Remove the snapshot that a killed broker has left in its data directory, if there is one."""
    shutil.rmtree(data / SNAPSHOT, ignore_errors=True)


def take_of_log(store: Store, data: Path) -> tuple[list[SnapshotFile], DurableEnd]:
    """Begin a snapshot with the event logs, the topology and who may do what. For the event logs' thread.

    Returns its files so far, and up to where the logs are in it. Raises StorageError.
    """
    remove_snapshot(data)
    cut, place = store.cut_log()
    files = _linked(data, "log", cut, place)
    documents = {name: None for name in (OVERLAY_FILE, ACCESS_FILE) if (data / name).exists()}
    files += _linked(data, "", documents, None)
    return files, place


def take_of_pfs_and_tables(store: Store, data: Path) -> tuple[list[SnapshotFile], int]:
    """Go on with the PFS and the tables. Call it on their thread, after `take_of_log`.

    Returns the files, and how many commits the tables have. Raises StorageError.
    """
    copy = data / SNAPSHOT / TABLES_COPY
    _carefully(partial(copy.parent.mkdir, parents=True), copy)
    cut, generation = store.cut_pfs_and_tables(str(copy))
    files = _linked(data, "pfs", cut, store.pfs_place)
    return [*files, SnapshotFile(TABLES_COPY, copy.stat().st_size, False)], generation


def _linked(
    data: Path, part: str, cut: Mapping[str, int | None], place: DurableEnd | None
) -> list[SnapshotFile]:
    """Link the files of a part of the data directory into the snapshot. Returns them."""
    directory = data / SNAPSHOT / part
    _carefully(partial(directory.mkdir, parents=True, exist_ok=True), directory)
    files = []
    for name, size in cut.items():
        link = directory / name
        _carefully(partial(os.link, data / part / name, link), link)
        # The file `volume` never changes, and every segment but the last is sealed.
        is_final = place is not None and size is None
        files.append(
            SnapshotFile(os.path.join(part, name), link.stat().st_size if size is None else size, is_final)
        )
    return files


def _carefully(action: Callable[[], _Result], path: Path) -> _Result:
    """A snapshot that cannot be taken is no failure of the broker's disk."""
    try:
        return action()
    except OSError as error:
        raise StorageError(f"no snapshot can be taken here: {error.strerror}", path=str(path)) from error


class Snapshots:
    """The snapshots of one broker. Belongs to the event loop."""

    def __init__(self, data: Path, store: Store, disk: DiskThreads) -> None:
        """`disk` are the threads on which `store` is used."""
        self._data = data
        self._store = store
        self._disk = disk
        #: the name of the snapshot that is there or being taken; None if none is
        self._name: str | None = None
        #: file -> how many of its bytes belong to the snapshot; none while the snapshot is being taken
        self._lengths: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, broker: str, incarnation: int) -> SnapshotStatus:
        """Take a snapshot. Returns what is in it. Raises StorageError."""
        if self._name is not None:
            reason = f"another backup is being made; it is given up {IDLE_SECONDS:g} s after it stops reading"
            raise StorageError(reason, path=str(self._data / SNAPSHOT))
        name = self._name = token_hex(8)
        try:
            taken = wall_us()
            of_log, place = await self._disk.call(partial(take_of_log, self._store, self._data))
            others, generation = await self._disk.call_for_tables(
                partial(take_of_pfs_and_tables, self._store, self._data)
            )
        except BaseException:
            self._name = None
            await asyncio.to_thread(remove_snapshot, self._data)
            raise
        files = (*of_log, *others)
        self._lengths = {each.name: each.bytes for each in files}
        self._wait()
        return SnapshotStatus(name, broker, incarnation, taken, place.segment, generation, files)

    async def read(self, snapshot: str, file: str, offset: int, length: int) -> SnapshotPiece:
        """Returns a piece of a file of the snapshot. Raises StorageError."""
        size = self._lengths.get(file)
        if snapshot != self._name or size is None:
            reason = (
                "the snapshot is over: nobody has read of it for a while, or the broker has started again"
            )
            raise StorageError(reason, path=file)
        self._wait()
        length = max(0, min(length, PIECE_BYTES_MAX, size - offset))
        return await asyncio.to_thread(_piece, self._data / SNAPSHOT / file, offset, length)

    async def end(self, snapshot: str) -> None:
        """End a snapshot, if it is still there."""
        if snapshot == self._name and self._lengths:
            self._lengths = {}
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.to_thread(remove_snapshot, self._data)
            self._name = None

    def stop(self) -> None:
        """Remove the snapshot: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
        remove_snapshot(self._data)

    def _wait(self) -> None:
        """Let the snapshot stay for a while longer."""
        if self._timer is not None:
            self._timer.cancel()
        loop, name = asyncio.get_running_loop(), self._name or ""
        self._timer = loop.call_later(IDLE_SECONDS, lambda: loop.create_task(self.end(name)))


def _piece(path: Path, offset: int, length: int) -> SnapshotPiece:
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", path=str(path)) from error
    return SnapshotPiece(b64encode(data).decode(), crc32c(data))
