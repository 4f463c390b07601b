"""SIGKILL of what a streaming query runs on: its driver, its broker, an executor. Each event is copied once.

The query reads a topic with the source and publishes it with the sink, so what either loses or repeats shows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from copying_query import BATCH_EVENTS
from verdicts import started

from tidemark import sync
from tidemark.lab.engines import local_cluster
from tidemark.lab.stage import BrokerPart, Stage
from tidemark.ticks import TICK_MIN

pytestmark = [pytest.mark.chaos, pytest.mark.spark]

PROGRAM = Path(__file__).with_name("copying_query.py")
#: Java starts slowly where much else runs; a run that goes well waits for a fraction of this.
PATIENCE_SECONDS = 600.0


class Query:
    """The program, in a process group of its own with its Java and its workers."""

    def __init__(self, master: str, broker: BrokerPart, path: Path) -> None:
        self.log = path / "query.log"
        command = [sys.executable, str(PROGRAM), master, broker.url, str(path)]
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd=path, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL for all of it at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def executors(self) -> list[int]:
        """The processes that run its tasks, on a cluster."""
        return [
            pid for pid in group_of(self._process.pid) if "CoarseGrainedExecutorBackend" in command_of(pid)
        ]


@contextmanager
def query(master: str, broker: BrokerPart, path: Path) -> Iterator[Query]:
    running = Query(master, broker, path)
    try:
        yield running
    finally:
        if running.is_running:
            running.kill()


def group_of(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == leader:
                found.append(int(path.name))
        except ProcessLookupError:
            continue
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def publish(broker: BrokerPart, numbers: range) -> None:
    with sync.connect(broker.url) as tm:
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, "[n: int]")
        tm.publish_many("numbers", [{"n": n} for n in numbers])


def copies(broker: BrokerPart) -> list[int]:
    """The numbers of all copies, in the order in which they were published."""
    found: list[int] = []
    with sync.connect(broker.url) as tm:
        schema = tm.schemas("copies")[-1]
        at, upto = TICK_MIN, tm.ask("pubends")[0]["position"]
        while at < upto:
            answer = tm.fetch("main", at, upto, "copies")
            if answer.batch is not None:
                found += [schema.decode(answer.batch.message(row))["n"] for row in range(answer.batch.count)]
            at = answer.upto
    return found


def wait_for_copies(broker: BrokerPart, count: int, of: Query) -> list[int]:
    deadline = monotonic() + PATIENCE_SECONDS
    while len(found := copies(broker)) < count:
        assert monotonic() < deadline, f"only {len(found)} of {count}: {of.last_words}"
        assert of.is_running, of.last_words
        sleep(0.1)
    return found


def assert_each_once(found: list[int], count: int) -> None:
    assert sorted(found) == list(range(count))


def test_a_driver_and_its_broker_that_are_killed_lose_and_repeat_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    broker = started(stage, **{"retention.archive": "true"})
    publish(broker, range(10 * BATCH_EVENTS))
    with query("local[2,4]", broker, tmp_path) as first:
        # In the middle of some batch: there are more to come.
        assert len(wait_for_copies(broker, 2 * BATCH_EVENTS, first)) < 10 * BATCH_EVENTS
        first.kill()
    with query("local[2,4]", broker, tmp_path) as second:
        wait_for_copies(broker, 5 * BATCH_EVENTS, second)
        broker.kill()
        broker.start()
        publish(broker, range(10 * BATCH_EVENTS, 12 * BATCH_EVENTS))
        found = wait_for_copies(broker, 12 * BATCH_EVENTS, second)
        assert_each_once(found, 12 * BATCH_EVENTS)


def test_an_executor_that_is_killed_loses_and_repeats_nothing(stage: Stage, tmp_path: Path) -> None:
    broker = started(stage, **{"retention.archive": "true"})
    publish(broker, range(8 * BATCH_EVENTS))
    with local_cluster() as master, query(master, broker, tmp_path) as running:
        wait_for_copies(broker, BATCH_EVENTS, running)
        before = running.executors()
        assert before, "there are no executors on this cluster"
        os.kill(before[0], signal.SIGKILL)
        found = wait_for_copies(broker, 8 * BATCH_EVENTS, running)
        assert_each_once(found, 8 * BATCH_EVENTS)
        assert before[0] not in running.executors()
