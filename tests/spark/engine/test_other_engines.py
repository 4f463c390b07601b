"""The same jobs on other engines: a Spark Connect server, a cluster; and declarative pipelines of Spark.

`tests/spark/stores/test_jobs_in_s3.py` runs jobs on a standalone cluster of two workers, and
`tests/chaos/test_killed_spark.py` a query on a cluster of local processes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.spark.engine.engine_jobs import expected
from tests.spark.manual import section
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.lab.processes.engines import connect_server, local_cluster
from tidemark.spark.engine.java import java_home
from tidemark.ticks import TICK_MAX, TICK_MIN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOBS = Path(__file__).with_name("engine_jobs.py")
SCHEMA = "[symbol: string, price: double, qty: int]"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server; starting one takes seconds."""
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


def found_on(engine: str, node: LiveNode, path: Path) -> Any:
    """What the jobs find as a program of their own; a test that fails shows what it said."""
    done = subprocess.run(
        [sys.executable, str(JOBS), engine, node.url, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd=path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_through_spark_connect(remote: str, numbers: LiveNode, tmp_path: Path) -> None:
    assert found_on(remote, numbers, tmp_path) == expected()


@pytest.mark.long
def test_on_a_cluster_of_local_processes(numbers: LiveNode, tmp_path: Path) -> None:
    with local_cluster(workers=1, cores=2) as master:
        assert found_on(master, numbers, tmp_path) == expected()


def test_the_pipeline_of_the_manual_publishes_each_event_once(remote: str, tmp_path: Path) -> None:
    assert pipeline_runs(tmp_path, "--remote", remote) == [60, 70]


@pytest.mark.long
def test_the_pipeline_of_the_manual_starts_its_own_engine(tmp_path: Path) -> None:
    assert pipeline_runs(tmp_path) == [60, 70]


def pipeline_runs(tmp_path: Path, *options: str) -> list[int]:
    """Run the pipeline twice; the numbers of events that it has published by the end of each run."""
    blocks = re.findall(r"```(yaml|py)\n(.*?)```", section("Declarative pipelines"), re.DOTALL)
    (_, spec), (_, program) = blocks
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(spec.replace("/tmp/demo", str(tmp_path)))
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with live_node(tmp_path / "node", **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        here = program.replace("tidemark://127.0.0.1:7676", node.url)
        (tmp_path / "transformations" / "trades.py").write_text(here)
        for topic in ("trades", "large"):
            tm.create_topic(topic, SCHEMA)
        published = []
        for numbers in (range(100), range(30, 50)):
            tm.publish_many("trades", [{"symbol": "ACME", "price": float(n), "qty": n} for n in numbers])
            run(tmp_path, environment, *options)
            batch = tm._fetch("main", TICK_MIN, TICK_MAX, "large").batch
            published.append(0 if batch is None else batch.count)
    return published


def run(path: Path, environment: dict[str, str], *options: str) -> None:
    """Run the pipeline in a directory once."""
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), *options, "run", "--spec", "spark-pipeline.yml"],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    assert "Run is COMPLETED" in done.stdout
