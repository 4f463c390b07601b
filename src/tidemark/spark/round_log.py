"""The diary of an archive: a line of JSON for each round, from which reports draw how it went over time.

It is `_archive/rounds.jsonl`, and `rounds.1.jsonl` before that; together they are bounded. Nothing is decided
by it, so it is not synced, and a round whose line cannot be written is a round all the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemark.spark.archive.state import FOLDER

NAME, OLDER = "rounds.jsonl", "rounds.1.jsonl"
#: A file that has grown to this size takes the place of the older one: some three weeks of rounds each.
FILE_BYTES_MAX = 32 << 20


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


def note_round(path: Path, note: RoundNote) -> None:
    """Add a round to the diary of the archive at `path`."""
    file = path / FOLDER / NAME
    with suppress(OSError):
        if file.exists() and file.stat().st_size >= FILE_BYTES_MAX:
            file.replace(path / FOLDER / OLDER)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(note)) + "\n")


def diary_files(path: Path) -> Sequence[Path]:
    """The files of the diary that exist, the older one first."""
    return [each for name in (OLDER, NAME) if (each := path / FOLDER / name).exists()]
