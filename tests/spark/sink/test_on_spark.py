"""The sink as Spark runs it: batch and streaming, replayed with other partitions, repeated, refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.spark.sink.test_on_broker import published
from tidemark import sync

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("broker"), **{"retention.archive": "true"}) as node:
        with sync.connect(node.url) as tm:
            for topic in ("source", "copy", "loaded"):
                tm.create_topic(topic, "[n: int, text: string?]")
        yield node


def run(spark: Any, node: LiveNode, path: Path, partitions: int) -> None:
    frame = spark.readStream.format("tidemark").option("broker", node.url).option("topic", "source")
    frame = frame.option("columns", "n,text").load().repartition(partitions)
    query = (
        frame.writeStream.format("tidemark")
        .option("broker", node.url)
        .option("topic", "copy")
        .option("key", "text")
        .option("checkpointLocation", str(path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_driver_that_died_before_spark_noted_the_batch_publishes_nothing_twice(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    with sync.connect(node.url) as tm:
        tm.publish_many("source", [{"n": n, "text": f"k{n}"} for n in range(50)])
        run(spark, node, tmp_path, 2)
        expected = [(n, f"k{n}".encode()) for n in range(50)]
        assert sorted(published(node, "copy")) == expected
        for name in ("0", ".0.crc"):
            (tmp_path / "commits" / name).unlink()
        tm.publish_many("source", [{"n": n, "text": f"k{n}"} for n in range(50, 60)])
    run(spark, node, tmp_path, 3)
    expected += [(n, f"k{n}".encode()) for n in range(50, 60)]
    assert sorted(published(node, "copy")) == expected


def test_a_named_job_that_runs_again_publishes_nothing_twice(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    frame = spark.range(30).selectExpr("CAST(id AS INT) AS n", "CAST(id AS STRING) AS text")
    writer = (
        frame.write.format("tidemark").mode("append").option("broker", node.url).option("topic", "loaded")
    )
    for _ in range(2):
        writer.option("job", "load 1/2").option("staging", str(tmp_path)).save()
    assert [n for n, _ in published(node, "loaded")] == list(range(30))
    with pytest.raises(Exception, match="extra: 'loaded' has no such field"):
        frame.selectExpr("n", "1 AS extra").write.format("tidemark").mode("append").option(
            "broker", node.url
        ).option("topic", "loaded").save()
    assert len(published(node, "loaded")) == 30
