"""Tokens in the application's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark import CheckpointToken, DbApiCheckpoints, SqliteCheckpoints
from tidemark.errors import ConfigError, TokenError

FIRST = CheckpointToken({"p1": 10, "p2": -3})
SECOND = FIRST.advance("p1", 20)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def test_a_token_is_stored_with_the_transaction_and_goes_with_it(database: sqlite3.Connection) -> None:
    store = SqliteCheckpoints(database)
    store.create()
    store.create()
    assert store.load("audit") is None
    with database:
        store.save("audit", FIRST)
        store.save("other", SECOND)
    store.save("audit", SECOND)
    assert store.load("audit") == SECOND
    assert database.in_transaction
    database.rollback()
    assert store.load("audit") == FIRST
    assert store.load("other") == SECOND


@pytest.mark.parametrize("style", ["qmark", "named", "numeric"])
def test_any_parameter_style_of_the_driver_will_do(database: sqlite3.Connection, style: str) -> None:
    store = DbApiCheckpoints(_Numbered(database) if style == "numeric" else database, paramstyle=style)
    store.create()
    store.save("it's; DROP TABLE tidemark_checkpoints", FIRST)
    store.save("it's; DROP TABLE tidemark_checkpoints", SECOND)
    assert store.load("it's; DROP TABLE tidemark_checkpoints") == SECOND


@pytest.mark.parametrize(("style", "places"), [("format", "%s, %s"), ("pyformat", "%(name)s, %(token)s")])
def test_statements_are_written_in_the_drivers_style(style: str, places: str) -> None:
    driver = _Recording()
    DbApiCheckpoints(driver, "app.tokens", paramstyle=style).save("audit", FIRST)
    update, insert = driver.statements
    assert update[0].startswith("UPDATE app.tokens SET token = %")
    assert insert[0] == f"INSERT INTO app.tokens (name, token) VALUES ({places})"
    expected: Any = {"name": "audit", "token": FIRST.text()}
    assert insert[1] == (expected if style == "pyformat" else ("audit", FIRST.text()))


def test_what_is_not_a_token_is_not_guessed(database: sqlite3.Connection) -> None:
    store = SqliteCheckpoints(database)
    store.create()
    store.save("audit", FIRST)
    database.execute("UPDATE tidemark_checkpoints SET token = 'tm1.oops'")
    with pytest.raises(TokenError):
        store.load("audit")


def test_a_tables_name_and_a_style_are_checked() -> None:
    with pytest.raises(ConfigError, match="table"):
        SqliteCheckpoints(_Recording(), "x; DROP TABLE y")
    with pytest.raises(ConfigError, match="paramstyle"):
        DbApiCheckpoints(_Recording(), paramstyle="percent")


class _Recording:
    """A driver that only writes down."""

    rowcount = 0

    def __init__(self) -> None:
        self.statements: list[tuple[str, Any]] = []

    def cursor(self) -> _Recording:
        return self

    def execute(self, operation: str, parameters: Any = None) -> None:
        self.statements.append((operation, parameters))

    def close(self) -> None:
        pass


class _Numbered:
    """SQLite knows `?1`; PEP 249 writes `:1`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()
        self.fetchone = self._cursor.fetchone

    def cursor(self) -> _Numbered:
        return self

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, operation: str, parameters: Any = ()) -> None:
        self._cursor.execute(operation.replace(":1", "?1").replace(":2", "?2"), parameters)

    def close(self) -> None:
        pass
