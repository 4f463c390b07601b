"""A disk in memory that does to storage what real disks do, on command and the same way every time.

The disk knows which writes were synced. A crash keeps all of those. Of the others, each file keeps a prefix
of its writes, the last of which may be torn, and the directory keeps a prefix of its changes; a `Choice` says
how much. Each file chooses for itself, so writes to two files may survive in either order. A failed sync
forgets what it was to write, as operating systems do: the bytes read well until the crash, and a later sync
that succeeds does not bring them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tidemark.errors import DamagedError, DirectoryLockedError, DiskFailedError, DiskFullError
from tidemark.message.batches.batch import Buffer

#: n -> how many of n things survive, 0 to n.
Choice = Callable[[int], int]


def lose_all(_: int) -> int:
    """A crash that keeps nothing that was not synced."""
    return 0


def keep_all(count: int) -> int:
    """A crash before which everything that was written got to the platter."""
    return count


def by_chance(random: Random) -> Choice:
    """Returns a crash that keeps anything from nothing to all."""
    return lambda count: random.randint(0, count)


class PowerLossError(BaseException):
    """The machine is off until `crash` switches it on again.

    Only the test that switched it off catches this.
    """


@dataclass(slots=True)
class _Change:
    """One change of a file's bytes."""

    #: where `data` is written; without data, the size that the file is cut or lengthened to
    at: int
    data: bytes | None
    as_one: bool = False

    def apply(self, content: bytearray, kept: int | None = None) -> None:
        """Make the change in `content`; of a write, only the first `kept` bytes."""
        if self.data is None:
            del content[self.at :]
            content.extend(bytes(self.at - len(content)))
            return
        content.extend(bytes(max(0, self.at - len(content))))
        content[self.at : self.at + len(self.data)] = self.data[:kept]


@dataclass(slots=True)
class _Inode:
    """The bytes of a file, whatever its name."""

    #: what a reader sees
    content: bytearray = field(default_factory=bytearray)
    #: what is on the platter, and the changes since
    synced: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)
    #: offsets that cannot be read
    unreadable: set[int] = field(default_factory=set)

    def change(self, change: _Change) -> None:
        change.apply(self.content)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            change.apply(self.synced)
        self.changes.clear()

    def crash(self, choose: Choice) -> None:
        kept = choose(len(self.changes))
        torn = self.changes[kept : kept + 1]
        del self.changes[kept:]
        self.sync()
        for change in torn:
            if change.data is not None:
                self._tear(change, change.data, choose)
        self.content = bytearray(self.synced)

    def _tear(self, change: _Change, data: bytes, choose: Choice) -> None:
        """Keep a part of a write that was under way: its first bytes, and perhaps zeros for the rest.

        Of a write whose parts may get to the platter in any order, it keeps the last bytes as often.
        """
        length = choose(len(data))
        if change.as_one and length % 2:
            change.data = bytes(len(data) - length) + data[len(data) - length :]
            change.apply(self.synced)
            return
        change.apply(self.synced, length)
        if length and choose(1):
            self.synced.extend(bytes(len(data) - length))


#: (name, inode) creates a name, (name, None) removes it, (old, new) renames it.
_NameChange = tuple[str, "_Inode | str | None"]


