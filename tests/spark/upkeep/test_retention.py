"""Retention: what goes, that it goes from disk, by either engine, whenever the process ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.live_node import LiveNode, live_node
from tests.spark.archive.on_disk import table_directory
from tidemark import sync
from tidemark.node import runtime
from tidemark.node.clock import wall_us
from tidemark.spark.archive import compaction, reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.compaction import ArchiveRetention
from tidemark.spark.archive.table import ArchiveTable, DataFile
from tidemark.spark.upkeep.retention import horizon_of, is_due, remove_history
from tidemark.spark.upkeep.verifying import verify
from tidemark.ticks import TICK_MAX, TICK_MIN


def file(tick: int, size: int, batch: int = 1) -> DataFile:
    name = f"{batch:010d}-{batch:010d}-00000-00000-x.parquet"
    return DataFile("t", name, size, 1, {"_tick": (tick - 5, tick)})


def test_as_much_goes_as_is_older_or_over_the_size() -> None:
    files = [file(30, 100), file(10, 100), file(20, 100)]
    assert horizon_of(files, ArchiveRetention(), 1.0) is None
    assert horizon_of(files, ArchiveRetention(bytes=300), 1.0) is None
    assert horizon_of(files, ArchiveRetention(bytes=299), 1.0) == 10
    assert horizon_of(files, ArchiveRetention(bytes=199), 1.0) == 20
    assert horizon_of(files, ArchiveRetention(bytes=1), 1.0) == 30
    assert horizon_of(files, ArchiveRetention(seconds=1.0), 1.000015) == 15
    assert horizon_of(files, ArchiveRetention(seconds=1.0, bytes=199), 1.000015) == 20
    assert horizon_of([], ArchiveRetention(bytes=1), 1.0) is None


def test_a_file_is_written_again_when_half_of_its_time_is_over() -> None:
    assert [is_due(file(30, 100), horizon) for horizon in (24, 25, 27, 28, 29, 30, 31)] == [
        False,
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    # Another tool may have left no bounds in the log.
    assert not is_due(DataFile("t", "by-another-tool.parquet", 1, 1), 1 << 60)


class Filled:
    """An archive with one file of 100 events in each of two tables, and their ticks."""

    def __init__(self, node: LiveNode, path: Path) -> None:
        self.node, self.path = node, path
        with sync.connect(node.url) as tm:
            for topic in ("t.x", "u"):
                tm.create_topic(topic, "[n: int, text: string]")
            # What is archived stays at the broker, too.
            tm.subscribe(">", durable="holds").close()
            with pytest.MonkeyPatch.context() as patch:
                # The time of day stands still: the ticks are one apart, however busy the machine is.
                stopped = wall_us()
                patch.setattr(runtime, "wall_us", lambda: stopped)
                self.ticks = [
                    tick
                    for n in range(100)
                    for tick in (tm.publish(topic, {"n": n, "text": f"event {n}"}) for topic in ("t.x", "u"))
                    if tick is not None
                ]
        with Archive(node.url, path) as archive:
            archive.round()

    def remove(self, horizon: int, sessions: Any = None, path: Path | None = None) -> None:
        with Archive(self.node.url, path or self.path) as archive:
            remove_history(archive, horizon, sessions)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node:
        yield Filled(node, tmp_path / "archive")


def ticks_in(path: Path) -> list[int]:
    batches = reader.read(path, "main", TICK_MIN, TICK_MAX)
    return [int(tick) for batch in batches for tick in batch.ticks]


def rows_in(path: Path, root: str) -> list[dict[str, Any]]:
    """The rows of the files that the table has now, as any tool reads them."""
    files = [table_directory(path, root) / each.name for each in ArchiveTable(path, root).files()]
    found = pa.concat_tables([pq.read_table(each) for each in files]) if files else pa.table({})
    return list(found.to_pylist())


def test_old_events_leave_the_files_that_reach_beyond_them(filled: Filled) -> None:
    path, ticks = filled.path, filled.ticks
    names = [each.name for each in ArchiveTable(path, "t").files()]
    filled.remove(ticks[20])
    # Too little of the file is old: it stays, and so does everything that readers see.
    assert [each.name for each in ArchiveTable(path, "t").files()] == names
    assert ticks_in(path) == ticks
    filled.remove(ticks[149])
    assert ticks_in(path) == ticks[150:]
    for root, first in (("t", 0), ("u", 1)):
        assert [row["_tick"] for row in rows_in(path, root)] == ticks[150 + first :: 2]
    assert reader.gaps(path, "main", ticks[0], ticks[-1]) == [(ticks[0], ticks[149])]
    assert verify(path, filled.node.url, None).wrong == ()
    # What is left goes as a whole.
    filled.remove(ticks[-1])
    assert (ticks_in(path), rows_in(path, "t"), rows_in(path, "u")) == ([], [], [])


def test_a_file_of_another_tool_is_cut_too(filled: Filled) -> None:
    path, ticks = filled.path, filled.ticks
    DeltaTable(table_directory(path, "t")).delete("n = 99")
    (before,) = ArchiveTable(path, "t").files()
    assert not before.is_own
    filled.remove(ticks[149])
    (after,) = ArchiveTable(path, "t").files()
    assert (after.is_own, after.rows) == (False, 24)
    assert ticks_in(path) == [tick for tick in ticks[150:] if tick != ticks[198]]


def test_a_process_that_ends_before_its_commits_leaves_the_rest_to_the_next(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ticks = filled.path, filled.ticks
    real = ArchiveTable.exchange
    done: list[str] = []

    def fails_second(self: ArchiveTable, *given: Any, **more: Any) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(self.root)
        real(self, *given, **more)

    monkeypatch.setattr(ArchiveTable, "exchange", fails_second)
    with pytest.raises(KeyboardInterrupt):
        filled.remove(ticks[149])
    # One table has the old events still, and nobody reads them.
    assert len(rows_in(path, "u")) == 100
    assert ticks_in(path) == ticks[150:]
    monkeypatch.setattr(ArchiveTable, "exchange", real)
    filled.remove(ticks[149])
    assert len(rows_in(path, "t")) == len(rows_in(path, "u")) == 25
    assert ticks_in(path) == ticks[150:]


@pytest.mark.spark
def test_retention_is_a_spark_job_with_the_result_of_the_light_engine(
    spark: Any, filled: Filled, tmp_path: Path
) -> None:
    light = tmp_path / "light"
    shutil.copytree(filled.path, light)
    lent: list[int] = []

    @contextmanager
    def sessions() -> Iterator[Any]:
        tracker = spark.sparkContext.statusTracker()
        before = set(tracker.getJobIdsForGroup(None))
        yield spark
        lent.append(len(set(tracker.getJobIdsForGroup(None)) - before))

    horizon = filled.ticks[149]
    filled.remove(horizon, sessions)
    assert lent == [1]
    filled.remove(horizon, path=light)
    for root in ("t", "u"):
        assert rows_in(filled.path, root) == rows_in(light, root)
        assert len(rows_in(light, root)) == 25
    assert ticks_in(filled.path) == ticks_in(light) == filled.ticks[150:]
    assert [each.rows for each in ArchiveTable(filled.path, "t").files()] == [25]


def test_maintenance_lends_its_session_to_retention(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("tidemark.spark.upkeep.retention.remove_history", lambda *each: given.append(each))

    def sessions() -> Any:
        raise AssertionError("there is nothing to merge")

    with Archive(filled.node.url, filled.path) as archive:
        monkeypatch.setattr(compaction, "CHECK_SECONDS", float("inf"))
        maintenance = compaction.Maintenance(archive, ArchiveRetention(bytes=1), sessions=sessions)
        maintenance.run(is_changed=True)
    assert [each[1:] for each in given] == [(filled.ticks[-1], sessions)]
