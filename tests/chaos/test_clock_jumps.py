"""A broker whose clock jumps an hour either way, while it runs and while it is down."""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep, time_ns

import pytest

from tests.chaos.ledger_checks import assert_exact
from tidemark.lab.processes.ledger import read
from tidemark.lab.processes.process_harness import ManagedBroker, ProcessHarness

pytestmark = pytest.mark.chaos

EVENTS = 400
#: Where distributions put it; LIBFAKETIME names it elsewhere.
PLACES = ("/usr/lib*/faketime", "/usr/lib/*/faketime", "/usr/local/lib/faketime")
LIBRARY = "libfaketimeMT.so.1"
#: The library looks every second whether the time has changed; each time it is asked would cost too much.
NOTICED_SECONDS = 1.5


def faketime() -> str:
    """The library that changes what the time is for a process."""
    given = os.environ.get("LIBFAKETIME")
    found = [str(path) for place in PLACES for path in Path("/").glob(f"{place[1:]}/{LIBRARY}")]
    if given is None and not found:
        pytest.skip("libfaketime is not installed: apt-get install libfaketime, or set LIBFAKETIME")
    return given or found[0]


def test_ticks_and_order_survive_a_clock_that_jumps_an_hour_either_way(
    harness: ProcessHarness, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0")
    broker = harness.broker()
    broker.environment = {
        **os.environ,
        "LD_PRELOAD": faketime(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        # Only the wall clock jumps: the system promises that the other one never does.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    broker.start()
    harness.subscriber("all", broker.url)
    harness.subscriber("cheap", broker.url, "price < 40")
    harness.subscribe()
    ahead = published(harness, broker, clock, "+3600")
    behind = published(harness, broker, clock, "-3600")
    broker.kill()
    clock.write_text("-7200")
    broker.start()
    restarted = published(harness, broker, clock, "-7200")
    assert_exact(harness.settled(), 3 * EVENTS)
    # The clock did jump, and what came after it stays behind what came before.
    assert time_ns() // 1_000 + 3_000_000_000 < min(ahead) < max(ahead) < min(behind)
    assert max(behind) < min(restarted)


def published(harness: ProcessHarness, broker: ManagedBroker, clock: Path, jump: str) -> list[int]:
    """The ticks of what is published after the clock has jumped."""
    clock.write_text(jump)
    sleep(NOTICED_SECONDS)
    publisher = harness.publisher(f"desk-{len(harness.publishers)}", broker.url, EVENTS)
    publisher.start()
    assert publisher.wait() == 0
    return [line["tick"] for line in read(publisher.ledger) if line.get("tick") is not None]
