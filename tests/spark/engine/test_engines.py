"""The jobs of `engine_jobs.py` in one process; `test_other_engines.py` has the same jobs elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.live_node import LiveNode
from tests.spark.engine.engine_jobs import expected, run_jobs
from tidemark.errors import TidemarkError
from tidemark.lab.processes.engines import _Daemon
from tidemark.spark.archive import archive as archive_module

pytestmark = pytest.mark.spark


def test_in_one_process(
    spark: Any, numbers: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "BACKLOG_BYTES_MIN", 1)
    monkeypatch.setattr(archive_module, "PART_BYTES", 16 << 10)
    assert run_jobs(spark, numbers.url, tmp_path) == expected()


def test_an_engine_that_does_not_start_says_why(tmp_path: Path) -> None:
    wanted = r"does not start: .*class org\.example\.Nothing"
    with (
        _Daemon(tmp_path / "log", "org.example.Nothing", ()) as daemon,
        pytest.raises(TidemarkError, match=wanted),
    ):
        daemon.said(re.compile("ready"))
