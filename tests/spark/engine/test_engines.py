"""The same jobs on every engine: only the master changes, or the address of a Spark Connect server.

`tests/spark/stores/test_processes_in_s3.py` runs jobs on a standalone cluster of two workers, and
`tests/chaos/test_killed_spark.py` a query on a cluster of local processes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode, live_node
from tests.spark.engine.engine_jobs import EVENTS, SCHEMA, expected, run_jobs
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.errors import TidemarkError
from tidemark.lab.processes.engines import _Daemon, connect_server, local_cluster
from tidemark.spark.archive import archive as archive_module

pytestmark = pytest.mark.spark

JOBS = Path(__file__).with_name("engine_jobs.py")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node, sync.connect(node.url) as tm:
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, SCHEMA)
        tm.subscribe("numbers", durable="keeper").close()
        tm.publish_many("numbers", [{"n": n, "text": f"t{n}"} for n in range(EVENTS)])
        yield node


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


def test_in_one_process(spark: Any, node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "BACKLOG_BYTES_MIN", 1)
    monkeypatch.setattr(archive_module, "PART_BYTES", 16 << 10)
    assert run_jobs(spark, node.url, tmp_path) == expected()


@pytest.mark.long
def test_on_a_cluster_of_local_processes(node: LiveNode, tmp_path: Path) -> None:
    with local_cluster(workers=1, cores=2) as master:
        assert found_on(master, node, tmp_path) == expected()


def test_through_spark_connect(node: LiveNode, tmp_path: Path) -> None:
    with connect_server(tmp_path / "connect") as remote:
        assert found_on(remote, node, tmp_path) == expected()


def test_an_engine_that_does_not_start_says_why(tmp_path: Path) -> None:
    wanted = r"does not start: .*class org\.example\.Nothing"
    with (
        _Daemon(tmp_path / "log", "org.example.Nothing", ()) as daemon,
        pytest.raises(TidemarkError, match=wanted),
    ):
        daemon.said(re.compile("ready"))
