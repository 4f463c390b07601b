"""Processes against an archive in S3 that are killed under load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live_node import live_node
from tests.spark.publishing_load import publishing
from tests.spark.stores.s3_jobs import rows_in
from tests.spark.stores.s3_servers import BUCKET, SECRET, disk_server, options_at, options_file
from tests.waiting import eventually
from tidemark.errors import StorageError
from tidemark.spark.archive.state import ArchiveState, load_state
from tidemark.spark.locations import folder_at
from tidemark.spark.stores.folder import Folder
from tidemark.ticks import TICK_MIN


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


class Archiver:
    """`tidemark pipeline archive` into S3, as a process that can be killed."""

    def __init__(self, broker: str, folder: Folder, options: Path, log: Path, engine: str) -> None:
        self._log = log.open("ab")
        told = ["--path", folder.text, "--storage-options", str(options), "--broker", broker]
        more = ["--interval", "50ms", "--engine", engine, "--json"]
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
@pytest.mark.parametrize(
    "engine", ["light", pytest.param("spark", marks=(pytest.mark.long, pytest.mark.spark))]
)
def test_every_row_is_there_once_when_server_and_archive_are_killed_under_load(
    tmp_path: Path, engine: str
) -> None:
    log = tmp_path / "archive.log"
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        disk_server(tmp_path / "objects") as server,
    ):
        folder = folder_at(f"s3://{BUCKET}/archive", options_at(server.url))
        options = options_file(tmp_path, server)
        with publishing(node.url) as published:
            archiver = Archiver(node.url, folder, options, log, engine)
            for kill in ("server", "archive", "server", "archive", "archive"):
                want = state_of(folder).batch + 2
                wait_until(lambda want=want: state_of(folder).batch >= want, archiver)  # type: ignore[misc]
                archiver.check()
                if kill == "server":
                    server.kill()
                    server.start()
                else:
                    archiver.kill()
                    archiver = Archiver(node.url, folder, options, log, engine)
        wait_until(lambda: state_of(folder).covered.get("main", TICK_MIN) >= published[-1][0], archiver)
        archiver.kill()
        assert rows_in(folder) == published
        assert dict(load_state(folder).missing) == {}
    assert SECRET not in log.read_text()
