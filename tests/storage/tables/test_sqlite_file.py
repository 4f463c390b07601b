"""SQLite's file of tables: of other programs, other versions, damaged, and on a full disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.tables.kinds import filled, seen, subscribe
from tidemark.errors import (
    DamagedError,
    DirectoryLockedError,
    DiskFullError,
    StorageError,
    UnknownFormatError,
)
from tidemark.storage.tables.rows import replace_statement, sealed
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.storage.tables.tables import PfsMark, TopicRow
from tidemark.ticks import TICK_FIRST, TICK_LAST
from tidemark.ticks.token_text import encode


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    tables = SqliteTables(filled(tmp_path / "tables.db"))
    with pytest.raises(DirectoryLockedError):
        SqliteTables(tmp_path / "tables.db")
    tables.close()
    SqliteTables(tmp_path / "tables.db").close()


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (thing)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(UnknownFormatError, match="not a broker's tables"):
        SqliteTables(path)
    assert path.read_bytes() == before


def test_a_file_of_before_there_were_hosts_gets_the_table(tmp_path: Path) -> None:
    path = filled(tmp_path / "tables.db")
    other = sqlite3.connect(path)
    other.execute("DROP TABLE hosts")
    other.execute("PRAGMA user_version = 2")
    other.commit()
    other.close()
    tables = SqliteTables(path)
    assert tables.hosts() == {}
    assert tables.subscriptions()
    tables.put_hosts("p1", {"a": 7})
    tables.commit()
    tables.close()
    again = SqliteTables(path)
    assert again.hosts() == {"p1": {"a": 7}}
    again.close()


def test_hosts_of_before_their_rows_were_numbered_are_hosts(tmp_path: Path) -> None:
    path = filled(tmp_path / "tables.db")
    other = sqlite3.connect(path)
    other.execute("INSERT INTO hosts VALUES (?, ?, ?)", sealed("hosts", ("p1", '["a", "b"]')))
    other.execute("PRAGMA user_version = 3")
    other.commit()
    other.close()
    tables = SqliteTables(path)
    assert tables.hosts() == {"p1": {"a": 0, "b": 0}}
    tables.close()


def test_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "tables.db")
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 9")
    other.close()
    before = path.read_bytes()
    with pytest.raises(UnknownFormatError, match="version 9"):
        SqliteTables(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("hurt", [lambda _: b"not a database" * 9, lambda data: data[: len(data) // 2]])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, hurt: Callable[[bytes], bytes]) -> None:
    path = filled(tmp_path / "tables.db")
    damaged = hurt(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(DamagedError):
        SqliteTables(path)
    assert path.read_bytes() == damaged


def test_a_flipped_bit_never_changes_what_is_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "tables.db")
    whole = path.read_bytes()
    tables = SqliteTables(path)
    expected = seen(tables)
    tables.close()
    for place in range(0, len(whole), 997):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            tables = SqliteTables(path)
        except (DamagedError, UnknownFormatError):
            continue
        found = seen(tables)
        tables.close()
        assert found == expected, f"byte {place}"


def test_damaged_text_of_the_schema_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "tables.db")
    whole = path.read_bytes()
    for text in (b"CREATE TABLE subscriptions", b"subscriptions", b"AFTER insert"):
        at = whole.index(text) + 3
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        with pytest.raises(StorageError):
            SqliteTables(path)


def test_an_empty_file_left_by_a_crash_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    path.write_bytes(b"")
    tables = SqliteTables(path)
    assert tables.subscriptions() == []
    tables.close()


def test_a_full_disk_loses_nothing_and_the_next_commit_tries_again(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "tables.db")
    tables.bump("something")
    tables.commit()
    tables._connection.execute("PRAGMA max_page_count = 30")
    rows = [subscribe(tables, f"subscriber {number} {'x' * 500}") for number in range(200)]
    with pytest.raises(DiskFullError):
        tables.commit()
    assert tables.subscriptions() == rows
    tables._connection.execute("PRAGMA max_page_count = 100000")
    tables.commit()
    tables.close()
    again = SqliteTables(tmp_path / "tables.db")
    assert again.subscriptions() == rows
    again.close()


def test_a_version_of_a_topic_writes_a_row_of_its_own_and_no_other(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "tables.db")
    tables.put_topic(TopicRow("t", True, tuple(f"[field_{number}: int]" for number in range(100))))
    tables.commit()
    before = tables._connection.total_changes
    tables.put_topic(TopicRow("t", True, ("[one_more: int]",)))
    tables.commit()
    # The row, the number of the commit, and the seal for each of them: not the hundred others.
    assert tables._connection.total_changes - before <= 8
    tables.close()


def test_versions_of_a_topic_that_version_4_kept_in_one_row_come_before_the_new_ones(tmp_path: Path) -> None:
    tables = SqliteTables(filled(tmp_path / "tables.db"))
    tables._connection.execute(
        replace_statement("topics"), sealed("topics", ("t", 0, '["[a: int]", "[a: int, b: int]"]'))
    )
    tables._connection.execute("DROP TABLE schemas")
    tables._connection.execute("PRAGMA user_version = 4")
    tables.close()
    tables = SqliteTables(tmp_path / "tables.db")
    tables.put_topic(TopicRow("t", False, ("[a: int, c: int]",)))
    tables.commit()
    tables.close()
    tables = SqliteTables(tmp_path / "tables.db")
    assert tables.topics() == [TopicRow("t", False, ("[a: int]", "[a: int, b: int]", "[a: int, c: int]"))]
    tables.close()


def test_numbers_that_an_earlier_version_let_in_are_bounded_when_they_are_read(tmp_path: Path) -> None:
    """The last int64 has no successor: a broker with such a row in its tables ended at each start."""
    path, last = tmp_path / "tables.db", 2**63 - 1
    tables = SqliteTables(path)
    row = subscribe(tables)
    tables.release(row.id, {"p1": 105})
    tables.deliver("p1", 105)
    tables.put_hosts("p1", {"h": 7, "i": 1})
    tables.commit()
    assert not tables.bounded
    tables.close()
    token = encode([("p1", last)])
    with sqlite3.connect(path) as database:
        for table, given in {
            "subscriptions": (row.id, row.name, "ada", last, token, last),
            "selectors": (row.id, 1, "trades.>", "price > 10", token),
            "released": (row.id, "p1", last),
            "tokens": (row.id, "p1", -last),
            "latest_delivered": ("p1", last),
            "pfs": ("p1", last, -last),
            "hosts": ("p1", f'{{"h": {last}, "i": 1}}'),
        }.items():
            database.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * (len(given) + 1))
            database.execute(f"INSERT INTO {table} VALUES ({marks})", sealed(table, given))
    database.close()
    tables = SqliteTables(path)
    (found,) = tables.subscriptions()
    assert (found.epoch, found.created, dict(found.start)) == (TICK_LAST, TICK_LAST, {"p1": TICK_LAST})
    assert dict(found.history[0].since) == {"p1": TICK_LAST}
    assert dict(tables.released(row.id)) == {"p1": TICK_LAST}
    assert tables._contents.tokens == {row.id: {"p1": TICK_FIRST}}
    assert dict(tables.latest_delivered()) == {"p1": TICK_LAST}
    assert tables._contents.pfs == {"p1": PfsMark(TICK_LAST, TICK_FIRST)}
    assert tables.hosts() == {"p1": {"h": 2**62 - 1, "i": 1}}
    assert [text.partition(":")[0] for text in tables.bounded] == [
        "subscriptions", "selectors", "released", "tokens", "latest_delivered", "pfs", "hosts"
    ]  # fmt: skip
    tables.close()
