"""The archive as it was: by version and by time, for every reader, and for as long as it is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.live_node import LiveNode, live_node
from tests.spark.archive.on_disk import log_directory, table_directory
from tidemark import sync
from tidemark.cli import main
from tidemark.errors import ConfigError, StorageError
from tidemark.matching.topics import TopicPattern
from tidemark.spark.archive import compaction
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.compaction import ArchiveRetention, Maintenance
from tidemark.spark.archive.reader import read_from
from tidemark.spark.archive.table import ArchiveTable
from tidemark.spark.history_frames.table_function import HistoryCall
from tidemark.spark.options import source_options
from tidemark.spark.source.explaining import explain
from tidemark.spark.source.scan import Planner, SourceScan, topic_columns_of
from tidemark.spark.source.source import TidemarkSource
from tidemark.spark.time_travel.as_of import AsOf, as_of
from tidemark.spark.time_travel.versions import TableVersion, snapshot_as_of, versions
from tidemark.spark.upkeep import erasing
from tidemark.spark.upkeep.asking import erase
from tidemark.spark.upkeep.retention import remove_history
from tidemark.ticks import TICK_MAX, TICK_MIN

SCHEMA = "[n: int, kind: string]"


class Past:
    """An archive of three rounds, of which the second is in two tables, and what it had after each."""

    def __init__(self, node: LiveNode, tm: sync.Client, path: Path) -> None:
        self.node = node
        self.tm = tm
        self.path = path / "archive"
        self.ticks: list[int] = []
        #: after each round: the newest version of the table `t`, a time, and how many events `t.>` had
        self.after: list[tuple[int, int, int]] = []
        tm.create_topic("t.x", SCHEMA)
        tm.create_topic("u", SCHEMA)
        tm.subscribe(">", durable="holds").close()
        for count in (3, 4, 5):
            self.publish(count)

    def publish(self, count: int) -> None:
        numbers = range(len(self.ticks), len(self.ticks) + count)
        values = [{"n": n, "kind": "ab"[n % 2]} for n in numbers]
        self.ticks += [tick for tick in self.tm.publish_many("t.x", values) if tick is not None]
        if count == 4:
            self.tm.publish("u", {"n": 0, "kind": "u"})
        with Archive(self.node.url, self.path) as archive:
            archive.round()
        self.note()

    def note(self) -> None:
        time.sleep(0.01)  # commits have milliseconds
        self.after.append((ArchiveTable(self.path, "t").version, now(), len(self.ticks)))
        time.sleep(0.01)

    def ticks_at(self, then: AsOf, pattern: str = "t.>") -> list[int]:
        archived = snapshot_as_of(self.path, then, TopicPattern.parse(pattern))
        batches = read_from(archived, "main", TICK_MIN, TICK_MAX, pattern)
        return [int(tick) for batch in batches for tick in batch.ticks]


def now() -> int:
    return int(time.time() * 1e6)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        yield Past(node, tm, tmp_path)


def text(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat()


def source_ticks(past: Past, **given: Any) -> list[int]:
    said = {"broker": past.node.url, "topic": "t.>", "archive": str(past.path), **given}
    options = source_options({name: str(value) for name, value in said.items()})
    scan = SourceScan(options, topic_columns_of(options))
    planner = Planner(scan)
    try:
        parts = planner.batch()
    finally:
        planner.close()
    found = [record for part in parts for record in scan.read(part)]  # type: ignore[arg-type]
    return [tick for record in found for tick in record.column("_tick").to_pylist()]


def test_every_reader_finds_the_archive_as_it_was(past: Past) -> None:
    for version, moment, count in past.after:
        wanted = past.ticks[:count]
        assert past.ticks_at(AsOf(version=version)) == wanted
        assert past.ticks_at(AsOf(time=moment)) == wanted
        assert source_ticks(past, versionAsOf=version) == wanted
        assert source_ticks(past, timestampAsOf=text(moment)) == wanted
        # A selector on two fields beside each other is tested event by event.
        odd = source_ticks(past, timestampAsOf=text(moment), selector="n * 2 > n AND kind = 'b'")
        assert odd == [tick for n, tick in enumerate(wanted) if n % 2]
        assert (
            source_ticks(past, versionAsOf=version, start=text(wanted[1]), end=text(wanted[-1]))
            == (wanted[1:-1])
        )
        rows = HistoryCall.of("t.x", archive=str(past.path), version=version).batches()
        assert [tick for each in rows for tick in each.column("_tick").to_pylist()] == wanted
        call = HistoryCall.of("t.x", broker=past.node.url, archive=str(past.path), at=text(moment))
        assert [tick for each in call.batches() for tick in each.column("_tick").to_pylist()] == wanted


def test_a_time_before_the_archive_has_nothing_and_one_after_it_everything(past: Past) -> None:
    assert past.ticks_at(AsOf(time=0)) == []
    assert source_ticks(past, timestampAsOf="2001-01-01") == []
    assert past.ticks_at(AsOf(time=now())) == past.ticks


def test_merged_files_and_removed_history_are_versions_too(past: Past) -> None:
    with Archive(past.node.url, past.path) as archive:
        (table,) = [each for each in archive.tables if each.root == "t"]
        files = table.files()
        task = compaction.Merge.of(archive.path, table, files)
        table.exchange(files, compaction.merge(task).files)
        past.note()
        remove_history(archive, past.ticks[-1])
        past.note()
    assert past.ticks_at(AsOf(version=past.after[3][0])) == past.ticks
    assert past.ticks_at(AsOf(time=past.after[3][1])) == past.ticks
    assert past.ticks_at(AsOf(version=past.after[4][0])) == []
    assert past.ticks_at(AsOf(time=past.after[0][1])) == past.ticks[:3]
    kinds = [(each.kind, each.rows_added) for each in versions(past.path, "t")]
    assert kinds[:3] == [("retention", 0), ("files", 12), ("events", 5)]


def test_a_round_that_had_not_ended_is_left_out(past: Past) -> None:
    past.tm.publish("t.x", {"n": 100, "kind": "x"})
    past.tm.publish("u", {"n": 100, "kind": "x"})
    add, added = ArchiveTable.add, list[str]()

    def crash(self: ArchiveTable, *given: Any) -> None:
        if added:
            raise KeyboardInterrupt
        added.append(self.root)
        add(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveTable, "add", crash)
        with pytest.raises(KeyboardInterrupt), Archive(past.node.url, past.path) as archive:
            archive.round()
    time.sleep(0.01)
    assert past.ticks_at(AsOf(time=now())) == past.ticks
    (root,) = added
    # By the version of the one table that has committed, what it has is there.
    found = past.ticks_at(AsOf(version=ArchiveTable(past.path, root).version), f"{root}.>")
    assert len(found) == (13 if root == "t" else 2)


def test_what_was_erased_is_gone_from_all_versions_after_its_hour(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase(past.path, past.node.url, "t.x", "n = 1", sleep=lambda _: False)
    past.note()
    kept = [tick for tick in past.ticks if tick != past.ticks[1]]
    assert past.ticks_at(AsOf(version=past.after[3][0])) == kept
    assert past.ticks_at(AsOf(version=past.after[2][0])) == past.ticks
    monkeypatch.setattr(erasing, "GRACE_SECONDS", 0.0)
    with Archive(past.node.url, past.path, retain=ArchiveRetention(versions=1e9)) as archive:
        erasing.erase_pending(archive, None)
    assert past.ticks_at(AsOf(version=past.after[3][0])) == kept
    with pytest.raises(StorageError, match=r"as of version \d+ is not kept any more: 1 of its 3 files"):
        past.ticks_at(AsOf(version=past.after[2][0]))


def test_versions_are_kept_as_long_as_is_set_whoever_is_started_again(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = table_directory(past.path, "t")
    moved = {"clock": 0.0, "wall": 0.0}
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + moved["wall"])

    def sweep(keep: float) -> int:
        """Look for unused files with a process of its own; the number of files there are after it."""
        with Archive(past.node.url, past.path, retain=ArchiveRetention(versions=keep)) as archive:
            maintenance = Maintenance(archive, ArchiveRetention(versions=keep), lambda: moved["clock"])
            maintenance.run(is_changed=True)
            moved["clock"] += compaction.GRACE_SECONDS + compaction.SWEEP_SECONDS
            maintenance.run(is_changed=True)
        return len(list(directory.glob("*.parquet")))

    with Archive(past.node.url, past.path) as archive:
        (table,) = [each for each in archive.tables if each.root == "t"]
        files = table.files()
        table.exchange(files, compaction.merge(compaction.Merge.of(archive.path, table, files)).files)
    assert sweep(7_200.0) == 4
    moved["wall"] += 7_199.0
    assert sweep(7_200.0) == 4
    assert past.ticks_at(AsOf(version=past.after[0][0])) == past.ticks[:3]
    moved["wall"] += 2.0
    assert sweep(7_200.0) == 1
    with pytest.raises(StorageError, match="is not kept any more"):
        past.ticks_at(AsOf(version=past.after[0][0]))
    properties = ArchiveTable(past.path, "t")._delta.metadata().configuration
    assert properties["delta.logRetentionDuration"] == "interval 3 hours"
    with Archive(past.node.url, past.path):
        pass
    properties = ArchiveTable(past.path, "t")._delta.metadata().configuration
    assert properties["delta.logRetentionDuration"] == "interval 2 hours"


def test_versions_that_never_were_or_are_not_kept_are_refused_with_those_there_are(past: Past) -> None:
    newest = past.after[-1][0]
    with pytest.raises(ConfigError, match=f"has no version {newest + 1}: its newest version is {newest}"):
        past.ticks_at(AsOf(version=newest + 1))
    with pytest.raises(ConfigError, match="there is no table 'nowhere': there are t, u"):
        past.ticks_at(AsOf(version=0), "nowhere")
    with pytest.raises(ConfigError, match="name a topic, or read as of a time"):
        past.ticks_at(AsOf(version=0), ">")
    log = log_directory(past.path, "t")
    delta = ArchiveTable(past.path, "t")._delta
    delta.create_checkpoint()
    for entry in sorted(log.glob("*.json"))[:-1]:
        entry.unlink()
    with pytest.raises(StorageError, match=f"its versions {newest} to {newest} are"):
        past.ticks_at(AsOf(version=0))
    with pytest.raises(StorageError, match="is not kept any more"):
        past.ticks_at(AsOf(time=past.after[0][1]))
    assert past.ticks_at(AsOf(version=newest)) == past.ticks


def test_arguments_are_checked(past: Past) -> None:
    with pytest.raises(ConfigError, match="not both"):
        as_of(1, 1)
    for wrong in ({"versionAsOf": "x"}, {"versionAsOf": "-1"}, {"timestampAsOf": "soon"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            source_options({"broker": past.node.url, "topic": "t.x", **wrong})
    with pytest.raises(ConfigError, match="is required to read it as it was"):
        explain(broker=past.node.url, topic="t.x", versionAsOf=1)
    options = {"broker": past.node.url, "topic": "t.x", "archive": str(past.path), "versionAsOf": "1"}
    source = TidemarkSource(options)
    with pytest.raises(ConfigError, match="a stream goes on with what comes"):
        source.streamReader(source.schema())


def test_the_command_lists_versions_and_explain_says_as_of_when(past: Past) -> None:
    asked = ["pipeline", "versions", "--path", str(past.path), "--table", "t", "--json"]
    lines = CliRunner().invoke(main, asked, catch_exceptions=False).output.splitlines()
    found = [TableVersion(**json.loads(line)) for line in lines]
    assert [each.version for each in found] == list(range(past.after[-1][0], -1, -1))
    assert [each.rows_added for each in found if each.kind == "events"] == [5, 4, 3]
    shown = CliRunner().invoke(main, [*asked[:-1], "--limit", "2"], catch_exceptions=False).output
    assert len(shown.splitlines()) == 3
    said = explain(broker=past.node.url, topic="t.x", archive=past.path, versionAsOf=past.after[0][0])
    assert f"archive as of version {past.after[0][0]}: 1 of 1 files" in said
    assert "broker: 0 partitions" in said


@pytest.mark.spark
def test_spark_reads_the_archive_as_it_was(spark: Any, past: Past) -> None:
    from tidemark.spark import history

    version, moment, count = past.after[1]
    wanted = past.ticks[:count]
    frame = history(spark, "t.x", archive=past.path, version=version)
    assert sorted(row["_tick"] for row in frame.select("_tick").collect()) == wanted
    frame = history(spark, "t.x", "kind = 'b'", broker=past.node.url, archive=past.path, at=text(moment))
    assert frame.count() == count // 2
    options = {"broker": past.node.url, "topic": "t.x", "archive": str(past.path), "versionAsOf": version}
    frame = spark.read.format("tidemark").options(**options).load()
    assert sorted(row["_tick"] for row in frame.select("_tick").collect()) == wanted
