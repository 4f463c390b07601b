"""Files that take long begin first, and those that share a Spark session share the worker that has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.schedule import SECONDS, Schedule, measured, shares_session

ROOT = SECONDS.parent.parent


class Worker:
    """What a schedule sees of a worker: it notes the tests that the worker is to run."""

    def __init__(self, schedule: Schedule, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{len(schedule.nodes)}")
        self.shutting_down = False
        self.files: list[str] = []
        self._schedule = schedule
        self._tests = tests
        schedule.add_node(self)
        schedule.add_node_collection(self, tests)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files += [self._tests[index].split("::")[0] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True

    def finish(self, file: str) -> None:
        """All tests of this file have run."""
        for index, test in enumerate(self._tests):
            if test.startswith(file):
                self._schedule.mark_test_complete(self, index)


@pytest.fixture
def scheduled(tmp_path: Path) -> tuple[Schedule, list[Worker]]:
    """Two workers; files in the order of the list, of which those named after Spark share a session."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen", "popen"],
        option=SimpleNamespace(loadscopereorder=False),
        rootpath=tmp_path,
    )
    files = ["long.py", "spark1.py", "short1.py", "spark2.py", "short2.py", "short3.py"]
    for file in files:
        argument = "spark: Any, tmp_path: Path" if "spark" in file else "tmp_path: Path"
        (tmp_path / file).write_text(f"def test_it({argument}) -> None: ...\n")
    schedule = Schedule(config, Producer("schedule", enabled=False))
    tests = [f"{file}::test_{n}" for file in files for n in range(3)]
    workers = [Worker(schedule, tests) for _ in range(2)]
    schedule.schedule()
    return schedule, workers


def begun(worker: Worker) -> list[str]:
    """The files that the worker was given, in this order."""
    return list(dict.fromkeys(worker.files))


def test_one_worker_runs_all_files_with_the_common_session(
    scheduled: tuple[Schedule, list[Worker]],
) -> None:
    schedule, (first, second) = scheduled
    assert (begun(first), begun(second)) == (["spark1.py"], ["long.py"])
    second.finish("long.py")
    first.finish("spark1.py")
    second.finish("short1.py")
    assert (begun(first), begun(second)) == (
        ["spark1.py", "spark2.py"],
        ["long.py", "short1.py", "short2.py"],
    )
    second.finish("short2.py")
    second.finish("short3.py")
    assert second.shutting_down
    assert not first.shutting_down
    first.finish("spark2.py")
    assert schedule.tests_finished


def test_another_worker_takes_the_place_of_one_that_died(scheduled: tuple[Schedule, list[Worker]]) -> None:
    schedule, (first, second) = scheduled
    assert schedule.remove_node(first) == "spark1.py::test_0"
    second.finish("long.py")
    assert begun(second) == ["long.py", "spark2.py"]
    second.finish("spark2.py")
    assert begun(second) == ["long.py", "spark2.py", "spark1.py"]


def test_the_table_of_seconds_names_files_that_exist() -> None:
    assert not [file for file in measured() if not (ROOT / file).exists()]


def test_files_that_ask_for_the_common_session_are_recognised() -> None:
    """By parameter, by parameter among others on lines of their own, by mark; and one that starts its own."""
    sharing = ("spark/test_types.py", "spark/source/test_on_spark.py", "lab/bench/test_spark.py")
    assert [shares_session(ROOT / "tests" / file) for file in sharing] == [True] * 3
    assert not shares_session(ROOT / "tests" / "spark" / "engine" / "test_session_end.py")
