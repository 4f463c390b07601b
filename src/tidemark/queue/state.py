"""QueueState: the file in which a queue keeps what it must not forget when its process dies.

The file holds how far each topic is consumed, which messages were put and are perhaps not at a broker yet,
and the ids of messages that were put. It is one SQLite file, synced at every commit and locked as long as it
is open. It changes in transactions, which the application may share: its own tables can be in the same file.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from secrets import token_hex
from typing import Any
from zlib import crc32

from tidemark.errors import (
    ClientError,
    DirectoryLockedError,
    DiskFailedError,
    DiskFullError,
    StorageError,
    UnknownFormatError,
)
from tidemark.message.batches.batch import Shape
from tidemark.ticks import CheckpointToken

FORMAT = 1
#: How many ids of messages are remembered; the oldest are forgotten first.
IDS_MAX = 100_000

_TABLES = (
    # publisher: the publisher's name at pubends. It is made with the file, since a new file numbers from 1.
    """CREATE TABLE IF NOT EXISTS tidemark_queue (
        format INTEGER NOT NULL, name TEXT NOT NULL, publisher TEXT NOT NULL, pubend TEXT,
        puts INTEGER NOT NULL)""",
    # token: everything that is consumed; NULL as long as the subscription may not have started.
    """CREATE TABLE IF NOT EXISTS tidemark_topics (
        topic TEXT PRIMARY KEY, token TEXT, is_ending INTEGER NOT NULL DEFAULT 0)""",
    # Messages that are not known to be at a broker. One that stays too long is sent again, and recognised.
    """CREATE TABLE IF NOT EXISTS tidemark_outbox (
        number INTEGER PRIMARY KEY, topic TEXT NOT NULL, fingerprint BLOB NOT NULL, message BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tidemark_ids (
        id TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS tidemark_ids_by_number ON tidemark_ids (number)",
)


@dataclass(frozen=True, slots=True)
class Put:
    """A message that was put, with its number: 1, 2, 3 ... in the order of the calls."""

    number: int
    shape: Shape
    message: bytes


class QueueState:
    """The state file of one queue. Any thread may use it; one thread at a time is in a transaction."""

    def __init__(self, path: str | PathLike[str], name: str) -> None:
        """Open and lock the file, and make it if it does not exist.

        DirectoryLockedError if another process uses it; UnknownFormatError if it is no state file, or one of
        a newer version; ClientError if it is of another queue; StorageError if it cannot be opened.
        """
        self.path = fspath(path)
        self._lock = threading.RLock()
        #: the thread that is in a transaction
        self._owner: int | None = None
        self._after: list[Callable[[], None]] = []
        try:
            self.database = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot be opened ({error}): check path and rights", path=self.path
            ) from error
        try:
            self._prepare(name)
        except BaseException:
            self.database.close()
            raise

    def _prepare(self, name: str) -> None:
        try:
            # Exclusive first: with WAL after it there is no shared memory, and the lock stays.
            for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self.database.execute(f"PRAGMA {pragma}")
            self.database.execute("BEGIN EXCLUSIVE")
            for table in _TABLES:
                self.database.execute(table)
            row = self.database.execute("SELECT format, name FROM tidemark_queue").fetchone()
            if row is None:
                row = FORMAT, name
                made = (FORMAT, name, f"{name}.{token_hex(8)}")
                self.database.execute("INSERT INTO tidemark_queue VALUES (?, ?, ?, NULL, 0)", made)
            self.database.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failure(error) from error
        if row[0] != FORMAT:
            reason = f"is of format {row[0]}, and this version knows {FORMAT}: update it"
            raise UnknownFormatError(reason, path=self.path)
        if row[1] != name:
            raise ClientError(f"{self.path}: this is the state of the queue {row[1]!r}, not of {name!r}")

    def close(self) -> None:
        """Close and unlock the file."""
        with self._lock:
            self.database.close()

    # Transactions.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes of this thread in the block are on disk when it ends; after an exception none of them is.

        ClientError if the block commits or rolls back itself.
        """
        with self._lock:
            if self.is_mine:
                yield
                return
            self._execute("BEGIN IMMEDIATE")
            self._owner = threading.get_ident()
            try:
                yield
                if not self.database.in_transaction:
                    raise ClientError("commit() or rollback() was called in the block: leave that to its end")
                self._execute("COMMIT")
            except BaseException:
                self._after.clear()
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise
            finally:
                self._owner = None
            # Still locked, so that messages are sent in the order in which they were committed.
            after, self._after = self._after, []
            for action in after:
                action()

    @property
    def is_mine(self) -> bool:
        """This thread is in a transaction."""
        return self._owner == threading.get_ident()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` when the transaction has been committed."""
        assert self.is_mine
        self._after.append(action)

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self.database.execute(statement, values).fetchall()
        except sqlite3.ProgrammingError as error:
            raise StorageError(f"cannot be used ({error}): open the queue again", path=self.path) from error
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return DirectoryLockedError(
                "another process uses this state file: give each its own", path=self.path
            )
        if code == sqlite3.SQLITE_FULL:
            return DiskFullError("no space is left: nothing was kept", path=self.path)
        if code == sqlite3.SQLITE_NOTADB:
            return UnknownFormatError("this is not a state file: choose another path", path=self.path)
        return DiskFailedError(f"cannot be read or written ({error})", path=self.path)

    # Topics.

    def topics(self, *, is_ending: bool = False) -> list[str]:
        """The topics that are subscribed to; with `is_ending` those whose subscription has to end."""
        with self._lock:
            rows = self._execute(
                "SELECT topic FROM tidemark_topics WHERE is_ending = ? ORDER BY topic", is_ending
            )
        return [topic for (topic,) in rows]

    def token(self, topic: str) -> CheckpointToken | None:
        """The token up to which a topic is consumed; None if its subscription may not have started."""
        with self._lock:
            rows = self._execute("SELECT token FROM tidemark_topics WHERE topic = ?", topic)
        return CheckpointToken.parse(rows[0][0]) if rows and rows[0][0] is not None else None

    def subscribe(self, topic: str) -> None:
        """Note that the topic is subscribed to."""
        with self.transaction():
            self._execute("INSERT INTO tidemark_topics (topic) VALUES (?)", topic)

    def consume(self, topic: str, token: CheckpointToken) -> None:
        """Note that everything up to `token` is consumed."""
        with self.transaction():
            self._execute("UPDATE tidemark_topics SET token = ? WHERE topic = ?", token.text(), topic)

    def end(self, topic: str) -> None:
        """Note that the subscription of the topic has to end."""
        with self.transaction():
            self._execute("UPDATE tidemark_topics SET is_ending = 1 WHERE topic = ?", topic)

    def forget(self, topic: str) -> None:
        """Note that the topic is not subscribed to."""
        with self.transaction():
            self._execute("DELETE FROM tidemark_topics WHERE topic = ?", topic)

    # Putting.

    def putting(self, hosted: Iterable[str]) -> tuple[str, str | None]:
        """The publisher's name at pubends, and the pubend to put into, which is always the same.

        Numbers count per pubend, so a queue never changes its own. The pubend is chosen among `hosted`, those
        of the broker, the first time that there is one; the choice spreads queues over them. It is None until
        then.
        """
        with self.transaction():
            publisher, pubend = self._execute("SELECT publisher, pubend FROM tidemark_queue")[0]
            if pubend is None and (found := sorted(hosted)):
                pubend = found[crc32(publisher.encode()) % len(found)]
                self._execute("UPDATE tidemark_queue SET pubend = ?", pubend)
        return publisher, pubend

    @property
    def puts(self) -> int:
        """How many messages were ever put; this is the number of the last one."""
        with self._lock:
            return int(self._execute("SELECT puts FROM tidemark_queue")[0][0])

    def put(self, shape: Shape, message: bytes, identity: str | None) -> Put:
        """Number a message, and keep it until it is known to be at a broker."""
        with self.transaction():
            self._execute("UPDATE tidemark_queue SET puts = puts + 1")
            number = self.puts
            fingerprint = shape.fingerprint.to_bytes(8, "big")
            self._execute(
                "INSERT INTO tidemark_outbox VALUES (?, ?, ?, ?)", number, shape.topic, fingerprint, message
            )
            if identity is not None:
                self._execute("INSERT INTO tidemark_ids VALUES (?, ?)", identity, number)
                self._execute("DELETE FROM tidemark_ids WHERE number <= ?", number - IDS_MAX)
        return Put(number, shape, message)

    def find(self, identity: str) -> int | None:
        """The number of the message that was put with this id; None if none is remembered."""
        with self._lock:
            rows = self._execute("SELECT number FROM tidemark_ids WHERE id = ?", identity)
        return int(rows[0][0]) if rows else None

    def outbox(self) -> list[Put]:
        """The messages that are not known to be at a broker, in order."""
        with self._lock:
            rows = self._execute(
                "SELECT number, topic, fingerprint, message FROM tidemark_outbox ORDER BY number"
            )
        return [
            Put(number, Shape(topic, int.from_bytes(fingerprint, "big")), message)
            for number, topic, fingerprint, message in rows
        ]

    def arrived(self, number: int) -> None:
        """Forget the messages up to `number`: they are at a broker."""
        with self.transaction():
            self._execute("DELETE FROM tidemark_outbox WHERE number <= ?", number)
