"""The data directory: who may use it, what version it is of, and what lies where in it.

    lock        held by the process that uses the directory
    version     one line: "tidemark data 1"
    log/        the event logs of the pubends hosted here
    pfs/        what matched whom
    tables/     subscriptions, topics and acknowledgements
    overlay.toml    the topology, once it was changed while the broker ran

Nothing is created in a directory that holds something else, and nothing touched in one of another version.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidemark.errors import StorageError, UnknownFormatError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import Topology
from tidemark.storage.disk.atomic_file import replace_file
from tidemark.storage.disk.real_disk import LOCK, RealDisk

VERSION_FILE = "version"
VERSION_FILE_NEW = "version.new"
OVERLAY_FILE = "overlay.toml"
OVERLAY_FILE_NEW = "overlay.new"
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

    def topology(self) -> Topology | None:
        """The topology that was saved last; None if none ever was."""
        path = self.path / OVERLAY_FILE
        if not path.exists():
            return None
        head, _, text = path.read_text().partition("\n")
        number = head.removeprefix("# version ")
        if not number.isdecimal():
            raise UnknownFormatError(f"begins with {head!r}, not with its version", path=str(path))
        return parse_topology(text, int(number), str(path))

    def save_topology(self, topology: Topology) -> None:
        """Keep it, in place of the one before; on disk when this returns."""
        text = f"# version {topology.version}\n{to_text(topology)}"
        replace_file(self._disk, OVERLAY_FILE, [text.encode()], draft=OVERLAY_FILE_NEW)

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
        replace_file(self._disk, VERSION_FILE, [_line().encode() + b"\n"], draft=VERSION_FILE_NEW)


def _line() -> str:
    return f"tidemark data {VERSION}"


def _names(path: Path) -> set[str]:
    try:
        return set(os.listdir(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", path=str(path)) from error
