"""The disk of the operating system.

Promises what `disk.Disk` says, also where the system does less: a write that stops half-way is cut back, a
lock names its holder, a file opened for recovery is read from the platter and not from a cache in which a
failed sync may have left bytes that never got there.

Space is set aside behind a file that gets small writes, each with a sync: a sync that need not also make the
file longer takes two thirds of the time. It reads as zeros, which is what a crash may leave there anyhow.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress

from tidemark.errors import DamagedError, DirectoryLockedError, DiskFailedError, DiskFullError, StorageError
from tidemark.message.batches.batch import Buffer

LOCK = "lock"
#: Pieces that one system call takes (IOV_MAX on Linux and macOS).
_PIECES_MAX = 1_024
#: Space that is set aside behind a file at a time, and how small the writes are that it is for.
SET_ASIDE_BYTES = 32 << 10
_SMALL_BYTES = 4 << 10
#: Small writes with a sync each before it is worth it.
_SMALL_SYNCS = 4
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_datasync = getattr(os, "fdatasync", os.fsync)


class RealDisk:
    """A directory of the file system; made if it is not there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock: int | None = None
        try:
            _make_directory(self.path)
        except OSError as error:
            raise _translated(error, self.path) from error

    def list(self) -> list[str]:
        """Names of all regular files but the lock, sorted."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if entry.is_file() and entry.name != LOCK)
        except OSError as error:
            raise _translated(error, self.path) from error

    def create(self, name: str) -> RealFile:
        """A new, empty file."""
        return RealFile(self._at(name), os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, name: str, *, uncached: bool = False) -> RealFile:
        """A file that is there."""
        file = RealFile(self._at(name), os.O_RDWR)
        if uncached:
            file.forget_cache()
        return file

    def remove(self, name: str) -> None:
        """Take the name away."""
        try:
            os.unlink(self._at(name))
        except OSError as error:
            raise _translated(error, self._at(name)) from error

    def rename(self, old: str, new: str) -> None:
        """Give the file another name, replacing what had it."""
        try:
            os.rename(self._at(old), self._at(new))
        except OSError as error:
            raise _translated(error, self._at(old)) from error

    def sync_directory(self) -> None:
        """Return when the names are on the platter."""
        _sync_names(self.path)

    def lock(self) -> None:
        """Keep all others out; the lock file says who is in."""
        path = os.path.join(self.path, LOCK)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _translated(error, path) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _number(os.pread(lock, 32, 0))
            os.close(lock)
            raise DirectoryLockedError(
                f"in use by process {holder or 'unknown'}; stop it, or choose another data directory",
                path=self.path,
                holder=holder,
            ) from error
        self._lock = lock
        with suppress(OSError):  # on a full disk the lock holds as well without a name in it
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)

    def unlock(self) -> None:
        """Let others in. The file stays: removing it would race with whoever has just opened it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _at(self, name: str) -> str:
        assert name not in (LOCK, "", ".", "..")
        assert os.sep not in name
        return os.path.join(self.path, name)


class RealFile:
    """A file descriptor that keeps the contract of `disk.File`."""

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _translated(error, path) from error
        #: bytes in the file; kept here because only we write to it
        self._size = os.fstat(self._descriptor).st_size
        #: bytes in the file as the system sees it: with the space that is set aside
        self._length = self._size
        #: writes since the last sync, and syncs in a row that came after one small write each
        self._unsynced = 0
        self._small_syncs = 0
        self._is_small = False

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write all the pieces at the end, or cut back what got there."""
        end = self._size + sum(map(len, pieces))
        # In space set aside, pages may get to the platter in any order.
        in_any_order = as_one and not self._unsynced
        self._is_small = in_any_order and end - self._size <= _SMALL_BYTES
        if self._length > self._size and not in_any_order:
            self.truncate(self._size)
        elif self._length < end and self._is_small and self._small_syncs >= _SMALL_SYNCS:
            self._set_aside()
        self._unsynced += 1
        try:
            _write_all(self._descriptor, pieces, self._size, end)
        except OSError as error:
            self.truncate(self._size)
            raise _translated(error, self.path) from error
        self._size = end
        self._length = max(self._length, self._size)

    def _set_aside(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, self._size, SET_ASIDE_BYTES)
        except (OSError, AttributeError):
            self._small_syncs = 0  # no room, or the file system cannot: it goes without
        else:
            self._length = self._size + SET_ASIDE_BYTES

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes at `offset`, short only at the end of the file."""
        if self._length > self._size:
            length = max(0, min(length, self._size - offset))
        try:
            data = os.pread(self._descriptor, length, offset)
            while 0 < len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise DamagedError(f"cannot be read: {error.strerror}", path=self.path, offset=offset) from error
        return data

    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise DiskFailedError(f"cannot be cut: {error.strerror}", path=self.path) from error
        self._size = self._length = size

    def sync(self) -> None:
        """Return when all bytes are on the platter; any error is final."""
        try:
            _datasync(self._descriptor)
        except OSError as error:
            raise DiskFailedError(f"sync failed: {error.strerror}", path=self.path) from error
        self._small_syncs = self._small_syncs + 1 if self._is_small else 0
        self._unsynced, self._is_small = 0, False

    def forget_cache(self) -> None:
        """Drop the clean pages of the cache, where the system lets us; dirty ones stay."""
        with suppress(OSError, AttributeError):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Let go of it."""
        if self._descriptor >= 0:
            if self._length > self._size:
                with suppress(DiskFailedError):  # whoever opens it next finds zeros, as after a crash
                    self.truncate(self._size)
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, pieces: Sequence[Buffer], at: int, end: int) -> None:
    """Write the pieces from `at` to `end`, in one call nearly always, else in as many as it takes."""
    if len(pieces) <= _PIECES_MAX and os.pwritev(descriptor, pieces, at) == end - at:
        return
    views = [memoryview(piece) for piece in pieces if len(piece)]
    first = 0
    while first < len(views):
        written = os.pwritev(descriptor, views[first : first + _PIECES_MAX], at)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        at += written
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]


def _make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    os.makedirs(path, mode=0o700)
    _sync_names(os.path.dirname(os.path.abspath(path)))


def _sync_names(path: str) -> None:
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise DiskFailedError(f"sync failed: {error.strerror}", path=path) from error


def _translated(error: OSError, path: str) -> StorageError:
    kind = DiskFullError if error.errno in _FULL else DiskFailedError
    return kind(error.strerror or str(error), path=path)


def _number(data: bytes) -> int | None:
    text = data.strip()
    return int(text) if text.isdigit() else None
