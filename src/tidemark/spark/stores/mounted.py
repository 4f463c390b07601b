"""A folder of a file system that is mounted under the same name wherever the pipeline runs."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemark.errors import DiskFailedError, DiskFullError, StorageError
from tidemark.spark.stores.folder import Folder, FoundFile, NewFile, TaggedContent
from tidemark.spark.stores.synced_stream import SyncedStream
from tidemark.storage.disk.atomic_file import FULL_ERRNOS, sync_path


class MountedFolder(Folder):
    """A directory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute, because a task in another process or on another machine has another working directory.
        self.text = self.mounted = os.path.abspath(path)

    def __truediv__(self, name: str) -> MountedFolder:
        return MountedFolder(os.path.join(self.text, name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MountedFolder) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"MountedFolder({self.text!r})"

    @property
    def path(self) -> Path:
        """The directory."""
        return Path(self.text)

    @property
    def delta_options(self) -> Mapping[str, str]:
        """None are needed."""
        return {}

    def make(self) -> None:
        """Make the directory and those above it, private to this user, and sync their names."""
        with self.errors():
            missing = [each for each in (self.path, *self.path.parents) if not each.exists()]
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in missing:
                sync_path(each.parent)

    def exists(self) -> bool:
        """Is there such a directory?"""
        return self.path.is_dir()

    def files(self, *, prefix: str = "") -> list[FoundFile]:
        """The regular files in the directory."""
        found = []
        with self.errors(), suppress(FileNotFoundError), os.scandir(self.text) as entries:
            for entry in entries:
                # A file may be removed while the directory is listed.
                with suppress(FileNotFoundError):
                    if entry.name.startswith(prefix) and entry.is_file():
                        stat = entry.stat()
                        found.append(FoundFile(entry.name, stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda each: each.name)

    def folders(self) -> list[str]:
        """The directories in the directory."""
        with self.errors(), suppress(FileNotFoundError), os.scandir(self.text) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

    def read(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"cannot be read: {error.strerror}", path=self.at(name)) from error

    def open(self, name: str) -> BinaryIO:
        """The file itself."""
        return (self.path / name).open("rb")

    def local_copy(self, name: str) -> BinaryIO:
        """The file itself."""
        return self.open(name)

    def create(self, name: str, *, private: bool = False, durable: bool = True) -> NewFile:
        """A file that others see from now on, under its name."""
        with self.errors(name):
            return _MountedFile(self.path / name, self, private=private, durable=durable)

    def replace(self, name: str, data: bytes) -> None:
        """Write a draft and sync it, let it take the name in one step, and sync the directory."""
        self.make()
        draft = self._draft(name)
        with self.errors(name):
            try:
                _write(draft, data)
                draft.replace(self.path / name)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            sync_path(self.path)

    def create_once(self, name: str, data: bytes) -> bool:
        """Write a draft and sync it, and link the name to it, which fails if the name is there."""
        self.make()
        draft = self._draft(name)
        with self.errors(name):
            try:
                _write(draft, data)
                with suppress(FileExistsError):
                    os.link(draft, self.path / name)
            finally:
                draft.unlink(missing_ok=True)
            sync_path(self.path)
        return self.read(name) == data

    def read_tagged(self, name: str) -> TaggedContent | None:
        """The content; a lock keeps other writers out, so the tag says nothing."""
        found = self.read(name)
        return None if found is None else TaggedContent(found, "")

    def replace_tagged(self, name: str, data: bytes, tag: str | None) -> bool:  # noqa: ARG002
        """Replace the file: a lock keeps other writers out."""
        self.replace(name, data)
        return True

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self.errors(name), suppress(FileNotFoundError):
            (self.path / name).unlink()

    def remove_all(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.text, ignore_errors=True)

    def sync(self, names: Sequence[str] = ()) -> None:
        """Sync the files that are named, and the directory."""
        with self.errors():
            for name in names:
                sync_path(self.path / name)
            sync_path(self.path)

    @contextmanager
    def errors(self, name: str = "") -> Iterator[None]:
        """Raise errors of the disk, and of Delta, as DiskFullError or DiskFailedError."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            yield
        except (StorageError, TableNotFoundError):
            raise
        except (OSError, DeltaError) as error:
            text = getattr(error, "strerror", None) or str(error).splitlines()[0]
            kind = DiskFullError if _is_full(error) else DiskFailedError
            raise kind(text, path=self.at(name) if name else self.text) from error

    def _draft(self, name: str) -> Path:
        return self.path / f".{name}.{uuid4().hex}.new"


class _MountedFile(NewFile):
    """A file under its own name."""

    def __init__(self, path: Path, folder: MountedFolder, *, private: bool, durable: bool) -> None:
        self._path = path
        self._folder = folder
        opener = _private if private else None
        self._synced = SyncedStream(io.FileIO(path, "xb", opener=opener)) if durable else None
        self.stream: BinaryIO = self._synced or open(path, "xb", opener=opener)  # noqa: SIM115

    def close(self) -> int:
        """Sync and close the file. It fails if one of the syncs of parts of it has failed."""
        with self._folder.errors(self._path.name):
            self.stream.flush()
            if self._synced is not None:
                self._synced.settle()
                os.fsync(self._synced.fileno())
            size = self.stream.tell()
            self.stream.close()
        return size

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            if self._synced is not None:
                self._synced.settle()
        with suppress(OSError):
            self.stream.close()
        self._path.unlink(missing_ok=True)


def _is_full(error: Exception) -> bool:
    number = getattr(error, "errno", None)
    if number is not None:
        return number in FULL_ERRNOS
    # The errors of delta-rs have no number, also those that are an OSError: the words of the operating system
    # are all that it passes on.
    return "No space left" in str(error) or "quota" in str(error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb", opener=_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
