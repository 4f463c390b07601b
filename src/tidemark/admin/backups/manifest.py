"""The manifest of a backup: which files belong to it, with their checksums, and where it came from.

The manifest is written last, and the directory gets its final name after that. So a directory with a manifest
that passes its own check is a whole backup, and everything else is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tidemark.errors import BackupError, WireError
from tidemark.storage.disk.atomic_file import replace_path
from tidemark.wire.answers import Setting
from tidemark.wire.json_objects import JsonObject, dumps, read_json

FORMAT = "tidemark backup 1"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class BackupFile(JsonObject):
    """A file of a backup."""

    #: its path, in the backup and in the data directory
    name: str
    bytes: int
    sha256: str
    #: a later backup that has a file of this name and size has the same
    is_final: bool


@dataclass(frozen=True, slots=True)
class Manifest(JsonObject):
    """What belongs to a backup."""

    format: str
    broker: str
    incarnation: int
    #: of the program that made it
    version: str
    #: microseconds since 1970, by the clock of the broker
    taken: int
    #: the last segment of the log, and how many commits the tables have had
    segment: int
    generation: int
    files: tuple[BackupFile, ...]
    #: files that were damaged at the broker already, and what is wrong with them
    damage: tuple[str, ...] = ()
    #: the settings of the broker, for whoever has to set up another machine
    settings: tuple[Setting, ...] = ()

    @property
    def bytes(self) -> int:
        """How large all files are together."""
        return sum(each.bytes for each in self.files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Put the manifest of a backup on disk; on the platter when this returns. Raises OSError."""
    text = dumps(manifest)
    whole = {"check": sha256(text.encode()).hexdigest(), "manifest": text}
    replace_path(directory / MANIFEST, json.dumps(whole, indent=1).encode() + b"\n")


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a whole backup; BackupError if the directory is none."""
    path = directory / MANIFEST
    try:
        whole = json.loads(path.read_bytes())
        text, check = str(whole["manifest"]), str(whole["check"])
        found = json.loads(text)
    except (OSError, ValueError, KeyError, TypeError):
        raise BackupError(
            f"{directory} is no whole backup: {MANIFEST} is not there or cannot be read"
        ) from None
    if sha256(text.encode()).hexdigest() != check:
        raise BackupError(f"{path} is damaged; use another backup")
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BackupError(f"{path} is of another version; use the version of Tidemark that made it")
    try:
        manifest = read_json(Manifest, found)
    except WireError as error:
        raise BackupError(f"{path} is damaged: {error}") from None
    for each in manifest.files:
        if not is_inside(each.name):
            raise BackupError(f"{path} is damaged: it names {each.name!r}")
    return manifest


def is_inside(name: str) -> bool:
    """Return whether the name of a file of a backup leads to a place inside the backup."""
    path = Path(name)
    return bool(path.name) and "\0" not in name and not path.is_absolute() and ".." not in path.parts
