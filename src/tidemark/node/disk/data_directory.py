"""The data directory of a broker: its lock, the version of its format, and the directories in it.

    lock            locked by the process that uses the directory; holds its process id
    version         one line: "tidemark data 1", with "restored" behind it until the first start from a backup
    log/            the event logs of the pubends hosted here
    pfs/            the PFS: which events matched which durable subscriber
    tables/         subscriptions, topics and acknowledgements
    witness/        how far the three above were on the platter, so that one that is older is noticed
    cache/          history of other brokers' pubends, of use to one life only: it may be deleted at any time
    overlay.toml    the topology, once it was changed while the broker ran
    access.toml     the access document, once it was changed while the broker ran; readable by its owner only
    restored        the backup that the directory was put back from, until its first start has succeeded
    restoring       in place of `version` while a backup is put back: such a directory cannot be started
    snapshot/       links to the files above and a copy of the tables, while a backup is made

A directory that holds something else, or data of another version, is refused and left as it is.

What a crash may lose: nothing of `version`, `overlay.toml` and `access.toml`. Each is written under another
name, synced, renamed, and the directory synced, before anything relies on it; a crash on the way leaves the
file as it was, and at most an unfinished file ending in `.new`, which the next writing replaces.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from zlib import crc32

from tidemark.access.document import AccessDocument
from tidemark.errors import DamagedError, StorageError, UnknownFormatError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import Topology
from tidemark.persistence.restoration import Restoration
from tidemark.storage.disk.atomic_file import replace_file
from tidemark.storage.disk.real_disk import LOCK, RealDisk

VERSION_FILE = "version"
VERSION_FILE_NEW = "version.new"
OVERLAY_FILE = "overlay.toml"
OVERLAY_FILE_NEW = "overlay.new"
ACCESS_FILE = "access.toml"
ACCESS_FILE_NEW = "access.new"
RESTORED_FILE = "restored"
RESTORING_FILE = "restoring"
SNAPSHOT = "snapshot"
VERSION = 1
PARTS = ("log", "pfs", "tables", "witness", "cache")
#: How the second line of a saved file begins, the first of `restored`; it has the checksum of all others.
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

    def restoration(self) -> Restoration | None:
        """Returns the backup that the directory was put back from, if this is the first start since then.

        Raises DamagedError if the file about it was altered.
        """
        path = self.path / RESTORED_FILE
        if not path.exists():
            return None
        check, _, text = path.read_bytes().decode(errors="replace").partition("\n")
        if check != _check_line(RESTORED_FILE, text):
            reason = "was altered; restore the backup again into an empty directory"
            raise DamagedError(reason, path=str(path), offset=0)
        found = json.loads(text)
        return Restoration(**{each.name: int(found[each.name]) for each in fields(Restoration)})

    def has_started(self) -> None:
        """The first start since the directory was put back has succeeded. Raises StorageError."""
        if RESTORED_FILE in self._disk.list():
            # In this order: after a crash between the two, the next start is once more the first.
            replace_file(self._disk, VERSION_FILE, [_line().encode() + b"\n"], draft=VERSION_FILE_NEW)
            self._disk.remove(RESTORED_FILE)
            self._disk.sync_directory()

    def close(self) -> None:
        """Release the lock, so that another process may use the directory."""
        self._disk.unlock()

    def _check(self) -> None:
        names = _names(self.path)
        if VERSION_FILE not in names:
            self._create(names)
            return
        text = (self.path / VERSION_FILE).read_bytes()[:100].decode(errors="replace").strip()
        if not _VERSION_LINE.fullmatch(text):
            raise DamagedError(f"says {text!r}; {_ADVICE}", path=str(self.path / VERSION_FILE), offset=0)
        if text == _line() + _RESTORED and RESTORED_FILE not in names:
            reason = "is gone; restore the backup again into an empty directory"
            raise DamagedError(reason, path=str(self.path / RESTORED_FILE), offset=0)
        if text.removesuffix(_RESTORED) != _line():
            reason = f"says {text!r}, this broker uses {_line()!r}; start the version that wrote it"
            raise UnknownFormatError(reason, path=str(self.path / VERSION_FILE))

    def _create(self, names: set[str]) -> None:
        """Write the version first: a crash leaves a new directory, or one that says what it is."""
        if RESTORING_FILE in names:
            reason = "a backup was not put back completely: empty it, and restore the backup again"
            raise UnknownFormatError(reason, path=str(self.path))
        if names >= set(PARTS):
            raise DamagedError(f"is gone; {_ADVICE}", path=str(self.path / VERSION_FILE), offset=0)
        strange = sorted(names - _HARMLESS)
        if strange:
            reason = f"has {strange[0]!r} in it and is no data directory; choose a new or an empty one"
            raise UnknownFormatError(reason, path=str(self.path))
        replace_file(self._disk, VERSION_FILE, [_line().encode() + b"\n"], draft=VERSION_FILE_NEW)


class RestoredDirectory:
    """A directory into which a backup is put back: it becomes a data directory at the end, and not before."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Lock the directory, which is made if need be and has to be empty.

        What an attempt that was interrupted has left is removed. Raises StorageError; the directory is left
        as it is then.
        """
        self.path = Path(path)
        self._disk = RealDisk(path)
        self._disk.lock()
        try:
            names = _names(self.path)
            if RESTORING_FILE in names and VERSION_FILE not in names:
                self.clear()
                names = _names(self.path)
            strange = sorted(names - _HARMLESS)
            if strange:
                reason = f"has {strange[0]!r} in it; restore into a new or an empty directory"
                raise StorageError(reason, path=str(self.path))
            self._disk.create(RESTORING_FILE).close()
            self._disk.sync_directory()
        except BaseException:
            self._disk.unlock()
            raise

    def finish(self, restoration: Restoration) -> None:
        """Everything is there and on the platter: make it a data directory. Raises StorageError."""
        if (self.path / ACCESS_FILE).exists():
            (self.path / ACCESS_FILE).chmod(0o600)
        text = json.dumps(asdict(restoration))
        replace_file(self._disk, RESTORED_FILE, [f"{_check_line(RESTORED_FILE, text)}\n{text}".encode()])
        # If the file about the restoration is lost before the first start, that is noticed.
        line = _line() + _RESTORED
        replace_file(self._disk, VERSION_FILE, [line.encode() + b"\n"], draft=VERSION_FILE_NEW)
        self._disk.remove(RESTORING_FILE)
        self._disk.sync_directory()

    def clear(self) -> None:
        """Remove what was put here so far."""
        for part in PARTS:
            shutil.rmtree(self.path / part, ignore_errors=True)
        for name in (OVERLAY_FILE, ACCESS_FILE, RESTORED_FILE, f"{RESTORED_FILE}.new", RESTORING_FILE):
            (self.path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        self._disk.unlock()


def _check_line(number: str, text: str) -> str:
    """The line with the checksum of a text, and of the number of its version or what else belongs to it."""
    return f"{_CHECK}{crc32(f'{number} {text}'.encode()):08x}"


def _line() -> str:
    return f"tidemark data {VERSION}"


#: How the line goes on until the first start of a directory that was put back from a backup.
_RESTORED = " restored"
_VERSION_LINE = re.compile(rf"tidemark data \d{{1,9}}({_RESTORED})?")
#: What an administrator can do about a version that is gone or that nobody wrote.
_ADVICE = f"put a copy back, which is one line like {_line()!r}"


def _names(path: Path) -> set[str]:
    try:
        return set(os.listdir(path))
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", path=str(path)) from error
