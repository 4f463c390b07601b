"""The archive of a real broker: every event once, whatever ends when, and brokers may let go."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.spark.archive.on_disk import table_directory
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import DamagedError, DirectoryLockedError, UnknownFormatError
from tidemark.message.batches.batch import EventBatch
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive import compaction as archive_compaction
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.upkeep import retention
from tidemark.ticks import TICK_MAX, TICK_MIN

TRADE = "[symbol: string, price: double, qty: int?]"


def publish(tm: sync.Client, first: int, count: int) -> list[int]:
    ticks: list[int] = []
    for topic, values in (
        ("trades.us", [{"symbol": f"S{n}", "price": n / 2, "qty": n} for n in range(first, first + count)]),
        ("news", [{"text": f"t{n}", "price": "high"} for n in range(first, first + count)]),
    ):
        ticks += [tick for tick in tm.publish_many(topic, values) if tick is not None]
    return ticks


def events_in(path: Path, pattern: str = ">", base: int = TICK_MIN, upto: int = TICK_MAX) -> list[int]:
    """The ticks that the archive gives back, in its order."""
    return [
        int(tick) for batch in archive_reader.read(path, "main", base, upto, pattern) for tick in batch.ticks
    ]


def everything(tm: sync.Client) -> EventBatch:
    (pubend,) = tm.ask("pubends")
    batch = tm._fetch("main", TICK_MIN, pubend["position"]).batch
    assert batch is not None
    return batch


def rows_of(batch: EventBatch) -> list[tuple[Any, ...]]:
    return [
        (
            int(batch.ticks[row]),
            batch.shapes[int(batch.prelude("shape")[row])],
            batch.publishers[int(batch.prelude("publisher")[row])],
            batch.message(row),
            batch.key(row),
        )
        for row in range(batch.count)
    ]


def test_every_event_is_archived_once_and_the_pubend_is_told(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    assert not archive_reader.covered(path)
    tm.subscribe("trades.>", durable="holds").close()
    first = publish(tm, 0, 50)
    kept = everything(tm)
    with Archive(node.url, path) as archive:
        done = archive.round()
        assert done is not None
        assert done.events == 100
        assert archive.round() is None
        second = publish(tm, 50, 10)
        kept_later = tm._fetch("main", first[-1], second[-1]).batch
        assert kept_later is not None
        assert archive.round() is not None
    assert events_in(path) == sorted(first + second)
    assert events_in(path, "news") == sorted(first[50:] + second[10:])
    assert events_in(path, base=first[-1]) == sorted(second)
    assert events_in(path, base=first[3], upto=first[6]) == first[4:7]
    got = [row for batch in archive_reader.read(path, "main", TICK_MIN, TICK_MAX) for row in rows_of(batch)]
    assert got == rows_of(kept) + rows_of(kept_later)
    (pubend,) = tm.ask("pubends")
    assert second[-1] <= pubend["archived"] <= archive_reader.covered(path)["main"]
    assert archive_reader.gaps(path, "main", first[0], second[-1]) == []


def test_a_pubend_lets_go_what_is_archived_and_nothing_before(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    ticks = publish(tm, 0, 5)
    time.sleep(0.2)
    assert (tm.ask("pubends")[0]["lost"] or TICK_MIN) < ticks[0]
    with Archive(node.url, tmp_path / "archive") as archive:
        archive.round()
    eventually(lambda: (tm.ask("pubends")[0]["lost"] or TICK_MIN) >= ticks[-1])
    assert events_in(tmp_path / "archive") == ticks


def test_a_broker_that_restarted_is_told_again(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    ticks = publish(tm, 0, 3)
    with Archive(node.url, tmp_path / "archive") as archive:
        archive.round()
        archive.disconnect()
        tm.close()
        node.stop()
        node.start()
        assert archive.round() is None
    with sync.connect(node.url) as again:
        assert again.ask("pubends")[0]["archived"] >= ticks[-1]


class CrashError(Exception):
    """The process ends here."""


def crashing(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise CrashError

    if where == "before any commit":
        monkeypatch.setattr(Archive, "_commit", crash)
    elif where == "between two tables":
        add = ArchiveTable.add
        calls: list[Any] = []

        def once(self: ArchiveTable, *arguments: Any) -> None:
            if calls:
                raise CrashError
            calls.append(1)
            add(self, *arguments)

        monkeypatch.setattr(ArchiveTable, "add", once)
    elif where == "after the commits":
        monkeypatch.setattr(archive_module, "save_state", crash)
    elif where == "before the report":
        monkeypatch.setattr(Archive, "_report", crash)
    else:
        monkeypatch.setattr(archive_compaction.Maintenance, "run", crash)


@pytest.mark.parametrize(
    "where",
    [
        "before any commit",
        "between two tables",
        "after the commits",
        "before the report",
        "in the housekeeping",
    ],
)
def test_a_crash_at_any_point_doubles_and_loses_nothing(
    node: LiveNode, tm: sync.Client, tmp_path: Path, where: str
) -> None:
    path = tmp_path / "archive"
    tm.subscribe("trades.>", durable="holds").close()
    ticks = publish(tm, 0, 20)
    with Archive(node.url, path) as archive:
        archive.round()
    ticks += publish(tm, 20, 20)
    with pytest.MonkeyPatch.context() as patch, Archive(node.url, path) as archive:
        crashing(patch, where)
        with pytest.raises(CrashError):
            archive.round()
        before = archive_reader.covered(path)
        assert events_in(path) == sorted(tick for tick in ticks if tick <= before["main"])
    ticks += publish(tm, 40, 20)
    with Archive(node.url, path) as archive:
        archive.round()
        assert archive.round() is None
    assert events_in(path) == sorted(ticks)
    assert tm.ask("pubends")[0]["archived"] >= ticks[-1]
    for root in ("trades", "news"):
        table = ArchiveTable(path, root)
        there = {each.name for each in table_directory(path, root).glob("*.parquet")}
        assert there == {each.name for each in table.files()}


def test_a_torn_entry_of_a_log_was_never_answered_for(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, 0, 5)
    with Archive(node.url, path) as archive:
        archive.round()
    log = table_directory(path, "trades") / "_delta_log"
    last = max(log.glob("*.json"))
    (log / f"{int(last.stem) + 1:020d}.json").write_text('{"add": {"pa')
    ticks += publish(tm, 5, 5)
    with Archive(node.url, path) as archive:
        archive.round()
    assert events_in(path) == sorted(ticks)
    max(log.glob("*.json")).write_text("")
    with pytest.raises(DamagedError, match="restore"):
        Archive(node.url, path)


def test_a_second_archive_in_one_directory_refuses(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    del tm
    with (
        Archive(node.url, tmp_path / "archive"),
        pytest.raises(DirectoryLockedError, match="stop that first"),
    ):
        Archive(node.url, tmp_path / "archive")
    with Archive(node.url, tmp_path / "archive"):
        pass


def test_small_files_become_one_and_nothing_else_changes(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    monkeypatch.setattr(archive_compaction, "SMALL_FILES_MIN", 4)
    ticks: list[int] = []
    with Archive(node.url, path) as archive:
        for n in range(9):
            ticks += publish(tm, n, 1)
            archive.round()
            assert events_in(path) == sorted(ticks)
    assert len(ArchiveTable(path, "news").files()) == 3
    assert len(list(table_directory(path, "news").glob("*.parquet"))) > 3
    monkeypatch.setattr(archive_compaction, "GRACE_SECONDS", -1.0)
    with Archive(node.url, path) as archive:
        ticks += publish(tm, 9, 1)
        archive.round()
    assert len(list(table_directory(path, "news").glob("*.parquet"))) == len(
        ArchiveTable(path, "news").files()
    )
    assert events_in(path) == sorted(ticks)


def test_what_is_older_than_wanted_goes_and_says_so(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    old = publish(tm, 0, 3)
    with Archive(node.url, path) as archive:
        archive.round()
    new = publish(tm, 3, 3)
    # An hour later, to the moment between the old ones and the new ones.
    now = (old[-1] + new[0]) / 2 / 1e6 + 3_600
    monkeypatch.setattr(retention, "time", SimpleNamespace(time=lambda: now))
    with Archive(node.url, path, retain=ArchiveRetention(seconds=3_600)) as archive:
        archive.round()
    assert events_in(path) == sorted(new)
    released = load_state(path).released
    assert released is not None
    assert old[-1] <= released < new[0]
    assert archive_reader.gaps(path, "main", old[0], new[0]) == [(old[0], released)]


def test_a_topic_may_get_fields_and_other_topics_may_have_them_otherwise(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    with Archive(node.url, path) as archive:
        ticks = publish(tm, 0, 2)
        archive.round()
        tm.create_topic("trades.us", "[symbol: string, price: double, qty: int?, venue: [name: string]?]")
        tm.create_topic("trades.fx", "[price: string, pair: string]")
        late = [
            tm.publish("trades.us", {"symbol": "A", "price": 1.0, "qty": None, "venue": {"name": "X"}}),
            tm.publish("trades.fx", {"price": "1.1", "pair": "EURUSD"}),
            tm.publish("trades.open", {"price": 7, "extra": [1, 2]}),
        ]
        ticks += [tick for tick in late if tick is not None]
        archive.round()
    assert events_in(path) == sorted(ticks)
    names = ArchiveTable(path, "trades").layout.schema.names
    assert {"price", "price@2", "price@3", "venue", "pair", "extra"} <= set(names)


def test_what_was_gone_before_it_was_archived_is_a_gap(tmp_path: Path) -> None:
    at_once = {"retention.min_retain": "0s"}
    with live_node(tmp_path, **at_once) as node, sync.connect(node.url) as tm:
        tm.create_topic("trades.us", TRADE)
        gone = tm.publish("trades.us", {"symbol": "A", "price": 1.0, "qty": 1})
        assert gone is not None
        eventually(lambda: (tm.ask("pubends")[0]["lost"] or TICK_MIN) >= gone)
        tm.subscribe("trades.us", durable="holds").close()
        kept = tm.publish("trades.us", {"symbol": "B", "price": 1.0, "qty": 1})
        assert kept is not None
        with Archive(node.url, tmp_path / "archive") as archive:
            archive.round()
            assert archive.round() is None
        assert events_in(tmp_path / "archive") == [kept]
        (gap,) = archive_reader.gaps(tmp_path / "archive", "main", gone - 1, kept)
        assert gap[0] == gone - 1
        assert gone <= gap[1] < kept


def test_a_state_of_another_version_is_refused(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    publish(tm, 0, 1)
    with Archive(node.url, path) as archive:
        archive.round()
    (path / "_archive" / "state.json").write_text('{"format": 99}')
    with pytest.raises(UnknownFormatError, match="use the version that wrote it"):
        archive_reader.covered(path)
    with pytest.raises(UnknownFormatError):
        Archive(node.url, path)
