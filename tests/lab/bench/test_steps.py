"""The counts of the hot paths are the same from run to run, and compared with those of an earlier one."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from tidemark.errors import ConfigError
from tidemark.lab.bench import run
from tidemark.lab.bench.report import Measurement, Section, TableReport, read_earlier, write_page
from tidemark.lab.bench.steps import benchmark
from tidemark.lab.bench.steps.counting import CallCounter, cpu_ns, memory_peak
from tidemark.lab.bench.steps.hot_paths import PATHS, opened


def busy() -> int:
    """Two calls in Python, this one included, and three in C."""
    len("a")
    ord("a")
    return other()


def other() -> int:
    return abs(-7)


def test_calls_in_python_and_in_c_are_counted() -> None:
    counter = CallCounter()
    assert counter.run(busy) == 7
    found = counter.counts(7, named=2)
    assert (found.units, found.python_calls, found.c_calls) == (7, 2, 3)
    assert {name.rpartition(":")[2] for name in found.most_called} == {"busy", "other"}


def test_memory_counts_what_was_there_at_most() -> None:
    def case() -> int:
        return len(bytes(100_000)) + len(bytes(50_000))

    assert 100_000 <= memory_peak(case) < 140_000
    assert cpu_ns(case)[0] == 150_000


@pytest.mark.parametrize("name", PATHS)
def test_a_hot_path_makes_the_same_calls_each_time(name: str) -> None:
    with opened(name) as path:
        seen = []
        for _ in range(2):
            path.prepare()
            counter = CallCounter()
            units = counter.run(path.take)
            assert units > 0
            seen.append(counter.counts(units, named=0).python_calls / units)
    # Some work is done now and then, such as a new segment of a file.
    assert seen[1] == pytest.approx(seen[0], rel=0.5)


def test_a_run_is_compared_with_the_json_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = [Measurement("path", "calls", 30.0, ""), Measurement("new path", "calls", 1.0, "")]
    monkeypatch.setattr(benchmark, "sections", lambda _: iter([Section("s", measured)]))
    before = tmp_path / "before.jsonl"
    line = {"bench": "steps", "case": "path", "metric": "calls", "value": 60.0}
    before.write_text(json.dumps(line) + "\n")
    out = StringIO()
    assert run("steps", quick=True, out=out, before=before) == 0
    row = next(line for line in out.getvalue().splitlines() if line.startswith("path"))
    assert row.split() == ["path", "calls", "60", "0.50x", "30"]
    before.write_text("{}\n")
    with pytest.raises(ConfigError, match="make it with --json"):
        read_earlier(before)


def test_a_bench_of_a_fixed_length_takes_no_minutes() -> None:
    with pytest.raises(ConfigError, match="leave out --minutes"):
        run("steps", quick=True, out=StringIO(), minutes=1.0)


def test_grids_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Before\n\n<!-- bench peers -->\nold\n<!-- end of bench peers -->\n\nAfter.\n")
    section = Section("s", [Measurement("A", "m, ms", 1.5, "ms")], grid=True, notes=("A is synced",))
    write_page(page, "peers", [section])
    assert page.read_text() == (
        "# Before\n\n<!-- bench peers -->\n\n| | A |\n|---|---|\n| m, ms | 1.50 |\n\n- A is synced\n\n"
        "<!-- end of bench peers -->\n\nAfter.\n"
    )
    with pytest.raises(ConfigError, match="has no lines <!-- bench soak -->"):
        write_page(page, "soak", [section])


def test_tables_without_an_earlier_run_have_no_column_for_it() -> None:
    out = StringIO()
    TableReport("steps", out).show(Section("s", [Measurement("a", "m", 1.0, "")]))
    assert "before" not in out.getvalue()
