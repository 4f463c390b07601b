"""The diary of an archive: a line of JSON for each round, from which reports draw how it went over time.

It is `_archive/rounds.jsonl`, and `rounds.1.jsonl` before that. In an object store, where nothing can be
appended to, `rounds.jsonl` is small and is put again with each round, and what came before are many small
files with numbers. All files together are bounded. Nothing is decided by the diary, so it is not synced, and
a round whose line cannot be written is a round all the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemark.errors import StorageError
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.locations import Place, folder_at
from tidemark.spark.stores.folder import StoredFile

NAME, OLDER = "rounds.jsonl", "rounds.1.jsonl"
#: A file that has grown to this size takes the place of the older one: some three weeks of rounds each.
FILE_BYTES_MAX = 32 << 20
#: In an object store: the size of the newest file, and how many files there are.
OBJECT_BYTES_MAX = 64 << 10
OBJECTS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class RoundNote:
    """A round that has ended."""

    #: Unix time of its end, and how long it took
    at: float
    seconds: float
    events: int
    #: of the events, and of the files that were written
    bytes: int
    file_bytes: int
    #: the least and the greatest tick that was archived; None if there were no events
    oldest: int | None
    newest: int | None
    #: what the brokers held in their logs when the round began
    held_bytes: int
    #: of the files of all tables, as they were counted last; None if they were not
    stored_bytes: int | None = None


class Diary:
    """Writes the diary of the archive at `path`."""

    def __init__(self, path: Place) -> None:
        self._folder = folder_at(path) / FOLDER
        #: in an object store, what the newest file has
        self._newest = b""
        if self._folder.mounted is None:
            with suppress(StorageError):
                self._newest = self._folder.read(NAME) or b""

    def note(self, note: RoundNote) -> None:
        """Add a round."""
        line = json.dumps(asdict(note)).encode() + b"\n"
        if self._folder.mounted is None:
            with suppress(StorageError):
                self._put(line)
            return
        file = Path(self._folder.mounted) / NAME
        with suppress(OSError):
            if file.exists() and file.stat().st_size >= FILE_BYTES_MAX:
                file.replace(file.with_name(OLDER))
            with file.open("ab") as lines:
                lines.write(line)

    def _put(self, line: bytes) -> None:
        if len(self._newest) >= OBJECT_BYTES_MAX:
            numbers = [_number(each.name) for each in diary_files(self._folder, inside=True)]
            self._folder.replace(f"rounds.{max(numbers, default=0) + 1:09d}.jsonl", self._newest)
            for number in sorted(each for each in numbers if each)[: -OBJECTS_MAX or None]:
                self._folder.remove(f"rounds.{number:09d}.jsonl")
            self._newest = b""
        self._newest += line
        self._folder.replace(NAME, self._newest)


def diary_files(path: Place, *, inside: bool = False) -> Sequence[StoredFile]:
    """The files of the diary that exist, the newest last; `inside` says that `path` is their own folder."""
    folder = folder_at(path) if inside else folder_at(path) / FOLDER
    names = [each.name for each in folder.files(prefix="rounds.") if each.name.endswith(".jsonl")]
    return [folder.file(name) for name in sorted(names, key=lambda name: (name == NAME, name))]


def _number(name: str) -> int:
    text = name.removeprefix("rounds.").removesuffix(".jsonl")
    return int(text) if text.isdecimal() else 0
