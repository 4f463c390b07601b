"""Ledgers as files: which there are in a directory, cut into parts of bounded size, and their subscriptions.

A ledger is `NAME.publisher.jsonl`, `NAME.subscriber.jsonl`, the same as `.parquet` (a file, or a directory of
part files in the order of their names), or a subscriber's `.sqlite`; docs/proof.md has the lines. Imports no
pyspark: `ledger_lines` reads parts wherever a task runs, so all tasks must see the directory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError, UnknownFormatError

#: The size of one part of a ledger, and about what a task reads: a second or less of parsing JSON.
PART_BYTES_MAX = 8 << 20
PART_LINES_MAX = 40_000

JSONL, SQLITE, PARQUET = ".jsonl", ".sqlite", ".parquet"
PUBLISHER, SUBSCRIBER = "publisher", "subscriber"
_KINDS = {PUBLISHER: (JSONL, PARQUET), SUBSCRIBER: (JSONL, SQLITE, PARQUET)}


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The ledger of one publisher or subscriber. `number` is its place in the order of names."""

    number: int
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """A part of a ledger.

    In SQLite, the lines whose `n` is in `(base, upto]`; in Parquet, the row group `upto`; in JSONL, the lines
    that start at byte `base` or later and before byte `upto`.
    """

    ledger: int
    path: str
    base: int
    upto: int
    #: about how much there is to read
    size_bytes: int
    #: the place of the part's first line in its ledger, in Parquet
    first: int = 0


@dataclass(frozen=True, slots=True)
class LedgerSubscription:
    """What a subscriber asked for, and from where: pubend -> the tick after which it started."""

    ledger: int
    subscriber: str
    topic: str
    where: str
    start: dict[str, int]


@dataclass(frozen=True, slots=True)
class LedgerSet:
    """The ledgers of one audit."""

    publishers: list[LedgerFile]
    subscribers: list[LedgerFile]
    subscriptions: list[LedgerSubscription]

    @property
    def idle(self) -> list[str]:
        """The names of subscribers whose ledgers have no subscription."""
        busy = {each.ledger for each in self.subscriptions}
        return [each.name for each in self.subscribers if each.number not in busy]


def gather(directory: Path) -> LedgerSet:
    """All ledgers in a directory. Raises ConfigError if there is nothing to compare."""
    publishers, subscribers = find(directory, PUBLISHER), find(directory, SUBSCRIBER)
    found = [subscription(each) for each in subscribers]
    if not any(found):
        reason = f"none of the subscribers' ledgers in {directory} has a subscription"
        raise ConfigError(reason, key="ledgers")
    return LedgerSet(publishers, subscribers, [each for each in found if each is not None])


def find(directory: Path, kind: str) -> list[LedgerFile]:
    """The ledgers of publishers, or of subscribers, by name. Raises ConfigError if there are none."""
    suffixes = {f".{kind}{ending}" for ending in _KINDS[kind]}
    paths = sorted(path for path in directory.glob(f"*.{kind}.*") if "".join(path.suffixes[-2:]) in suffixes)
    ledgers = [
        LedgerFile(number, path.name.removesuffix("".join(path.suffixes[-2:])), path)
        for number, path in enumerate(paths)
    ]
    for one, other in pairwise(ledgers):
        if one.name == other.name:
            reason = f"is the ledger of {one.name!r} like {other.path.name}: leave one of them"
            raise UnknownFormatError(reason, path=str(one.path))
    if not ledgers:
        known = ", ".join(f"NAME.{kind}{ending}" for ending in _KINDS[kind])
        raise ConfigError(f"{directory} has no ledger of a {kind} ({known})", key="ledgers")
    return ledgers


def parts(ledger: LedgerFile) -> Iterator[LedgerPart]:
    """Parts of bounded size that make up a ledger, in order."""
    number, path = ledger.number, str(ledger.path)
    match ledger.path.suffix:
        case ".sqlite":
            with closing(sqlite3.connect(path)) as database:
                last: int = database.execute("SELECT coalesce(max(n), 0) FROM ledger").fetchone()[0]
            for base in range(0, last, PART_LINES_MAX):
                upto = min(base + PART_LINES_MAX, last)
                yield LedgerPart(number, path, base, upto, PART_BYTES_MAX * (upto - base) // PART_LINES_MAX)
        case ".parquet":
            yield from _row_groups(ledger)
        case _:
            size = ledger.path.stat().st_size
            for base in range(0, size, PART_BYTES_MAX):
                upto = min(base + PART_BYTES_MAX, size)
                yield LedgerPart(number, path, base, upto, upto - base)


def _row_groups(ledger: LedgerFile) -> Iterator[LedgerPart]:
    first = 0
    for path in parquet_files(ledger.path):
        metadata = _parquet(path).metadata
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group)
            yield LedgerPart(ledger.number, str(path), group - 1, group, found.total_byte_size, first)
            first += found.num_rows


def parquet_files(path: Path) -> list[Path]:
    """The files of a Parquet ledger, in the order of their names."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def packed(all_parts: Iterable[LedgerPart]) -> list[list[LedgerPart]]:
    """The parts of each task: small parts share one."""
    shares: list[list[LedgerPart]] = []
    room_bytes = 0
    for part in all_parts:
        if not shares or part.size_bytes > room_bytes:
            shares.append([])
            room_bytes = PART_BYTES_MAX
        shares[-1].append(part)
        room_bytes -= part.size_bytes
    return shares


def subscription(ledger: LedgerFile) -> LedgerSubscription | None:
    """The subscription in a subscriber's ledger; None if it never subscribed. Raises UnknownFormatError."""
    for line in _openings(ledger.path):
        missing = [name for name in ("subscriber", "topic", "where", "start") if line.get(name) is None]
        if missing:
            raise UnknownFormatError(
                f"the line of the subscription has no `{missing[0]}`", path=str(ledger.path)
            )
        return LedgerSubscription(
            ledger.number, line["subscriber"], line["topic"], line["where"], dict(line["start"])
        )
    return None


def _openings(path: Path) -> Iterator[dict[str, Any]]:
    """The lines with a subscription. A ledger normally starts with one, so little is read."""
    if path.suffix == PARQUET:
        yield from _parquet_openings(path)
        return
    for text in _texts(path):
        if b'"subscriber"' not in text:
            continue
        try:
            line = json.loads(text)
        except ValueError:
            raise UnknownFormatError(f"is not JSON: {text[:60]!r}", path=str(path)) from None
        if line.get("what") == "subscriber":
            yield line


def _texts(path: Path) -> Iterator[bytes]:
    if path.suffix == SQLITE:
        with closing(sqlite3.connect(path)) as database:
            for (text,) in database.execute("SELECT line FROM ledger ORDER BY n"):
                yield text.encode()
        return
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _parquet_openings(path: Path) -> Iterator[dict[str, Any]]:
    names = ["what", "subscriber", "topic", "where", "start"]
    for file in parquet_files(path):
        for batch in _parquet(file).iter_batches(columns=names):
            for line in batch.to_pylist():
                if line["what"] == "subscriber":
                    yield line | {"start": json.loads(line["start"])}


def unpublished(key: str) -> ConfigError:
    """The error of publishers' ledgers that acknowledge an event which they do not have."""
    reason = f"{key!r} is acknowledged, but no line says that it was to be published"
    return ConfigError(reason, key="ledgers")


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path)
