"""SIGKILL of what a streaming query runs on: its driver, its broker, an executor. Each event is copied once.

The query reads a topic with the source and publishes it with the sink, so what either loses or repeats shows.
The audit judges: what was published is in the ledgers of those whose copies the query owes, and a subscriber
to the copies writes its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.chaos.copying_query import BATCH_EVENTS, SCHEMA
from tests.chaos.ledger_checks import assert_exact, started
from tests.waiting import eventually
from tidemark import sync
from tidemark.lab.processes.engines import local_cluster
from tidemark.lab.processes.ledger import audit
from tidemark.lab.processes.ledger_writers import PublisherLedger
from tidemark.lab.processes.process_harness import ManagedBroker, ManagedSubscriber, ProcessHarness

pytestmark = [pytest.mark.chaos, pytest.mark.spark]

PROGRAM = Path(__file__).with_name("copying_query.py")
SIDES = ("even", "odd")


class Query:
    """The program, in a process group of its own with its Java and its workers."""

    def __init__(self, master: str, broker: ManagedBroker, path: Path) -> None:
        self.log = path / "query.log"
        command = [sys.executable, str(PROGRAM), master, broker.url, str(path)]
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd=path, start_new_session=True
            )

    def kill(self) -> None:
        """Send SIGKILL to all processes of the program at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def last_line(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def executors(self) -> list[int]:
        """The ids of the processes that run the query's tasks on a cluster."""
        return [
            pid for pid in group_of(self._process.pid) if "CoarseGrainedExecutorBackend" in command_of(pid)
        ]


@contextmanager
def query(master: str, broker: ManagedBroker, path: Path) -> Iterator[Query]:
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


def publish(broker: ManagedBroker, numbers: range) -> None:
    """Numbers, even and odd; a ledger for the copies of each side says that they are owed."""
    values = [{"n": n, "side": n % 2, "name": f"{SIDES[n % 2]}-{n // 2 + 1}"} for n in numbers]
    with ExitStack() as stack:
        tm = stack.enter_context(sync.connect(broker.url))
        books = [stack.enter_context(closing(book_of(side, broker.log.parent))) for side in SIDES]
        made = [book.intend(values[number::2]) for number, book in enumerate(books)]
        tm.publish_many("numbers", values)
        for book, some in zip(books, made, strict=True):
            for each in some:
                book.settle(each, None)


def book_of(side: str, directory: Path) -> PublisherLedger:
    return PublisherLedger(ledger_of(side, directory), side, "main", "copies")


def ledger_of(side: str, directory: Path) -> Path:
    return directory / f"{side}.publisher.jsonl"


def assert_copied_once(harness: ProcessHarness, reader: ManagedSubscriber, batches: int) -> None:
    owed = [ledger_of(side, harness.directory) for side in SIDES]
    assert_exact(audit(owed, [reader.ledger]), batches * BATCH_EVENTS)


def copied(harness: ProcessHarness, batches: int) -> tuple[ManagedBroker, ManagedSubscriber]:
    """A broker with numbers for so many batches, and a subscriber to their copies."""
    broker = started(harness, **{"retention.archive": "true"})
    with sync.connect(broker.url) as tm:
        for topic in ("numbers", "copies"):
            tm.create_topic(topic, SCHEMA)
    reader = harness.subscriber("reader", broker.url, "", "--topic", "copies")
    harness.subscribe()
    publish(broker, range(batches * BATCH_EVENTS))
    return broker, reader


def wait_for_copies(reader: ManagedSubscriber, batches: int, of: Query) -> None:
    def is_done() -> bool:
        assert of.is_running, of.last_line
        return reader.consumed >= batches * BATCH_EVENTS

    eventually(is_done, lambda: f"only {reader.consumed} copies: {of.last_line}")


def test_a_driver_an_executor_and_the_broker_that_are_killed_lose_and_repeat_nothing(
    harness: ProcessHarness, tmp_path: Path
) -> None:
    broker, reader = copied(harness, 4)
    with query("local[2,4]", broker, tmp_path) as first:
        wait_for_copies(reader, 1, first)
        first.kill()
        # In the middle of some batch: there are more to come.
        assert reader.consumed < 4 * BATCH_EVENTS
    # The next life goes on from the checkpoint, on another engine.
    with local_cluster() as master, query(master, broker, tmp_path) as second:
        wait_for_copies(reader, 2, second)
        before = second.executors()
        assert before, "there are no executors on this cluster"
        os.kill(before[0], signal.SIGKILL)
        wait_for_copies(reader, 3, second)
        assert before[0] not in second.executors()
        broker.kill()
        broker.start()
        publish(broker, range(4 * BATCH_EVENTS, 5 * BATCH_EVENTS))
        wait_for_copies(reader, 5, second)
    assert_copied_once(harness, reader, 5)
