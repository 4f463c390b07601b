"""A session that has ended takes its Java along, and another one can be started after it, on another Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

PROGRAM = """
import os
import sys
from pyspark import SparkContext
from tidemark.spark.engine.session import end, session

for kind in ("", "bundled"):
    os.environ["TIDEMARK_JAVA"] = kind
    made = session(master="local[1]")
    java = SparkContext._gateway.proc
    assert made.range(10).count() == 10
    if kind:
        made.range(10).write.parquet(f"{sys.argv[1]}/table")
        assert made.read.parquet(f"{sys.argv[1]}/table").count() == 10
    version = made._jvm.java.lang.System.getProperty("java.version")
    end(made)
    assert java.poll() is not None
print(version)
"""


@pytest.mark.spark
def test_a_session_ends_with_its_java_and_the_next_one_runs_on_the_bundled_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"TIDEMARK_CACHE": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout.startswith("21."), done.stderr
