"""The session that everything on Spark runs in."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemark.spark.engine import worker_sockets as sockets
from tidemark.spark.engine.worker_sockets import worker_sockets


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


@pytest.mark.spark
def test_workers_of_a_local_master_are_spoken_to_over_sockets_that_only_their_user_can_open(
    spark: Any,
) -> None:
    directory = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir"))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert spark.sparkContext.parallelize([1, 2], 2).map(lambda n: n + 1).sum() == 5
    assert [each for each in directory.iterdir() if each.is_socket()]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,4]"])
def test_a_local_master_has_the_sockets_of_this_process(master: str) -> None:
    assert worker_sockets(master) == worker_sockets("local[1]") != {}


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://host"])
def test_any_other_master_keeps_what_is_sparks_default(master: str) -> None:
    assert worker_sockets(master) == {}


def test_a_directory_whose_name_is_too_long_for_a_socket_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_directory", lambda _: "/" + "x" * 70)
    assert worker_sockets("local[2]") == {}
