"""The disk of the operating system.

`RealDisk` keeps the contract of `disk.Disk`, also where the operating system promises less: a write that
stops half-way is cut back, a lock names its holder, and a file that is opened for recovery is read from the
platter and not from a cache in which a failed sync may have left bytes that never got there.

Space is set aside behind a file that gets small writes with a sync each: a sync that need not also lengthen
the file takes two thirds of the time. The space reads as zeros, which a crash may leave there anyhow.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from tidemark.errors import DamagedError, DirectoryLockedError, DiskFailedError, DiskFullError, StorageError
from tidemark.message.batches.batch import Buffer
from tidemark.storage.disk.atomic_file import FULL_ERRNOS

LOCK = "lock"
#: Pieces that one system call takes (IOV_MAX on Linux and macOS).
_PIECES_MAX = 1_024
#: How much space is set aside behind a file at a time, and how small the writes are for which that is done.
SET_ASIDE_BYTES = 32 << 10
_SMALL_BYTES = 4 << 10
#: How many small writes with a sync each must come first.
_SMALL_SYNCS = 4
#: A file of so many bytes is a large one, whose blocks take long to give back.
LARGE_BYTES = 16 << 20
_FULL = FULL_ERRNOS | {errno.EFBIG}
_datasync = getattr(os, "fdatasync", os.fsync)


class RealDisk:
    """A directory of the file system, created if it does not exist. Raises DiskFullError, DiskFailedError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock: int | None = None
        try:
            _make_directory(self.path)
        except OSError as error:
            raise _translated(error, self.path) from error

    def list(self) -> list[str]:
        """Returns the names of all regular files but the lock, sorted."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if entry.is_file() and entry.name != LOCK)
        except OSError as error:
            raise _translated(error, self.path) from error

    def create(self, name: str) -> RealFile:
        """Create an empty file."""
        return RealFile(self._at(name), os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, name: str, *, uncached: bool = False) -> RealFile:
        """Open a file that exists."""
        file = RealFile(self._at(name), os.O_RDWR)
        if uncached:
            file.forget_cache()
        return file

    def remove(self, name: str) -> None:
        """Remove a file. The blocks of a large one are given back a moment later, on a thread of their own.

        That takes tens of milliseconds, for which nobody should wait.
        """
        path, held = self._at(name), None
        try:
            if os.stat(path).st_size >= LARGE_BYTES:
                held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.unlink(path)
        except OSError as error:
            raise _translated(error, path) from error
        finally:
            if held is not None:
                threading.Thread(target=os.close, args=(held,), name="removal", daemon=True).start()

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file that has the new name."""
        try:
            os.rename(self._at(old), self._at(new))
        except OSError as error:
            raise _translated(error, self._at(old)) from error

    def sync_directory(self) -> None:
        """Return when creations, removals and renamings are on the platter."""
        _sync_names(self.path)

    def lock(self) -> None:
        """Lock the directory, and write the process id into the lock file. Raises DirectoryLockedError."""
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
        with suppress(OSError):  # on a full disk the lock holds as well without the process id in it
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)

    def unlock(self) -> None:
        """Give the lock up. The file stays: removing it would race with a process that has just opened it."""
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
        #: bytes in the file; kept here because nobody else writes to it
        self._size = os.fstat(self._descriptor).st_size
        #: bytes in the file as the operating system sees it: with the space that is set aside
        self._length = self._size
        #: writes since the last sync
        self._unsynced = 0
        #: syncs in a row that came after one small write each, and whether the last write was such a one
        self._small_syncs = 0
        self._is_small = False

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write all the pieces at the end; after an error the file is cut back to what it was."""
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
            self._small_syncs = 0  # no room, or the file system cannot do it: go on without
        else:
            self._length = self._size + SET_ASIDE_BYTES

    def pread(self, offset: int, length: int) -> bytes:
        """Returns the bytes at `offset`, fewer only at the end of the file. Raises DamagedError."""
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
        """Returns how many bytes are in the file, without the space set aside."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise DiskFailedError(f"cannot be cut: {error.strerror}", path=self.path) from error
        self._size = self._length = size

    def sync(self) -> None:
        """Return when all bytes are on the platter. Raises DiskFailedError, which is final."""
        try:
            _datasync(self._descriptor)
        except OSError as error:
            raise DiskFailedError(f"sync failed: {error.strerror}", path=self.path) from error
        self._small_syncs = self._small_syncs + 1 if self._is_small else 0
        self._unsynced, self._is_small = 0, False

    def forget_cache(self) -> None:
        """Have the system drop the clean pages of its cache, where it can; dirty ones stay."""
        with suppress(OSError, AttributeError):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Cut the space set aside, and close the file."""
        if self._descriptor >= 0:
            if self._length > self._size:
                with suppress(DiskFailedError):  # the next one to open the file finds zeros, as after a crash
                    self.truncate(self._size)
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, pieces: Sequence[Buffer], at: int, end: int) -> None:
    """Write the pieces from `at` to `end`, nearly always in one call, else in as many as it takes."""
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
