"""Tables in one SQLite file, in WAL mode, synced on every commit.

What a crash may lose: what was written since the last commit, of all tables together. Every commit is a
transaction with `synchronous = FULL`, so what was committed stays. Beside each table in `tables.TableRows`
stands why losing its latest rows is safe. SQLite checks the structure of its pages and not their contents, so
every row has a checksum, and all rows together have a seal. The write-ahead log is looked through before
SQLite opens it, because SQLite passes over what follows a damaged frame. A file that is damaged, of another
program or of a later version is refused and left as it is. A new file is created with the first commit.

The write-ahead log goes into the file after CHECKPOINT_COMMITS commits, or sooner if it is long, and when the
tables are closed: what was committed an hour ago is in one place and not in two.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.log.reserve import Reserve
from tidemark.storage.tables.rows import (
    SCHEMA,
    SUBSCRIBER_COLUMN,
    Row,
    bounded,
    contents_of,
    create_statement,
    replace_statement,
    rows_of,
    seal_statements,
    sealed,
)
from tidemark.storage.tables.tables import TableRows, Tables
from tidemark.storage.tables.wal import damage_in

#: "TMSH", and the version of `rows.SCHEMA`
APPLICATION = 0x544D5348
VERSION = 7
#: The oldest version that is read. Older files only lack tables, which are created when such a file is
#: opened.
VERSION_OLDEST = 2

#: What an administrator can do about damaged tables.
ADVICE = (
    "put a copy back, or move the directory tables away and start once with "
    "--set storage.accept_damage=tables: subscribers are told a gap then for what is not known"
)
#: After so many commits the write-ahead log goes into the file.
CHECKPOINT_COMMITS = 256

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteTables(Tables):
    """Tables in the file at a path, which no other process can open meanwhile."""

    def __init__(self, path: str | os.PathLike[str], *, check: bool = True) -> None:
        """Open the file; one that does not exist is created with the first commit.

        With `check`, the whole file is searched for damage first. Raises DirectoryLockedError,
        UnknownFormatError, DamagedError or DiskFailedError.
        """
        self._path = os.fspath(path)
        #: the error after which nothing more is written
        self._failed: StorageError | None = None
        #: None while there is no file
        self._open: sqlite3.Connection | None = None
        self._reserve: Reserve | None = None
        #: commits since the write-ahead log went into the file
        self._uncheckpointed = 0
        log = Path(f"{self._path}-wal")
        if not os.path.exists(self._path) or not os.path.getsize(self._path):
            if log.exists() and log.stat().st_size:
                raise self._damaged("it is gone, but its write-ahead log is there")
            super().__init__(TableRows())
            return
        found = damage_in(log) if check else None
        if found is not None:
            raise self._damaged(found)
        super().__init__(self._connect(check=check))

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._path

    @property
    def is_short_of_space(self) -> bool:
        """Whether the space that is kept for the start of a broker was given up, and is not back yet."""
        return self._reserve is not None and not self._reserve.is_there

    def copy_to(self, path: str) -> None:
        """Make a file at `path` with everything that is committed; it is not synced. Raises StorageError."""
        copy = sqlite3.connect(path, isolation_level=None)
        try:
            for pragma in ("journal_mode = OFF", "synchronous = OFF"):
                copy.execute(f"PRAGMA {pragma}")
            self._connection.backup(copy)
        except sqlite3.Error as error:
            # Not a failure of this file: nothing was written to it.
            raise StorageError(f"cannot be copied: {error}", path=self._path) from error
        finally:
            copy.close()

    def close(self) -> None:
        """Close the file, with the write-ahead log in it. What is not committed is lost."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._open is not None
        return self._open

    def _connect(self, *, check: bool) -> TableRows:
        """Open the file, or create it. Returns what is in it."""
        # The thread that opens the file is not the disk thread; only one of the two uses it at a time.
        self._open = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._translated():
                self._prepare(check)
                contents = self._load()
            self._reserve = Reserve(RealDisk(os.path.dirname(os.path.abspath(self._path))))
        except BaseException:
            self.close()
            raise
        return contents

    def _spend_reserve(self) -> bool:
        return self._reserve is not None and self._reserve.spend()

    def _write(self, changes: TableRows, removed: set[int]) -> None:
        if self._failed is not None:
            raise self._failed
        if self._open is None:
            self._connect(check=False)
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
        self._uncheckpointed += 1
        if self._uncheckpointed >= CHECKPOINT_COMMITS:
            self._checkpoint()
        if self._reserve is not None:
            self._reserve.refill()

    def _checkpoint(self) -> None:
        """Put the write-ahead log into the file, and empty it; on a full disk that waits."""
        self._uncheckpointed = 0
        with suppress(DiskFullError), self._translated():
            self._pragma("wal_checkpoint(TRUNCATE)")

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
        # A row that is replaced is taken off the seal like one that is deleted.
        self._pragma("recursive_triggers = ON")
        if new or version != VERSION:
            self._create()

    def _create(self) -> None:
        """Create the missing tables in one transaction: a crash leaves none of them or all."""
        names = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        with self._transaction():
            for table in SCHEMA:
                if (table,) not in names:
                    self._connection.execute(create_statement(table))
            for statement in seal_statements():
                self._connection.execute(statement)
            self._pragma(f"application_id = {APPLICATION}")
            self._pragma(f"user_version = {VERSION}")

    def _load(self) -> TableRows:
        rows = {table: self._rows(table) for table in SCHEMA}
        found = (sum(map(len, rows.values())), sum(row[-1] for each in rows.values() for row in each))
        if self._connection.execute("SELECT rows, total FROM seal").fetchall() != [found]:
            raise self._damaged("some of its rows are older than others, or gone")
        try:
            plain, changed = bounded({table: [row[:-1] for row in each] for table, each in rows.items()})
            self.bounded = tuple(changed)
            return contents_of(plain)
        except (KeyError, ValueError, TokenError) as error:
            raise self._damaged(f"its rows contradict each other ({error})") from error

    def _rows(self, table: str) -> list[Row]:
        rows: list[Row] = self._connection.execute(f"SELECT * FROM {table}").fetchall()
        for row in rows:
            if sealed(table, row[:-1]) != row:
                raise self._damaged(f"a row of {table} was altered: {row}")
        return rows

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
        except UnicodeDecodeError as error:
            # Text of damaged pages, or of what SQLite says about them.
            raise self._damaged(str(error)) from error
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
        reason = f"{what}; {ADVICE}"
        return DamagedError(reason, path=self._path, offset=0)
