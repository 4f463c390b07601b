"""Making this process the only writer of a folder.

In a mounted file system that is a lock, which the operating system gives up when the process ends. In an
object store it is a lease, the object `lease.json`: whoever holds it renews it, and whoever finds it older
than LEASE_SECONDS, by the clock of the store, takes it. Each holder has a number, one more than the last one.
A holder that was paused may go on writing without knowing that it lost the lease, so safety does not rest on
time: the new holder writes its number into whatever the old one would have to write to, and puts are
conditional, so the old one fails (`spark.archive.state`, `spark.archive.table`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Protocol
from uuid import uuid4

from tidemark.errors import DirectoryLockedError, FencedError, StorageError
from tidemark.spark.stores.folder import Folder, TaggedContent
from tidemark.spark.stores.probe import probe
from tidemark.storage.disk.real_disk import LOCK, RealDisk

LEASE = "lease.json"
#: A lease that was not renewed for so long may be taken by another process.
LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0
#: The clocks of servers of one store may differ by this.
_SLACK_SECONDS = 2.0
_LOCK_TRIES = 3
_log = logging.getLogger("tidemark.archive")


class Hold(Protocol):
    """The right of this process to write a folder."""

    @property
    def number(self) -> int:
        """Grows with every holder; 0 where a lock keeps all others out."""

    def check(self) -> None:
        """Raise FencedError if another process has become the writer."""

    def release(self) -> None:
        """Let another process write."""


def hold(folder: Folder, *, sleep: Callable[[float], object] = time.sleep) -> Hold:
    """Become the only writer. Raises DirectoryLockedError if another process writes.

    Raises ConfigError if the folder is in a store that ignores conditions.
    """
    return _Lock(folder.mounted) if folder.mounted is not None else _Lease(folder, sleep)


def writer_of(folder: Folder) -> int | None:
    """The process that writes the folder; None if none does, 0 if it has not said which it is."""
    if folder.mounted is not None:
        return _locking_process(Path(folder.mounted) / LOCK)
    found = folder.read_tagged(LEASE)
    if found is None:
        return None
    lease = _parsed(found)
    (there,) = folder.files(prefix=LEASE) or (None,)
    if lease.holder is None or there is None or time.time() - there.modified > LEASE_SECONDS + _SLACK_SECONDS:
        return None
    return lease.process


class _Lock:
    """The lock of a directory."""

    number = 0

    def __init__(self, path: str) -> None:
        self._disk = RealDisk(path)
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                self._disk.lock()
                return
            except DirectoryLockedError as error:
                if not tries_left:
                    reason = f"process {error.holder or 'unknown'} writes it already: stop that first"
                    raise DirectoryLockedError(reason, path=path, holder=error.holder) from None
            # A process that asks who holds the lock has it for a moment.
            time.sleep(0.05)

    def check(self) -> None:
        """Nobody else can have the lock."""

    def release(self) -> None:
        """Give the lock up."""
        self._disk.unlock()


@dataclass(frozen=True, slots=True)
class _LeaseContent:
    """The file of a lease: which process holds it, on which machine, and how often it was renewed."""

    number: int
    #: a name that no other holder has; None if the lease was given back
    holder: str | None
    process: int
    #: the machine, and its namespace of processes
    machine: str
    #: how often it was renewed
    renewed: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class _Lease:
    """The lease of a folder of an object store, which a thread renews."""

    def __init__(self, folder: Folder, sleep: Callable[[float], object]) -> None:
        self._folder = folder
        self._sleep = sleep
        self._ended = Event()
        self._lost = ""
        self._content, self._tag = self._taken()
        self._thread = Thread(target=self._renew, name="tidemark lease", daemon=True)
        self._thread.start()

    @property
    def number(self) -> int:
        """Grows with every holder."""
        return self._content.number

    def check(self) -> None:
        """Raise FencedError if another process has taken the lease."""
        if self._lost:
            raise FencedError(self._lost, path=self._folder.text)

    def release(self) -> None:
        """Give the lease back; its number stays."""
        self._ended.set()
        self._thread.join()
        if not self._lost:
            given = replace(self._content, holder=None)
            try:
                self._folder.replace_tagged(LEASE, given.to_bytes(), self._tag)
            except StorageError as error:
                _log.warning("the lease could not be given back, and runs out by itself: %s", error)

    def _taken(self) -> tuple[_LeaseContent, str]:
        """Take the lease, if nobody holds it or when it has run out."""
        now = probe(self._folder)
        seen: str | None = None
        while True:
            found = self._folder.read_tagged(LEASE)
            last = None if found is None else _parsed(found)
            if found is not None and last is not None and last.holder is not None and not _is_dead(last):
                age = now - self._modified()
                if seen is not None and seen != found.tag:
                    raise self._refused(last)
                seen = found.tag
                if age < LEASE_SECONDS + _SLACK_SECONDS:
                    # Whoever holds it renews it meanwhile, or has gone.
                    self._sleep(1.0)
                    now = probe(self._folder)
                    continue
            number = 1 if last is None else last.number + 1
            mine = _LeaseContent(number, uuid4().hex, os.getpid(), _machine())
            if self._folder.replace_tagged(LEASE, mine.to_bytes(), None if found is None else found.tag):
                return mine, self._tag_of(mine)

    def _refused(self, last: _LeaseContent) -> DirectoryLockedError:
        reason = f"process {last.process} on {last.machine.split()[0]} writes it already: stop that first"
        return DirectoryLockedError(reason, path=self._folder.text, holder=last.process)

    def _modified(self) -> float:
        return max((each.modified for each in self._folder.files(prefix=LEASE)), default=0.0)

    def _tag_of(self, mine: _LeaseContent) -> str:
        found = self._folder.read_tagged(LEASE)
        if found is None or _parsed(found).holder != mine.holder:
            raise FencedError("another process has taken the lease: start again", path=self._folder.text)
        return found.tag

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                after = replace(self._content, renewed=self._content.renewed + 1)
                if not self._folder.replace_tagged(LEASE, after.to_bytes(), self._tag):
                    # An earlier renewal may have been made although its answer was lost.
                    self._tag = self._tag_of(self._content)
                    continue
                self._tag = self._tag_of(after)
                self._content = after
            except FencedError:
                self._lost = "another process has taken the lease and writes the archive now: this one stops"
                _log.error("%s: %s", self._folder, self._lost)
                return
            except StorageError as error:
                _log.warning("the lease is not renewed: %s", error)


def _parsed(found: TaggedContent) -> _LeaseContent:
    try:
        said = json.loads(found.data)
        return _LeaseContent(
            int(said["number"]),
            said["holder"],
            int(said["process"]),
            str(said["machine"]),
            int(said["renewed"]),
        )
    except (ValueError, KeyError, TypeError):
        # Nobody who writes this is known: it is kept until it is old.
        return _LeaseContent(0, "unknown", 0, "unknown")


def _machine() -> str:
    """This machine since its last start, and the namespace in which processes have their numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return f"{socket.gethostname()} {uuid4().hex}"
    return f"{socket.gethostname()} {boot} {namespace}"


def _is_dead(lease: _LeaseContent) -> bool:
    """Has the holder ended? Known only if it ran on this machine."""
    if lease.machine != _machine() or not lease.process:
        return False
    try:
        os.kill(lease.process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _locking_process(lock: Path) -> int | None:
    import fcntl

    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read_text().strip()
        return int(holder) if holder.isdecimal() else 0
    except OSError:
        return None
    return None
