"""A folder of an object store: `s3://`, `gs://` or `abfss://`, through obstore.

An object appears whole or not at all, and lasts once the store has answered, so there is nothing to sync.
What a lock and a link do in a file system, conditions of a put do here: make an object if there is none,
replace it if its tag is still the one that was read. A put whose answer was lost is repeated by the library
and then finds its own work done; the content tells that from the work of another process.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from tidemark.errors import ConfigError, StorageError, StoreAwayError
from tidemark.spark.stores.folder import Folder, FoundFile, NewFile, TaggedContent
from tidemark.spark.stores.ranged_file import RangedFile
from tidemark.spark.stores.storage_options import client_config, store_config, without_secrets

#: How often a request is repeated that failed in passing, and for how long.
RETRIES_MAX = 4
RETRY_SECONDS = 20.0
#: A request that takes longer has failed. The library's own default is the same.
TIMEOUT_SECONDS = 30
#: Objects that are removed with one request.
_REMOVED_MAX = 1_000
_COPY_BYTES = 8 << 20
_ERROR_CHARACTERS_MAX = 400
#: What stands in errors of delta-rs and of obstore if a store did not answer, or answered that it cannot.
_AWAY = re.compile(r"error sending request|HTTP error|status code:? 5\d\d|timed out")
#: Colours and arrows in errors of delta-rs.
_DECORATION = re.compile("\x1b\\[[0-9;]*m|\u21b3")


class ObjectFolder(Folder):
    """A prefix of a bucket or container."""

    mounted = None

    def __init__(self, root: str, prefix: str, options: Mapping[str, str]) -> None:
        """`root` is the URL of the bucket, `prefix` has no slash at either end."""
        self._root = root
        self._prefix = prefix
        self._options = dict(options)
        self.text = f"{root}/{prefix}" if prefix else root

    def __truediv__(self, name: str) -> ObjectFolder:
        return ObjectFolder(self._root, self._key(name), self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFolder) and self.text == other.text and self._options == other._options

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"ObjectFolder({self.text!r})"

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options that the folder was made with; they may be secret."""
        return self._options

    @property
    def delta_uri(self) -> str:
        """The URL as delta-rs takes it: it decodes what is escaped."""
        return f"{self._root}/{quote(self._prefix)}"

    @property
    def delta_options(self) -> Mapping[str, str]:
        """The options, with bounds for how long delta-rs tries."""
        bounds = {"max_retries": str(RETRIES_MAX), "retry_timeout": f"{RETRY_SECONDS:.0f}s"}
        return {**bounds, "timeout": f"{TIMEOUT_SECONDS}s", **self._options}

    def make(self) -> None:
        """Do nothing: a folder is there with its first object."""

    def exists(self) -> bool:
        """Is there an object in the folder, or below?"""
        import obstore

        with self.errors():
            for some in obstore.list(self._store, self._below, chunk_size=1):
                return bool(some)
        return False

    def files(self, *, prefix: str = "") -> list[FoundFile]:
        """The objects directly in the folder."""
        import obstore

        with self.errors():
            found = obstore.list_with_delimiter(self._store, self._below)["objects"]
        names = ((each["path"].rpartition("/")[2], each) for each in found)
        return sorted(
            (
                FoundFile(name, each["size"], each["last_modified"].timestamp())
                for name, each in names
                if name.startswith(prefix)
            ),
            key=lambda each: each.name,
        )

    def folders(self) -> list[str]:
        """The prefixes directly in the folder."""
        import obstore

        with self.errors():
            found = obstore.list_with_delimiter(self._store, self._below)["common_prefixes"]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        found = self.read_tagged(name)
        return None if found is None else found.data

    def open(self, name: str) -> BinaryIO:
        """The object, of which ranges are read as they are asked for."""
        import obstore

        store, key = self._store, self._key(name)
        with self.errors(name, missing=True):
            size = obstore.head(store, key)["size"]

        def fetch(start: int, end: int) -> bytes:
            with self.errors(name):
                return bytes(obstore.get_range(store, key, start=start, end=end))

        return cast(BinaryIO, RangedFile(size, fetch))

    def local_copy(self, name: str) -> BinaryIO:
        """A copy in a file without a name, which is gone when it is closed."""
        import obstore

        copy = _nameless()
        with self.errors(name):
            for piece in obstore.get(self._store, self._key(name)).stream(min_chunk_size=_COPY_BYTES):
                copy.write(memoryview(piece))
        copy.flush()
        copy.seek(0)
        return copy

    def create(self, name: str, *, private: bool = False, durable: bool = True) -> NewFile:  # noqa: ARG002
        """A file without a name in this machine's temporary directory, which becomes the object."""
        return _Upload(self, name)

    def replace(self, name: str, data: bytes) -> None:
        """Put the object."""
        self._put(name, data, "overwrite")

    def create_once(self, name: str, data: bytes) -> bool:
        """Put the object if there is none."""
        return self.replace_tagged(name, data, None)

    def read_tagged(self, name: str) -> TaggedContent | None:
        """The content of an object, and its tag."""
        import obstore

        try:
            with self.errors(name, missing=True):
                found = obstore.get(self._store, self._key(name))
                return TaggedContent(bytes(found.bytes()), _tag_of(found.meta))
        except FileNotFoundError:
            return None

    def replace_tagged(self, name: str, data: bytes, tag: str | None) -> bool:
        """Put the object on a condition."""
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        try:
            self._put(name, data, "create" if tag is None else _condition(tag))
        except (AlreadyExistsError, PreconditionError, NotFoundError):
            # An answer that was lost: the library has put it again, and found its own object.
            return self.read(name) == data
        return True

    def remove(self, name: str) -> None:
        """Remove an object."""
        import obstore

        with suppress(FileNotFoundError), self.errors(name, missing=True):
            obstore.delete(self._store, self._key(name))

    def remove_all(self) -> None:
        """Remove all objects in the folder and below."""
        import obstore

        with self.errors():
            keys = [each["path"] for some in obstore.list(self._store, self._below) for each in some]
            for first in range(0, len(keys), _REMOVED_MAX):
                obstore.delete(self._store, keys[first : first + _REMOVED_MAX])

    def sync(self, names: Sequence[str] = ()) -> None:
        """Do nothing: what a store has answered lasts."""

    @contextmanager
    def errors(self, name: str = "", *, missing: bool = False) -> Iterator[None]:
        """Raise errors of the store, and of Delta, as StorageError without secrets in it.

        With `missing`, FileNotFoundError stays what it is. Conditions that do not hold stay, too.
        """
        from deltalake.exceptions import DeltaError, TableNotFoundError
        from obstore import exceptions as store_errors

        try:
            yield
        except (StorageError, TableNotFoundError, store_errors.AlreadyExistsError):
            raise
        except store_errors.PreconditionError:
            raise
        except FileNotFoundError as error:
            if missing:
                raise
            raise StorageError("is not there", path=self.at(name)) from error
        except (store_errors.PermissionDeniedError, store_errors.UnauthenticatedError) as error:
            reason = "the store refuses: check the credentials in the environment or the storage options"
            raise StorageError(reason, path=self.at(name) if name else self.text) from error
        except (OSError, DeltaError, store_errors.BaseError) as error:
            text = _plain(error, self._options)
            path = self.at(name) if name else self.text
            if isinstance(error, store_errors.GenericError) or _AWAY.search(text):
                raise StoreAwayError(f"the store does not answer: {text}", path=path) from None
            raise StorageError(text, path=path) from None

    def put_file(self, name: str, file: BinaryIO) -> None:
        """Put what is in a file; a large one in parts."""
        import obstore

        with self.errors(name):
            file.seek(0)
            obstore.put(self._store, self._key(name), file)

    def _put(self, name: str, data: bytes, mode: Any) -> None:
        import obstore

        with self.errors(name, missing=True):
            obstore.put(self._store, self._key(name), data, mode=mode)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @property
    def _below(self) -> str | None:
        return f"{self._prefix}/" if self._prefix else None

    @property
    def _store(self) -> Any:
        return _store(self._root, tuple(sorted(self._options.items())))


