"""Making a backup of a running broker, over a connection like any other administrator's.

The broker keeps its stores as they are at one moment (`src/tidemark/node/disk/snapshots.py`), and everything
is read from that snapshot through the connection; so the broker may be on another machine, and it never
writes anywhere but into its own data directory. Files that an earlier backup in the same place has already
are not read again. Publishers and subscribers go on all the while.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidemark.admin.backups.backup_directories import (
    UNFINISHED,
    Backup,
    name_of,
    remove_backup,
    unfinished,
    whole_backups,
)
from tidemark.admin.backups.copying import (
    Progress,
    Report,
    check_room,
    damage_in,
    digest_of,
    for_owner,
    link_or_copy,
    no_report,
    no_room_or,
    sync_directories,
    write_copy,
)
from tidemark.admin.backups.manifest import FORMAT, BackupFile, Manifest, is_inside, write_manifest
from tidemark.admin.connection import connect
from tidemark.errors import BackupError, ClientError, TidemarkError, WireError
from tidemark.storage.disk.atomic_file import sync_path
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.identity import VOLUME
from tidemark.wire.answers import (
    CONFIG,
    SNAPSHOT,
    SNAPSHOT_END,
    SNAPSHOT_READ,
    Setting,
    SnapshotFile,
    SnapshotStatus,
)
from tidemark.wire.json_objects import JsonObject, dumps, read_json

if TYPE_CHECKING:
    from tidemark.sync import Client

#: Seconds that the broker has for its snapshot, and for each piece of a file.
SNAPSHOT_SECONDS = 120.0
PIECE_SECONDS = 30.0
#: Bytes that are asked for at a time; a broker may answer with fewer.
PIECE_BYTES = 512 << 10
#: In an unfinished backup: a line for each file that is there and was checked.
JOURNAL = "files.jsonl"


class SnapshotSource(Protocol):
    """A snapshot that can be read."""

    @property
    def status(self) -> SnapshotStatus:
        """What is in the snapshot."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings of the broker."""

    def read(self, file: str, offset: int, length: int) -> bytes:
        """Return bytes of a file, fewer than were asked for if the source likes; ClientError."""


@dataclass(frozen=True, slots=True)
class BackupMade(JsonObject):
    """What became of a backup."""

    backup: str
    broker: str
    #: microseconds since 1970
    taken: int
    files: int
    bytes: int
    #: how much of it an earlier backup had already
    reused_files: int
    reused_bytes: int
    seconds: float
    #: older backups that were removed
    removed: tuple[str, ...]
    #: what is damaged at the broker
    damage: tuple[str, ...]


class RemoteSnapshot:
    """The snapshot of a running broker, read through its connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.status = client.ask(SNAPSHOT, timeout=SNAPSHOT_SECONDS)
        self.settings = client.ask(CONFIG, timeout=PIECE_SECONDS)

    def read(self, file: str, offset: int, length: int) -> bytes:
        """Return bytes of a file as the broker has read them; ClientError or BackupError."""
        piece = self._client.ask(
            SNAPSHOT_READ,
            timeout=PIECE_SECONDS,
            snapshot=self.status.snapshot,
            file=file,
            offset=offset,
            bytes=length,
        )
        data = b64decode(piece.data)
        if crc32c(data) != piece.check:
            raise BackupError(f"{file} was altered on its way from the broker; make the backup again")
        return data

    def end(self) -> None:
        """Let the broker forget the snapshot."""
        with suppress(ClientError):
            self._client.ask(SNAPSHOT_END, timeout=PIECE_SECONDS, snapshot=self.status.snapshot)


def back_up(
    url: str, place: Path, *, keep: int | None = None, rate: int | None = None, report: Report | None = None
) -> BackupMade:
    """Make a backup of the broker at a URL in the directory `place`, beside earlier ones of the same broker.

    Of several backups the newest `keep` stay. No more than `rate` bytes a second are read. BackupError,
    ClientError or StorageError if no backup was made; earlier ones are as they were then.
    """
    with _locked(place), connect(url) as client:
        snapshot = RemoteSnapshot(client)
        try:
            return copy_snapshot(snapshot, place, keep=keep, rate=rate, report=report)
        finally:
            snapshot.end()


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keep other backups out of a directory, which is made if need be."""
    disk = RealDisk(place)
    disk.lock()
    try:
        yield
    finally:
        disk.unlock()


def copy_snapshot(
    source: SnapshotSource,
    place: Path,
    *,
    keep: int | None = None,
    rate: int | None = None,
    report: Report | None = None,
) -> BackupMade:
    """Make a backup of a snapshot; see `back_up`."""
    began, status = time.monotonic(), source.status
    earlier = whole_backups(place)
    strange = [each for each in earlier if each.manifest.broker != status.broker]
    if strange:
        raise BackupError(
            f"{place} has backups of the broker {strange[0].manifest.broker!r}, and this is "
            f"{status.broker!r}: choose another directory"
        )
    target = place / (name_of(status.taken) + UNFINISHED)
    copy = _Copy(source, target, _Pace(rate), report or no_report)
    try:
        copy.have(earlier, unfinished(place))
        copy.run()
        manifest = copy.manifest()
        sync_directories(target)
        write_manifest(target, manifest)
        whole = target.rename(place / name_of(status.taken))
        sync_path(place)
    except OSError as error:
        remove_backup(target)
        raise no_room_or(error, target) from error
    except BackupError:
        # A full disk gets its room back. What a lost connection or Ctrl-C leaves, the next backup uses.
        remove_backup(target)
        raise
    for path in unfinished(place):
        remove_backup(path)
    old = [] if keep is None else whole_backups(place)[:-keep]
    for each in old:
        remove_backup(each.path)
    return BackupMade(
        backup=str(whole),
        broker=status.broker,
        taken=status.taken,
        files=len(manifest.files),
        bytes=manifest.bytes,
        reused_files=copy.reused_files,
        reused_bytes=copy.reused_bytes,
        seconds=round(time.monotonic() - began, 3),
        removed=tuple(each.path.name for each in old),
        damage=manifest.damage,
    )


