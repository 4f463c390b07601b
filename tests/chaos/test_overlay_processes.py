"""An overlay of real processes: a relay killed under load, brokers added and removed, judged by ledgers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.chaos.ledger_checks import assert_exact
from tests.ports import free_ports
from tidemark import sync
from tidemark.cli import main
from tidemark.lab.processes.client_processes import TOPIC
from tidemark.lab.processes.ledger import read
from tidemark.lab.processes.process_harness import (
    PATIENCE_SECONDS,
    ManagedBroker,
    ManagedPublisher,
    ProcessHarness,
    wait_for,
)
from tidemark.wire.limits import LINK_NEWEST

pytestmark = pytest.mark.chaos

CELLS = {"east": ("e1",), "middle": ("m1", "m2"), "west": ("w1", "w2")}
BUNDLES = '[bundles.em]\ncells = ["east", "middle"]\n[bundles.mw]\ncells = ["west", "middle"]\n'
#: A machine that bears it may be told to do more.
RATE = int(os.environ.get("TIDEMARK_TEST_RATE", "500"))
SECONDS = 3
#: The version of the protocol between brokers that is spoken where nothing else is set.
NEW = LINK_NEWEST


class Overlay:
    """Three cells of one or two brokers each, a process for each broker; the pubend is at e1."""

    def __init__(self, harness: ProcessHarness) -> None:
        self.harness = harness
        self.ports = dict(zip(("e1", "m1", "m2", "m3", "w1", "w2"), free_ports(6), strict=True))
        self.file = harness.directory / "overlay.toml"
        self.write(self.file, CELLS)
        self.parts: dict[str, ManagedBroker] = {}

    def write(self, file: Path, cells: Mapping[str, tuple[str, ...]]) -> None:
        tables = [
            f'[brokers.{broker}]\ncell = "{cell}"\nlisten = "127.0.0.1:{self.ports[broker]}"\n'
            + ('pubends = ["main"]\n' if broker == "e1" else "")
            for cell, brokers in cells.items()
            for broker in brokers
        ]
        file.write_text("".join(tables) + BUNDLES)

    def start(self) -> None:
        for name in chain.from_iterable(CELLS.values()):
            self.parts[name] = self.harness.placed_broker(name, self.file)
            self.parts[name].start()
        wait_for(self.is_linked, lambda: "the links do not come up")

    def is_linked(self) -> bool:
        return all(link["is_up"] for name in self.parts for link in self.ask(name, "links"))

    def url(self, name: str) -> str:
        return f"tidemark://127.0.0.1:{self.ports[name]}"

    def ask(self, name: str, what: str) -> Any:
        with sync.connect(self.url(name)) as tm:
            return tm.ask(what)

    def relay(self) -> str:
        """The broker of the middle by which events come to the west."""
        found: set[str] = set()

        def is_one() -> bool:
            found.clear()
            found.update(route["upstream"] for name in ("w1", "w2") for route in self.ask(name, "routes"))
            found.intersection_update(("m1", "m2", "m3"))
            return len(found) == 1

        wait_for(is_one, lambda: f"events come to the west by {found}")
        return found.pop()


def achieved(ledger: Path) -> float:
    """Events a second that a publisher had acknowledged."""
    ticks: list[int] = [line["tick"] for line in read(ledger) if line.get("tick") is not None]
    return 1e6 * len(ticks) / (max(ticks) - min(ticks))


class Watch:
    """Writes down when events arrive, for how long they are missing."""

    def __init__(self, url: str) -> None:
        self.times: list[float] = []
        self._client = sync.connect(url)
        self._subscription = self._client.subscribe(TOPIC)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for _ in self._subscription.batches():
            self.times.append(time.monotonic())

    def longest_gap(self, since: float) -> float:
        """The longest time without events that ended after `since`, in seconds."""
        times = [at for at in list(self.times) if at > since - 1]
        return max((b - a for a, b in pairwise(times) if b > since), default=float("inf"))

    def close(self) -> None:
        self._subscription.close()
        self._thread.join(PATIENCE_SECONDS)
        self._client.close()


def published(harness: ProcessHarness, overlay: Overlay, name: str, events: int) -> list[ManagedPublisher]:
    """Two publishers that share the load, started."""
    desks = [
        harness.publisher(f"{name}-{at}", overlay.url("e1"), events // 2, "--rate", str(RATE // 2))
        for at in (1, 2)
    ]
    for desk in desks:
        desk.start()
    return desks


def test_a_relay_that_is_killed_under_load_is_routed_around_and_nothing_is_lost(
    harness: ProcessHarness,
) -> None:
    overlay = Overlay(harness)
    overlay.start()
    events = RATE * SECONDS
    harness.subscriber("all", overlay.url("w1"))
    harness.subscriber("cheap", overlay.url("w2"), "price < 30")
    harness.subscribe()
    watch = Watch(overlay.url("w2"))
    desks = published(harness, overlay, "desk", events)
    desks[1].reached(events // 8)
    relay = overlay.relay()
    killed = time.monotonic()
    overlay.parts[relay].kill()
    assert [desk.wait() for desk in desks] == [0, 0]
    wait_for(lambda: overlay.relay() != relay, lambda: f"{relay} was killed, and is not routed around")
    rate = sum(achieved(desk.ledger) for desk in desks)
    print(f"\n{rate:,.0f} events/s: nothing for {watch.longest_gap(killed):.3f} s after {relay} was killed")
    overlay.parts[relay].start()
    wait_for(overlay.is_linked, lambda: f"{relay} does not come back")
    # A broker that hangs is as good as dead, and is found out by its silence.
    desks = published(harness, overlay, "again", events // 2)
    desks[1].reached(events // 16)
    hung = time.monotonic()
    overlay.parts[overlay.relay()].pause()
    assert [desk.wait() for desk in desks] == [0, 0]
    found = harness.settled()
    rate = sum(achieved(desk.ledger) for desk in desks)
    print(f"{rate:,.0f} events/s: nothing for {watch.longest_gap(hung):.3f} s after another one hung")
    watch.close()
    assert_exact(found, events + events // 2)


def test_an_overlay_is_upgraded_broker_by_broker_under_load_and_nothing_is_lost_or_repeated(
    harness: ProcessHarness,
) -> None:
    """The brokers speak the version before at first, and refuse what that version does not have."""
    overlay = Overlay(harness)
    names = ("e1", "m1", "w1")
    overlay.write(overlay.file, {"east": ("e1",), "middle": ("m1",), "west": ("w1",)})
    for name in names:
        overlay.parts[name] = harness.placed_broker(name, overlay.file)
        overlay.parts[name].start("--set", "links.version=3")
    wait_for(overlay.is_linked, lambda: "the links do not come up")
    events = RATE * SECONDS
    harness.subscriber("all", overlay.url("w1"))
    harness.subscriber("cheap", overlay.url("m1"), "price < 30")
    harness.subscribe()
    desks = published(harness, overlay, "desk", events)
    for at, (name, spoken) in enumerate((("m1", [3, 3]), ("e1", [3, NEW]), ("w1", [NEW, NEW]))):
        desks[1].reached((at + 1) * events // 10)
        assert overlay.parts[name].stop() == 0
        overlay.parts[name].start()
        wait_for(overlay.is_linked, lambda name=name: f"{name} does not come back")  # type: ignore[misc]
        assert sorted(link["version"] for link in overlay.ask("m1", "links")) == spoken
    assert [desk.wait() for desk in desks] == [0, 0]
    found = harness.settled()
    assert not any(b"a broker does not say" in overlay.parts[each].log.read_bytes() for each in names)
    assert_exact(found, events)


def test_brokers_are_added_and_removed_under_load_and_nothing_is_lost(harness: ProcessHarness) -> None:
    overlay = Overlay(harness)
    overlay.start()
    events = RATE * SECONDS
    harness.subscriber("all", overlay.url("w1"))
    harness.subscribe()
    publisher = harness.publisher("desk", overlay.url("e1"), events, "--rate", str(RATE))
    publisher.start()
    publisher.reached(events // 10)
    relay = overlay.relay()
    wanted = harness.directory / "wanted.toml"
    middle = ("m3", *(each for each in CELLS["middle"] if each != relay))
    overlay.write(wanted, {**CELLS, "middle": middle})
    added = overlay.parts["m3"] = harness.placed_broker("m3", wanted)
    command = [sys.executable, "-c", "from tidemark.cli import main; main()"]
    applying = subprocess.Popen(
        [*command, "topology", "apply", str(wanted), "--yes"], stdout=subprocess.PIPE, text=True
    )
    assert applying.stdout is not None
    said = ""
    while "start it:" not in said:
        line = applying.stdout.readline()
        assert line, said
        said += line
    added.start()
    said += applying.communicate(timeout=PATIENCE_SECONDS)[0]
    assert applying.returncode == 0, said
    removed = overlay.parts.pop(relay)
    assert removed.wait() == 0
    wait_for(overlay.is_linked, lambda: "the links of the new broker do not come up")
    wait_for(lambda: overlay.relay() in middle, lambda: "events do not come by those that stay")
    assert publisher.wait() == 0
    assert_exact(harness.settled(), events)
    planned = CliRunner().invoke(main, ["topology", "plan", str(wanted)])
    assert planned.exit_code == 0, planned.output
