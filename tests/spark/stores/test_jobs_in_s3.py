"""Every job on Spark with its archive in S3: in one process, and on the two workers of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import live_node
from tests.spark.stores.s3_jobs import SCHEMA, Row, rows_in, run_jobs
from tests.spark.stores.s3_servers import BUCKET, SECRET, disk_server, options_at, options_file
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync
from tidemark.lab.processes.engines import standalone
from tidemark.spark.archive import archive as archive_module
from tidemark.spark.archive_query import planning
from tidemark.spark.locations import folder_at
from tidemark.spark.stores.folder import Folder

pytestmark = pytest.mark.spark

EVENTS = 600
JOBS = Path(__file__).with_name("s3_jobs.py")


@dataclass(frozen=True)
class Published:
    """Events at a broker, and a server in which their archive will be."""

    rows: list[Row]
    #: what the jobs are told: broker, URL of the place in S3, file of storage options
    arguments: tuple[str, str, str]
    archive: Folder

    def check(self, found: dict[str, Any]) -> None:
        """Every job has found every row that it should, once, and no plan shows the secret."""
        rows = [[tick, each["n"], each["text"]] for tick, each in self.rows]
        few = [row for row in rows if row[1] < 500]
        assert rows_in(self.archive) == self.rows
        assert (found["read"], found["history"]) == (rows, few)
        assert found["copies"] == [row[1:] for row in few]
        assert found["rounds"] >= 1
        assert SECRET not in found["plans"]


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        disk_server(tmp_path / "objects") as server,
        sync.connect(node.url) as tm,
    ):
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, SCHEMA.text)
        values = [{"n": n, "text": f"event {n}"} for n in range(EVENTS)]
        ticks = [tick for tick in tm.publish_many("numbers", values) if tick is not None]
        arguments = (node.url, f"s3://{BUCKET}/x", str(options_file(tmp_path, server)))
        folder = folder_at(f"s3://{BUCKET}/x/archive", options_at(server.url))
        yield Published(list(zip(ticks, values, strict=True)), arguments, folder)


def test_every_job_archives_and_reads_in_s3(
    spark: Any, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A batch of any size is of several tasks then.
    monkeypatch.setattr(archive_module, "PART_BYTES", 16 << 10)
    monkeypatch.setattr(planning, "PART_BYTES", 16 << 10)
    published.check(run_jobs(spark, *published.arguments))


@pytest.mark.long
def test_two_workers_of_a_cluster_archive_and_read_in_s3(published: Published, tmp_path: Path) -> None:
    with standalone(tmp_path / "cluster", workers=2, cores=1, memory="1g") as master:
        done = subprocess.run(
            [sys.executable, str(JOBS), master, *published.arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        published.check(json.loads(done.stdout.splitlines()[-1]))
        executors = {each.parent.name for each in (tmp_path / "cluster").glob("work-*/app-*/*/stderr")}
    assert len(executors) == 2
    assert SECRET not in done.stdout + done.stderr
