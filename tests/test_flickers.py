"""Tests that fail in a whole run get one second chance, and nobody overlooks those that needed it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flickers import RETRIES_MAX

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
#: What the tests of the small suites do, by the kind of the test.
KINDS = {
    "passes": """
def test_that_passes_{n}():
    pass
""",
    "fails": """
def test_that_fails_{n}():
    runs = pathlib.Path("runs-{n}")
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert False, "as ever"
""",
    "flickers": """
def test_that_flickers_{n}():
    fail_once("call-{n}")
""",
    "ends badly": """
@pytest.fixture
def careless_{n}():
    yield
    fail_once("end-{n}")

def test_that_ends_badly_{n}(careless_{n}):
    pass
""",
}
PRELUDE = """
import pathlib
import pytest

def fail_once(name):
    if not pathlib.Path(name).exists():
        pathlib.Path(name).touch()
        raise ValueError("bad luck")
"""
#: Only what is needed of all plugins that are installed: a process of pytest begins in half the time.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "xdist.plugin",
    "GITHUB_ACTIONS": "true",
}


def whole_run(where: Path, *kinds: str, options: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Run a suite with one test of each kind as `./run test` runs all tests.

    Return the exit status and the lines that were printed.
    """
    tests = [KINDS[kind].format(n=n) for n, kind in enumerate(kinds)]
    (where / "test_suite.py").write_text("".join([PRELUDE, *tests]))
    (where / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.flickers", *options]
    ran = subprocess.run(command, cwd=where, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout.splitlines()


def closing(lines: list[str]) -> str:
    """The counts of the last line, without the time that the run took."""
    return lines[-1].strip("= ").rpartition(" in ")[0]


def named_as_flickers(lines: list[str]) -> list[str]:
    """The names in the closing lines, which follow the last ruler of exclamation marks."""
    start = max(at for at, line in enumerate(lines) if line.startswith("!!!"))
    return [line.removeprefix("FLICKER test_suite.py::") for line in lines[start + 1 : -1]]


def test_a_run_without_failures_tries_nothing_again(tmp_path: Path) -> None:
    status, lines = whole_run(tmp_path, "passes", "passes")
    assert (status, closing(lines)) == (0, "2 passed")
    assert not [line for line in lines if "once more" in line or "FLICKER" in line]


def test_what_flickers_is_named_in_the_closing_lines_and_fails_no_run(tmp_path: Path) -> None:
    kinds = ("passes", "flickers", "ends badly")
    status, lines = whole_run(tmp_path, *kinds, options=("-n", "2", "--dist", "loadfile"))
    assert (status, closing(lines)) == (0, "1 passed, 2 flickered")
    assert named_as_flickers(lines) == ["test_that_flickers_1", "test_that_ends_badly_2"]
    assert [line for line in lines if line.startswith("E ") and line.endswith("ValueError: bad luck")]
    warnings = [line for line in lines if line.startswith("::warning title=FLICKER::")]
    assert [line.split("::")[3].split()[0] for line in warnings] == named_as_flickers(lines)


def test_what_fails_again_fails_the_run_beside_what_flickers(tmp_path: Path) -> None:
    kinds = ("passes", "fails", *["flickers"] * (RETRIES_MAX - 1))
    status, lines = whole_run(tmp_path, *kinds)
    assert (status, closing(lines)) == (1, f"1 failed, 1 passed, {RETRIES_MAX - 1} flickered")
    assert len(named_as_flickers(lines)) == RETRIES_MAX - 1
    assert (tmp_path / "runs-1").read_text() == "xx"


def test_more_failures_than_may_be_bad_luck_are_not_tried_again(tmp_path: Path) -> None:
    status, lines = whole_run(tmp_path, "passes", "fails", *["flickers"] * RETRIES_MAX)
    assert (status, closing(lines)) == (1, f"{RETRIES_MAX + 1} failed, 1 passed")
    assert (tmp_path / "runs-1").read_text() == "x"
    assert f"{RETRIES_MAX + 1} tests failed: too many to try them again" in lines


def test_a_file_that_cannot_be_imported_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    status, lines = whole_run(tmp_path, "passes")
    assert (status, closing(lines)) == (2, "1 error")
    assert not [line for line in lines if "once more" in line]
