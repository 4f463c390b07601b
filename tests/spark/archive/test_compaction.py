"""Keeping an archive in shape: what goes, what is merged, and that no end of the process loses anything."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode
from tests.spark.archive.on_disk import log_directory, table_directory
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.errors import EventsLostError
from tidemark.spark.archive import compaction as archive_compaction
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.compaction import (
    IN_PROCESS,
    ON_SPARK,
    ArchiveRetention,
    Maintenance,
    MergeSizes,
    mergeable,
)
from tidemark.spark.archive.reader import snapshot
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.table import ArchiveTable, DataFile
from tidemark.spark.history_frames.frame import gaps_of
from tidemark.spark.source.archived import archive_at
from tidemark.spark.source.offsets import check_gaps, pubend_extents
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.answers import PUBENDS


@pytest.fixture
def tm(node: LiveNode) -> Iterator[sync.Client]:
    with sync.connect(node.url) as client:
        yield client


def publish(tm: sync.Client, count: int, root: str = "t") -> list[int]:
    values = [{"n": n, "text": f"event {n} {random.Random(n).random()}"} for n in range(count)]
    return [tick for tick in tm.publish_many(f"{root}.x", values) if tick is not None]


def ticks_in(path: Path, base: int = TICK_MIN) -> list[int]:
    found = archive_reader.read(path, "main", base, TICK_MAX)
    return [int(tick) for batch in found for tick in batch.ticks]


# What goes.


def file(tick: int, size: int, batch: int = 1) -> DataFile:
    name = f"{batch:010d}-{batch:010d}-00000-00000-x.parquet"
    return DataFile("t", name, size, 1, {"_tick": (tick - 5, tick)})


def test_what_goes_over_the_size_is_an_explicit_gap_for_every_reader(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    rounds = []
    with Archive(node.url, path) as archive:
        for _ in range(4):
            rounds.append(publish(tm, 200))
            archive.round()
    everything = [tick for ticks in rounds for tick in ticks]
    sizes = [each.bytes for each in snapshot(path).files["t"]]
    reading = archive_reader.read(path, "main", TICK_MIN, TICK_MAX)
    begun = next(reading)
    with Archive(node.url, path, retain=ArchiveRetention(bytes=sum(sizes[2:]) + 10)) as archive:
        assert archive.round() is None
    # Whoever was reading reads on: its files stay for a while.
    assert [int(tick) for batch in (begun, *reading) for tick in batch.ticks] == everything
    assert ticks_in(path) == rounds[2] + rounds[3]
    released = load_state(path).released
    assert released == rounds[1][-1]
    gap = (rounds[0][0], released)
    assert archive_reader.gaps(path, "main", rounds[0][0], TICK_MAX - 1)[0] == gap
    # The source: with the whole range, and with a gap's row if it is wanted.
    pubends = tm.ask(PUBENDS)
    there = pubend_extents(pubends)
    with pytest.raises(EventsLostError) as lost:
        check_gaps(
            CheckpointToken({"main": gap[0]}),
            CheckpointToken({"main": everything[-1]}),
            {"main": there["main"]._replace(lost=everything[-1])},
            archive_at(str(path)).gaps,
            TICK_MIN,
        )
    assert (lost.value.base, lost.value.upto) == gap
    # History: from a time on, not from what there is.
    taken = snapshot(path)
    assert gaps_of(taken, pubends, gap[0], TICK_MAX) == [("main", gap)]
    assert gaps_of(taken, pubends, TICK_MIN, TICK_MAX) == []
    assert gaps_of(taken, [], rounds[2][0], TICK_MAX) == []


def test_history_grows_old_without_new_events_too(node: LiveNode, tm: sync.Client, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    publish(tm, 5)
    now = 0.0
    with Archive(node.url, path) as archive:
        archive.round()
        maintenance = Maintenance(archive, ArchiveRetention(seconds=0.05), clock=lambda: now)
        time.sleep(0.1)
        maintenance.run(is_changed=False)
        assert ticks_in(path) == []
        publish(tm, 5)
        archive.round()
        time.sleep(0.1)
        maintenance.run(is_changed=False)
        assert len(ticks_in(path)) == 5
        now += archive_compaction.LOOK_SECONDS
        maintenance.run(is_changed=False)
        assert ticks_in(path) == []


# Compaction.


def test_files_of_like_size_are_merged_and_only_neighbours() -> None:
    def run(*sizes: int) -> list[int]:
        files = [file(at, size, at) for at, size in enumerate(sizes, 1)]
        return [each.batches[0] for each in mergeable(files)]

    small, middle, large = 1 << 10, 1 << 18, 64 << 20
    assert run(*[small] * 15) == []
    assert run(*[small] * 16) == list(range(1, 17))
    assert run(large, *[small] * 16) == list(range(2, 18))
    assert run(*[small] * 8, large, *[small] * 8) == []
    # One that was merged is not merged again for the sake of each small one that comes after it.
    assert run(middle, *[small] * 15) == []
    assert run(middle, *[small] * 16) == list(range(2, 18))
    assert run(*[middle] * 15, small) == []
    assert run(*[middle] * 16, small) == list(range(1, 18))
    assert run(*[5 << 20] * 40) == list(range(1, 7))
    assert run(*[5 << 20] * 3) == []


def test_with_spark_files_become_as_large_as_256_mib() -> None:
    files = [file(at, 48 << 20, at) for at in range(1, 20)]
    assert [each.batches[0] for each in mergeable(files, ON_SPARK)] == [1, 2, 3, 4, 5]
    assert sum(each.bytes for each in mergeable(files, ON_SPARK)) == 240 << 20
    assert mergeable([file(at, 250 << 20, at) for at in range(1, 20)], ON_SPARK) == []
    # Without it they stay small enough to be merged in the process that archives.
    assert mergeable(files, IN_PROCESS) == []


def test_an_event_is_rewritten_a_few_times_at_the_most() -> None:
    sizes = MergeSizes((40, 400, 4000), 16_000)
    files: list[DataFile] = []
    written = 0
    for batch in range(1, 2_001):
        files.append(file(batch, 10, batch))
        while run := mergeable(files, sizes):
            size = sum(each.bytes for each in run)
            written += size
            at = files.index(run[0])
            files[at : at + len(run)] = [file(batch, size, run[0].batches[0])]
    assert written < 4 * 20_000
    assert len(files) < 60


SLOW_COMPACTION = """
import sys
from tidemark.cli import main
from tidemark.spark.archive import compaction
compaction.SMALL_FILES_MIN = 2
compaction.LOOK_SECONDS = 0.0
main()
"""


def test_a_process_killed_while_it_merges_loses_and_doubles_nothing(
    node: LiveNode, tm: sync.Client, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    chance = random.Random(7)
    command = [sys.executable, "-c", SLOW_COMPACTION, "pipeline", "archive"]
    command += ["--broker", node.url, "--path", str(path), "--interval", "1ms"]
    ticks: list[int] = []
    for _ in range(3):
        merged = len(merges(path))
        deadline = time.monotonic() + PATIENCE_SECONDS
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while len(merges(path)) < merged + 3:
            assert time.monotonic() < deadline
            assert process.poll() is None
            ticks += publish(tm, 20)
            time.sleep(0.01)
        time.sleep(chance.random() * 0.1)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert ticks_in(path) == [tick for tick in ticks if tick <= archive_reader.covered(path)["main"]]
    with Archive(node.url, path) as archive:
        while archive.round():
            pass
    assert ticks_in(path) == ticks
    assert dict(load_state(path).missing) == {}


def merges(path: Path) -> list[str]:
    """The entries of the log that replaced files."""
    return [
        entry.name
        for entry in log_directory(path, "t").glob("*.json")
        if '"remove"' in entry.read_text() and '"add"' in entry.read_text()
    ]


def test_a_log_that_is_old_is_cut_and_still_says_the_state(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that gets a file a second must not get a log of a million entries."""
    from tidemark.spark.archive import table as archive_table
    from tidemark.spark.archive.recovery import recovered

    path = tmp_path / "archive"
    monkeypatch.setattr(archive_table, "CHECKPOINT_COMMITS", 5)
    monkeypatch.setattr(archive_table, "_PROPERTIES", {"delta.logRetentionDuration": "interval 0 seconds"})
    ticks: list[int] = []
    with Archive(node.url, path) as archive:
        for _ in range(12):
            ticks += publish(tm, 2)
            archive.round()
            assert recovered(path).covered == archive.state.covered
    assert len(list(log_directory(path, "t").glob("*.json"))) < 12
    assert ticks_in(path) == ticks
    assert len(ArchiveTable(path, "t").files()) == len(list(table_directory(path, "t").glob("*.parquet")))


def test_the_sweep_leaves_what_readers_may_still_read(
    node: LiveNode, tm: sync.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive"
    publish(tm, 5)
    with Archive(node.url, path) as archive:
        archive.round()
        now: dict[str, Any] = {"t": 0.0}
        maintenance = Maintenance(archive, ArchiveRetention(bytes=1), clock=lambda: now["t"])
        maintenance.run(is_changed=True)
        assert len(list(table_directory(path, "t").glob("*.parquet"))) == 1
        monkeypatch.setattr(archive_compaction, "GRACE_SECONDS", -1.0)
        maintenance.run(is_changed=True)
        assert len(list(table_directory(path, "t").glob("*.parquet"))) == 1
        now["t"] += archive_compaction.SWEEP_SECONDS
        maintenance.run(is_changed=False)
        assert list(table_directory(path, "t").glob("*.parquet")) == []
