"""Instructions of a hot path, counted by valgrind's simulated processor: the same number at any load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
#: A simulated processor is some forty times slower than a real one.
_PATIENCE_SECONDS = 900


def program() -> str | None:
    """Returns the path of valgrind, or None if it is not installed."""
    return shutil.which("valgrind")


def instructions_a_unit(name: str, times: int) -> float:
    """Returns the instructions of one unit of a path: those with it beyond those of only preparing it."""
    # Once without counting: compiling a module that has changed is not what is measured.
    _run([], name, 1, "take")
    taken, units = _counted(name, times, "take")
    prepared, _ = _counted(name, times, "prepare")
    return (taken - prepared) / units


def _counted(name: str, times: int, what: str) -> tuple[int, int]:
    """Returns the instructions of a whole run, and the units that it served."""
    counting = [
        str(program()), "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
    ]  # fmt: skip
    run = _run(counting, name, times, what)
    found = _COUNTED.search(run.stderr)
    assert found is not None, f"valgrind: {run.stderr[-400:]}"
    return int(found[1].replace(",", "")), int(run.stdout)


def _run(counting: list[str], name: str, times: int, what: str) -> subprocess.CompletedProcess[str]:
    """Run a path as a program; AssertionError if it fails."""
    path = [sys.executable, "-m", "tidemark.lab.bench.steps.hot_paths", name, str(times), what]
    # The same hashes in every run, and one thread in numpy.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(
        [*counting, *path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == 0, f"{name}: {run.stderr[-400:]}"
    return run
