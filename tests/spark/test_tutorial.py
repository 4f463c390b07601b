"""The tutorial works as it is written: every block of it runs, in its order, from the page itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.errors import NotConnectedError

MANUAL = Path(__file__).parents[2] / "docs" / "spark.md"
BROKER = "tidemark://127.0.0.1:7676"


def blocks() -> list[tuple[str, str]]:
    """(language, text) of each block of the tutorial."""
    found = re.search(r"^## In ten minutes\n(.*?)^## ", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r"^```(\w*)\n(.*?)^```", found[1], re.MULTILINE | re.DOTALL)


@contextmanager
def up(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """What runs in a terminal of its own, from when it answers on."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: process.poll() is not None or is_there(environment["TIDEMARK_BROKER"]))
        assert process.poll() is None
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def is_there(url: str) -> bool:
    try:
        sync.connect(url, connect_timeout=0.5).close()
    except NotConnectedError:
        return False
    return True


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_every_block_of_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (port,) = free_ports(1)
    url = f"tidemark://127.0.0.1:{port}"
    bin_path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": bin_path, "TIDEMARK_BROKER": url}
    (language, first), *rest = blocks()
    assert (language, first) == ("sh", "tidemark up\n")
    listen = ["tidemark", "up", "--listen", url.removeprefix("tidemark://"), "--http", ""]
    names: dict[str, Any] = {}
    with up(listen, environment):
        for language, text in rest:
            if language == "sh":
                subprocess.run(
                    ["sh", "-e", "-c", text], env=environment, check=True, timeout=PATIENCE_SECONDS
                )
            else:
                assert language == "python"
                # Spark's own working directory is where its Java was started, by another test.
                here = text.replace(BROKER, url)
                for folder in ("checkpoints/", "tidemark-data/"):
                    here = here.replace(f'"{folder}', f'"{tmp_path}/{folder}')
                exec(compile(here, str(MANUAL), "exec"), names)
        assert names["trades"].count() > 0
        assert names["every"].count() == 1 + sum(value["price"] > 10 for value in names["values"])
