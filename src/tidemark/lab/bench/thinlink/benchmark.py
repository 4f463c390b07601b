"""A durable subscriber returns over a thin link to its history, while a live subscriber uses the same link.

Two real brokers stand in two network namespaces that are joined by one link of 1 Mbit. The pubend and the
durable subscription are at the near broker; the subscriber returns at the far one, which has nothing of its
history. Measured are how much of the line the history uses, how many bytes cross the line for each byte of
history, how late live events are meanwhile, and how often the brokers take the link for dead.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import mkdtemp
from typing import Any

from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.thinlink.client_process import LAST_SECONDS_MAX
from tidemark.lab.bench.thinlink.namespaces import FAR_HOST, NEAR_HOST, ThinNetwork, problem
from tidemark.lab.processes.broker_start import listening_address, set_arguments, wait_until
from tidemark.wire.answers import LinkStatus

PORT = 7676
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.05
TEXT_BYTES = 1_000
TOPOLOGY = f"""
[brokers.near]
listen = "{NEAR_HOST}:{PORT}"
pubends = ["main"]
[brokers.far]
listen = "{FAR_HOST}:{PORT}"
parent = "near"
"""
NOTES = (
    "share: bytes of the events' texts a second, of what the line carries with all its headers",
    "sent: bytes that the near side put on the line, live events, headers and repetitions included",
)


@dataclass(frozen=True, slots=True)
class ThinEffort:
    """How much is measured."""

    bits_per_second: int
    events: int
    live_events_a_second: float
    #: how long the history may take
    seconds_max: float


FULL = ThinEffort(1_000_000, 2_500, 20.0, 180.0)
QUICK = ThinEffort(1_000_000, 500, 20.0, 60.0)


def sections(effort: ThinEffort) -> Iterator[Section]:
    """Yields the one section; AssertionError when a subscriber got anything but its events."""
    reason = problem()
    if reason is not None:
        yield Section(f"skipped: {reason}", ())
        return
    megabytes = effort.events * TEXT_BYTES / 1e6
    title = f"{megabytes:.1f} MB of history over {effort.bits_per_second / 1e6:g} Mbit"
    yield Section(title, _measured(effort), notes=NOTES)


def _measured(effort: ThinEffort) -> list[Measurement]:
    with ThinBed(effort.bits_per_second) as bed:
        near, far = bed.network.near, bed.network.far
        bed.start_brokers()
        at_near, at_far = f"tidemark://{NEAR_HOST}:{PORT}", f"tidemark://{FAR_HOST}:{PORT}"
        token = bed.run(near, "hold", url=at_near)["token"]
        bed.run(near, "publish_history", url=at_near, events=effort.events, text_bytes=TEXT_BYTES)
        live = bed.client(far, "take_live", url=at_far)
        bed.wait_ready(live)
        publisher = bed.client(near, "publish_live", url=at_near, rate=effort.live_events_a_second)
        before = bed.network.sent_bytes(near)
        history = bed.run(
            far, "take_history", url=at_far, token=token, events=effort.events, seconds=effort.seconds_max
        )
        sent = bed.network.sent_bytes(near) - before
        deaths = bed.link_deaths()
        published = bed.stop(publisher)["published"]
        lateness = bed.stop(live)
    for found in (history, lateness):
        assert not found["wrong"], found["wrong"]
    late, case = lateness["late"], "history and live events"
    share = 8 * history["bytes"] / history["seconds"] / effort.bits_per_second
    p99 = quantiles(late, n=100)[98] if len(late) > 1 else float("inf")
    return [
        Measurement(case, "history that arrived", history["got"] / effort.events, "", Goal(">=", 1.0)),
        Measurement(case, "share of the line", share, "", Goal(">=", 0.85)),
        Measurement(case, "history took", history["seconds"], "s"),
        Measurement(case, "sent for a byte", sent / max(history["bytes"], 1), "B", Goal("<=", 1.3)),
        Measurement(case, "live events late, p99", p99, "s", Goal("<", 1.0)),
        Measurement(case, "live events that arrived", len(late) / max(published, 1), ""),
        Measurement(case, "deaths of the link", deaths, "", Goal("=", 0)),
    ]


class ThinBed:
    """The network, the two brokers and the clients of one run; all of it ends with the block."""

    def __init__(self, bits_per_second: int) -> None:
        self.network = ThinNetwork(bits_per_second)
        self._directory = Path(mkdtemp(prefix="tidemark-thinlink-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> ThinBed:
        self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        self._stack.enter_context(self.network)
        self._stack.callback(self._end_processes)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_brokers(self) -> None:
        """Start both brokers, and wait until they are linked."""
        file = self._directory / "overlay.toml"
        file.write_text(TOPOLOGY)
        for name, namespace in (("near", self.network.near), ("far", self.network.far)):
            settings = {
                "broker.topology": str(file),
                "broker.name": name,
                "storage.data_dir": str(self._directory / name),
                "http.listen": "",
                # The two networks are of this benchmark alone.
                "security.allow_open_network": "true",
                "log.format": "json",
            }
            module = "tidemark.lab.bench.processes.broker_process"
            self._start(namespace, self._said(name), module, *set_arguments(settings))
        for name in ("near", "far"):
            assert self._wait(partial(self._listens, name)), f"{name} does not start: {self.said(name)}"
        assert self._wait(self._is_linked), f"the link does not come up: {self.said('far')}"

    def client(self, namespace: str, role: str, **arguments: Any) -> subprocess.Popen[bytes]:
        """Start a client in a namespace."""
        module = "tidemark.lab.bench.thinlink.client_process"
        return self._start(namespace, self._said(role), module, role, json.dumps(arguments))

    def run(self, namespace: str, role: str, **arguments: Any) -> Any:
        """Start a client in a namespace, wait for its end, and return what it found."""
        client = self.client(namespace, role, **arguments)
        assert client.stdout is not None
        return self._found(client, client.stdout.read())

    def stop(self, client: subprocess.Popen[bytes], tell: str = "") -> Any:
        """Tell a client something on its standard input, end that, and return what the client found."""
        out, _ = client.communicate(tell.encode(), timeout=STOP_SECONDS_MAX + LAST_SECONDS_MAX)
        return self._found(client, out)

    def wait_ready(self, client: subprocess.Popen[bytes]) -> None:
        """Wait for the first line that a client prints."""
        assert client.stdout is not None
        assert client.stdout.readline(), f"a client has failed: {self.said('take_live')}"

    def link_deaths(self) -> int:
        """Return how often the far broker has lost its link since it started."""
        condition = self._link().condition
        assert condition is not None, "the far broker is of this version"
        return condition.deaths

    def said(self, name: str) -> str:
        """Return the end of what a process has written to its log."""
        return self._said(name).read_text(errors="replace")[-500:]

    def _is_linked(self) -> bool:
        return self._link().is_up

    def _link(self) -> LinkStatus:
        (link,) = self.run(self.network.far, "ask_links", url=f"tidemark://{FAR_HOST}:{PORT}")["links"]
        return LinkStatus.from_json(link)

    def _said(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _listens(self, name: str) -> bool:
        return listening_address(self._said(name).read_bytes()) is not None

    def _wait(self, condition: Callable[[], bool]) -> bool:
        return wait_until(condition, READY_SECONDS_MAX, POLL_SECONDS)

    def _start(self, namespace: str, said: Path, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = self.network.command(namespace, sys.executable, "-m", module, *arguments)
        with said.open("ab") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        self._processes.append(process)
        return process

    def _found(self, client: subprocess.Popen[bytes], out: bytes) -> Any:
        lines = out.splitlines()
        assert client.wait() == 0, f"a client has failed: {client.args!r}"
        assert lines, f"a client has said nothing: {client.args!r}"
        return json.loads(lines[-1])

    def _end_processes(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None and not stream.closed:
                    stream.close()
            process.wait()
