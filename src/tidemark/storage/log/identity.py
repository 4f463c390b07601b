"""The file `volume`: the identity of the volume in a directory, and the version of its format.

    volume := form, padded to a sector | form
    form   := "TMVOLUME" | version u32 | check u32 | identity u64

The form is there twice, a sector apart, so that one rotten byte does not make the log unusable. What a crash
may lose: nothing. The file is synced under the name `volume.new` and then renamed, before there is any
segment; a crash on the way leaves no volume, and the next start creates it anew.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct

from tidemark.errors import DamagedError, StorageError, UnknownFormatError
from tidemark.storage.disk.atomic_file import replace_file
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.checksum import crc32c
from tidemark.storage.log.segments.segment import VERSION, parse_name, read_all

VOLUME = "volume"
RESERVE = "reserve"
_UNFINISHED = "volume.new"
_SECTOR_BYTES = 4_096
_MAGIC = b"TMVOLUME"
_FORM = Struct("<8sIIQ")
_CHECKED = Struct("<8sIQ")


def identify(disk: Disk, fresh: int) -> int:
    """Returns the identity of the volume in the directory; in an empty one, creates a volume with `fresh`.

    Raises UnknownFormatError if the directory holds something else, and DamagedError if the file `volume` is
    missing or cannot be read.
    """
    names = disk.list()
    foreign = [name for name in names if name not in (VOLUME, RESERVE, _UNFINISHED) and not parse_name(name)]
    if foreign:
        raise UnknownFormatError(
            f"holds files that are not a log volume's ({', '.join(foreign[:3])}); move them elsewhere",
            path=disk.path,
        )
    if VOLUME in names:
        return identity_of(disk)
    if any(parse_name(name) for name in names):
        raise DamagedError(
            f"segments without the file {VOLUME!r}; put it back from a copy", path=disk.path, offset=0
        )
    form = _encode(fresh)
    replace_file(disk, VOLUME, [form.ljust(_SECTOR_BYTES, b"\0"), form], draft=_UNFINISHED)
    return fresh


def identity_of(disk: Disk) -> int:
    """Returns the identity of the volume in a directory. Raises DamagedError or UnknownFormatError."""
    file = disk.open(VOLUME)
    try:
        data, _ = read_all(file)
        for at in (0, _SECTOR_BYTES):
            with suppress(DamagedError):
                return _decode(data[at : at + _FORM.size], file.path)
        raise _refusal(data, file.path)
    finally:
        file.close()


def _encode(identity: int) -> bytes:
    return _FORM.pack(_MAGIC, VERSION, crc32c(_CHECKED.pack(_MAGIC, VERSION, identity)), identity)


def _decode(data: bytes, path: str) -> int:
    if len(data) < _FORM.size:
        raise DamagedError("too short", path=path, offset=0)
    magic, version, check, identity = _FORM.unpack(data)
    if magic != _MAGIC or crc32c(_CHECKED.pack(magic, version, identity)) != check:
        raise DamagedError("rotten", path=path, offset=0)
    if version != VERSION:
        raise UnknownFormatError(f"a volume of version {version}; this is version {VERSION}", path=path)
    return int(identity)


def _refusal(data: bytes, path: str) -> StorageError:
    if not data.startswith(_MAGIC):
        return UnknownFormatError("not the file of a log volume; put it back from a copy", path=path)
    return DamagedError(
        "cannot be read, in neither of its copies; put it back from a copy", path=path, offset=0
    )
