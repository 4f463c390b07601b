"""The same function for each of several items, here or as Spark tasks: the results in the items' order."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.spark.engine.job_descriptions import job_descriptions
from tidemark.spark.deep.tasks import SliceResult
from tidemark.spark.engine.tasks import described, frame_of_tasks, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = [5, 3, 8, 0]


def work(item: int) -> SliceResult:
    return SliceResult(name=f"item {item}", read=item)


def test_without_a_session_all_runs_here_in_order() -> None:
    assert run_tasks(ITEMS, work, SliceResult.from_json, None, "work") == [work(item) for item in ITEMS]


def test_a_result_is_the_same_after_its_way_as_text() -> None:
    found = SliceResult("name", 7, 3, 2)
    assert SliceResult.from_json(found.to_json()) == found
    assert json.loads(found.to_json()) == asdict(found)


@pytest.mark.spark
def test_on_spark_each_item_is_a_task_and_the_results_are_in_order(spark: Any) -> None:
    spark.sparkContext.setJobDescription("what was before")
    found = run_tasks(ITEMS, work, SliceResult.from_json, lambda: nullcontext(spark), "some work")
    assert found == [work(item) for item in ITEMS]
    assert job_descriptions(spark)[0] == "some work"
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "what was before"
    spark.sparkContext.setJobDescription(None)
    assert run_tasks([], work, SliceResult.from_json, lambda: nullcontext(spark), "none") == []
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_a_session_without_a_context_as_of_spark_connect_describes_nothing() -> None:
    with described(cast("SparkSession", object()), "work"):
        pass


@pytest.mark.spark
def test_a_frame_of_tasks_has_the_rows_of_every_task(spark: Any) -> None:
    def batches(number: int) -> Any:
        import pyarrow as pa

        for row in range(number):
            yield pa.record_batch([pa.array([number * 10 + row])], ["n"])

    frame = frame_of_tasks(spark, 4, batches, "n long")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.n for row in frame.collect()) == [10, 20, 21, 30, 31, 32]
    assert frame_of_tasks(spark, 0, batches, "n long").collect() == []
