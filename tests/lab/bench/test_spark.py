"""The Spark bench has a broker of its own, checks every row, and says what it found in the agreed form."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

from tidemark.errors import ConfigError
from tidemark.lab.bench import run
from tidemark.lab.bench.processes import harness
from tidemark.lab.bench.spark import benchmark as spark
from tidemark.lab.bench.spark import rows
from tidemark.lab.bench.spark import testbed as spark_testbed
from tidemark.lab.bench.spark.testbed import BATCH_EVENTS, CpuMeter, SparkEffort

KEYS = {"bench", "case", "metric", "value", "unit", "goal", "ok"}


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(harness.DIRECTORY, str(tmp_path))
    monkeypatch.setattr(spark, "QUICK", SparkEffort(2 * BATCH_EVENTS, 1, 1, 2, 100))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.long
def test_every_case_says_what_it_found_and_every_row_was_right(tmp_path: Path) -> None:
    out = StringIO()
    assert run("spark", json_output=True, quick=True, out=out) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(set(line) == KEYS for line in lines)
    names = [(line["case"], line["metric"]) for line in lines]
    assert len(set(names)) == len(names)
    assert sum(line["goal"] is not None for line in lines) >= 6
    assert not list(tmp_path.iterdir()), "a bench removes its files"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_row_that_is_not_as_published_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def more(*arguments: object) -> object:
        found = publish(*arguments)  # type: ignore[arg-type]
        return found._replace(checksums=found.checksums + 1)

    publish = spark_testbed.publish
    monkeypatch.setattr(spark_testbed, "publish", more)
    assert run("spark", quick=True, out=StringIO()) == 1
    assert "bench spark: WRONG: batch read: found EventsTotal(" in capsys.readouterr().err


def test_a_case_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no case 'sinc': it has reading, micro, archive, deep"):
        run("spark", case="sinc", out=StringIO())
    with pytest.raises(ConfigError, match="it has none that can be run alone"):
        run("rows", case="read", out=StringIO())


def test_cpu_of_a_process_that_has_gone_stays_counted() -> None:
    """Half a second of work in a child that ends before the meter does."""
    work = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    with CpuMeter() as meter:
        subprocess.run([sys.executable, "-c", work], check=True)
        during = meter.seconds
    # The last look at it came at most one pause, and what that took here, before its end.
    assert meter.seconds >= during > 0.1


def test_rows_are_measured_without_spark_and_each_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "QUICK", rows.RowsEffort(2 * BATCH_EVENTS, 2))
    out = StringIO()
    assert run("rows", json_output=True, quick=True, out=out) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    counts = Counter(line["metric"].partition(": ")[0] for line in lines)
    assert counts == {"rows": 8, "micro-batch": 2, "deep catch-up": 3}
    assert all(line["value"] >= 0 for line in lines)
    assert not list(tmp_path.iterdir()), "a bench removes its files"
