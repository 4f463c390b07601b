"""Checkpoint stores: tokens in the application's own database, in the application's own transaction.

A subscriber that commits its token together with what it made of the events gets every event exactly once,
whatever crashes and when. A store never commits, rolls back or opens a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tidemark.errors import ConfigError
from tidemark.ticks import CheckpointToken

TABLE_DEFAULT = "tidemark_checkpoints"
NAME_CHARACTERS_MAX = 255

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")

#: PEP 249: how the parameter of this name and number (from 1) is written
_PLACES: Mapping[str, Callable[[str, int], str]] = {
    "qmark": lambda _, __: "?",
    "format": lambda _, __: "%s",
    "numeric": lambda _, number: f":{number}",
    "named": lambda name, _: f":{name}",
    "pyformat": lambda name, _: f"%({name})s",
}


class DatabaseCursor(Protocol):
    """What a store needs of a PEP 249 cursor."""

    rowcount: int

    def execute(self, operation: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The next row of a SELECT, or None."""

    def close(self) -> Any:
        """Release the cursor."""


class DatabaseConnection(Protocol):
    """What a store needs of a PEP 249 connection."""

    def cursor(self) -> Any:
        """A new DatabaseCursor."""


class CheckpointStore(Protocol):
    """Where an application keeps its checkpoint tokens, by the names of its subscriptions."""

    def load(self, name: str) -> CheckpointToken | None:
        """The token that was stored last for the subscription `name`; None if there is none."""

    def save(self, name: str, token: CheckpointToken) -> None:
        """Store the token of the subscription `name`, in the transaction that is open."""


class DbApiCheckpoints:
    """Checkpoint tokens in a table of any database with a PEP 249 driver: PostgreSQL, MySQL, Oracle, ..."""

    def __init__(
        self, connection: DatabaseConnection, table: str = TABLE_DEFAULT, *, paramstyle: str = "format"
    ) -> None:
        """Use `table` of the database; `paramstyle` is that of the driver's module, `psycopg.paramstyle` say.

        ConfigError if either of them is malformed.
        """
        if not _IDENTIFIER.fullmatch(table):
            raise ConfigError(f"{table!r} is not a table's name: use letters, digits and _", key="table")
        if paramstyle not in _PLACES:
            styles = ", ".join(sorted(_PLACES))
            raise ConfigError(f"{paramstyle!r} is none of {styles}: use module.paramstyle", key="paramstyle")
        self._connection = connection
        self._table = table
        self._style = paramstyle

    def create(self) -> None:
        """Make the table if it does not exist. Call this first: some databases commit with it."""
        columns = f"name VARCHAR({NAME_CHARACTERS_MAX}) NOT NULL PRIMARY KEY, token TEXT NOT NULL"
        self._execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")

    def load(self, name: str) -> CheckpointToken | None:
        """The token that was stored last for the subscription `name`; None if there is none.

        TokenError if what is stored is not a token.
        """
        row = self._execute(f"SELECT token FROM {self._table} WHERE name = {{name}}", name=name)
        return None if row is None else CheckpointToken.parse(row[0])

    def save(self, name: str, token: CheckpointToken) -> None:
        """Store the token of the subscription `name` in the open transaction; it holds once you commit."""
        text = token.text()
        update = f"UPDATE {self._table} SET token = {{token}} WHERE name = {{name}}"
        if self._execute(update, token=text, name=name) is None:
            insert = f"INSERT INTO {self._table} (name, token) VALUES ({{name}}, {{token}})"
            self._execute(insert, name=name, token=text)

    def _execute(self, statement: str, **values: str) -> Sequence[Any] | None:
        """Run a statement: a row of a SELECT, or one for a change that changed something; else None."""
        place = _PLACES[self._style]
        places = {name: place(name, number) for number, name in enumerate(values, 1)}
        parameters: Any = values if self._style in ("named", "pyformat") else tuple(values.values())
        cursor: DatabaseCursor = self._connection.cursor()
        try:
            text = statement.format(**places)
            if values:
                cursor.execute(text, parameters)
            else:
                cursor.execute(text)
            if text.startswith("SELECT"):
                row: Sequence[Any] | None = cursor.fetchone()
                return row
            return (cursor.rowcount,) if cursor.rowcount > 0 else None
        finally:
            cursor.close()


class SqliteCheckpoints(DbApiCheckpoints):
    """Checkpoint tokens in a table of an SQLite database."""

    def __init__(self, connection: DatabaseConnection, table: str = TABLE_DEFAULT) -> None:
        """Use `table` of the database; ConfigError if that is not the name of a table."""
        super().__init__(connection, table, paramstyle="qmark")
