"""Ledger writers: ledgers of client processes that stay right if SIGKILL comes at any moment.

A publisher writes an event to its ledger before publishing it, and the outcome afterwards. A durable
subscriber writes what it consumed and its checkpoint token in one transaction. Nothing is synced: a ledger
outlives its process, not the machine.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import time_ns

from tidemark.client.checkpoints import SqliteCheckpoints
from tidemark.client.events import Batch, Event, Gap
from tidemark.lab.processes.ledger import ACKED, UNKNOWN, Line, Publication, read, read_publishers
from tidemark.ticks import CheckpointToken


class _LineFile:
    """A file of JSON lines to which lines are only added."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        data = path.read_bytes()
        # An earlier life may have been killed in the middle of a line, which does not count.
        os.ftruncate(self._descriptor, data.rfind(b"\n") + 1)

    def write(self, lines: Iterable[Line]) -> None:
        """Add the lines in one system call, after which SIGKILL cannot undo them."""
        os.write(self._descriptor, b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def close(self) -> None:
        """Close the ledger."""
        os.close(self._descriptor)


class PublisherLedger:
    """A publisher's ledger over all its lives."""

    def __init__(self, path: Path, publisher: str, pubend: str, topic: str) -> None:
        self._file = _LineFile(path)
        self._publisher = publisher
        self._pubend = pubend
        self._topic = topic
        known = list(read_publishers([path]).values())
        #: the sequence number of the next new event
        self.next_sequence = len(known) + 1
        acked = max((each.sequence for each in known if each.is_acked), default=0)
        #: events of earlier lives without a known outcome, in order
        self.unsettled: list[Publication] = known[acked:]

    def intend(self, values: Iterable[Line]) -> list[Publication]:
        """Number new events and write that they are about to be published; returns them."""
        made: list[Publication] = []
        time = now()
        for fields in values:
            number = self.next_sequence
            key = f"{self._publisher}-{number}"
            made.append(Publication(key, self._publisher, number, self._pubend, self._topic, fields))
            self.next_sequence += 1
        self._file.write(
            {
                "what": "publish",
                "publisher": each.publisher,
                "sequence": each.sequence,
                "key": each.key,
                "pubend": each.pubend,
                "topic": each.topic,
                "fields": each.fields,
                "time": time,
            }
            for each in made
        )
        return made

    def settle(self, each: Publication, tick: int | None, reason: str = "") -> None:
        """Write the outcome of an event: acknowledged at `tick`, or unknown if there is a `reason`."""
        outcome = {"outcome": UNKNOWN, "reason": reason} if reason else {"outcome": ACKED, "tick": tick}
        identity = {"publisher": each.publisher, "sequence": each.sequence, "key": each.key}
        self._file.write([{"what": "outcome", **identity, **outcome}])

    def close(self) -> None:
        """Close the ledger."""
        self._file.close()


class DurableSubscriberLedger:
    """A durable subscriber's ledger in SQLite: events and checkpoint token in one transaction."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS ledger (n INTEGER PRIMARY KEY, line TEXT NOT NULL)"
        )
        self._store = SqliteCheckpoints(self._database)
        self._store.create()
        self._database.commit()
        self.checkpoint = self._store.load(name)
        self._last: int = self._database.execute("SELECT coalesce(max(n), 0) FROM ledger").fetchone()[0]
        self.is_new = self._last == 0

    def opened(self, topic: str, where: str, start: CheckpointToken) -> None:
        """Write that the subscription has started, or goes on, at this token."""
        with self._database:
            self._add([opening(self._name, topic, where, start, is_new=self.is_new, is_durable=True)])
            self._store.save(self._name, start)
        self.is_new = False

    def stage(self, item: Batch | Gap, checkpoint: CheckpointToken) -> None:
        """Add an item and the token after it to the open transaction."""
        self._add(lines_of(self._name, item))
        self._store.save(self._name, checkpoint)

    def commit(self) -> None:
        """Commit the open transaction."""
        self._database.commit()

    def _add(self, lines: Sequence[Line]) -> None:
        rows = [
            (self._last + i, json.dumps({"n": self._last + i, **line})) for i, line in enumerate(lines, 1)
        ]
        self._database.executemany("INSERT INTO ledger VALUES (?, ?)", rows)
        self._last += len(lines)

    def close(self) -> None:
        """Close the ledger."""
        self._database.close()


class PlainSubscriberLedger:
    """The ledger of a subscriber that is not durable, as JSON lines; its absences are written as gaps."""

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        self._file = _LineFile(path)
        former = list(read(path))
        self._last = len(former)
        self.is_new = not former
        #: pubend -> the last tick of the life before
        self._left_at: dict[str, int] = {}
        for line in former:
            if line["what"] in ("subscriber", "returned"):
                self._left_at |= line.get("start") or line["checkpoint"]
            else:
                self._left_at[line["pubend"]] = line.get("tick") or line["upto"]

    def opened(self, topic: str, where: str, start: CheckpointToken) -> None:
        """Write that the subscription has started at this token, and a gap since the life before."""
        lines = [opening(self._name, topic, where, start, is_new=self.is_new, is_durable=False)]
        for pubend, base in self._left_at.items():
            away = {"pubend": pubend, "base": base, "upto": start.get(pubend, base), "reason": "away"}
            lines.append({"what": "gap", "subscriber": self._name, **away})
        self._add(lines)
        self.is_new = False

    def record(self, item: Batch | Gap) -> None:
        """Write an item; SIGKILL cannot undo that once this has returned."""
        self._add(lines_of(self._name, item))

    def _add(self, lines: Sequence[Line]) -> None:
        self._file.write({"n": self._last + i, **line} for i, line in enumerate(lines, 1))
        self._last += len(lines)

    def close(self) -> None:
        """Close the ledger."""
        self._file.close()


def opening(
    name: str, topic: str, where: str, start: CheckpointToken, *, is_new: bool, is_durable: bool
) -> Line:
    """Returns the line for a subscription that begins, or goes on after an absence."""
    if not is_new:
        return {"what": "returned", "subscriber": name, "checkpoint": dict(start)}
    return {
        "what": "subscriber",
        "subscriber": name,
        "topic": topic,
        "where": where,
        "durable": is_durable,
        "start": dict(start),
    }


def lines_of(name: str, item: Batch | Gap) -> list[Line]:
    """Returns the lines for a batch, one for each event, or for a gap."""
    if isinstance(item, Gap):
        gap = {"pubend": item.pubend, "base": item.base, "upto": item.upto, "reason": item.reason}
        return [{"what": "gap", "subscriber": name, **gap}]
    time = now()
    return [_line_of(name, event, time) for event in item]


def _line_of(name: str, event: Event, time: int) -> Line:
    return {
        "what": "event",
        "subscriber": name,
        "pubend": event.pubend,
        "tick": event.tick,
        "key": event.key.decode(),
        "topic": event.topic,
        "fields": event.value,
        "time": time,
    }


def now() -> int:
    """The `time` of a line: microseconds since 1970."""
    return time_ns() // 1_000
