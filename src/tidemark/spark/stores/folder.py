"""A folder of files, wherever it is: what the pipeline may ask of storage.

A file is written once and then replaced or removed as a whole; nobody sees a part of one that `replace` or
`create_once` writes. When `NewFile.close`, `replace` or `create_once` returns, the bytes outlive a crash; the
name of a new file does once `sync` has returned. A folder can be pickled, and then is the same folder
wherever a task runs. Raises StorageError: StoreAwayError if the store does not answer, DiskFullError if there
is no space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a folder."""

    name: str
    bytes: int
    #: Unix time of its last change, by the clock of the store
    modified: float


@dataclass(frozen=True, slots=True)
class TaggedContent:
    """The content of a file, and the tag that the store gave to this content."""

    data: bytes
    tag: str


class NewFile(ABC):
    """A file that is being written. It may be seen by others before it is closed, or not."""

    #: what is written goes here; `tell` says how much that is
    stream: BinaryIO

    @abstractmethod
    def close(self) -> int:
        """Finish the file, and return its size; its bytes are on the platter."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the file, finished or not."""


class Folder(ABC):
    """A directory of a mounted file system, or a prefix of an object store."""

    #: an absolute path, or a URL without credentials
    text: str
    #: the absolute path, if the folder is in a mounted file system
    mounted: str | None

    @abstractmethod
    def __truediv__(self, name: str) -> Folder:
        """The folder of this name inside."""

    def __str__(self) -> str:
        return self.text

    def at(self, name: str) -> str:
        """The path or URL of a file, for people."""
        return f"{self.text}/{name}"

    def file(self, name: str) -> StoredFile:
        """A file inside, which need not exist."""
        return StoredFile(self, name)

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options that the folder was made with; they may be secret."""
        return {}

    @property
    def delta_uri(self) -> str:
        """The folder as delta-rs takes it."""
        return self.text

    @property
    @abstractmethod
    def delta_options(self) -> Mapping[str, str]:
        """The storage options with which delta-rs reaches the folder."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder, and those above it, where folders have to be made."""

    @abstractmethod
    def exists(self) -> bool:
        """Is there such a folder? In an object store: is there a file in it, or below?"""

    @abstractmethod
    def files(self, *, prefix: str = "") -> list[FoundFile]:
        """The files in the folder whose names begin so, sorted by name."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of the folders inside, sorted."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """A file to read from, which can seek. Raises FileNotFoundError."""

    @abstractmethod
    def local_copy(self, name: str) -> BinaryIO:
        """A file to map into memory: the file itself, or a copy of it that nobody else sees."""

    @abstractmethod
    def create(self, name: str, *, private: bool = False, durable: bool = True) -> NewFile:
        """Begin a file that is not there yet. `private`: nobody but this user may read it."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Make `data` the content of a file, which is there before or not."""

    @abstractmethod
    def create_once(self, name: str, data: bytes) -> bool:
        """Make a file, unless there is one of this name; of several that try at once, one does.

        Returns False if there is one with another content.
        """

    @abstractmethod
    def read_tagged(self, name: str) -> TaggedContent | None:
        """The content of a file with its tag; None if there is none."""

    @abstractmethod
    def replace_tagged(self, name: str, data: bytes, tag: str | None) -> bool:
        """Replace a file if its tag is still this one; with None, if there is no file.

        Returns False if it is not so, unless the content is `data` already: an answer may have been lost.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""

    @abstractmethod
    def remove_all(self) -> None:
        """Remove the folder with everything in it; nothing happens if there is none."""

    @abstractmethod
    def sync(self, names: Sequence[str] = ()) -> None:
        """Return when the names of all files, and the bytes of those named, are on the platter."""

    @abstractmethod
    def errors(self, name: str = "") -> AbstractContextManager[None]:
        """Raise errors of the store, and of Delta, as StorageError; they name the file, or the folder."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a folder."""

    folder: Folder
    name: str

    @property
    def text(self) -> str:
        """Its path or URL."""
        return self.folder.at(self.name)

    def errors(self) -> AbstractContextManager[None]:
        """Raise errors of the store as StorageError that names the file."""
        return self.folder.errors(self.name)

    def parquet(self) -> pq.ParquetFile:
        """The file, opened as Parquet: to be used in a `with` block, inside `errors`."""
        import pyarrow.parquet as pq

        if self.folder.mounted is not None:
            return pq.ParquetFile(self.text)
        return pq.ParquetFile(self.folder.open(self.name), pre_buffer=True)
