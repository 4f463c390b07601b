"""Workers behind one address: acceptor and workers are killed, and clients notice nothing but a pause."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.ledger_checks import assert_exact
from tests.cli.live_broker import Spoken
from tests.ports import free_ports
from tests.waiting import eventually
from tidemark import sync
from tidemark.errors import NotConnectedError
from tidemark.lab.processes.process_harness import ProcessHarness, wait_for
from tidemark.node.workers.layout import FIRST_PORT, PORT_STEP
from tidemark.wire import rendezvous

pytestmark = pytest.mark.chaos

EVENTS = 900
WORKERS = ("worker-1", "worker-2")
ACCEPTOR = "tidemark.node.workers.acceptor"
PUBENDS = ("--pubends", ",".join(WORKERS))


class Workers:
    """`tidemark up --workers 2`."""

    def __init__(self, path: Path) -> None:
        tries = (free_ports(PORT_STEP + 2) for _ in range(100))
        port = next(ports[0] for ports in tries if ports[-1] - ports[0] == PORT_STEP + 1)
        self.spoken = Spoken(
            "up", "--workers", "2", "--no-pipeline", "--json", "--console", "", "--listen",
            f"127.0.0.1:{port}", "--data-dir", str(path / "data"), "--set", "thresholds.save=20ms",
        )  # fmt: skip
        self.own_ports = [
            each["url"].rpartition(":")[2] for each in json.loads(self.spoken.line())["brokers"]
        ]
        assert self.own_ports == [str(port + FIRST_PORT), str(port + PORT_STEP)]
        self.url = json.loads(self.spoken.line())["url"]
        assert self.url == f"tidemark://127.0.0.1:{port}"

    def pid_of(self, what: str) -> int | None:
        """The process whose command line has this word; None while there is none."""
        for child in Path(f"/proc/{self.spoken.process.pid}/task").glob("*/children"):
            for pid in child.read_text().split():
                command = Path(f"/proc/{pid}/cmdline")
                if command.exists() and what.encode() in command.read_bytes().split(b"\0"):
                    return int(pid)
        return None

    def kill(self, what: str) -> None:
        """Kill a process, and wait for the one that takes its place."""
        before = self.pid_of(what)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        eventually(lambda: self.pid_of(what) not in (None, before))

    def is_up(self) -> bool:
        try:
            for port in self.own_ports:
                with sync.connect(f"tidemark://127.0.0.1:{port}") as tm:
                    if not all(each["is_up"] for each in tm.ask("links")):
                        return False
        except NotConnectedError:
            return False
        return True


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path)
    eventually(made.is_up)
    yield made
    if made.spoken.process.poll() is None:
        made.spoken.process.terminate()
        assert made.spoken.close() == 0


def named(worker: str, begin: str) -> str:
    """A name that leads to this worker."""
    return next(name for n in range(99) if rendezvous.chosen(name := f"{begin}-{n}", WORKERS) == worker)


def test_whoever_is_killed_behind_the_one_address_nothing_is_lost_or_repeated(
    workers: Workers, harness: ProcessHarness
) -> None:
    every = harness.subscriber("all", workers.url, "", *PUBENDS)
    harness.subscriber("cheap", workers.url, "price < 30", *PUBENDS)
    harness.subscribe()
    publishers = [
        harness.publisher(
            named(worker, "desk"), workers.url, EVENTS // 2, "--rate", "300", "--pubend", worker
        )
        for worker in WORKERS
    ]
    for publisher in publishers:
        publisher.start()
    for part, what in enumerate((ACCEPTOR, *WORKERS), 1):
        wait_for(lambda n=part: every.consumed >= n * EVENTS // 5, lambda: "nothing comes")  # type: ignore[misc]
        workers.kill(what)
    assert [publisher.wait() for publisher in publishers] == [0, 0]
    assert_exact(harness.settled(), EVENTS)


def test_a_program_that_comes_under_another_name_finds_its_place_at_the_worker_that_keeps_it(
    workers: Workers,
) -> None:
    home, other = (named(worker, "program") for worker in WORKERS)
    with sync.connect(workers.url, client=home) as tm:
        assert tm.broker == WORKERS[0]
        tm.create_topic("t", "[n: int]")
        with tm.subscribe("t", durable="audit", start="earliest") as sub:
            tm.publish("t", {"n": 1})
            assert next(iter(sub))["n"] == 1
        tm.publish("t", {"n": 2})
    with sync.connect(workers.url, client=other) as tm:
        assert tm.broker == WORKERS[1]
        with tm.subscribe("t", durable="audit", start="earliest") as sub:
            assert tm.broker == WORKERS[0]
            assert next(iter(sub))["n"] == 2
    # With another subscription, whose place is at the other worker, both are at one worker in the end.
    with sync.connect(workers.url, client=named(WORKERS[1], "second")) as tm:
        with tm.subscribe("t", durable="second"):
            assert tm.broker == WORKERS[1]
        with tm.subscribe("t", durable="second") as one, tm.subscribe("t", durable="audit") as two:
            tm.publish("t", {"n": 3})
            assert [next(iter(each))["n"] for each in (one, two)] == [3, 3]
    with sync.connect(workers.url, client=home) as tm:
        tm.unsubscribe("second")
    # All processes end with the one that has started them, also if that is killed.
    pids = [workers.pid_of(what) for what in (ACCEPTOR, *WORKERS)]
    workers.spoken.process.kill()
    workers.spoken.close()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
