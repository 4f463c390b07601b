"""SubscriptionWorkers: which worker has which durable subscription, in a file that all of them use.

A subscription's place, unless its application keeps the token, is known to the worker that has it. The file
says which one that is. It is written before a worker takes a subscription, and each worker enters what it has
when it starts, so what a power failure takes from the file comes back. Where it names the wrong worker, the
subscriber is told what it would be told if it had come to that worker by itself.

A file that cannot be read or written is no reason to refuse anybody: then nothing is known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from tidemark.node.logs import Log

FILE_NAME = "places.sqlite"
#: How long the file may be locked by another worker, which holds it for the time of one small change.
LOCKED_SECONDS_MAX = 0.5
log = Log("places")


class SubscriptionWorkers:
    """The file, as one worker uses it."""

    def __init__(self, path: Path, worker: str) -> None:
        """Open the file, or make it."""
        self._path = path
        self._worker = worker
        #: None if the file cannot be used
        self._open: sqlite3.Connection | None = None
        try:
            self._open = sqlite3.connect(path, timeout=LOCKED_SECONDS_MAX, isolation_level=None)
            self._open.execute("PRAGMA journal_mode = WAL")
            self._open.execute("PRAGMA synchronous = NORMAL")
            self._open.execute(
                "CREATE TABLE IF NOT EXISTS places (name TEXT, owner TEXT, worker TEXT NOT NULL, "
                "PRIMARY KEY (name, owner)) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            self._failed(error)

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def of(self, name: str, owner: str = "") -> str | None:
        """Return the worker that has the durable subscription `name`; None if that is not known.

        If several principals have one of this name, that of `owner` counts, and otherwise any of them.
        """
        return self._found("name = ? ORDER BY owner = ? DESC LIMIT 1", name, owner)

    def _found(self, condition: str, *values: str) -> str | None:
        if self._open is None:
            return None
        try:
            found = self._open.execute(f"SELECT worker FROM places WHERE {condition}", values).fetchone()
        except sqlite3.Error as error:
            self._failed(error)
            return None
        return None if found is None else str(found[0])

    def take(self, name: str, owner: str = "") -> None:
        """This worker has the subscription `name` of a principal from now on."""
        if self._found("name = ? AND owner = ?", name, owner) != self._worker:
            self._change("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", [(name, owner, self._worker)])

    def enter(self, names: Iterable[tuple[str, str]]) -> None:
        """This worker has these subscriptions, each a name and its owner, unless another has taken them."""
        rows = [(name, owner, self._worker) for name, owner in names]
        self._change("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", rows)

    def end(self, name: str, owner: str = "") -> None:
        """The subscription `name` of this worker has ended."""
        statement = "DELETE FROM places WHERE name = ? AND owner = ? AND worker = ?"
        self._change(statement, [(name, owner, self._worker)])

    def _change(self, statement: str, rows: list[tuple[str, str, str]]) -> None:
        if self._open is None or not rows:
            return
        try:
            self._open.execute("BEGIN IMMEDIATE")
            self._open.executemany(statement, rows)
            self._open.execute("COMMIT")
        except sqlite3.Error as error:
            self._failed(error)
            if self._open.in_transaction:
                self._open.execute("ROLLBACK")

    def _failed(self, error: sqlite3.Error) -> None:
        log.warning("the places of subscriptions are not known", path=str(self._path), reason=str(error))
