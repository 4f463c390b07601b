"""The streaming query that writes the archive: the same rows as the light engine, whoever ran before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode
from tests.spark.engine.job_descriptions import job_descriptions
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import TidemarkError
from tidemark.spark.archive import compaction
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.archive_query import query as query_module
from tidemark.spark.archive_query.query import ArchiveQuery
from tidemark.spark.connections import urls_of
from tidemark.ticks import TICK_MAX, TICK_MIN

pytestmark = pytest.mark.spark

TRADE = "[symbol: string, price: double, qty: int?]"


Row = tuple[int, str, str, bytes, bytes]


def publish(tm: sync.Client, first: int, count: int) -> list[int]:
    ticks: list[int] = []
    for n in range(first, first + count):
        first_tick = tm.publish("trades.us", {"symbol": f"S{n}", "price": n / 2, "qty": n})
        second_tick = tm.publish("news", {"text": f"t{n}", "price": "high"})
        ticks += [tick for tick in (first_tick, second_tick) if tick is not None]
    return ticks


def rows_in(path: Path) -> list[Row]:
    """Every row that the archive gives back, whole, in its order."""
    return [
        (
            int(batch.ticks[row]),
            batch.shapes[int(batch.prelude("shape")[row])].topic,
            batch.publishers[int(batch.prelude("publisher")[row])],
            bytes(batch.message(row)),
            bytes(batch.key(row)),
        )
        for batch in archive_reader.read(path, "main", TICK_MIN, TICK_MAX)
        for row in range(batch.count)
    ]


def wait_for(is_so: Callable[[], bool], look: Callable[[], object] = lambda: None) -> None:
    def looked() -> bool:
        look()
        return is_so()

    eventually(looked)


def archived_by_spark(spark: Any, archive: Archive, url: str) -> None:
    """Let the query archive all there is."""
    with ArchiveQuery(archive, spark, urls_of(url), interval=0.1, once=True) as job:
        wait_for(lambda: job.is_done, job.look)


def test_both_engines_write_the_same_rows_and_take_over_from_each_other(
    spark: Any, node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path, twin = tmp_path / "archive", tmp_path / "twin"
    tm.subscribe(">", durable="holds").close()
    ticks = publish(tm, 0, 20)
    with Archive(node.url, twin) as other:
        for turn in range(1, 4):
            with Archive(node.url, path) as archive:
                if turn % 2:
                    archived_by_spark(spark, archive, node.url)
                else:
                    assert archive.round() is not None
                assert archive.state.batch == turn
            other.round()
            ticks += publish(tm, 20 * turn, 20)
        other.round()
    with Archive(node.url, path) as archive:
        archived_by_spark(spark, archive, node.url)
        archived_by_spark(spark, archive, node.url)
        assert archive.state.batch == 4
    found = rows_in(path)
    assert [row[0] for row in found] == sorted(ticks)
    assert found == rows_in(twin)
    assert tm.ask("pubends")[0]["archived"] >= ticks[-1]
    for root in ("trades", "news"):
        assert ArchiveTable(path, root).layout.schema == ArchiveTable(twin, root).layout.schema


class CrashError(Exception):
    """The process ends here."""


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "where", ["save", pytest.param("_commit", marks=LONG), pytest.param("_report", marks=LONG)]
)
def test_a_batch_that_spark_runs_again_doubles_and_loses_nothing(
    spark: Any, node: LiveNode, tm: sync.Client, tmp_path: Path, where: str
) -> None:
    path = tmp_path / "archive"
    ticks = publish(tm, 0, 5)

    def crash(*_: Any, **__: Any) -> None:
        raise CrashError

    with pytest.MonkeyPatch.context() as patch, Archive(node.url, path) as archive:
        patch.setattr(Archive, where, crash)
        with pytest.raises((CrashError, TidemarkError)):
            archived_by_spark(spark, archive, node.url)
    ticks += publish(tm, 5, 5)
    with Archive(node.url, path) as archive:
        archived_by_spark(spark, archive, node.url)
    assert [row[0] for row in rows_in(path)] == sorted(ticks)
    assert dict(load_state(path).missing) == {}


def test_a_broker_that_goes_and_comes_is_waited_for_and_told_again(
    spark: Any, node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "RETRY_SECONDS", 0.1)
    path = tmp_path / "archive"
    ticks = publish(tm, 0, 3)
    with (
        Archive(node.url, path) as archive,
        ArchiveQuery(archive, spark, urls_of(node.url), interval=0.1) as job,
    ):
        wait_for(lambda: archive.state.events == 6, job.look)
        tm.close()
        node.stop()
        wait_for(lambda: bool(job.problem), job.look)
        node.start()
        with sync.connect(node.url) as again:
            wait_for(lambda: again.ask("pubends")[0]["archived"] >= ticks[-1], job.look)
            ticks += publish(again, 3, 3)
            wait_for(lambda: archive.state.events == 12, job.look)
        wait_for(lambda: not job.problem, job.look)
        assert [each.events for each in job.taken()]
        assert not job.taken()
    assert [row[0] for row in rows_in(path)] == sorted(ticks)


def test_a_checkpoint_that_cannot_be_read_is_set_aside(
    spark: Any, node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "RETRY_SECONDS", 0.0)
    path = tmp_path / "archive"
    ticks = publish(tm, 0, 3)
    with Archive(node.url, path) as archive:
        archived_by_spark(spark, archive, node.url)
        checkpoint = path / "_archive" / "checkpoint"
        for each in (checkpoint / "offsets").iterdir():
            each.unlink()
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)
            each.write_text("v1\nnonsense\n")
        ticks += publish(tm, 3, 3)
        with ArchiveQuery(archive, spark, urls_of(node.url), interval=0.1) as job:
            wait_for(lambda: archive.state.events == 12, job.look)
            assert job.last_error
    assert [row[0] for row in rows_in(path)] == sorted(ticks)
    assert list(path.glob("_archive/checkpoint.*"))


def test_files_are_merged_and_checked_by_spark_jobs_and_the_rows_stay(
    spark: Any,
    node: LiveNode,
    tm: sync.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 4)
    monkeypatch.setattr(compaction, "IN_MEMORY_BYTES_MAX", 0)
    path = tmp_path / "archive"
    with Archive(node.url, path, merging=Lender(spark)) as archive:
        for n in range(4):
            publish(tm, n, 2)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(archive.maintenance, "run", lambda **_: None)
                archive.round()
        before = rows_in(path)
        archive.maintenance.run(is_changed=True)
        assert [len(table.files()) for table in archive.tables] == [1, 1]
        assert rows_in(path) == before
        assert "tidemark: merge 8 files of the archive into 2" in job_descriptions(spark)
        assert "tidemark: check 2 new files of the archive" in job_descriptions(spark)
        # What was merged was read by another job, and is read again when it has changed.
        assert caplog.messages == []
        (file,) = [Path(table.folder.at(each.name)) for table in archive.tables[:1] for each in table.files()]
        file.write_bytes(file.read_bytes()[:-9])
        monkeypatch.setattr(compaction, "CHECK_SECONDS", 0.0)
        archive.maintenance._checked.clear()
        archive.maintenance.run(is_changed=True)
        assert any("tidemark pipeline verify" in each for each in caplog.messages)


class Lender:
    """Lends the session of the tests."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __call__(self) -> AbstractContextManager[Any]:
        return nullcontext(self._spark)
