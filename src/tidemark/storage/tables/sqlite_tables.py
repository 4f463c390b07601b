"""Tables in one SQLite file, in WAL mode, synced on every commit.

What a crash may lose: what was written since the last commit, of all tables together. Every commit is a
transaction with `synchronous = FULL`, so what was committed stays. Beside each table in `tables.TableRows`
stands why losing its latest rows is safe. SQLite checks the structure of its pages and not their contents, so
every row has a checksum. A file that is damaged, of another program or of a later version is refused and left
as it is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tidemark.errors import (
    DamagedError,
    DirectoryLockedError,
    DiskFailedError,
    DiskFullError,
    StorageError,
    TokenError,
    UnknownFormatError,
)
from tidemark.storage.tables.rows import (
    SCHEMA,
    SUBSCRIBER_COLUMN,
    Row,
    bounded,
    contents_of,
    create_statement,
    replace_statement,
    rows_of,
    sealed,
)
from tidemark.storage.tables.tables import TableRows, Tables

#: "TMSH", and the version of `rows.SCHEMA`
APPLICATION = 0x544D5348
VERSION = 5
#: The oldest version that is read. Older files only lack tables, which are created when such a file is
#: opened.
VERSION_OLDEST = 2

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteTables(Tables):
    """Tables in the file at a path, which no other process can open meanwhile."""

    def __init__(self, path: str | os.PathLike[str], *, check: bool = True) -> None:
        """Open the file, or create it. With `check`, the whole file is searched for damage first.

        Raises DirectoryLockedError, UnknownFormatError, DamagedError or DiskFailedError.
        """
        self._path = os.fspath(path)
        #: the error after which nothing more is written
        self._failed: StorageError | None = None
        # The thread that opens the file is not the disk thread; only one of the two uses it at a time.
        self._connection = sqlite3.connect(
            self._path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            with self._translated():
                self._prepare(check)
                super().__init__(self._load())
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file. What is not committed is lost."""
        self._connection.close()

    def _write(self, changes: TableRows, removed: set[int]) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            with self._translated(), self._transaction():
                self._delete(removed)
                self._delete_selectors(changes)
                for table, rows in rows_of(changes):
                    self._connection.executemany(
                        replace_statement(table), [sealed(table, row) for row in rows]
                    )
        except DiskFullError:
            raise
        except StorageError as error:
            # After a failed sync it is unknown what is on disk: there is no second try.
            self._failed = error
            raise

    def _delete(self, subscribers: set[int]) -> None:
        for table, column in SUBSCRIBER_COLUMN.items():
            self._connection.executemany(
                f"DELETE FROM {table} WHERE {column} = ?", [(number,) for number in sorted(subscribers)]
            )

    def _delete_selectors(self, changes: TableRows) -> None:
        """Remove the old selectors of changed subscriptions: their history may have become shorter."""
        self._connection.executemany(
            "DELETE FROM selectors WHERE subscriber = ?",
            [(number,) for number in sorted(changes.subscriptions)],
        )

    def _prepare(self, check: bool) -> None:
        """Check that this is a broker's file, or a new one.

        A file that is not understood is not written to.
        """
        self._pragma("locking_mode = EXCLUSIVE")
        application, version = self._pragma("application_id"), self._pragma("user_version")
        (things,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        new = application == version == things == 0
        if not new and application != APPLICATION:
            raise UnknownFormatError("is not a broker's tables; move it away", path=self._path)
        if not new and not VERSION_OLDEST <= version <= VERSION:
            reason = (
                f"has tables of version {version}, this broker reads {VERSION}; start the one that wrote it"
            )
            raise UnknownFormatError(reason, path=self._path)
        if check and (found := self._pragma("quick_check")) != "ok":
            raise self._damaged(str(found))
        if self._pragma("journal_mode = WAL") != "wal":
            raise DiskFailedError(
                "this file system has no write-ahead log; choose a local one", path=self._path
            )
        self._pragma("synchronous = FULL")
        if new or version != VERSION:
            self._create()

    def _create(self) -> None:
        """Create the missing tables in one transaction: a crash leaves none of them or all."""
        names = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        with self._transaction():
            for table in SCHEMA:
                if (table,) not in names:
                    self._connection.execute(create_statement(table))
            self._pragma(f"application_id = {APPLICATION}")
            self._pragma(f"user_version = {VERSION}")

    def _load(self) -> TableRows:
        try:
            rows, changed = bounded({table: self._rows(table) for table in SCHEMA})
            self.bounded = tuple(changed)
            return contents_of(rows)
        except (KeyError, ValueError, TokenError) as error:
            raise self._damaged(f"its rows contradict each other ({error})") from error

    def _rows(self, table: str) -> list[Row]:
        rows: list[Row] = self._connection.execute(f"SELECT * FROM {table}").fetchall()
        for row in rows:
            if sealed(table, row[:-1]) != row:
                raise self._damaged(f"a row of {table} was altered: {row}")
        return [row[:-1] for row in rows]

    def _pragma(self, text: str) -> Any:
        """Returns the first value that a pragma answers with, or None."""
        row = self._connection.execute(f"PRAGMA {text}").fetchone()
        return row[0] if row else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise SQLite's errors as StorageErrors."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                raise DirectoryLockedError(
                    "another process uses it; stop that first", path=self._path
                ) from error
            if code in _DAMAGED:
                raise self._damaged(str(error)) from error
            kind = DiskFullError if code == sqlite3.SQLITE_FULL else DiskFailedError
            raise kind(str(error), path=self._path) from error

    def _damaged(self, what: str) -> DamagedError:
        reason = f"{what}; put a copy back, or move it away and let its subscribers show their tokens"
        return DamagedError(reason, path=self._path, offset=0)
