"""Where the rows of a query came from, and how many events it has not read yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import ConfigError, SchemaError
from tidemark.spark.archive.archive import Archive
from tidemark.spark.options import source_options
from tidemark.spark.source.progress import backlog, counted
from tidemark.spark.source.scan import Planner, SourceScan, source_schema, topic_columns_of
from tidemark.ticks import TICK_MIN, CheckpointToken
from tidemark.wire.answers import LET_GO, PUBENDS


class Place:
    """A broker that has let six of ten events go, and an archive that has these six."""

    def __init__(self, node: LiveNode, tm: sync.Client, path: Path) -> None:
        self.node = node
        self.archive = path / "archive"
        tm.create_topic("t", "[n: int]")
        tm.subscribe("t", durable="holds").close()
        self.ticks = self.publish(tm, 0, 6)
        with Archive(node.url, self.archive) as archive:
            archive.round()
        upto = CheckpointToken({"main": self.ticks[-1]}).text()
        eventually(lambda: tm.ask(LET_GO, token=upto) and tm.ask(PUBENDS)[0].lost == self.ticks[-1])
        self.ticks += self.publish(tm, 6, 10)

    def publish(self, tm: sync.Client, first: int, last: int) -> list[int]:
        ticks = tm.publish_many("t", [{"n": n} for n in range(first, last)])
        return [tick for tick in ticks if tick is not None]

    @property
    def options(self) -> dict[str, str]:
        return {"broker": self.node.url, "topic": "t", "archive": str(self.archive)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("metrics")
    with live_node(path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        yield Place(node, tm, path)


@pytest.mark.parametrize("selector", ["", "n * 2 >= n"])  # the second is tested event by event
def test_rows_say_whether_they_are_from_the_broker_or_from_the_archive(place: Place, selector: str) -> None:
    options = source_options({**place.options, "origin": "true", "selector": selector})
    scan = SourceScan(options, topic_columns_of(options))
    planner = Planner(scan)
    try:
        start = planner.initial()
        batches = [each for part in planner.partitions(start, planner.newest()) for each in scan.read(part)]
    finally:
        planner.close()
    assert {each.schema for each in batches} == {source_schema(options, scan.topic_columns)}
    rows = [row for each in batches for row in each.to_pylist()]
    found = [(row["n"], row["_origin"]) for row in sorted(rows, key=lambda row: row["n"])]
    assert found == [(n, "archive" if n < 6 else "broker") for n in range(10)]


def test_what_is_left_to_read_is_counted_at_the_broker_and_in_the_archive(place: Place) -> None:
    def left(upto: int, **more: str) -> dict[str, int]:
        progress = {"sources": [{"endOffset": f'{{"main": {upto}}}'}]}
        return backlog(progress, **place.options, **more)

    assert left(place.ticks[7]) == {"main": 2}
    assert left(place.ticks[1]) == {"main": 8}
    assert left(place.ticks[1], selector="n IN (2, 4, 9)") == {"main": 3}
    assert left(place.ticks[-1]) == {}
    assert left(TICK_MIN) == {"main": 10}
    with pytest.raises(ConfigError, match="0 sources"):
        backlog({"sources": [{"endOffset": "7"}]}, **place.options)


def test_a_field_of_that_name_is_refused(place: Place) -> None:
    with sync.connect(place.node.url) as tm:
        tm.create_topic("named", "[_origin: string]")
    options = source_options({"broker": place.node.url, "topic": "named", "origin": "true"})
    with pytest.raises(SchemaError, match="leave the option origin out"):
        source_schema(options, topic_columns_of(options))


@pytest.mark.spark
def test_the_progress_of_a_query_has_the_rows_by_origin(spark: Any, place: Place, tmp_path: Path) -> None:
    reader = spark.readStream.format("tidemark").options(**place.options, maxEventsPerTrigger="5")
    with pytest.raises(ConfigError, match="origin"):
        counted(reader.load())
    frame = counted(reader.option("origin", "true").load())
    assert "_origin" not in frame.columns
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    metrics = [each["observedMetrics"]["tidemark"] for each in query.recentProgress if each["numInputRows"]]
    assert sum(each["rows_from_archive"] for each in metrics) == 6
    assert sum(each["rows_from_broker"] for each in metrics) == 4
    assert backlog(query.lastProgress, **place.options) == {}
