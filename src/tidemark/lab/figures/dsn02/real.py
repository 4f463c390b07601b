"""The experiments of DSN'02 on real processes; they write the same tables as in the simulator."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep, time
from typing import Any, TypeVar

from tidemark.client.client import Client, connect
from tidemark.client.events import Batch, Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.lab.bench.processes.harness import DIRECTORY
from tidemark.lab.figures.dsn02 import figures as dsn02
from tidemark.lab.figures.dsn02.observed_broker import DOWN, STALLED, link_file, nacks_file
from tidemark.lab.figures.dsn02.overlay import HOSTS, LATENCY, NACKS, PUBENDS, RELAYS
from tidemark.lab.figures.real_overlay import PATIENCE_SECONDS, PAYLOAD, TOPIC, TURN_SECONDS
from tidemark.lab.figures.table import Table
from tidemark.lab.processes.broker_start import free_port
from tidemark.lab.processes.process_harness import ManagedBroker, ProcessHarness

METHOD = """
The paper's overlay as in the simulator, with a process for each of the eight brokers and one for all clients,
all on one machine. A broker that stands still gets SIGSTOP, one that crashes SIGKILL. On a link that is
stalled both ends drop what they would send and what comes; signs of life do not pass either, so that the
brokers notice it by themselves, mostly before the link is closed. Brokers write down what they nack. What
subscribers got was checked: every event once and in order.
"""
SCHEMA = "[n: long, sent: double, payload: bytes]"
WARM_SECONDS = 2.0
_T = TypeVar("_T")


class RealFailures:
    """A `FailingOverlay` of real processes, in a `with`; the clients run on a thread of their own."""

    def __init__(self, events_a_second: float, hosts: Sequence[str] = HOSTS) -> None:
        self.latency = Table(LATENCY, ("published_s", "host", "pubend", "latency_ms"))
        self.nacks = Table(NACKS, ("time_s", "broker", "to", "pubend", "base_ms", "range_ms"))
        self._rate = events_a_second / len(PUBENDS)
        self._hosts = tuple(hosts)
        self._start = time()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="clients", daemon=True)
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        #: pubend -> number of events published; (host, pubend) -> number of events received
        self.published = dict.fromkeys(PUBENDS, 0)
        self._received: dict[tuple[str, str], int] = {}
        self._is_publishing = True

    def __enter__(self) -> RealFailures:
        self._directory = TemporaryDirectory(
            prefix="tidemark-lab-", dir=os.environ.get(DIRECTORY, "."), ignore_cleanup_errors=True
        )
        self._place = Path(self._directory.name).absolute()
        self._harness = ProcessHarness(self._place)
        topology = self._place / "overlay.toml"
        topology.write_text(self._topology())
        self._brokers = {name: self._placed(name, topology) for name in ("p1", *RELAYS, *self._hosts)}
        self._thread.start()
        for broker in self._brokers.values():
            broker.start()
        self._call(self._populate())
        self._start = time()
        self.run(WARM_SECONDS)
        return self

    def _placed(self, name: str, topology: Path) -> ManagedBroker:
        broker = self._harness.placed_broker(name, topology)
        broker.module = "tidemark.lab.figures.dsn02.observed_broker"
        broker.arguments.insert(0, str(self._place))
        return broker

    def _topology(self) -> str:
        lines = ["[http]", 'listen = ""']
        cells = dict.fromkeys(RELAYS, "relays") | {each: each for each in ("p1", *self._hosts)}
        for broker, cell in cells.items():
            lines += [f"[brokers.{broker}]", f'cell = "{cell}"', f'listen = "127.0.0.1:{free_port()}"']
            if broker == "p1":
                lines.append(f"pubends = {json.dumps(PUBENDS)}")
        for each in ("p1", *self._hosts):
            lines += [f"[bundles.to-{each}]", f'cells = ["relays", "{each}"]']
        return "\n".join(lines) + "\n"

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._harness.__exit__(None, None, None)
        self._directory.cleanup()

    # Clients.

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _client(self, broker: str, **more: Any) -> Client:
        made = await connect(
            self._brokers[broker].url, timeout=PATIENCE_SECONDS, wait_for_broker=True, **more
        )
        self._clients.append(made)
        return made

    async def _populate(self) -> None:
        publishers = [(pubend, await self._client("p1", pubend=pubend)) for pubend in PUBENDS]
        await publishers[0][1].create_topic(TOPIC, SCHEMA)
        for host in self._hosts:
            client = await self._client(host, client=f"at-{host}")
            subscription = await client.subscribe(TOPIC, durable=f"at-{host}")
            self._tasks.append(asyncio.create_task(self._read(host, subscription)))
            while not set(PUBENDS) <= set(subscription.checkpoint):
                await asyncio.sleep(TURN_SECONDS)
        self._tasks += [asyncio.create_task(self._publish(*each)) for each in publishers]

    async def _publish(self, pubend: str, client: Client) -> None:
        due, under_way = time(), set[asyncio.Future[int | None]]()
        while self._is_publishing:
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - time()))
            if not self._brokers["p1"].is_running:
                due = time()
                continue
            event = {"n": self.published[pubend], "sent": time(), "payload": PAYLOAD}
            future = client.publish(TOPIC, event)
            under_way.add(future)
            future.add_done_callback(under_way.discard)
            self.published[pubend] += 1
        await asyncio.gather(*under_way)

    async def _read(self, host: str, subscription: Subscription[Event]) -> None:
        async for item in subscription.batches():
            self._take(host, item)

    def _take(self, host: str, item: Batch) -> None:
        now, key = time(), (host, item.pubend)
        for number, sent in zip(item.column("n").tolist(), item.column("sent").tolist(), strict=True):
            expected = self._received.get(key, 0)
            assert number == expected, f"{host} at {item.pubend}: {number} instead of {expected}"
            self._received[key] = number + 1
            self.latency.add(sent - self._start, host, item.pubend, (now - sent) * 1e3)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close(timeout=0)

    # A FailingOverlay.

    @property
    def now(self) -> float:
        """The time."""
        return time() - self._start

    def run(self, until: float) -> None:
        """Let time pass."""
        sleep(max(0.0, until - self.now))

    def stall_link(self, a: str, b: str) -> None:
        """Let nothing pass on a link."""
        link_file(self._place, a, b).write_text(STALLED)

    def fail_link(self, a: str, b: str) -> None:
        """Close the connection, and let no other be made."""
        link_file(self._place, a, b).write_text(DOWN)

    def mend_link(self, a: str, b: str) -> None:
        """Let the link work again."""
        link_file(self._place, a, b).unlink(missing_ok=True)

    def stall(self, broker: str, seconds: float) -> None:  # noqa: ARG002  (it crashes before they are over)
        """Send SIGSTOP."""
        self._brokers[broker].pause()

    def crash(self, broker: str) -> None:
        """Send SIGKILL."""
        self._brokers[broker].kill()

    def restart(self, broker: str) -> None:
        """Start the process again."""
        self._brokers[broker].start()

    def finish(self) -> None:
        """Check that everybody has got everything; AssertionError otherwise."""
        self._is_publishing = False
        self._call(self._finish())
        for name in self._brokers:
            path = nacks_file(self._place, name)
            for line in path.read_text().splitlines() if path.exists() else []:
                at, to, pubend, base, upto = json.loads(line)
                start = base / 1e3 - self._start * 1e3
                self.nacks.add(at - self._start, name, to, pubend, start, (upto - base) / 1e3)

    async def _finish(self) -> None:
        keys = [(host, pubend) for host in self._hosts for pubend in PUBENDS]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(self._received.get(key, 0) < self.published[key[1]] for key in keys):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(TURN_SECONDS)


def link(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 6."""
    effort = replace(dsn02.LINK, before=2, stalled=1, down=2, after=1) if quick else dsn02.LINK
    say(f"b1-s1 is stalled for {effort.stalled:g} seconds, then down")
    with RealFailures(effort.events_a_second) as world:
        return dsn02.link_fails(world, effort)


def relay(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 7."""
    effort = replace(dsn02.RELAY, stalled=1, down=2, after=2) if quick else replace(dsn02.RELAY, down=10)
    say(f"b1 is stalled for {effort.stalled:g} seconds, then down for {effort.down:g}")
    with RealFailures(effort.events_a_second) as world:
        return dsn02.relay_crashes(world, effort)


def publisher(quick: bool, say: Callable[[str], None]) -> Sequence[Table]:
    """Figure 8."""
    effort = (
        replace(dsn02.PUBLISHER, before=2, down=1, after=2) if quick else replace(dsn02.PUBLISHER, down=10)
    )
    say(f"p1 is down for {effort.down:g} seconds")
    with RealFailures(effort.events_a_second) as world:
        return dsn02.publisher_crashes(world, effort, RELAYS)
