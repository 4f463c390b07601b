"""A session that has ended takes its Java along, and another one can be started after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_SECONDS

PROGRAM = """
from pyspark import SparkContext
from tidemark.spark.engine.session import end, session

for _ in range(2):
    made = session(master="local[1]")
    java = SparkContext._gateway.proc
    assert made.range(3).count() == 3
    end(made)
    assert java.poll() is not None
print("ended")
"""


@pytest.mark.spark
def test_a_session_ends_with_its_java_and_can_be_started_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.stdout == "ended\n", done.stderr
