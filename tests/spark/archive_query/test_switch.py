"""Engines of the archive as processes: they are killed and take over from each other under load."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.live_broker import Spoken
from tests.live_node import live_node
from tests.spark.publishing_load import publishing
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.lab.processes.engines import local_cluster
from tidemark.lab.processes.process_harness import ProcessHarness
from tidemark.lab.processes.process_numbers import ProcessStat
from tidemark.message.schema import Schema
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.state import load_state
from tidemark.spark.archive.status import status
from tidemark.ticks import TICK_MAX, TICK_MIN
from tidemark.wire.answers import EngineStatus

pytestmark = pytest.mark.spark

SCHEMA = Schema.parse("[n: int, text: string]")


def values_in(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Every row of the archive: its tick and its values."""
    return [
        (int(batch.ticks[row]), SCHEMA.decode(batch.message(row)))
        for batch in archive_reader.read(path, "main", TICK_MIN, TICK_MAX)
        for row in range(batch.count)
    ]


@pytest.mark.slow
def test_engines_that_are_killed_and_switched_under_load_leave_every_row_once(tmp_path: Path) -> None:
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        ProcessHarness(tmp_path) as harness,
    ):
        path = tmp_path / "archive"
        with publishing(node.url) as published:
            for turn, engine in enumerate(["light", "spark"]):
                archive = harness.archive(node.url, engine=engine)
                archive.log = tmp_path / f"{turn}.log"
                archive.start()
                want = load_state(path).batch + 3
                eventually(lambda want=want: load_state(path).batch >= want)  # type: ignore[misc]
                archive.kill()
        archive = harness.archive(node.url, engine="light")
        archive.start()
        eventually(lambda: load_state(path).covered.get("main", TICK_MIN) >= published[-1][0])
    assert values_in(path) == published
    assert dict(load_state(path).missing) == {}


@pytest.mark.long
def test_an_executor_that_is_killed_under_the_query_leaves_every_row_once(tmp_path: Path) -> None:
    published: list[tuple[int, dict[str, Any]]] = []
    with (
        local_cluster() as master,
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        ProcessHarness(tmp_path) as harness,
        sync.connect(node.url) as tm,
    ):

        def publish() -> None:
            values = [{"n": n, "text": f"event {n}"} for n in range(len(published), len(published) + 200)]
            ticks = [tick for tick in tm.publish_many("t", values) if tick is not None]
            published.extend(zip(ticks, values, strict=True))

        def has_all() -> bool:
            return load_state(path).covered.get("main", TICK_MIN) >= published[-1][0]

        tm.create_topic("t", SCHEMA.text)
        path = tmp_path / "archive"
        archive = harness.archive(node.url, engine="spark", master=master)
        archive.start()
        publish()
        eventually(has_all)
        killed = executors_under(archive.pid)[0]
        publish()
        os.kill(killed, signal.SIGKILL)
        publish()
        eventually(has_all)
        eventually(lambda: killed not in executors_under(archive.pid))
        eventually(lambda: len(executors_under(archive.pid)) == 2)
    assert values_in(path) == published
    assert dict(load_state(path).missing) == {}


def executors_under(pid: int) -> list[int]:
    """The ids of the processes that run a query's tasks, among all that a process has started."""
    stats: dict[int, ProcessStat] = {}
    for at in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stats[int(at.name)] = ProcessStat(int(at.name))
    family = {pid}
    while more := {each for each, stat in stats.items() if stat.parent in family} - family:
        family |= more
    found = []
    for each in sorted(family):
        with suppress(OSError):
            if "CoarseGrainedExecutorBackend" in Path(f"/proc/{each}/cmdline").read_text():
                found.append(each)
    return found


@pytest.mark.slow
def test_up_archives_by_a_query_whose_page_can_be_opened(tmp_path: Path) -> None:
    """`tidemark up` with Spark: the status says what runs, and its web interface answers."""
    settings = [
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir", "data"),
        *("--set", "archive.engine=spark", "--set", "archive.interval=100ms", "--json"),
    ]
    broker = Spoken("up", *settings, cwd=tmp_path)
    try:
        ready = json.loads(broker.line())
        with sync.connect(ready["url"]) as tm:
            tm.publish_many("t", [{"n": n} for n in range(10)])
            path = tmp_path / "data" / "archive"
            eventually(lambda: load_state(path).events == 10)
            eventually(lambda: (status(path, ready["url"]).engine or NOTHING).batch >= 1)
        engine = status(path, ready["url"]).engine
        assert engine is not None
        assert (engine.engine, engine.master, engine.error) == ("spark", "local[2]", "")
        assert "tidemark archive" in page(f"{engine.ui}/StreamingQuery/")
        found = page(f"{ready['http']}/metrics")
        assert 'tidemark_archive_engine{engine="spark"' in found
        assert engine.files is not None
        assert engine.files >= 1
        assert "tidemark_archive_files 0.0" not in found
        assert "tidemark_archive_files " in found
    finally:
        broker.end(signal.SIGTERM)


NOTHING = EngineStatus("", "", 0, "", 0, 0, 0.0, "", 0.0)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())
