"""The tables' contract, on SQLite and in memory; and what SQLite's file does when it is hurt."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import (
    DamagedError,
    DirectoryLockedError,
    DiskFullError,
    StorageError,
    UnknownFormatError,
)
from tidemark.message.topic_selector import TopicSelector
from tidemark.storage.tables import sqlite_tables
from tidemark.storage.tables.memory_tables import MemoryTables
from tidemark.storage.tables.rows import replace_statement, sealed
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.storage.tables.subscription import SelectorVersion, SubscriptionRow
from tidemark.storage.tables.tables import ACCEPTED, INCARNATION, PfsMark, Tables, TopicRow
from tidemark.storage.witness.known import Known
from tidemark.ticks import TICK_FIRST, TICK_LAST, TICK_MAX, CheckpointToken
from tidemark.ticks.token_text import encode


class OnDisk:
    """SQLite's tables; a crash is that the process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables = SqliteTables(path)

    def crash(self) -> Tables:
        self.tables.close()
        self.tables = SqliteTables(self.path)
        return self.tables


class InMemory:
    """Tables of the simulator."""

    def __init__(self) -> None:
        self.tables = MemoryTables()

    def crash(self) -> Tables:
        self.tables = self.tables.crash()
        return self.tables


@pytest.fixture(params=["sqlite", "memory"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> OnDisk | InMemory:
    return OnDisk(tmp_path / "tables.db") if request.param == "sqlite" else InMemory()


def subscribe(tables: Tables, name: str = "audit") -> SubscriptionRow:
    start = CheckpointToken({"p1": 100})
    first = SelectorVersion(1, TopicSelector("trades.>", "price > 10"), start)
    row = SubscriptionRow(tables.new_subscriber(), name, "ada", 1, start, 99, (first,))
    tables.put_subscription(row)
    return row


def test_what_was_committed_survives_a_crash(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.release(row.id, {"p1": 105, "p2": TICK_LAST})
    tables.keep_token(row.id, {"p1": 106})
    tables.deliver("p1", 107)
    tables.mark_pfs("p1", PfsMark(108, 90))
    tables.bump(INCARNATION)
    tables.commit()
    tables = host.crash()
    assert tables.subscriptions() == [row]
    assert tables.subscription("audit") == row
    assert tables.released(row.id) == CheckpointToken({"p1": 105, "p2": TICK_LAST})
    assert tables.token(row.id) == CheckpointToken({"p1": 106})
    assert tables.latest_delivered() == CheckpointToken({"p1": 107})
    assert tables.pfs("p1") == PfsMark(108, 90)
    assert tables.counter(INCARNATION) == 1


def test_what_was_not_committed_is_seen_at_once_and_lost_in_a_crash(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    kept = subscribe(tables, "kept")
    tables.deliver("p1", 1)
    tables.commit()
    subscribe(tables, "lost")
    tables.deliver("p1", 2)
    tables.keep_token(kept.id, {"p1": 5})
    assert [row.name for row in tables.subscriptions()] == ["kept", "lost"]
    assert tables.latest_delivered() == CheckpointToken({"p1": 2})
    tables = host.crash()
    assert tables.subscriptions() == [kept]
    assert tables.latest_delivered() == CheckpointToken({"p1": 1})
    assert tables.token(kept.id) == CheckpointToken()


def test_positions_never_go_back(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    for tick in (7, 9, 8):
        tables.release(row.id, {"p1": tick})
        tables.keep_token(row.id, {"p1": tick})
        tables.deliver("p1", tick)
        tables.commit()
    tables = host.crash()
    assert tables.released(row.id) == tables.token(row.id) == tables.latest_delivered()
    assert tables.latest_delivered() == CheckpointToken({"p1": 9})


def test_a_number_is_never_given_to_a_second_subscriber(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    first = subscribe(tables)
    tables.remove_subscription(first.id)
    tables.commit()
    tables = host.crash()
    second = subscribe(tables)
    assert second.id != first.id


def test_a_removed_subscriber_takes_its_positions_along(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    gone, stays = subscribe(tables, "gone"), subscribe(tables, "stays")
    for row in (gone, stays):
        tables.release(row.id, {"p1": 5})
        tables.keep_token(row.id, {"p1": 5})
    tables.commit()
    tables.remove_subscription(gone.id)
    tables.remove_subscription(gone.id)
    tables.release(gone.id, {"p1": 6})
    tables.commit()
    for seen in (tables, host.crash()):
        assert seen.subscriptions() == [stays]
        assert seen.subscription("gone") is None
        assert seen.released(gone.id) == seen.token(gone.id) == CheckpointToken()
        assert seen.released(stays.id) == CheckpointToken({"p1": 5})


def test_a_subscription_made_and_removed_between_commits_leaves_nothing(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.release(row.id, {"p1": 5})
    tables.remove_subscription(row.id)
    tables.commit()
    assert host.crash().subscriptions() == []


def test_a_changed_selector_keeps_what_held_before(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables)
    tables.commit()
    changed = row.with_selector(
        TopicSelector("trades.*", "price > 20"), CheckpointToken({"p1": 200})
    ).with_epoch(3)
    tables.put_subscription(changed)
    tables.commit()
    tables = host.crash()
    assert tables.subscriptions() == [changed]
    (found,) = tables.subscriptions()
    assert [found.in_force("p1", tick) for tick in (100, 101, 200, 201)] == [
        None,
        row.current,
        row.current,
        changed.current,
    ]


def test_a_version_holds_in_a_pubend_from_the_tick_it_answered(host: OnDisk | InMemory) -> None:
    row = subscribe(host.tables).with_selector(TopicSelector("trades.>", "price > 20"), CheckpointToken())
    assert row.in_force("p1", TICK_MAX) == row.history[0]
    row = row.applied(2, "p1", 300).applied(2, "p1", 400)
    assert row.in_force("p1", 300) == row.history[0]
    assert row.in_force("p1", 301) == row.current
    assert row.in_force("p9", TICK_MAX) is None


def test_counters_count_from_one_each_by_itself(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    assert [tables.bump("filter p1"), tables.bump("filter p1"), tables.bump("filter p2")] == [1, 2, 1]
    assert tables.counter("never used") == 0


def test_odd_names_and_extreme_ticks_survive(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables, "Zoë; DROP TABLE tokens --'\"")
    tables.release(row.id, {"日本\n": TICK_FIRST})
    tables.commit()
    tables = host.crash()
    assert tables.subscription(row.name) == row
    assert tables.released(row.id) == CheckpointToken({"日本\n": TICK_FIRST})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), st.sampled_from("abc")),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
        st.tuples(st.just("release"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("keep"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("select"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("deliver"), st.sampled_from("pq"), st.integers(1, 9)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("crash")),
    ),
    max_size=30,
)


def apply(tables: Tables, step: tuple[Any, ...]) -> None:
    row = tables.subscription(step[1]) if len(step) > 1 else None
    match step:
        case ("subscribe", str(name)) if row is None:
            subscribe(tables, name)
        case ("remove", _) if row:
            tables.remove_subscription(row.id)
        case ("release", _, int(tick)) if row:
            tables.release(row.id, {"p1": tick})
        case ("keep", _, int(tick)) if row:
            tables.keep_token(row.id, {"p1": tick})
        case ("select", _, int(tick)) if row:
            since = CheckpointToken({"p1": tick})
            tables.put_subscription(row.with_selector(TopicSelector("a.b", f"x = {tick}"), since))
        case ("deliver", str(pubend), int(tick)):
            tables.deliver(pubend, tick)
        case ("commit",):
            tables.commit()


def seen(tables: Tables) -> object:
    rows = tables.subscriptions()
    return rows, [(tables.released(row.id), tables.token(row.id)) for row in rows], tables.latest_delivered()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(steps=STEPS)
def test_both_kinds_show_the_same_after_every_step(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]]
) -> None:
    hosts = OnDisk(tmp_path_factory.mktemp("tables") / "tables.db"), InMemory()
    for step in steps:
        for each in hosts:
            if step == ("crash",):
                each.crash()
            else:
                apply(each.tables, step)
        assert seen(hosts[0].tables) == seen(hosts[1].tables)
    hosts[0].tables.close()


def filled(path: Path) -> Path:
    tables = SqliteTables(path)
    for number in range(200):
        row = subscribe(tables, f"subscriber {number}")
        tables.release(row.id, {"p1": number + 1})
    tables.commit()
    tables.close()
    return path


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


def test_hosts_are_kept_as_they_were_committed_last(host: OnDisk | InMemory) -> None:
    host.tables.put_hosts("p1", {"a": 3, "b": 1 << 40})
    host.tables.put_hosts("p2", {})
    host.tables.commit()
    host.tables.put_hosts("p1", {"a": 3})
    assert host.tables.hosts() == {"p1": {"a": 3}, "p2": {}}
    assert host.crash().hosts() == {"p1": {"a": 3, "b": 1 << 40}, "p2": {}}


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


def test_topics_survive_with_all_their_schemas(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.put_topic(TopicRow("t.y", True, ()))
    tables.put_topic(TopicRow("t.x", False, ("[a: int]",)))
    tables.commit()
    tables.put_topic(TopicRow("t.x", False, ('[a: int, "b: string]',)))
    tables.commit()
    tables.put_topic(TopicRow("t.z", True, ()))
    tables = host.crash()
    assert tables.topics() == [
        TopicRow("t.x", False, ("[a: int]", '[a: int, "b: string]')),
        TopicRow("t.y", True, ()),
    ]


def test_creations_of_a_topic_are_kept_apart_and_what_is_removed_stays_so(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.put_topic(TopicRow("t", True, ("[a: int]",)))
    tables.put_topic(TopicRow("t", True, (), 1))
    tables.put_topic(TopicRow("t", True, ("[late: int]",)))
    tables.commit()
    tables.put_topic(TopicRow("t", False, ("[a: string]",), 2))
    tables.put_topic(TopicRow("never.seen", False, ("[b: int]",), 2))
    tables.put_topic(TopicRow("never.seen", False, (), 3))
    tables.put_topic(TopicRow("not.known", False, (), 1))
    tables.commit()
    tables = host.crash()
    kept = [
        TopicRow("never.seen", False, ("[b: int]",), 3),
        TopicRow("not.known", False, (), 1),
        TopicRow("t", True, ("[a: int]", "[late: int]"), 1),
        TopicRow("t", False, ("[a: string]",), 2),
    ]
    assert tables.topics() == kept
    tables.put_topic(TopicRow("t", False, ("[a: string, c: int]",), 2))
    tables.commit()
    kept[-1] = TopicRow("t", False, ("[a: string]", "[a: string, c: int]"), 2)
    assert host.crash().topics() == kept


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


def test_a_history_that_became_shorter_leaves_nothing_behind(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    row = subscribe(tables).with_selector(
        TopicSelector("trades.>", "price > 20"), CheckpointToken({"p1": 200})
    )
    tables.put_subscription(row)
    tables.commit()
    short = replace(row, history=(replace(row.current, version=1),))
    tables.put_subscription(short)
    tables.commit()
    assert host.crash().subscriptions() == [short]


def test_a_number_given_out_elsewhere_is_not_given_out_again(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    tables.use_subscriber(7)
    tables.use_subscriber(5)
    tables.commit()
    assert host.crash().new_subscriber() == 8


def test_what_waits_for_a_commit_is_counted(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    assert tables.uncommitted == 0
    row = subscribe(tables)
    tables.release(row.id, {"p1": 3, "p2": 4})
    tables.put_topic(TopicRow("t", True, ()))
    assert tables.uncommitted == 4  # the counter of subscribers too
    tables.commit()
    tables.remove_subscription(row.id)
    assert tables.uncommitted == 1


def test_tables_in_memory_can_be_full() -> None:
    tables = MemoryTables()
    tables.is_full = True
    tables.deliver("p1", 5)
    with pytest.raises(DiskFullError):
        tables.commit()
    tables = tables.crash()
    assert tables.latest_delivered() == CheckpointToken()
    tables.is_full = False
    tables.deliver("p1", 6)
    tables.commit()
    assert tables.crash().latest_delivered() == CheckpointToken({"p1": 6})


def test_numbers_that_an_earlier_version_let_in_are_bounded_when_they_are_read(tmp_path: Path) -> None:
    """The last int64 has no successor: a broker with such a row in its tables ended at each start."""
    path, last = tmp_path / "tables.db", 2**63 - 1
    tables = SqliteTables(path)
    row = subscribe(tables)
    tables.release(row.id, {"p1": 105})
    tables.keep_token(row.id, {"p1": 105})
    tables.deliver("p1", 105)
    tables.mark_pfs("p1", PfsMark(105, 3))
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
    assert dict(tables.token(row.id)) == {"p1": TICK_FIRST}
    assert dict(tables.latest_delivered()) == {"p1": TICK_LAST}
    assert tables.pfs("p1") == PfsMark(TICK_LAST, TICK_FIRST)
    assert tables.hosts() == {"p1": {"h": 2**62 - 1, "i": 1}}
    assert [text.partition(":")[0] for text in tables.bounded] == [
        "subscriptions", "selectors", "released", "tokens", "latest_delivered", "pfs", "hosts"
    ]  # fmt: skip
    tables.close()


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
    for place in range(0, len(log), 211):
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


def test_tables_that_lost_rows_give_no_number_out_again(host: OnDisk | InMemory) -> None:
    tables: Tables = host.tables
    known = Known(generation=40, incarnation=7, subscribers=90)
    tables.accept_loss(known)
    tables.commit()
    tables = host.crash()
    assert tables.generation == 41
    assert tables.bump(INCARNATION) > 7
    assert tables.new_subscriber() > tables.counter(ACCEPTED) > 90
