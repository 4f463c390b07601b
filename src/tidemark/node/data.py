"""The data directory: who may use it, what version it is of, and what lies where in it.

    lock        held by the process that uses the directory
    version     one line: "tidemark data 1"
    log/        the event logs of the pubends hosted here
    pfs/        what matched whom
    tables/     subscriptions, topics and acknowledgements

Nothing is created in a directory that holds something else, and nothing touched in one of another version.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidemark.errors import StorageError, UnknownFormatError
from tidemark.storage.realdisk import LOCK, RealDisk

VERSION_FILE = "version"
VERSION_FILE_NEW = "version.new"
VERSION = 1
PARTS = ("log", "pfs", "tables")
#: What may lie in a directory before its first use: file systems put it there.
_HARMLESS = {LOCK, VERSION_FILE_NEW, "lost+found"}


class DataDirectory:
    """An open data directory; `close` lets the next process in."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Lock it; make it on the first start. StorageError if it cannot be used: it is left alone then."""
        self.path = Path(path)
        self._disk = RealDisk(path)
        self._disk.lock()
        try:
            self._check()
            for part in PARTS:
                RealDisk(self.path / part)
        except BaseException:
            self._disk.unlock()
            raise

    def part(self, name: str) -> Path:
        """The directory of one of PARTS."""
        assert name in PARTS
        return self.path / name

    def close(self) -> None:
        """Let others use it."""
        self._disk.unlock()

    def _check(self) -> None:
        names = _names(self.path)
        if VERSION_FILE not in names:
            self._create(names)
            return
        text = (self.path / VERSION_FILE).read_bytes()[:100].decode(errors="replace").strip()
        if text != _line():
            reason = f"says {text!r}, this broker uses {_line()!r}; start the version that wrote it"
            raise UnknownFormatError(reason, path=str(self.path / VERSION_FILE))

    def _create(self, names: set[str]) -> None:
        """Write the version first: a crash leaves a new directory, or one that says what it is."""
        strange = sorted(names - _HARMLESS)
        if strange:
            reason = f"has {strange[0]!r} in it and is no data directory; choose a new or an empty one"
            raise UnknownFormatError(reason, path=str(self.path))
        if VERSION_FILE_NEW in names:
            self._disk.remove(VERSION_FILE_NEW)
        file = self._disk.create(VERSION_FILE_NEW)
        try:
            file.append([_line().encode() + b"\n"])
            file.sync()
        finally:
            file.close()
        self._disk.rename(VERSION_FILE_NEW, VERSION_FILE)
        self._disk.sync_directory()


def _line() -> str:
    return f"tidemark data {VERSION}"


def _names(path: Path) -> set[str]:
    try:
        return set(os.listdir(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", path=str(path)) from error