class MemoryDisk:
    """One directory in memory. After `crash` or `kill` it can be used again; files opened before cannot."""

    def __init__(self, path: str = "memory") -> None:
        self.path = path
        #: bytes that fit on the disk; None for no limit
        self.bytes_max: int | None = None
        #: how many changes and syncs there were
        self.operations = 0
        #: the machine goes off during the operation with this number
        self.power_off_at: int | None = None
        #: how many of the next syncs, of files or of the directory, fail
        self.syncs_to_fail = 0
        #: the names as a reader sees them, those on the platter, and the changes in between
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._name_changes: list[_NameChange] = []
        self._locked = False
        self._off = False
        #: how often the machine was switched on again: files opened before cannot be used
        self._life = 0

    def list(self) -> list[str]:
        """Returns the names of all files, sorted."""
        self._check_power()
        return sorted(self._names)

    def create(self, name: str) -> MemoryFile:
        """Create an empty file."""
        assert name not in self._names
        self._check_power()
        self._rename(name, _Inode())
        return MemoryFile(self, name, self._names[name])

    def open(self, name: str, *, uncached: bool = False) -> MemoryFile:
        """Open a file that exists.

        `uncached` makes no difference: there is no cache that survives a crash.
        """
        del uncached
        self._check_power()
        return MemoryFile(self, name, self._names[name])

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._check_power()
        assert name in self._names
        self._rename(name, None)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file that has the new name."""
        self._check_power()
        assert old in self._names
        self._rename(old, new)

    def sync_directory(self) -> None:
        """Put the changes of names on the platter. Raises DiskFailedError if a sync is to fail."""
        self.step()
        self.fail_if_told(self.path)
        for change in self._name_changes:
            _apply(self._synced_names, change)
        self._name_changes.clear()

    def lock(self) -> None:
        """Lock the directory. Raises DirectoryLockedError."""
        self._check_power()
        if self._locked:
            raise DirectoryLockedError("in use", path=self.path)
        self._locked = True

    def unlock(self) -> None:
        """Give the lock up."""
        self._locked = False

    def crash(self, choose: Choice) -> None:
        """Lose power and get it back. `choose` says how much of what was not synced survives."""
        inodes = {id(inode): inode for inode in (*self._synced_names.values(), *self._names.values())}
        inodes |= {id(inode): inode for _, inode in self._name_changes if isinstance(inode, _Inode)}
        for inode in inodes.values():
            inode.crash(choose)
        for change in self._name_changes[: choose(len(self._name_changes))]:
            _apply(self._synced_names, change)
        self._name_changes.clear()
        self._names = dict(self._synced_names)
        self.kill()

    def kill(self) -> None:
        """Let the process die and the machine live: all that was written is there, and still not synced."""
        self._locked = self._off = False
        self.power_off_at = None
        self._life += 1

    def rot(self, name: str, offset: int, flip: int = 0xFF) -> None:
        """Flip bits of one byte, on the platter too."""
        for content in (self._names[name].content, self._names[name].synced):
            if offset < len(content):
                content[offset] ^= flip

    def make_unreadable(self, name: str, offset: int) -> None:
        """Every read of this byte fails from now on."""
        self._names[name].unreadable.add(offset)

    def platter(self, name: str) -> bytes:
        """Returns what is on the platter of a file, without what was written since."""
        return bytes(self._names[name].synced)

    def contents(self) -> dict[str, bytes]:
        """Returns name -> bytes of all files, as a reader sees them."""
        return {name: bytes(inode.content) for name, inode in sorted(self._names.items())}

    def replace(self, name: str, data: bytes) -> None:
        """Make this the file's contents, on the platter, name and all."""
        self._names[name] = self._synced_names[name] = _Inode(bytearray(data), bytearray(data))

    def fill(self) -> None:
        """Leave no room for more bytes than there are now."""
        self.bytes_max = self._used()

    def room(self) -> int | None:
        """Returns how many bytes can be written before the disk is full; None if there is no limit."""
        return None if self.bytes_max is None else self.bytes_max - self._used()

    def fail_if_told(self, path: str) -> None:
        """For the files: raise DiskFailedError if this sync is to fail."""
        if self.syncs_to_fail:
            self.syncs_to_fail -= 1
            raise DiskFailedError("sync failed, as told", path=path)

    @property
    def life(self) -> int:
        """For the files: how often the machine was switched on again."""
        return self._life

    def step(self) -> None:
        """For the files: count an operation. Raises PowerLossError if the machine goes off with it."""
        self._check_power()
        self.operations += 1
        if self.operations == self.power_off_at:
            self._off = True
            raise PowerLossError

    def _used(self) -> int:
        return sum(len(inode.content) for inode in self._names.values())

    def _check_power(self) -> None:
        if self._off:
            raise PowerLossError

    def _rename(self, name: str, to: _Inode | str | None) -> None:
        _apply(self._names, (name, to))
        self._name_changes.append((name, to))
        self.step()


class MemoryFile:
    """An open file of a memory disk."""

    def __init__(self, disk: MemoryDisk, name: str, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self.path = f"{disk.path}/{name}"

    def append(self, pieces: Sequence[Buffer], *, as_one: bool = False) -> None:
        """Write at the end, all or nothing. Raises DiskFullError."""
        self._check_alive()
        data = b"".join(pieces)
        room = self._disk.room()
        if room is not None and len(data) > room:
            raise DiskFullError("no space left on device", path=self.path)
        self._inode.change(_Change(len(self._inode.content), data, as_one))
        self._disk.step()

    def pread(self, offset: int, length: int) -> bytes:
        """Returns the bytes at `offset`, fewer only at the end of the file. Raises DamagedError."""
        self._check_alive()
        bad = [at for at in self._inode.unreadable if offset <= at < offset + length]
        if bad:
            raise DamagedError("cannot be read, as told", path=self.path, offset=min(bad))
        return bytes(self._inode.content[offset : offset + length])

    def size(self) -> int:
        """Returns how many bytes are in the file."""
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        self._check_alive()
        self._inode.change(_Change(size, None))
        self._disk.step()

    def sync(self) -> None:
        """Put all bytes on the platter.

        Raises DiskFailedError if a sync is to fail; they never get there then.
        """
        self._check_alive()
        self._disk.step()
        try:
            self._disk.fail_if_told(self.path)
        except DiskFailedError:
            self._inode.changes.clear()
            raise
        self._inode.sync()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _check_alive(self) -> None:
        assert self._life == self._disk.life, "a handle of before the crash"


def _apply(names: dict[str, _Inode], change: _NameChange) -> None:
    """Make a change in `names`; removing or renaming a name that does not exist does nothing."""
    name, to = change
    if isinstance(to, _Inode):
        names[name] = to
        return
    inode = names.pop(name, None)
    if isinstance(to, str) and inode is not None:
        names[to] = inode
