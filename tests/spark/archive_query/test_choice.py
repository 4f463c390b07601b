"""Which engine archives, how a batch is put together, and what is told of the engine; all without a JVM."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.live_node import live_node
from tests.spark.archive.small_archive import batch_of
from tests.waiting import eventually
from tidemark import sync
from tidemark.cli.pipeline.pipeline import _draw, describe_engine
from tidemark.errors import ConfigError, NotConnectedError, RefusedError
from tidemark.spark.archive.archive import Archive
from tidemark.spark.archive.plan import FetchTask
from tidemark.spark.archive.status import status
from tidemark.spark.archive_query import choice
from tidemark.spark.archive_query.batch import reached
from tidemark.spark.archive_query.choice import chosen_engine, spare_memory
from tidemark.spark.archive_query.envelopes import COLUMNS, ToldRange, from_events, from_range, opened
from tidemark.spark.archive_query.planning import packed
from tidemark.spark.pipeline import run_archive
from tidemark.spark.reports import EngineStarted, PipelineReport
from tidemark.wire.answers import EngineStatus


def test_auto_is_spark_where_it_can_run_and_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "what_spark_lacks", lambda _: None)
    monkeypatch.setattr(choice, "spare_memory", lambda: 4 << 30)
    assert chosen_engine("auto", "local[2]").engine == "spark"
    monkeypatch.setattr(choice, "spare_memory", lambda: None)
    assert chosen_engine("auto", "local[2]").engine == "spark"
    monkeypatch.setattr(choice, "spare_memory", lambda: 1 << 30)
    small = chosen_engine("auto", "local[2]")
    assert (small.engine, small.reason) == ("light", "1024 MiB of memory are free, Spark is to have 2 GiB")
    assert chosen_engine("spark", "local[2]").engine == "spark"
    monkeypatch.setattr(choice, "what_spark_lacks", lambda _: "there is no Java")
    assert chosen_engine("auto", "local[2]").reason == "there is no Java"
    assert chosen_engine("light", "local[2]").engine == "light"
    with pytest.raises(ConfigError, match="there is no Java"):
        chosen_engine("spark", "local[2]")


def test_spark_connect_cannot_run_the_query() -> None:
    assert chosen_engine("auto", "sc://host:15002").engine == "light"
    with pytest.raises(ConfigError, match="Spark Connect"):
        chosen_engine("spark", "sc://host:15002")


def test_memory_is_what_the_machine_and_the_group_leave(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    assert spare_memory(info, tmp_path) is None
    info.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert spare_memory(info, tmp_path) == 2 << 20
    (tmp_path / "memory.max").write_text("max\n")
    assert spare_memory(info, tmp_path) == 2 << 20
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("1048000\n")
    assert spare_memory(info, tmp_path) == 576


def test_envelopes_give_events_back_as_they_were() -> None:
    events = batch_of([("news.local", 10, 1, 0), ("sports", 11, 2, 1), ("news.local", 12, 3, 0)])
    records = [*from_events("p", events), from_range(ToldRange("p", 5, 12)), *from_events("q", events)]
    whole = pa.Table.from_batches(records, COLUMNS).combine_chunks().to_batches()
    found = [item for each in whole for item in opened(each)]
    assert found[-1] == ToldRange("p", 5, 12)
    for name, (pubend, batch) in zip("pq", [each for each in found if isinstance(each, tuple)], strict=True):
        assert pubend == name
        assert np.array_equal(batch.ticks, events.ticks)
        for row in range(3):
            assert batch.message(row) == events.message(row)
            assert batch.key(row) == events.key(row)


def test_what_was_read_has_no_holes() -> None:
    told = [ToldRange("p", 20, 30), ToldRange("p", 5, 20), ToldRange("q", 0, 7), ToldRange("p", 5, 9, True)]
    assert reached(told, {"p": 5, "q": 3}) == {"p": 30, "q": 7}
    with pytest.raises(NotConnectedError, match="begun again"):
        reached([ToldRange("p", 20, 30)], {"p": 10})


def test_small_ranges_share_a_task() -> None:
    tasks = [FetchTask("a", 0, 9, 40), FetchTask("b", 0, 9, 60), FetchTask("c", 0, 9, 70)]
    assert packed(tasks, 100) == [(tasks[0], tasks[1]), (tasks[2],)]
    assert packed([], 100) == []


def test_the_engine_is_told_to_people_and_to_brokers(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    told: list[PipelineReport] = []
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        sync.connect(node.url) as tm,
    ):
        tm.publish("news", {"text": "x"})
        seen: list[str] = []

        def sleep(_: float) -> bool:
            found = status(path, node.url)
            seen.append(found.engine.engine if found.engine is not None else "")
            return False

        run_archive(node.url, path, tell=told.append, sleep=sleep, engine="light", master="local[1]")
        assert told[0] == EngineStarted("light", "as configured", "local[1]", "")
        assert seen == ["light"]
        assert status(path, None).engine is None
        eventually(lambda: 'tidemark_archive_engine{engine="light",' in node.metrics())
        page = node.metrics()
        assert "tidemark_archive_batch 1.0" in page
        assert "tidemark_archive_lag_seconds 0.0" in page
        with pytest.raises(RefusedError, match="characters"):
            tm.ask("report_engine", **{**good(), "error": "x" * 2_000})
        with pytest.raises(RefusedError, match="between"):
            tm.ask("report_engine", **{**good(), "batch": -1})
        with pytest.raises(RefusedError):
            tm.ask("report_engine", engine="light")


def test_status_and_metrics_say_engine_batch_rate_lag_error_and_page(tmp_path: Path) -> None:
    line = EngineStarted("spark", "it is installed, and there is memory", "local[2]", "http://127.0.0.1:4040")
    assert describe_engine(line) == (
        "engine spark on local[2] (it is installed, and there is memory), UI http://127.0.0.1:4040"
    )
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        tm.publish("news", {"text": "x"})
        with Archive(node.url, tmp_path / "archive") as archive:
            archive.round()
            tm.publish("news", {"text": "y"})
            told = {**good(), "engine": "spark", "master": "local[2]", "ui": line.ui, "batch": 7}
            told |= {"events_per_second": 12.5, "error": "the disk was full", "at": time.time()}
            tm.ask("report_engine", **told)
            found = replace(status(tmp_path / "archive", node.url), engine=EngineStatus(**told))
        page = node.metrics()
    drawn = _draw(found)
    assert (
        "engine spark on local[2], batch 7, UI http://127.0.0.1:4040, last error: the disk was full" in drawn
    )
    assert "a second while at work" in drawn
    assert "1 events behind" in drawn
    labels = 'engine="spark",error="the disk was full",master="local[2]",ui="http://127.0.0.1:4040"'
    assert f"tidemark_archive_engine{{{labels}}} 1.0" in page
    assert "tidemark_archive_batch 7.0" in page
    assert "tidemark_archive_events_per_second 12.5" in page
    assert re.search(r"tidemark_archive_lag_seconds 0\.[0-9]*[1-9]", page)


def good() -> dict[str, Any]:
    return {
        "engine": "light", "master": "", "process": 1, "ui": "", "batch": 1, "events": 1,
        "events_per_second": 1.0, "error": "", "at": 1.0,
    }  # fmt: skip