class _Pace:
    """Keeps to a number of bytes a second, or to none."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._bytes = 0

    def read(self, size: int) -> None:
        """So many bytes were read: wait until that fits the rate."""
        self._bytes += size
        if self._rate is not None:
            time.sleep(max(0.0, self._began + self._bytes / self._rate - time.monotonic()))


#: name, bytes, and the checksum of the file `volume` beside it: segments of another volume may have the same
#: name and size.
_Key = tuple[str, int, str]


@dataclass
class _Copy:
    """One backup as it is being made."""

    source: SnapshotSource
    target: Path
    pace: _Pace
    report: Report
    reused_files: int = 0
    reused_bytes: int = 0
    #: copies of files in earlier backups
    _there: dict[_Key, tuple[Path, BackupFile]] = field(default_factory=dict)
    #: name -> the file, of those that are in this backup
    _done: dict[str, BackupFile] = field(default_factory=dict)
    _damage: list[str] = field(default_factory=list)

    def have(self, earlier: list[Backup], interrupted: list[Path]) -> None:
        """Earlier backups, and interrupted ones, may have files that this one needs."""
        for path in interrupted:
            files = [each for each in _journal_of(path) if _is_whole(path / each.name, each)]
            self._take(path, {each.name: each for each in files})
        for backup in earlier[-1:]:
            self._take(backup.path, {each.name: each for each in backup.manifest.files})

    def _take(self, path: Path, files: dict[str, BackupFile]) -> None:
        for each in files.values():
            volume = files.get(_volume_of(each.name))
            if each.is_final and volume is not None:
                self._there[each.name, each.bytes, volume.sha256] = path / each.name, each

    def run(self) -> None:
        """Copy every file. BackupError if the broker names one that would be beside the backup."""
        for each in self.source.status.files:
            if not is_inside(each.name):
                raise BackupError(
                    f"the broker names {each.name!r} as a file of its snapshot: do not trust it"
                )
        # As the data directory itself: a backup has all events, and the verifiers of passwords.
        self.target.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = sorted(
            self.source.status.files, key=lambda each: (each.name != _volume_of(each.name), each.name)
        )
        first = [each for each in files if each.name == _volume_of(each.name)]
        for each in first:
            self._copy(each)
        rest = files[len(first) :]
        check_room(self.target, sum(each.bytes for each in rest if self._earlier(each) is None))
        done, whole = 0, sum(each.bytes for each in files)
        for at, each in enumerate(rest, len(first) + 1):
            self.report(Progress(each.name, at, len(files), done, whole))
            self._copy(each)
            done += each.bytes
        self.report(Progress("", len(files), len(files), whole, whole))

    def manifest(self) -> Manifest:
        """Return the manifest of what was copied."""
        status = self.source.status
        (self.target / JOURNAL).unlink(missing_ok=True)
        return Manifest(
            FORMAT,
            status.broker,
            status.incarnation,
            version("tidemark"),
            status.taken,
            status.segment,
            status.generation,
            tuple(self._done.values()),
            tuple(self._damage),
            self.source.settings,
        )

    def _earlier(self, file: SnapshotFile) -> tuple[Path, BackupFile] | None:
        volume = self._done.get(_volume_of(file.name))
        if volume is None or not file.is_final:
            return None
        return self._there.get((file.name, file.bytes, volume.sha256))

    def _copy(self, file: SnapshotFile) -> None:
        path, earlier = self.target / file.name, self._earlier(file)
        if earlier is not None:
            link_or_copy(earlier[0], path)
            done = earlier[1]
            self.reused_files += 1
            self.reused_bytes += file.bytes
        else:
            done = BackupFile(file.name, file.bytes, write_copy(path, self._pieces(file)), file.is_final)
            found = damage_in(path, file.bytes)
            if found is not None:
                self._damage.append(f"{file.name} {found}")
        self._done[file.name] = done
        with open(self.target / JOURNAL, "a", opener=for_owner) as journal:
            journal.write(dumps(done) + "\n")

    def _pieces(self, file: SnapshotFile) -> Iterator[bytes]:
        at = 0
        while at < file.bytes:
            piece = self.source.read(file.name, at, min(PIECE_BYTES, file.bytes - at))
            if not piece:
                raise BackupError(f"{file.name} ends at byte {at} of {file.bytes} at the broker")
            at += len(piece)
            self.pace.read(len(piece))
            yield piece


def _volume_of(name: str) -> str:
    """Return the name of the file `volume` that is beside a file."""
    return str(Path(name).with_name(VOLUME))


def _is_whole(path: Path, file: BackupFile) -> bool:
    try:
        return path.stat().st_size == file.bytes and digest_of(path) == file.sha256
    except (OSError, TidemarkError):
        return False


def _journal_of(path: Path) -> list[BackupFile]:
    """Return the files that an interrupted backup says it has."""
    try:
        lines = (path / JOURNAL).read_text().splitlines()
        # The last line may be torn.
        return [read_json(BackupFile, json.loads(line)) for line in lines if line.endswith("}")]
    except (OSError, ValueError, WireError):
        return []
