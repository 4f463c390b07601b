"""The engines of the archive: the CPU and the memory of their processes, idle and under a steady load.

Each engine is `tidemark pipeline archive` as a process, with the interval of `tidemark up`. The process is
measured with all that it has started: the JVM and the Python workers of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tidemark import sync
from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.processes.process_harness import ProcessHarness
from tidemark.lab.processes.process_numbers import tree_cpu_seconds, tree_of
from tidemark.spark.archive.state import load_state

INTERVAL = "5s"
EVENTS_A_SECOND = 2_000
_STEP_SECONDS = 0.05
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class EnginesEffort:
    """For how long each of the two states of an engine is watched."""

    seconds: float


FULL, QUICK = EnginesEffort(60.0), EnginesEffort(15.0)


def sections(effort: EnginesEffort) -> Iterator[Section]:
    """Yields a section for each engine; AssertionError if an event is not archived."""
    for engine in ("light", "spark"):
        with TemporaryDirectory() as directory, ProcessHarness(Path(directory)) as harness:
            yield _measured(harness, engine, effort)


def _measured(harness: ProcessHarness, engine: str, effort: EnginesEffort) -> Section:
    broker = harness.broker(retention__archive="true")
    broker.start()
    archive = harness.archive(broker.url, engine=engine, interval=INTERVAL)
    found: list[Measurement] = []
    with sync.connect(broker.url) as tm:
        tm.publish("t", {"n": 0, "text": "x" * 200})
        archive.start()
        _wait_for(archive.path, 1)
        pid = archive.pid
        for case in ("idle", f"{EVENTS_A_SECOND:,} events/s"):
            before, began = tree_cpu_seconds(pid), time.monotonic()
            published = _load(tm, effort.seconds) if case != "idle" else _rest(effort.seconds)
            seconds = time.monotonic() - began
            found += [
                Measurement(case, "CPU", 100 * (tree_cpu_seconds(pid) - before) / seconds, "% of a core"),
                Measurement(case, "memory", held_bytes(pid) / (1 << 20), "MiB"),
                *([Measurement(case, "published", published / seconds, "events/s")] if published else []),
            ]
        _wait_for(archive.path, 1 + published)
    return Section(f"engine {engine}", found, prefix=engine)


def _rest(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def _load(tm: sync.Client, seconds: float) -> int:
    """Publish EVENTS_A_SECOND for so long; returns how many those were."""
    began, published = time.monotonic(), 0
    while (past := time.monotonic() - began) < seconds:
        due = int(past * EVENTS_A_SECOND) - published
        if due > 0:
            tm.publish_many("t", [{"n": published + n, "text": "x" * 200} for n in range(due)])
            published += due
        time.sleep(_STEP_SECONDS)
    return published


def _wait_for(path: Path, events: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while load_state(path).events < events:
        assert time.monotonic() < deadline, f"{load_state(path).events} of {events} events are archived"
        time.sleep(_STEP_SECONDS)


def held_bytes(pid: int) -> int:
    """Memory of the process and of all that descend from it; what they share counts once."""
    total = 0
    for each in tree_of(pid):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) << 10
    return total
