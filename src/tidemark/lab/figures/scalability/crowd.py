"""Crowd: one broker process with many subscribers of topics, and publishers at a steady rate.

The subscribers are connections that only count what they get; they are all in this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from tidemark.client.client import Client, connect
from tidemark.client.connecting.addresses import parse_url
from tidemark.lab.bench.processes.harness import DIRECTORY
from tidemark.lab.figures.real_overlay import PATIENCE_SECONDS, PAYLOAD
from tidemark.lab.figures.scalability.variant_broker import CUT_THROUGH, QUEUED_FILE, QUEUED_MOST, UVLOOP
from tidemark.lab.processes.process_harness import ProcessHarness
from tidemark.lab.processes.process_numbers import ProcessStat, cpu_seconds_exact
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import Connect, Deliver, Frame, Ping, Pong, Refused, Subscribe, Subscribed, Welcome
from tidemark.wire.limits import FRAME_BYTES_MAX

SCHEMA = "[n: long, payload: bytes]"
#: More credit than a subscriber can use up in an experiment.
CREDIT_BYTES = 1 << 30
#: Connections that introduce themselves at a time: a broker lets few strangers in.
AT_ONCE = 8
READ_BYTES = 256 << 10
#: Shared by all connections: the decoder copies what it has to keep.
_buffer = memoryview(bytearray(READ_BYTES))


class CountingSubscriber(asyncio.BufferedProtocol):
    """A subscriber of one topic that is not durable and counts its events."""

    def __init__(self, name: str, topic: str) -> None:
        self._name = name
        self._topic = topic
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open: introduce the client."""
        self._transport = cast(asyncio.Transport, transport)
        self._send(Connect(self._name))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        if not self.subscribed.done():
            self.subscribed.set_exception(exc or ConnectionError(f"{self._name} was disconnected"))
        self._transport = None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """The buffer to read into."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Count the events that have arrived."""
        for frame in self._decoder.feed(_buffer[:nbytes]):
            if type(frame) is Deliver:
                self.got += 0 if frame.batch is None else frame.batch.count
            else:
                self._hear(frame)

    def _hear(self, frame: Frame) -> None:
        match frame:
            case Welcome():
                self._decoder.bytes_max = FRAME_BYTES_MAX
                self._send(Subscribe(self._name, self._topic, "", durable=False, credit=CREDIT_BYTES))
            case Subscribed() if not self.subscribed.done():
                self.subscribed.set_result(None)
            case Ping(stamp):
                self._send(Pong(stamp))
            case Refused(reason=reason) if not self.subscribed.done():
                self.subscribed.set_exception(ConnectionError(reason))

    def _send(self, frame: Frame) -> None:
        if self._transport is not None:
            self._transport.writelines(encode(frame))

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()


class TopicPublisher:
    """Publishes to one topic at a rate."""

    def __init__(self, client: Client, topic: str, rate: float) -> None:
        self._client = client
        self._topic = topic
        self._rate = rate
        #: events whose acknowledgement has come
        self.acknowledged = 0

    async def run(self) -> None:
        """Publish, and wait for each acknowledgement, until it is cancelled."""
        loop, number = asyncio.get_running_loop(), 0
        due = loop.time()
        while True:
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._client.publish(self._topic, {"n": number, "payload": PAYLOAD})
            number += 1
            self.acknowledged += 1


class Crowd:
    """One broker, its publishers and subscribers, in an `async with`."""

    def __init__(self, *, loop: str = UVLOOP, writes: str = CUT_THROUGH) -> None:
        self._variant = (loop, writes)
        self.subscribers: list[CountingSubscriber] = []
        self.publishers: list[TopicPublisher] = []
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Crowd:
        self._directory = TemporaryDirectory(
            prefix="tidemark-lab-", dir=os.environ.get(DIRECTORY, "."), ignore_cleanup_errors=True
        )
        self._harness = ProcessHarness(Path(self._directory.name))
        self.broker = self._harness.broker("crowd", storage__durability="os")
        self.broker.module = "tidemark.lab.figures.scalability.variant_broker"
        self.broker.arguments[:0] = self._variant
        self._queued = Path(self._directory.name) / "queued"
        self.broker.environment = {**os.environ, QUEUED_FILE: str(self._queued)}
        await asyncio.to_thread(self.broker.start)
        self._watcher = await self._client()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for subscriber in self.subscribers:
            subscriber.close()
        for client in self._clients:
            await client.close(timeout=0)
        await asyncio.to_thread(self._harness.__exit__, None, None, None)
        self._directory.cleanup()

    async def _client(self) -> Client:
        made = await connect(self.broker.url, timeout=PATIENCE_SECONDS)
        self._clients.append(made)
        return made

    async def subscribe(self, topics: Sequence[str], count: int) -> None:
        """Declare the topics, and let `count` subscribers come, equally many for each topic."""
        for topic in topics:
            await self._watcher.create_topic(topic, SCHEMA)
        first = len(self.subscribers)
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(count, start + AT_ONCE))
            await asyncio.gather(*(self._come(topics[at % len(topics)], first + at) for at in numbers))

    async def _come(self, topic: str, number: int) -> None:
        subscriber = CountingSubscriber(f"s{number}", topic)
        self.subscribers.append(subscriber)
        host, port = parse_url(self.broker.url)[0]
        await asyncio.get_running_loop().create_connection(lambda: subscriber, host, port)
        await subscriber.subscribed

    async def publish(self, topics: Sequence[str], rate: float) -> None:
        """Begin to publish to each topic at this rate, by one client."""
        client = await self._client()
        made = [TopicPublisher(client, topic, rate) for topic in topics]
        self.publishers += made
        self._tasks += [asyncio.create_task(each.run()) for each in made]

    # What is measured.

    def got(self) -> int:
        """Returns how many events all subscribers have got."""
        return sum(each.got for each in self.subscribers)

    def acknowledged(self) -> int:
        """Returns how many events were published."""
        return sum(each.acknowledged for each in self.publishers)

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the broker."""
        return cpu_seconds_exact(self.broker.pid)

    def system_part(self) -> float:
        """Returns the CPU seconds that the broker has taken in the kernel so far."""
        return ProcessStat(self.broker.pid).system_seconds

    def queued_most(self) -> int:
        """Returns the most bytes of output that ever waited in the broker, which is not on uvloop."""
        noted = self._queued.read_bytes() if self._queued.exists() else b""
        return int(QUEUED_MOST.unpack(noted)[0]) if noted else 0

    def check(self) -> None:
        """Raise what stopped a publisher, and AssertionError if a subscriber was disconnected."""
        for task in self._tasks:
            if task.done():
                task.result()
        lost = sum(not each.is_connected for each in self.subscribers)
        assert not lost, f"{lost} subscribers were disconnected"
