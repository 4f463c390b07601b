"""SIGKILL of broker, pipeline and subscriber in the middle of deep catch-up, judged by ledgers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.ledger_checks import assert_audit_is_exact, assert_exact, started
from tests.ports import free_ports
from tidemark import sync
from tidemark.lab.processes.process_harness import ManagedProcess, ProcessHarness, wait_for

pytestmark = pytest.mark.chaos

EVENTS = 3_000
#: A subscriber that stood still gets one or two answers of up to 2 MiB in one piece afterwards. The second
#: half of the events, 6 MB, is therefore never consumed in one step.
PADDING = 4_000
#: Deliveries are small, so that there is a middle to die in.
SMALL = ("--window", "32768")


class PipelinePart(ManagedProcess):
    """The process that archives and gives back."""

    def __init__(self, url: str, directory: Path) -> None:
        told = ["--path", str(directory / "archive"), "--broker", url, "--interval", "100ms", "--log", "info"]
        super().__init__("pipeline", told, directory / "pipeline.log")

    def start(self, *more: str) -> None:
        assert not self.is_running
        command = [sys.executable, "-m", "tidemark", "pipeline", "archive", *self.arguments, *more]
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)


@pytest.mark.spark
def test_deep_catch_up_survives_the_death_of_everybody_in_it(spark: Any, harness: ProcessHarness) -> None:
    little = {"retention__archive": "true", "retention__max_bytes": "64KiB", "storage__segment": "64KiB"}
    broker = started(harness, **little)
    pipeline = PipelinePart(broker.url, harness.directory)
    try:
        every = harness.subscriber("all", broker.url, "", *SMALL)
        cheap = harness.subscriber("cheap", broker.url, "price < 50", *SMALL)
        acme = harness.subscriber("acme", broker.url, "symbol = 'ACME' AND qty > 100", *SMALL)
        harness.subscribe()
        for part in harness.subscribers:
            part.stop()
        pipeline.start()
        publisher = harness.publisher("desk", broker.url, EVENTS, "--padding", str(PADDING))
        publisher.start()
        assert publisher.wait() == 0
        with sync.connect(broker.url) as tm:
            # A pubend that holds little has let go what three are away from: only the archive has it.
            wait_for(lambda: held(tm) < EVENTS * PADDING // 10, lambda: f"{held(tm)} bytes are held")
        pipeline.kill()
        # Whoever dies does so while these two stand still in the middle of what they were away from.
        middles = [EVENTS // 5, EVENTS // 4, EVENTS // 3, EVENTS // 2]
        every.start("--pause", ",".join(map(str, middles)))
        cheap.start("--pause", str(EVENTS // 10))
        acme.start()
        pipeline.start()
        wait_for(lambda: cheap.is_paused, lambda: "nothing comes")
        for consumed, victim in zip(middles, (pipeline, broker, cheap, pipeline), strict=True):
            wait_for(lambda n=consumed: every.is_paused and every.consumed >= n, lambda: "nothing comes")  # type: ignore[misc]
            assert every.consumed < EVENTS
            victim.kill()
            victim.start()
            every.resume()
        assert_exact(harness.settled(), EVENTS)
        # It says so when it is through with all of them, and they may have got theirs just before.
        wait_for(lambda: "gave back" in pipeline.log.read_text(), lambda: "the archive gave nothing back")
        assert_audit_is_exact(spark, harness.directory, EVENTS)
    finally:
        pipeline.end()


def test_a_subscriber_at_a_broker_without_pubends_is_healed_from_the_archive(harness: ProcessHarness) -> None:
    root, leaf = (f"127.0.0.1:{port}" for port in free_ports(2))
    file = harness.directory / "topology.toml"
    file.write_text(
        f"""
        [thresholds]
        heartbeat = "20ms"
        [limits]
        window = "64KiB"
        [storage]
        segment = "64KiB"
        [retention]
        archive = true
        max_bytes = "64KiB"
        [http]
        listen = ""
        [brokers.root]
        listen = "{root}"
        pubends = ["main"]
        data_dir = "{harness.directory / "root"}"
        [brokers.leaf]
        listen = "{leaf}"
        parent = "root"
        data_dir = "{harness.directory / "leaf"}"
        """
    )
    for name in ("root", "leaf"):
        harness.placed_broker(name, file).start()
    home, away = f"tidemark://{root}", f"tidemark://{leaf}"
    pipeline = PipelinePart(home, harness.directory)
    try:
        every = harness.subscriber("all", away)
        harness.subscriber("acme", away, "symbol = 'ACME'")
        harness.subscribe()
        for part in harness.subscribers:
            part.stop()
        pipeline.start("--broker", away)
        publisher = harness.publisher("desk", home, EVENTS, "--padding", str(PADDING))
        publisher.start()
        assert publisher.wait() == 0
        with sync.connect(home) as tm:
            wait_for(lambda: held(tm) < EVENTS * PADDING // 10, lambda: f"{held(tm)} bytes are held")
        harness.subscribe()
        assert_exact(harness.settled(), EVENTS)
        assert every.consumed == EVENTS
        wait_for(lambda: "gave back" in pipeline.log.read_text(), lambda: "the archive gave nothing back")
    finally:
        pipeline.end()


def held(tm: sync.Client) -> int:
    """Bytes that the pubend has on its disk."""
    return int(tm.ask("pubends")[0]["bytes"])
