"""The write-ahead log beside SQLite's file: what a kill, a flipped bit or an older copy leaves of it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from tests.storage.tables.kinds import subscribe
from tidemark.errors import (
    DamagedError,
    UnknownFormatError,
)
from tidemark.storage.tables import sqlite_tables
from tidemark.storage.tables.sqlite_tables import SqliteTables

#: SQLite's write-ahead log: a header, and for each page that was written a header and the page.
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_WAL_FRAME_BYTES = _FRAME_HEADER_BYTES + 4_096


def committed_by_a_killed_process(path: Path, commits: int = 6) -> list[list[bytes]]:
    """Commit one subscription at a time. Returns the two files after each commit, as a kill leaves them."""
    tables = SqliteTables(path)
    copies = []
    for number in range(commits):
        subscribe(tables, f"subscriber {number} {'x' * 300}")
        tables.commit()
        log = Path(f"{path}-wal")
        copies.append([path.read_bytes(), log.read_bytes()])
    tables.close()
    return copies


def put_back(path: Path, main: bytes, log: bytes | None) -> None:
    path.write_bytes(main)
    wal = Path(f"{path}-wal")
    wal.unlink(missing_ok=True)
    if log is not None:
        wal.write_bytes(log)


def generation_of(path: Path) -> int | None:
    """The number of the last commit that is read; None if the tables are refused."""
    try:
        tables = SqliteTables(path)
    except (DamagedError, UnknownFormatError):
        return None
    assert len(tables.subscriptions()) == tables.generation
    tables.close()
    return tables.generation


def test_every_commit_has_a_number_that_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    for number, (main, log) in enumerate(committed_by_a_killed_process(path), 1):
        put_back(path, main, log)
        assert generation_of(path) == number


def test_a_flipped_bit_of_the_write_ahead_log_is_refused_or_costs_the_last_commit(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    *_, (main, log) = committed_by_a_killed_process(path)
    whole = 6
    found = set()
    frames = range(_WAL_HEADER_BYTES, len(log), _WAL_FRAME_BYTES)
    in_headers = [begin + 5 * number % _FRAME_HEADER_BYTES for number, begin in enumerate(frames)]
    in_pages = [begin + _FRAME_HEADER_BYTES + 211 * number % 4_096 for number, begin in enumerate(frames)]
    for place in (*range(0, _WAL_HEADER_BYTES, 4), *in_headers, *in_pages):
        put_back(path, main, log[:place] + bytes([log[place] ^ 16]) + log[place + 1 :])
        found.add(generation_of(path))
    assert found == {None, whole - 1}
    # Cut anywhere, as a crash would, it is a torn tail.
    for place in range(32, len(log), 997):
        put_back(path, main, log[:place])
        assert generation_of(path) in range(whole)


def test_a_write_ahead_log_that_belongs_to_an_older_file_is_refused_or_tells_its_age(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    with patch.object(sqlite_tables, "CHECKPOINT_COMMITS", 3):
        copies = committed_by_a_killed_process(path, 8)
    for now, (main, log) in enumerate(copies, 1):
        for old_main, old_log in copies[: now - 1]:
            put_back(path, old_main, log)
            assert generation_of(path) in {None, *range(now + 1)}
            put_back(path, main, old_log)
            assert generation_of(path) in {None, *range(now + 1)}


def test_a_file_that_is_gone_beside_its_write_ahead_log_is_refused_and_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    *_, (main, log) = committed_by_a_killed_process(path)
    put_back(path, main, log)
    path.unlink()
    with pytest.raises(DamagedError, match="it is gone"):
        SqliteTables(path)
    assert Path(f"{path}-wal").read_bytes() == log
    assert not path.exists()


def test_the_write_ahead_log_goes_into_the_file_after_some_commits(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    with patch.object(sqlite_tables, "CHECKPOINT_COMMITS", 3):
        copies = committed_by_a_killed_process(path, 7)
    assert [bool(log) for _, log in copies] == [True, True, False, True, True, False, True]
    assert not Path(f"{path}-wal").exists()
