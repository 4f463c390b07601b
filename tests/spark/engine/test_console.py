"""A script that meets a wrong option or a broker that is away: one clear line on its console, no Java."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_node import live_node
from tests.waiting import PATIENCE_SECONDS
from tidemark import sync

SCRIPT = Path(__file__).with_name("console_script.py")


def without_workers(problems: str) -> str:
    """What was said, less what a Python worker of Spark says whose Java ends before the worker is told."""
    own = (
        r"Traceback \(most recent call last\):\n(  .*pyspark/daemon\.py.*\n(    .*\n)+)+BrokenPipeError.*\n?"
    )
    return re.sub(own, "", problems)


@pytest.mark.spark
def test_what_is_wrong_is_one_line_on_the_console(tmp_path: Path) -> None:
    with live_node(tmp_path, **{"retention.archive": "true"}) as node:
        with sync.connect(node.url) as tm:
            tm.create_topic("numbers", "[n: int]")
            tm.publish("numbers", {"n": 1})
        command = [sys.executable, str(SCRIPT), node.url, str(tmp_path / "checkpoint")]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        ) as script:
            assert script.stdout is not None
            try:
                said = [script.stdout.readline().strip() for _ in range(3)]
                node.stop()
                _, problems = script.communicate(timeout=PATIENCE_SECONDS)
            finally:
                script.kill()
    assert said[0] == "option: selectr: there is no such option here: did you mean selector?"
    assert said[1].startswith("nobody: tidemark://127.0.0.1:1: no answer for 0.2 s")
    assert said[2] == "running"
    assert script.returncode == 1
    *before, last = without_workers(problems).strip().splitlines()
    assert last.startswith(f"{SCRIPT}:"), problems
    assert f"{node.url}: no answer for 2 s" in last
    assert "Start the broker" in last
    # Spark says a few things when it starts; nothing of what went wrong is among them.
    assert not [line for line in before if "Traceback" in line or line.startswith(("\tat ", "Caused by"))]
