"""Witness: the newest `Known`, in two small files that are written in turn.

A note is a write without a sync, so it costs the stores next to nothing. It survives the death of the
process at once, and that of the machine as soon as the operating system has written it. When one file is full
the other one is emptied and used, so that the newest note that is certainly on the platter stays there.

What a crash may lose: the notes since the last sync, or all of them. That is safe because a note only says
how far the stores were at least: whoever knows less expects less of them, and finds no damage where there is
none. The files are not needed for anything else; without them the broker starts as well.
"""

from __future__ import annotations

from tidemark.errors import DiskFullError
from tidemark.storage.disk.disk import Disk, File
from tidemark.storage.log.segments.durable_end import DurableEnd
from tidemark.storage.log.segments.segment import read_all
from tidemark.storage.witness.known import KNOWN_BYTES, Known, decode_known

#: Notes in one file.
NOTES_MAX = 256


class Witness:
    """The notes under one name in a directory. It is used by one thread at a time."""

    def __init__(self, disk: Disk, name: str) -> None:
        """Read the notes that are there; nothing is written before the first note."""
        self._disk = disk
        self._names = (f"{name}.0", f"{name}.1")
        found = [_read(disk, each) for each in self._names]
        #: everything that the notes say
        self.known = found[0].joined(found[1])
        #: which of the files is written to, and the file; None before the first note
        self._turn = 0 if found[1] == self.known else 1
        self._file: File | None = None
        self._notes = NOTES_MAX

    def note(self, known: Known, *, sync: bool = False) -> None:
        """Keep this. With `sync` it is on the platter on return, unless the disk is full.

        Raises DiskFailedError.
        """
        self.known = self.known.joined(known)
        self._write(sync=sync)

    def note_log(self, place: DurableEnd) -> None:
        """Keep that the log has got to `place`, as after each of its syncs. Raises DiskFailedError."""
        if place > self.known.log:
            self.known = self.known.with_log(place)
        self._write(sync=False)

    def _write(self, *, sync: bool) -> None:
        try:
            if self._file is None or self._notes >= NOTES_MAX:
                self._change_files()
            assert self._file is not None
            self._file.append((self.known.encode(),))
            self._notes += 1
            if sync:
                self._file.sync()
        except DiskFullError:
            pass  # a note that is not kept only means that less is expected

    def close(self) -> None:
        """Close the file. What was noted stays, as far as the operating system gets to write it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _change_files(self) -> None:
        self.close()
        self._turn = 1 - self._turn
        name = self._names[self._turn]
        if name in self._disk.list():
            self._file = self._disk.open(name)
            self._file.truncate(0)
        else:
            self._file = self._disk.create(name)
            self._disk.sync_directory()
        self._notes = 0


def _read(disk: Disk, name: str) -> Known:
    """Returns all that the notes of one file say; those that cannot be read are passed over."""
    if name not in disk.list():
        return Known()
    file = disk.open(name)
    try:
        data, _ = read_all(file)
    finally:
        file.close()
    known = Known()
    for at in range(0, len(data), KNOWN_BYTES):
        known = known.joined(decode_known(data[at : at + KNOWN_BYTES]) or Known())
    return known
