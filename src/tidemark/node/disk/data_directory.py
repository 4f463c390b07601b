"""The data directory of a broker: its lock, the version of its format, and the directories in it.

    lock            locked by the process that uses the directory; holds its process id
    version         one line: "tidemark data 1"
    log/            the event logs of the pubends hosted here
    pfs/            the PFS: which events matched which durable subscriber
    tables/         subscriptions, topics and acknowledgements
    witness/        how far the three above were on the platter, so that one that is older is noticed
    overlay.toml    the topology, once it was changed while the broker ran
    access.toml     the access document, once it was changed while the broker ran; readable by its owner only

A directory that holds something else, or data of another version, is refused and left as it is.

What a crash may lose: nothing of `version`, `overlay.toml` and `access.toml`. Each is written under another
name, synced, renamed, and the directory synced, before anything relies on it; a crash on the way leaves the
file as it was, and at most an unfinished file ending in `.new`, which the next writing replaces.
"""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

from tidemark.access.document import AccessDocument
from tidemark.errors import DamagedError, StorageError, UnknownFormatError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import Topology
from tidemark.storage.disk.atomic_file import replace_file
from tidemark.storage.disk.real_disk import LOCK, RealDisk

VERSION_FILE = "version"
VERSION_FILE_NEW = "version.new"
OVERLAY_FILE = "overlay.toml"
OVERLAY_FILE_NEW = "overlay.new"
ACCESS_FILE = "access.toml"
ACCESS_FILE_NEW = "access.new"
VERSION = 1
PARTS = ("log", "pfs", "tables", "witness")
#: How the second line of a saved file begins; the line has the checksum of all others.
_CHECK = "# check "
#: What a directory may hold before its first use: the lock, a version file that a crash left unfinished, and
#: what file systems put into a fresh volume.
_HARMLESS = {LOCK, VERSION_FILE_NEW, "lost+found"}


class DataDirectory:
    """An open data directory; `close` lets the next process in."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Lock the directory, and create it on the first start.

        Raises StorageError if the directory cannot be used; it is left as it is then.
        """
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
        """Returns the topology that was saved last, or None if none ever was.

        Raises UnknownFormatError, DamagedError or ConfigError if the file cannot be understood.
        """
        found = self._saved(OVERLAY_FILE)
        return None if found is None else parse_topology(found[1], found[0], str(self.path / OVERLAY_FILE))

    def save_topology(self, topology: Topology) -> None:
        """Replace the saved topology; it is on disk when this returns. Raises StorageError."""
        self._save(OVERLAY_FILE, OVERLAY_FILE_NEW, topology.version, to_text(topology))

    def access(self) -> AccessDocument | None:
        """Returns the access document that was saved last, or None if none ever was.

        Raises UnknownFormatError, DamagedError or AccessError if the file cannot be understood.
        """
        found = self._saved(ACCESS_FILE)
        return None if found is None else AccessDocument.parse(found[1], found[0])

    def save_access(self, document: AccessDocument) -> None:
        """Replace the saved access document; it is on disk when this returns. Raises StorageError."""
        self._save(ACCESS_FILE, ACCESS_FILE_NEW, document.version, document.text)
        (self.path / ACCESS_FILE).chmod(0o600)

    def _saved(self, name: str) -> tuple[int, str] | None:
        """Returns the version and the text of a file that `_save` wrote; None if there is none."""
        path = self.path / name
        if not path.exists():
            return None
        head, _, text = path.read_bytes().decode(errors="replace").partition("\n")
        number = head.removeprefix("# version ")
        if not number.isdecimal():
            raise UnknownFormatError(f"begins with {head!r}, not with its version", path=str(path))
        check, _, rest = text.partition("\n")
        # A file of an earlier version has no check.
        if not check.startswith(_CHECK):
            return int(number), text
        if check != _check_line(number, rest):
            raise DamagedError("was altered; put a copy back", path=str(path), offset=0)
        return int(number), rest

    def _save(self, name: str, draft: str, version: int, text: str) -> None:
        """Write a file under its checksum; it is on disk when this returns. Raises StorageError."""
        whole = f"# version {version}\n{_check_line(str(version), text)}\n{text}"
        replace_file(self._disk, name, [whole.encode()], draft=draft)

    def close(self) -> None:
        """Release the lock, so that another process may use the directory."""
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


def _check_line(number: str, text: str) -> str:
    return f"{_CHECK}{crc32(f'{number} {text}'.encode()):08x}"


def _line() -> str:
    return f"tidemark data {VERSION}"


def _names(path: Path) -> set[str]:
    try:
        return set(os.listdir(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", path=str(path)) from error
