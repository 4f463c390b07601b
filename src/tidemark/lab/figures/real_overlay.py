"""RealOverlay: broker processes, and their publishers and subscribers in this process.

One broker hosts all pubends; those that host the subscribers are linked to it. There may be none of these:
then the first one hosts the subscribers as well.

Every subscriber has a connection of its own, holds its token, and checks what it gets: the events of a pubend
are numbered, and a subscriber must get the ones it wants once and in order.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any

from tidemark.client.client import Client, connect
from tidemark.client.events import Batch, Event
from tidemark.client.subscribing.subscription import Subscription
from tidemark.errors import ClientError
from tidemark.lab.bench.processes.harness import DIRECTORY
from tidemark.lab.processes.broker_start import free_port
from tidemark.lab.processes.process_harness import ManagedBroker, ProcessHarness
from tidemark.ticks import CheckpointToken
from tidemark.wire.questions import Answered, Question

TOPIC = "lab.load"
SCHEMA = "[n: long, kind: string, payload: bytes]"
PAYLOAD = bytes(222)
KINDS = "abcd"
#: Seconds between the bursts of a publisher, and between acknowledgements of a subscriber.
TURN_SECONDS, ACK_SECONDS = 0.01, 0.1
ASK_SECONDS = 1.0
PATIENCE_SECONDS = 300.0


class LoadPublisher:
    """Publishes to one pubend at a rate until `stop`; event n has the kind n modulo 4."""

    def __init__(self, client: Client, rate: float) -> None:
        self._client = client
        self._rate = rate
        self.published = 0
        self._is_over = False

    async def run(self) -> None:
        """Publish until `stop`; returns when every event is acknowledged, and may be called again then."""
        loop, under_way = asyncio.get_running_loop(), set[asyncio.Future[int | None]]()
        begin, before = loop.time(), self.published
        while not self._is_over:
            while self.published - before < (loop.time() - begin) * self._rate:
                kind = KINDS[self.published % len(KINDS)]
                event = {"n": self.published, "kind": kind, "payload": PAYLOAD}
                future = self._client.publish(TOPIC, event)
                under_way.add(future)
                future.add_done_callback(under_way.discard)
                self.published += 1
            await asyncio.sleep(TURN_SECONDS)
        await asyncio.gather(*under_way)
        self._is_over = False

    def stop(self) -> None:
        """Publish no more events."""
        self._is_over = True


class LoadSubscriber:
    """A subscriber of one kind of event in all pubends; one that is not durable must not leave."""

    def __init__(
        self, name: str, kind: str, url: str, pubends: Sequence[str], *, is_durable: bool = True
    ) -> None:
        self._is_durable = is_durable
        self.name = name
        self.kind = kind
        self.url = url
        self._pubends = pubends
        self._token: CheckpointToken | None = None
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        #: pubend -> number of the last event; and pubend -> tick of the last event on this connection
        self.last = dict.fromkeys(pubends, KINDS.index(kind) - len(KINDS))
        #: events that it got in all its connections
        self.got = 0
        self._told: dict[str, int] = {}
        #: time of day at which it left; and (left, returned) while it has not caught up
        self._left = 0.0
        self._absence: tuple[float, float] | None = None
        self.caught_up: Callable[[str, float, float, float], None] = lambda *_: None

    @property
    def is_catching_up(self) -> bool:
        """Whether it was away and has not yet got everything up to its return."""
        return self._absence is not None

    async def come(self) -> None:
        """Connect and go on from the token."""
        if self._left:
            self._absence = self._left, time()
        self._told.clear()
        self._client = await connect(self.url, client=self.name, timeout=PATIENCE_SECONDS)
        where = f"kind = '{self.kind}'"
        if self._is_durable:
            made = self._client.subscribe(TOPIC, where, durable=self.name, checkpoint=self._token)
        else:
            made = self._client.subscribe(TOPIC, where)
        self._task = asyncio.create_task(self._read(await made))

    async def started(self) -> None:
        """Wait until the subscription has started in every pubend."""
        while self._token is None or not set(self._pubends) <= set(self._token):
            await asyncio.sleep(TURN_SECONDS)

    async def leave(self) -> None:
        """Disconnect; the token is kept."""
        self._left = time()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._client is not None:
            with suppress(ClientError):
                await self._client.close(timeout=0)

    async def _read(self, subscription: Subscription[Event]) -> None:
        loop = asyncio.get_running_loop()
        acknowledged = 0.0
        while not set(self._pubends) <= set(subscription.checkpoint):
            await asyncio.sleep(TURN_SECONDS)
        self._token = subscription.checkpoint
        async for item in subscription.batches():
            self._take(item)
            self._token = subscription.checkpoint
            if self._is_durable and loop.time() - acknowledged > ACK_SECONDS:
                acknowledged = loop.time()
                await subscription.ack(self._token)

    def _take(self, item: Batch) -> None:
        for number in item.column("n").tolist():
            expected = self.last[item.pubend] + len(KINDS)
            assert number == expected, f"{self.name} at {item.pubend}: {number} instead of {expected}"
            self.last[item.pubend] = number
        self.got += len(item)
        self._told[item.pubend] = int(item.ticks[-1])
        if self._absence is not None and len(self._told) == len(self._pubends):
            left, returned = self._absence
            if min(self._told.values()) >= returned * 1e6:
                self._absence = None
                self.caught_up(self.name, left, returned, time() - returned)

    def failure(self) -> BaseException | None:
        """Returns the exception that ended its reading, if there is one."""
        done = self._task is not None and self._task.done() and not self._task.cancelled()
        return self._task.exception() if done and self._task is not None else None


class RealOverlay:
    """The processes phb, which hosts publishers, and `hosts`, which host subscribers, in an `async with`."""

    def __init__(
        self,
        pubends: Sequence[str],
        hosts: Sequence[str] = ("shb",),
        launch: tuple[str, str] | None = None,
        *,
        is_chain: bool = False,
        **settings: str,
    ) -> None:
        """`settings` are settings of all brokers, as `storage__durability="os"`.

        `is_chain`: each of `hosts` is linked to the one before it, and only the first to phb.
        `launch`: the module that Python runs for a broker, and what it is told first.
        """
        self._launch = launch
        self._pubends = tuple(pubends)
        self._names = tuple(hosts)
        self._is_chain = is_chain
        self._settings = {name.replace("__", "."): value for name, value in settings.items()}
        self.publishers: list[LoadPublisher] = []
        self.subscribers: list[LoadSubscriber] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []

    async def __aenter__(self) -> RealOverlay:
        self._directory = TemporaryDirectory(
            prefix="tidemark-lab-", dir=os.environ.get(DIRECTORY, "."), ignore_cleanup_errors=True
        )
        directory = Path(self._directory.name)
        self._harness = ProcessHarness(directory)
        topology = directory / "overlay.toml"
        topology.write_text(self._topology())
        self.phb = self._harness.placed_broker("phb", topology)
        behind = [self._harness.placed_broker(name, topology) for name in self._names]
        #: the brokers that host subscribers, and the first of them
        self.hosts = behind or [self.phb]
        self.shb = self.hosts[0]
        self.brokers = [self.phb, *behind]
        for broker in self.brokers:
            if self._launch is not None:
                broker.module = self._launch[0]
                broker.arguments.insert(0, self._launch[1])
            for name, value in self._settings.items():
                broker.arguments += ["--set", f"{name}={value}"]
            await asyncio.to_thread(broker.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for subscriber in self.subscribers:
            await subscriber.leave()
        for client in self._clients:
            await client.close(timeout=0)
        await asyncio.to_thread(self._harness.__exit__, None, None, None)
        self._directory.cleanup()

    def _topology(self) -> str:
        names = ", ".join(f'"{name}"' for name in self._pubends)
        lines = ["[brokers.phb]", f'listen = "127.0.0.1:{free_port()}"', f"pubends = [{names}]"]
        parents = ("phb", *self._names) if self._is_chain else ["phb"] * len(self._names)
        for name, parent in zip(self._names, parents, strict=False):
            lines += [f"[brokers.{name}]", f'listen = "127.0.0.1:{free_port()}"', f'parent = "{parent}"']
        return "\n".join(lines) + "\n"

    async def client(self, broker: ManagedBroker, **more: Any) -> Client:
        """Returns a connected client that is closed at the end."""
        made = await connect(broker.url, timeout=PATIENCE_SECONDS, **more)
        self._clients.append(made)
        return made

    async def populate(self, subscribers: int, events_a_second: float, *, are_durable: bool = True) -> None:
        """Start the subscribers, in turn at each host, then a publisher at each pubend."""
        makers = [await self.client(self.phb, pubend=pubend) for pubend in self._pubends]
        await makers[0].create_topic(TOPIC, SCHEMA)
        for number in range(subscribers):
            host = self.hosts[number % len(self.hosts)]
            kind = KINDS[number // len(self.hosts) % len(KINDS)]
            self.subscribers.append(
                LoadSubscriber(f"s{number}", kind, host.url, self._pubends, is_durable=are_durable)
            )
        for subscriber in self.subscribers:
            await subscriber.come()
        async with asyncio.timeout(PATIENCE_SECONDS):
            for subscriber in self.subscribers:
                await subscriber.started()
        self.publishers = [LoadPublisher(each, events_a_second / len(makers)) for each in makers]
        self._tasks += [asyncio.create_task(each.run()) for each in self.publishers]

    def publish_again(self) -> None:
        """Publish at the same rate as before `finish`."""
        self._tasks = [asyncio.create_task(each.run()) for each in self.publishers]

    async def ask(self, client: Client, question: Question[Answered]) -> Answered | None:
        """Ask an administrator's question; returns None if the broker does not answer."""
        try:
            return await client.ask(question, timeout=ASK_SECONDS)
        except ClientError:
            return None

    async def finish(self) -> None:
        """Stop publishing; AssertionError unless every subscriber gets its events once and in order."""
        for publisher in self.publishers:
            publisher.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*self._tasks)
            while behind := [each for each in self.subscribers if not self._has_all(each)]:
                failures = [failure for each in self.subscribers if (failure := each.failure())]
                assert not failures, failures[0]
                assert behind
                await asyncio.sleep(TURN_SECONDS)

    def _has_all(self, subscriber: LoadSubscriber) -> bool:
        wanted = KINDS.index(subscriber.kind)
        return all(
            subscriber.last[pubend] + len(KINDS) >= _next_of(wanted, publisher.published)
            for pubend, publisher in zip(self._pubends, self.publishers, strict=True)
        )


def _next_of(kind: int, number: int) -> int:
    """Returns the number of the first event of a kind from `number` on."""
    return number + (kind - number) % len(KINDS)
