"""What the node's tests share: settings for a node on this machine, and a client that speaks plain frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import uvloop
from scramp import ScramClient

from tests import security_on
from tests.live_node import config_at
from tests.waiting import PATIENCE_SECONDS
from tidemark.access.verifier import SCHEME
from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.node.config.settings import Config
from tidemark.node.local_link import LocalBrokers
from tidemark.node.node import Node
from tidemark.node.security.link_proof import LinkProving
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Connect,
    Deliver,
    Frame,
    Gap,
    Hello,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Together,
    Topic,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX, PROTOCOL_NEWEST, PROTOCOL_OLDEST
from tidemark.wire.security.frames import Challenge, LinkProof, Login, Proof

SCHEMA = Schema.parse("[n: int]")
TOPIC = "t.x"
Kind = TypeVar("Kind", bound=Frame)


class Stage:
    """What a test has opened, nodes and connections: all of it is closed at the end of the test."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._speakers: list[Speaker] = []

    async def node(self, config: Config, local_brokers: LocalBrokers | None = None) -> Node:
        """A running node."""
        node = await Node.start(config, local_brokers)
        self._nodes.append(node)
        return node

    async def stop(self, node: Node) -> None:
        """End a node in order."""
        self._nodes.remove(node)
        await node.stop()

    async def crash(self, node: Node) -> None:
        """End a node as a crash does."""
        self._nodes.remove(node)
        await node.fail_stop()

    async def stranger(self, node: Node) -> Speaker:
        """A connection that has said nothing yet."""
        speaker = Speaker(*await asyncio.open_connection(*node.address))
        self._speakers.append(speaker)
        return speaker

    async def client(self, node: Node, name: str = "tester", newest: int = PROTOCOL_NEWEST) -> Speaker:
        """A client that has been welcomed, and speaks the versions of the protocol up to `newest`."""
        speaker = await self.stranger(node)
        await speaker.say(Connect(name, PROTOCOL_OLDEST, newest))
        if node.security.accounts is not None:
            await speaker.log_in(security_on.USER, security_on.PASSWORD)
        await speaker.hear(Welcome)
        return speaker

    async def neighbour(self, node: Node, name: str, incarnation: int = 1) -> Speaker:
        """A broker that has said its Hello and, where the node has a key of the overlay, proved its name."""
        speaker = await self.stranger(node)
        await speaker.say(Hello(name, incarnation))
        if node.security.link_key is not None:
            proving = LinkProving(node.security.link_key, is_caller=True)
            proving.challenged((await speaker.hear(Challenge)).nonce)
            proof = LinkProof(proving.proof(name, node.config.broker.name))
            await speaker.say(Challenge(proving.nonce), proof)
        return speaker

    async def close(self) -> None:
        for speaker in self._speakers:
            await speaker.close()
        for node in self._nodes:
            await node.stop()


def root_of_leaf(tmp_path: Path, **options: str) -> Config:
    """The configuration of a broker `root`, whose only neighbour is `leaf`, for which a test may speak."""
    file = tmp_path / "topology.toml"
    file.write_text(
        '[brokers.root]\nlisten = "127.0.0.1:0"\npubends = ["main"]\n'
        '[brokers.leaf]\nlisten = "127.0.0.1:1"\nparent = "root"\npubends = ["leaf"]\n'
    )
    return config_at(tmp_path / "data", broker__topology=str(file), broker__name="root", **options)


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a test's story on the loop that the broker process uses."""

    async def whole() -> None:
        stage = Stage()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await story(stage)
        finally:
            await stage.close()

    uvloop.run(whole())


class Speaker:
    """One connection; frames that nobody asked for wait in `unread`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.decoder = FrameDecoder(FRAME_BYTES_MAX)
        self.unread: list[Frame] = []
        #: the last answer to a Subscribe that was heard
        self.starts: Subscribed | None = None

    async def say(self, *frames: Frame) -> None:
        for frame in frames:
            self.writer.writelines(bytes(piece) for piece in encode(frame))
        await self.writer.drain()

    async def log_in(self, user: str, password: str) -> None:
        """Prove to be a user, when Connect was said."""
        scram = ScramClient([SCHEME], user, password)
        await self.hear(Login)
        await self.say(Proof(SCHEME, scram.get_client_first()))
        scram.set_server_first((await self.hear(Login)).payload)
        await self.say(Proof(SCHEME, scram.get_client_final()))
        scram.set_server_final((await self.hear(Login)).payload)

    async def hear(self, kind: type[Kind]) -> Kind:
        """The next frame of a kind; those before it stay unread."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for at, frame in enumerate(self.unread):
                    if isinstance(frame, kind):
                        del self.unread[at]
                        if isinstance(frame, Subscribed):
                            self.starts = frame
                        return frame
                data = await self.reader.read(1 << 16)
                assert data, f"closed while waiting for {kind.__name__}; unread: {self.unread}"
                self._read(data)

    def _read(self, data: bytes) -> None:
        """What travels together is heard frame by frame."""
        for frame in self.decoder.feed(data):
            self.unread += frame.frames if isinstance(frame, Together) else (frame,)

    async def is_closed(self) -> bool:
        """Wait until the other side closes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    data = await self.reader.read(1 << 16)
                except ConnectionError:
                    return True
                if not data:
                    return True
                self._read(data)

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    # Longer sentences.

    async def declare(self) -> None:
        await self.say(Topic(TOPIC, False, (SCHEMA.text,)))
        await self.hear(Topic)

    async def publish(
        self, first: int, count: int = 1, *, pubend: str = "main", publisher: str = "p"
    ) -> Published:
        """Events n = first, first + 1, ...; their sequence numbers are the same."""
        await self.say(Publish(pubend, publisher, first, events(first, count)))
        while True:
            published = await self.hear(Published)
            if published.sequence >= first + count - 1:
                return published

    async def subscribe(
        self,
        name: str = "s",
        *,
        token: CheckpointToken | None = None,
        selector: str = "",
        credit: int = 1 << 20,
    ) -> Subscribed:
        await self.say(Subscribe(name, "t.>", selector, True, credit, token))
        return await self.hear(Subscribed)

    async def started(self) -> int:
        """The tick from which a new subscriber gets everything: Subscribed had it, or it comes."""
        ticks = [*self.starts.token.values()] if self.starts is not None else []
        return ticks[0] if ticks else (await self.hear(Deliver)).upto

    async def numbers(self, count: int) -> tuple[list[int], CheckpointToken]:
        """The next `count` events' numbers, and how far the subscriber has got then."""
        numbers: list[int] = []
        token = CheckpointToken()
        while len(numbers) < count:
            frame = await self.hear(Deliver)
            assert not any(isinstance(each, Gap) for each in self.unread)
            token = token.advance(frame.pubend, frame.upto)
            if frame.batch is not None:
                numbers += [SCHEMA.decode(frame.batch.message(row))["n"] for row in range(frame.batch.count)]
        return numbers, token


def events(first: int, count: int) -> EventBatch:
    """A batch of events n = first, first + 1, ..."""
    builder = BatchBuilder()
    for number in range(first, first + count):
        builder.add(Shape(TOPIC, SCHEMA.fingerprint), SCHEMA.encode({"n": number}))
    return builder.build()