class _Upload(NewFile):
    """A file here that becomes an object when it is closed."""

    def __init__(self, folder: ObjectFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._put = False
        self.stream = _nameless()

    def close(self) -> int:
        """Put the object."""
        self.stream.flush()
        size = self.stream.tell()
        self._put = True
        self._folder.put_file(self._name, self.stream)
        self.stream.close()
        return size

    def discard(self) -> None:
        """Forget the file, and remove the object if there may be one."""
        with suppress(OSError):
            self.stream.close()
        if self._put:
            # A store that is away has no object, or one that nobody names: a stray, which is removed later.
            with suppress(StorageError):
                self._folder.remove(self._name)


def _tag_of(meta: Mapping[str, Any]) -> str:
    """What a put is conditional on: S3 and Azure compare the tag, and GCS compares only the generation."""
    version, tag = meta.get("version") or "", meta.get("e_tag") or ""
    return f"{version} {tag}" if version or tag else ""


def _condition(tag: str) -> dict[str, str]:
    version, _, e_tag = tag.partition(" ")
    return {name: value for name, value in (("version", version), ("e_tag", e_tag)) if value}


def _nameless() -> BinaryIO:
    """A file in the temporary directory of this machine, which is gone when it is closed."""
    return cast(BinaryIO, tempfile.TemporaryFile())


@lru_cache(maxsize=16)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    """The connection pool of this process for a bucket."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    given = dict(options)
    client: Any = {"timeout": f"{TIMEOUT_SECONDS}s", **client_config(given)}
    retries: Any = {"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
    try:
        return from_url(
            root, config=cast(Any, store_config(given)), client_options=client, retry_config=retries
        )
    except (BaseError, ValueError, TypeError) as error:
        raise ConfigError(f"{root} cannot be used: {_plain(error, given)}", key="storage-options") from None


def _plain(error: BaseException, options: Mapping[str, str]) -> str:
    """What an error says, in one line, without secrets; the libraries add whole structures behind it."""
    text = " ".join(_DECORATION.sub("", str(error)).split())
    return without_secrets(text, options).split(" Debug source:")[0][:_ERROR_CHARACTERS_MAX]
