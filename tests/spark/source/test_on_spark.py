"""The source as Spark runs it: found by its name, batch and streaming, restarted, pushed down, refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.ticks import CheckpointToken

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("broker"), **{"retention.archive": "true"}) as node:
        yield node


def publish(node: LiveNode, topic: str, numbers: range) -> list[int]:
    with sync.connect(node.url) as tm:
        tm.create_topic(topic, "[n: int, side: {buy: [] | sell: []}, legs: *(string)*, note: string?]")
        events = [
            {"n": n, "side": "buy", "legs": ["a", "b"], "note": None if n % 2 else "x"} for n in numbers
        ]
        return [tick for tick in tm.publish_many(topic, events) if tick is not None]


def run(spark: Any, node: LiveNode, topic: str, path: Path, table: str) -> list[dict[str, Any]]:
    """One run over what is there; the progress of its batches that had rows."""
    frame = (
        spark.readStream.format("tidemark")
        .option("broker", node.url)
        .option("topic", topic)
        .option("maxEventsPerTrigger", 40)
        .load()
    )

    def keep(batch: Any, number: int) -> None:
        batch.select("n", "_tick").write.mode("overwrite").parquet(str(path / table / str(number)))

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [each for each in query.recentProgress if each["numInputRows"]]


def test_a_batch_read_has_typed_columns_and_filters_are_tested_at_the_broker(
    spark: Any, node: LiveNode
) -> None:
    ticks = publish(node, "batch", range(100))
    reader = spark.read.format("tidemark").option("broker", node.url).option("topic", "batch")
    frame = reader.option("selector", "n >= 10").load()
    assert frame.schema["legs"].dataType.simpleString() == "array<string>"
    rows = frame.filter("n < 13").orderBy("_tick").collect()
    assert [(row["n"], row["side"], row["legs"], row["note"]) for row in rows] == [
        (10, "buy", ["a", "b"], "x"),
        (11, "buy", ["a", "b"], None),
        (12, "buy", ["a", "b"], "x"),
    ]
    assert [row["_tick"] for row in rows] == ticks[10:13]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = reader.option("selector", "n >= 10").option("pushFilters", "true").load().filter("n < 13")
        assert "Filter" not in pushed._jdf.queryExecution().executedPlan().toString().replace(
            "RuntimeFilters", ""
        )
        assert pushed.count() == 3
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_from_its_checkpoint_with_every_event_once(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    ticks = publish(node, "stream", range(100))
    first = run(spark, node, "stream", tmp_path, "first")
    assert [each["numInputRows"] for each in first] == [40, 40, 20]
    end = CheckpointToken.from_json(first[-1]["sources"][0]["endOffset"])
    assert end == CheckpointToken({"main": ticks[-1]})
    ticks += publish(node, "stream", range(100, 130))
    second = run(spark, node, "stream", tmp_path, "second")
    assert [each["numInputRows"] for each in second] == [30]
    rows = spark.read.parquet(*(str(each) for each in sorted(tmp_path.glob("*/[0-9]*")))).orderBy("_tick")
    assert [(row["n"], row["_tick"]) for row in rows.collect()] == list(enumerate(ticks))


def test_small_and_large_batches_of_a_stream_have_the_same_rows(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    """The driver reads the small ones, and tasks the large ones; the progress knows the backlog of both."""
    found: dict[str, list[Any]] = {}
    with sync.connect(node.url) as tm:
        tm.create_topic(
            "sizes", "[n: int, at: timestamp, data: bytes, price: decimal, leg: [a: int?, b: string]?]"
        )
        at = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
        values = [
            {
                "n": n,
                "at": at,
                "data": bytes([n % 256]) * 300,
                "price": Decimal(n) / 4,
                "leg": None if n % 3 else {"a": None, "b": "x"},
            }
            for n in range(6_000)
        ]
        tm.publish_many("sizes", values)
    for size in (3_000, 6_000):
        rows: list[Any] = []
        frame = spark.readStream.format("tidemark").option("broker", node.url).option("topic", "sizes")
        query = (
            frame.option("maxEventsPerTrigger", size)
            .load()
            .writeStream.foreachBatch(lambda batch, _, rows=rows: rows.extend(batch.collect()))
            .option("checkpointLocation", str(tmp_path / str(size)))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert [each["numInputRows"] for each in query.recentProgress] == [size] * (6_000 // size)
        assert all(each["sources"][0]["latestOffset"] for each in query.recentProgress)
        found[str(size)] = sorted(rows, key=lambda row: row["n"])
    assert [row["n"] for row in found["3000"]] == list(range(6_000))
    assert found["3000"] == found["6000"]


def test_what_is_wrong_is_said_in_one_line_of_ours(spark: Any, node: LiveNode) -> None:
    publish(node, "wrong", range(3))
    reader = spark.read.format("tidemark").option("broker", node.url)
    with pytest.raises(Exception, match="no topic matches 'nothing': create it first, or correct it"):
        reader.option("topic", "nothing").load()
    with pytest.raises(Exception, match="did you mean failOnGap"):
        reader.option("topic", "wrong").option("failOnGaps", "true").load()
