"""Which worker of pytest-xdist runs which file of tests, and in which order.

The tests of a file run in one process, one after the other. Files that take long begin first, by the measured
seconds in `tests/seconds.json`, so that all workers end together. The files that use the common Spark session
(the fixture `spark`) all run in one worker, so that there is one JVM for all of them and not one a worker.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

#: file -> seconds that its tests took when they were measured, for files that took SHORT_SECONDS or more
SECONDS = Path(__file__).with_name("seconds.json")
SHORT_SECONDS = 1.0
#: what a file that was not measured is taken for when a test in it has one of the marks of long tests
UNMEASURED_SECONDS = 10.0
LONG_MARKS = ("spark", "chaos", "slow")
#: a function with the common session as a parameter, or a mark that asks for it
_SHARES_SESSION = re.compile(r"""^def \w+\([^)]*\bspark: |usefixtures\("spark"\)""", re.MULTILINE)


def measured() -> dict[str, float]:
    """The seconds of each long file, by its path in the project."""
    seconds: dict[str, float] = json.loads(SECONDS.read_text())
    return seconds


def shares_session(file: Path) -> bool:
    """Whether tests of this file use the common Spark session."""
    return file.suffix == ".py" and bool(_SHARES_SESSION.search(file.read_text()))


class Schedule(LoadFileScheduling):  # type: ignore[misc]
    """Gives each worker that is nearly idle the next file, the longest first."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        #: The worker that has the common Spark session; another one takes its place when it has died.
        self._with_session: WorkerController | None = None
        #: file -> whether its tests use the common Spark session
        self._shares: dict[str, bool] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next(self._files_for(node))
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give the worker more to do if it has little left; let it end when nothing will come any more."""
        if self.workqueue and not node.shutting_down and next(self._files_for(node), None) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _files_for(self, node: WorkerController) -> Iterator[str]:
        """The waiting files that this worker may run, in the order in which it should."""
        if self._with_session not in self.assigned_work:
            self._with_session = node
        if node is self._with_session:
            yield from (file for file in self.workqueue if self._is_sharing(file))
        yield from (file for file in self.workqueue if not self._is_sharing(file))

    def _is_sharing(self, file: str) -> bool:
        if file not in self._shares:
            self._shares[file] = shares_session(self.config.rootpath / file)
        return self._shares[file]


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of the files that take long first, those of one file together and in their order."""
    items = list(items)
    seconds = measured()
    for item in items:
        if any(item.get_closest_marker(mark) for mark in LONG_MARKS):
            seconds.setdefault(_file(item.nodeid), UNMEASURED_SECONDS)
    return sorted(items, key=lambda item: -seconds.get(_file(item.nodeid), 0.0))


class Stopwatch:
    """Adds up what the tests of each file take, for `--measure`, which writes SECONDS anew."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a test, or of what happens before and after it."""
        self._seconds[_file(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the table: the longest first."""
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])
        table = {file: round(took, 1) for file, took in longest if took >= SHORT_SECONDS}
        SECONDS.write_text(json.dumps(table, indent=1) + "\n")


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]
