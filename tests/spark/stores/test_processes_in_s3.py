"""Processes against an archive in S3: killed under load, and on two workers of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import live_node
from tests.spark.stores.s3_servers import BUCKET, SECRET, S3Server, disk_server, options_at
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.errors import StorageError
from tidemark.lab.processes.engines import standalone
from tidemark.message.schema import Schema
from tidemark.spark.archive import reader as archive_reader
from tidemark.spark.archive.state import ArchiveState, load_state
from tidemark.spark.locations import folder_at
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MAX, TICK_MIN

SCHEMA = Schema.parse("[n: int, text: string]")
JOBS = Path(__file__).with_name("s3_jobs.py")
Row = tuple[int, dict[str, Any]]


def options_file(path: Path, server: S3Server) -> Path:
    file = path / "s3.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in options_at(server.url).items()))
    file.chmod(0o600)
    return file


def wait_until(is_so: Callable[[], bool], archiver: Archiver) -> None:
    def looked() -> bool:
        archiver.check()
        return is_so()

    eventually(looked)


def state_of(folder: Folder) -> ArchiveState:
    """The state; an empty one while the server is away."""
    try:
        return load_state(folder)
    except StorageError:
        return ArchiveState()


def rows_in(folder: Folder) -> list[Row]:
    """Every row of the archive: its tick and its values."""
    return [
        (int(batch.ticks[row]), SCHEMA.decode(batch.message(row)))
        for batch in archive_reader.read(folder, "main", TICK_MIN, TICK_MAX)
        for row in range(batch.count)
    ]


class Archiver:
    """`tidemark pipeline archive` into S3, as a process that can be killed."""

    def __init__(self, broker: str, folder: Folder, options: Path, log: Path) -> None:
        self._log = log.open("ab")
        told = ["--path", folder.text, "--storage-options", str(options), "--broker", broker]
        more = ["--interval", "50ms", "--engine", "light", "--json"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidemark", "pipeline", "archive", *told, *more],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def check(self) -> None:
        """The archive waits for whatever passes: it never ends by itself."""
        assert self._process.poll() is None, "the archive has ended by itself"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.mark.slow
@pytest.mark.chaos
def test_every_row_is_there_once_when_server_and_archive_are_killed_under_load(tmp_path: Path) -> None:
    published: list[Row] = []
    stop = threading.Event()

    def publish(url: str) -> None:
        with sync.connect(url) as tm:
            while not stop.wait(0.02):
                first = len(published)
                values = [{"n": n, "text": f"event {n}"} for n in range(first, first + 20)]
                ticks = [tick for tick in tm.publish_many("t", values) if tick is not None]
                published.extend(zip(ticks, values, strict=True))

    log = tmp_path / "archive.log"
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        disk_server(tmp_path / "objects") as server,
        sync.connect(node.url) as tm,
    ):
        tm.create_topic("t", SCHEMA.text)
        folder = folder_at(f"s3://{BUCKET}/archive", options_at(server.url))
        options = options_file(tmp_path, server)
        load = threading.Thread(target=publish, args=(node.url,))
        load.start()
        archiver = Archiver(node.url, folder, options, log)
        try:
            for kill in ("server", "archive", "server", "archive", "archive"):
                want = state_of(folder).batch + 2
                wait_until(lambda want=want: state_of(folder).batch >= want, archiver)  # type: ignore[misc]
                archiver.check()
                if kill == "server":
                    server.kill()
                    server.start()
                else:
                    archiver.kill()
                    archiver = Archiver(node.url, folder, options, log)
        finally:
            stop.set()
            load.join()
        wait_until(lambda: state_of(folder).covered.get("main", TICK_MIN) >= published[-1][0], archiver)
        archiver.kill()
        assert rows_in(folder) == published
        assert dict(load_state(folder).missing) == {}
    assert SECRET not in log.read_text()


@pytest.mark.slow
@pytest.mark.spark
def test_two_workers_of_a_cluster_archive_and_read_in_s3(tmp_path: Path) -> None:
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        disk_server(tmp_path / "objects") as server,
        sync.connect(node.url) as tm,
        standalone(tmp_path / "cluster", workers=2, cores=1, memory="1g") as master,
    ):
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, SCHEMA.text)
        values: list[dict[str, Any]] = [{"n": n, "text": f"event {n}"} for n in range(600)]
        ticks = tm.publish_many("numbers", values)
        rows: list[list[Any]] = [
            [tick, each["n"], each["text"]] for tick, each in zip(ticks, values, strict=True)
        ]
        arguments = [master, node.url, f"s3://{BUCKET}/x", str(options_file(tmp_path, server))]
        done = subprocess.run(
            [sys.executable, str(JOBS), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        executors = {each.parent.name for each in (tmp_path / "cluster").glob("work-*/app-*/*/stderr")}
        folder = folder_at(f"s3://{BUCKET}/x/archive", options_at(server.url))
        assert [[tick, each["n"], each["text"]] for tick, each in rows_in(folder)] == rows
    assert found["history"] == [row for row in rows if row[1] < 500]
    assert found["read"] == rows
    assert found["copies"] == [row[1:] for row in rows if row[1] < 500]
    assert found["rounds"] >= 1
    assert len(executors) == 2
    assert SECRET not in found["plans"] + done.stdout + done.stderr
