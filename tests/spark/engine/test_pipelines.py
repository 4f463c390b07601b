"""Declarative pipelines of Spark with the source and the sink, as the manual shows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_node import live_node
from tests.spark.manual import section
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.spark.engine.java import java_home
from tidemark.ticks import TICK_MAX, TICK_MIN

SCHEMA = "[symbol: string, price: double, qty: int]"


@pytest.mark.spark
@pytest.mark.slow
def test_the_pipeline_of_the_manual_publishes_each_event_once(tmp_path: Path) -> None:
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
            run(tmp_path, environment)
            batch = tm._fetch("main", TICK_MIN, TICK_MAX, "large").batch
            published.append(0 if batch is None else batch.count)
    assert published == [60, 70]


def run(path: Path, environment: dict[str, str]) -> None:
    """Run the pipeline in a directory once."""
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run", "--spec", "spark-pipeline.yml"],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    assert "Run is COMPLETED" in done.stdout
