"""The session that everything on Spark runs in."""

from __future__ import annotations

import sys
from typing import Any

import pytest


@pytest.mark.spark
def test_a_session_stays_on_this_machine_and_in_utc(spark: Any) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sql("SELECT hour(TIMESTAMP '2024-01-01 12:00:00Z') AS h").first().h == 12


@pytest.mark.spark
def test_workers_run_the_interpreter_that_runs_the_driver(spark: Any) -> None:
    def executable(_: int) -> str:
        import sys

        return sys.executable

    assert spark.sparkContext.parallelize([0], 1).map(executable).collect() == [sys.executable]


@pytest.mark.spark
def test_options_of_the_caller_win(spark: Any) -> None:
    assert "warehouse" in spark.conf.get("spark.sql.warehouse.dir")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
