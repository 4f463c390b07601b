"""What Spark users do by habit: named queries, a common place for checkpoints, views, tables, updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tidemark import sync
from tidemark.errors import ConfigError
from tidemark.spark import history
from tidemark.spark.engine.plain_errors import own_error_text
from tidemark.ticks import TICK_MAX, TICK_MIN

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("node"), **{"retention.archive": "true"}) as running:
        with sync.connect(running.url) as tm:
            tm.create_topic("numbers", "[n: int, kind: string]")
            tm.publish_many("numbers", [{"n": n, "kind": "ab"[n % 2]} for n in range(10)])
        yield running


def numbers(spark: Any, node: LiveNode) -> Any:
    return spark.readStream.format("tidemark").option("broker", node.url).option("topic", "numbers").load()


def counted(node: LiveNode, topic: str) -> int:
    with sync.connect(node.url) as tm:
        batch = tm._fetch("main", TICK_MIN, TICK_MAX, topic).batch
    return 0 if batch is None else batch.count


def test_a_named_query_needs_no_checkpoint_option_where_spark_has_a_setting(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        for _ in range(2):
            query = (
                numbers(spark, node)
                .select("n", "kind")
                .writeStream.format("tidemark")
                .queryName("copies")
                .option("broker", node.url)
                .option("topic", "copies")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            assert query.name == "copies"
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert counted(node, "copies") == 10
    assert list((tmp_path / "checkpoints" / "tidemark").iterdir())


def test_without_any_place_for_a_checkpoint_nothing_is_published(spark: Any, node: LiveNode) -> None:
    writer = numbers(spark, node).select("n", "kind").writeStream.format("tidemark")
    writer = writer.option("broker", node.url).option("topic", "nowhere").trigger(availableNow=True)
    with pytest.raises(Exception, match=r"spark.sql.streaming.checkpointLocation"):
        writer.start().awaitTermination()
    assert counted(node, "nowhere") == 0


def test_a_view_sees_events_that_came_after_it(spark: Any, node: LiveNode) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("seen", "[n: int]")
        tm.publish_many("seen", [{"n": n} for n in range(3)])
        options = f"OPTIONS (broker '{node.url}', topic 'seen')"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING tidemark {options}")
        frame = spark.table("seen")
        for count in (3, 6, 9):
            assert spark.sql("SELECT count(*) FROM seen").first()[0] == count
            assert sorted(row.n for row in frame.select("n").collect()) == list(range(count))
            tm.publish_many("seen", [{"n": n} for n in range(count, count + 3)])


def test_a_table_of_the_catalog_is_refused_with_what_to_write(spark: Any, node: LiveNode) -> None:
    options = f"OPTIONS (broker '{node.url}', topic 'numbers')"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW trades USING tidemark"):
        spark.sql(f"CREATE TABLE kept USING tidemark {options}")


def test_none_in_a_dynamic_field_is_written_back(spark: Any, node: LiveNode) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("loose", "[n: int, value: dynamic]")
        tm.publish_many("loose", [{"n": 1, "value": None}, {"n": 2, "value": {"x": 1}}])
        loose = spark.read.format("tidemark").option("broker", node.url).option("topic", "loose")
        rows = loose.load().select("n", "value").collect()
        again = spark.createDataFrame(rows, "n int, value string").write.format("tidemark").mode("append")
        again.option("broker", node.url).option("topic", "loose").save()
        batch = tm._fetch("main", TICK_MIN, TICK_MAX, "loose").batch
        assert batch is not None
        assert sorted(bytes(batch.message(row)) for row in (0, 1)) == sorted(
            bytes(batch.message(row)) for row in (2, 3)
        )


def test_a_stream_does_not_die_of_one_row(spark: Any, node: LiveNode, tmp_path: Path) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("strict", "[n: int, kind: string]")
    rows = numbers(spark, node).where("n < 10").selectExpr("nullif(n, 3) AS n", "kind")

    def write(place: Path, **options: str) -> Any:
        writer = rows.writeStream.format("tidemark").options(broker=node.url, topic="strict", **options)
        query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    with pytest.raises(Exception, match=r"n: .*missing"):
        write(tmp_path / "fails")
    assert counted(node, "strict") == 0
    for _ in range(2):
        write(tmp_path / "goes on", onError="deadletter", deadLetter="strict.bad")
    assert counted(node, "strict") == 9
    assert counted(node, "strict.bad") == 1


def test_history_without_an_archive_at_its_path_says_so(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"archive: there is no directory .*nowhere: correct it"):
        history(spark, "numbers", archive=tmp_path / "nowhere")


def test_updates_are_published_once_by_the_number_of_their_batch(
    spark: Any, node: LiveNode, tmp_path: Path
) -> None:
    totals = numbers(spark, node).groupBy("kind").count().selectExpr("kind", "count AS n")

    def publish(changed: Any, batch: int) -> None:
        for _ in range(2):  # as if the driver had died before Spark noted the batch
            changed.write.format("tidemark").mode("append").options(
                broker=node.url, topic="totals", key="kind", job="totals", batch=batch, staging=str(tmp_path)
            ).save()

    def run() -> None:
        writer = totals.writeStream.outputMode("update").foreachBatch(publish)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    assert counted(node, "totals") == 2
    with sync.connect(node.url) as tm:
        tm.publish("numbers", {"n": 10, "kind": "a"})
    run()
    assert counted(node, "totals") == 3
    complete = totals.writeStream.outputMode("complete").format("tidemark").option("broker", node.url)
    complete = complete.option("topic", "totals").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match=r"docs/spark.md, Updates"):
        complete.trigger(availableNow=True).start().awaitTermination()
    update = totals.writeStream.outputMode("update").format("tidemark").option("broker", node.url)
    update = update.option("topic", "totals").option("checkpointLocation", str(tmp_path / "u"))
    with pytest.raises(Exception, match="Update") as refused:
        update.trigger(availableNow=True).start().awaitTermination()
    assert "foreachBatch" in (own_error_text(refused.value) or "")
    assert counted(node, "totals") == 3
