"""The archive as a process: killed at any moment, waiting for brokers, and by hand on Spark."""

from __future__ import annotations

import errno
import json
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.live_node import LiveNode
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.cli import main
from tidemark.errors import NotConnectedError
from tidemark.spark import connections
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.plan import FetchTask, backlog, divided, lost_before
from tidemark.spark.archive.status import status
from tidemark.spark.broker_answers import HostedPubend
from tidemark.spark.pipeline import run_archive
from tidemark.spark.reports import EngineStarted, PipelineReport, RoundEnded, Waiting
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken

COMMAND = (sys.executable, "-c", "from tidemark.cli import main; main()", "pipeline", "archive")


def ticks_in(path: Path) -> list[int]:
    found = archive_reader.read(path, "main", TICK_MIN, TICK_MAX)
    return [int(tick) for batch in found for tick in batch.ticks]


def publish(tm: sync.Client, count: int) -> list[int]:
    values = [{"n": n, "text": f"event {n}"} for n in range(count)]
    return [tick for tick in tm.publish_many(f"t{count % 2}.x", values) if tick is not None]


def test_an_archive_that_is_killed_again_and_again_has_every_event_once(
    node: LiveNode, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    chance = random.Random(5)
    command = [*COMMAND, "--broker", node.url, "--path", str(path), "--interval", "1ms"]
    ticks: list[int] = []
    with sync.connect(node.url) as tm:
        for _ in range(4):
            before, deadline = archive_reader.covered(path), time.monotonic() + PATIENCE_SECONDS
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            # Let it get to work, and end it in the middle of that.
            while archive_reader.covered(path) == before:
                assert time.monotonic() < deadline
                assert process.poll() is None
                ticks += publish(tm, 10 + len(ticks) % 2)
                time.sleep(0.02)
            for _ in range(chance.randrange(10)):
                ticks += publish(tm, 10 + len(ticks) % 2)
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.communicate(timeout=PATIENCE_SECONDS)
        ticks += publish(tm, 10)
        done = CliRunner().invoke(
            main, ["pipeline", "archive", "--broker", node.url, "--path", str(path), "--once", "--json"]
        )
        assert done.exit_code == 0, done.output
        assert tm.ask("pubends")[0]["archived"] >= ticks[-1]
    assert ticks_in(path) == ticks


def test_the_commands_archive_and_say_how_it_goes(node: LiveNode, tmp_path: Path) -> None:
    def tidemark(*arguments: str) -> Any:
        done = CliRunner(env={"TIDEMARK_ARCHIVE": str(tmp_path / "archive")}).invoke(
            main, ["pipeline", *arguments, "--broker", node.url]
        )
        assert done.exit_code == 0, done.output
        return done.output

    assert "no process writes it" in tidemark("status")
    with sync.connect(node.url) as tm:
        ticks = publish(tm, 20)
    assert json.loads(tidemark("status", "--json"))["pubends"][0]["lag_seconds"] is None
    assert "archived 20 events" in tidemark("archive", "--once")
    found = json.loads(tidemark("status", "--json"))
    assert (found["events"], found["files"], found["process"]) == (20, 1, None)
    assert found["tables"][0]["root"] == "t0"
    assert found["pubends"][0]["lag_seconds"] == 0
    assert found["pubends"][0]["archived"] >= ticks[-1]
    assert "t0" in tidemark("status", "--offline")
    # The test's own process has the lock, and so is the one that is named.
    with Archive(node.url, tmp_path / "archive"):
        assert status(tmp_path / "archive", None).process is not None
        shown = CliRunner().invoke(
            main, ["pipeline", "archive", "--once", "--path", str(tmp_path / "archive"), "--broker", node.url]
        )
    assert shown.exit_code == 1
    assert "stop that first" in shown.output
    assert shown.output.count("\n") == 1


def test_a_broker_that_is_away_is_waited_for(node: LiveNode, tmp_path: Path) -> None:
    said: list[PipelineReport] = []
    with sync.connect(node.url) as tm:
        ticks = publish(tm, 10)
    node.stop()
    pauses: list[float] = []

    def sleep(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 1:
            node.start()
        return not any(isinstance(each, RoundEnded) for each in said)

    path = tmp_path / "archive"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "CONNECT_SECONDS", 0.2)
        run_archive(node.url, path, tell=said.append, sleep=sleep)
        node.stop()
        with pytest.raises(NotConnectedError):
            run_archive(node.url, path, tell=said.append, sleep=sleep, once=True)
    engine, waiting, going_on, ended, _ = said
    assert engine == EngineStarted("light", "as configured", "local[*]", "")
    assert isinstance(waiting, Waiting)
    assert "no broker answered" in waiting.waiting
    assert going_on == Waiting("")
    assert isinstance(ended, RoundEnded)
    assert ticks_in(path) == ticks


def test_a_full_disk_is_waited_out_and_leaves_nothing_behind(node: LiveNode, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    said: list[PipelineReport] = []
    with sync.connect(node.url) as tm:
        ticks = publish(tm, 10)
    with pytest.MonkeyPatch.context() as patch:

        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def sleep(_: float) -> bool:
            assert not list(path.glob("*/*.parquet"))
            return False

        patch.setattr("tidemark.spark.archive.writer.pq.ParquetWriter.write_table", full)
        run_archive(node.url, path, tell=said.append, sleep=sleep)
    assert isinstance(said[1], Waiting)
    assert "No space left" in said[1].waiting
    run_archive(node.url, path, tell=said.append, sleep=lambda _: True, once=True)
    assert ticks_in(path) == ticks


def test_the_process_stops_as_told(node: LiveNode, tmp_path: Path) -> None:
    command = [*COMMAND, "--broker", node.url, "--path", str(tmp_path / "archive"), "--json"]
    with sync.connect(node.url) as tm:
        publish(tm, 10)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["engine"] == "light"
        assert json.loads(process.stdout.readline())["events"] == 10
        process.send_signal(signal.SIGTERM)
        _, problems = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, problems) == (0, "")


@pytest.mark.spark
def test_a_large_round_is_written_by_tasks_of_spark(
    spark: Any, node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "BACKLOG_BYTES_MIN", 1)
    monkeypatch.setattr(archive_module, "PART_BYTES", 8 << 10)
    path = tmp_path / "archive"
    with sync.connect(node.url) as tm:
        ticks = [tick for _ in range(20) for tick in publish(tm, 40)]
        with Archive(node.url, path, sessions=lambda: nullcontext(spark)) as archive:
            done = archive.round()
            assert done is not None
            assert done.events == 800
            assert archive.round() is None
        assert len(archive_reader.snapshot(path).files["t0"]) > 1
        assert ticks_in(path) == ticks
        assert tm.ask("pubends")[0]["archived"] >= ticks[-1]


# Plans.


def pubend(**more: Any) -> HostedPubend:
    return replace(HostedPubend("a", 100, 90, None, None, None, 1000, 0), **more)


def test_only_pubends_with_new_events_are_read() -> None:
    assert backlog([pubend()], CheckpointToken({"a": 40})) == [FetchTask("a", 40, 100, 1000)]
    assert backlog([pubend(lost=50)], CheckpointToken({"a": 40})) == [FetchTask("a", 50, 100, 1000)]
    assert backlog([pubend()], CheckpointToken({"a": 90})) == []
    assert backlog([pubend(last_event=None)], CheckpointToken()) == []
    assert backlog([pubend(position=80)], CheckpointToken({"a": 80})) == []


def test_what_is_gone_is_told_from_silence() -> None:
    assert lost_before([pubend(lost=50)], CheckpointToken({"a": 40})) == [FetchTask("a", 40, 50)]
    assert lost_before([pubend(lost=50)], CheckpointToken()) == [FetchTask("a", TICK_MIN, 50)]
    assert lost_before([pubend(lost=95)], CheckpointToken({"a": 90})) == []
    assert lost_before([pubend()], CheckpointToken()) == []


def test_parts_tile_the_first_of_a_range() -> None:
    parts = divided(FetchTask("a", TICK_MIN, 1000, 800), 0, 400, 100)
    assert [(part.base, part.upto) for part in parts] == [
        (TICK_MIN, 125),
        (125, 250),
        (250, 375),
        (375, 500),
    ]
    assert divided(FetchTask("a", 10, 20, 5), 0, 400, 100) == [FetchTask("a", 10, 20, 2)]
    assert [part.upto for part in divided(FetchTask("a", 10, 12, 10_000), 10, 1 << 40, 1)] == [11, 12]
