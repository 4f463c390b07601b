"""Backfill: files and tables become events of a topic, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.cli import main
from tidemark.errors import ConfigError
from tidemark.message.schema import Schema
from tidemark.spark.archive.state import FOLDER
from tidemark.spark.engine import session
from tidemark.spark.locations import folder_at
from tidemark.spark.options import sink_options
from tidemark.spark.sink.publishing import BrokerPublisher, commit
from tidemark.spark.sink.row_encoder import RowEncoder
from tidemark.spark.sink.staging import BatchRecord, Staging
from tidemark.spark.upkeep.backfilling import BACKFILL, backfill, job_name
from tidemark.ticks import TICK_MIN

pytestmark = pytest.mark.spark

SCHEMA = Schema.parse("[n: int, text: string?]")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("broker"), **{"retention.archive": "true"}) as node:
        with sync.connect(node.url) as tm:
            for topic in ("lines", "columns", "killed", "typed"):
                tm.create_topic(topic, SCHEMA.text)
        yield node


def rows_in(node: LiveNode, topic: str) -> list[tuple[int, str]]:
    with sync.connect(node.url) as tm:
        (pubend,) = tm.ask("pubends")
        batch = tm._fetch("main", TICK_MIN, pubend["position"]).batch
    assert batch is not None
    shapes = [batch.shapes[number].topic for number in batch.prelude("shape").tolist()]
    found = [SCHEMA.decode(batch.message(row)) for row in range(batch.count) if shapes[row] == topic]
    return sorted((each["n"], each["text"]) for each in found)


def test_files_are_published_once_however_often_they_are_put_in(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    file.write_text("".join(json.dumps({"n": n, "text": f"t{n}"}) + "\n" for n in range(30)))
    archive = folder_at(tmp_path / "archive")
    for was_done in (False, True):
        found = backfill(spark, archive, node.url, "lines", [str(file)], kind="json", key="text")
        assert (found.events, found.was_done) == (30, was_done)
    assert rows_in(node, "lines") == [(n, f"t{n}") for n in range(30)]
    # Other rows are another backfill.
    file.write_text(json.dumps({"n": 30, "text": "t30"}))
    assert backfill(spark, archive, node.url, "lines", [str(file)], kind="json").events == 1
    assert rows_in(node, "lines") == [(n, f"t{n}") for n in range(31)]


def test_a_table_is_published_once_under_the_name_of_its_job(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    spark.range(20).selectExpr("CAST(id AS INT) AS n", "concat('t', id) AS text").createTempView("kept")
    archive = folder_at(tmp_path / "archive")
    try:
        for was_done in (False, True):
            found = backfill(spark, archive, node.url, "columns", ["kept"], kind="table", job="first")
            assert (found.job, found.events, found.was_done) == ("first", 20, was_done)
    finally:
        spark.catalog.dropTempView("kept")
    assert rows_in(node, "columns") == sorted((n, f"t{n}") for n in range(20))


class KilledPublisher(BrokerPublisher):
    """A driver that is killed when it has published the first file of a batch."""

    def publish(self, staging: Staging, record: BatchRecord) -> None:
        super().publish(staging, replace(record, parts=record.parts[:1]))
        raise KeyboardInterrupt


def test_a_backfill_that_was_killed_is_completed_by_the_same_command(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    rows = [{"n": n, "text": f"t{n}"} for n in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    archive, name = folder_at(tmp_path / "archive"), job_name("killed", [str(file)], "json")
    staging = Staging(archive / FOLDER / BACKFILL / name)
    encoder = RowEncoder(SCHEMA, "killed", None, f"spark-{name}")
    fields = pa.schema([("n", pa.int32()), ("text", pa.string())])
    parts = [
        staging.stage(at, encoder.encoded([pa.RecordBatch.from_pylist(some, fields)]))
        for at, some in enumerate((rows[:20], rows[20:]))
    ]
    with pytest.raises(KeyboardInterrupt):
        commit(
            *(staging, name, 0, parts),
            KilledPublisher(sink_options({"broker": node.url, "topic": "killed", "staging": "unused"})),
        )
    assert rows_in(node, "killed") == [(n, f"t{n}") for n in range(20)]
    for was_done in (False, True):
        found = backfill(spark, archive, node.url, "killed", [str(file)], kind="json")
        assert (found.job, found.events, found.was_done) == (name, 30, was_done)
        assert rows_in(node, "killed") == [(n, f"t{n}") for n in range(30)]


def test_the_command_says_what_it_has_published(
    spark: Any, node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "quiet_session", lambda *_: nullcontext(spark))
    (tmp_path / "rows.csv").write_text("n,text\n1,a\n2,b\n")

    def run(*more: str) -> str:
        where = ["--path", str(tmp_path / "archive"), "--broker", node.url]
        asked = ["--topic", "typed", "--format", "csv", "--job", "old", str(tmp_path / "rows.csv")]
        done = CliRunner().invoke(main, ["pipeline", "backfill", *where, *asked, *more])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()[-1]

    assert run() == "published 2 events of typed (job old)"
    assert run() == "old was done before: 2 events of typed"
    assert json.loads(run("--json")) == {"job": "old", "topic": "typed", "events": 2, "was_done": True}
    assert rows_in(node, "typed") == [(1, "a"), (2, "b")]


def test_the_name_of_a_backfill_is_that_of_what_is_put_in(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    source = [str(tmp_path)]
    before = job_name("t", source, "csv")
    assert before == job_name("t", source, "csv")
    assert len({before, job_name("u", source, "csv"), job_name("t", source, "json")}) == 3
    (tmp_path / "a").write_text("three")
    assert job_name("t", source, "csv") != before


def test_what_cannot_be_put_in_is_refused(node: LiveNode, tmp_path: Path) -> None:
    archive = folder_at(tmp_path)
    with pytest.raises(ConfigError, match="none of parquet"):
        backfill(None, archive, node.url, "lines", ["x"], kind="xml")
    with pytest.raises(ConfigError, match="name files"):
        backfill(None, archive, node.url, "lines", [])
    with pytest.raises(ConfigError, match="one table at a time"):
        backfill(None, archive, node.url, "lines", ["a", "b"], kind="table")


def test_a_backfill_goes_to_one_broker(tmp_path: Path) -> None:
    asked = ["pipeline", "backfill", "--topic", "t", "--path", str(tmp_path / "archive")]
    brokers = ["--broker", "tidemark://127.0.0.1:1", "--broker", "tidemark://127.0.0.1:2"]
    done = CliRunner().invoke(main, [*asked, *brokers, str(tmp_path)])
    assert done.exit_code == 2
    assert "at one broker" in done.output
