"""A broker of a few lines, in memory, that speaks the real frames: for tests of the client.

Its disk (events, publishers, topics, tokens) outlives its connections. Selectors are not evaluated. It can be
told to misbehave: cut connections, lose acknowledgements, refuse, go away and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import CheckpointToken
from tidemark.wire.codec import encode
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import (
    Ack,
    Acked,
    Answer,
    Ask,
    Connect,
    Credit,
    Deliver,
    Describe,
    Frame,
    Gap,
    Offer,
    Ping,
    Pong,
    Publish,
    Published,
    Recalled,
    Refused,
    Subscribe,
    Subscribed,
    Topic,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)
from tidemark.wire.limits import FRAME_BYTES_MAX
from tidemark.wire.moving.frames import Come, Leave

FIRST_TICK = 1_000


@dataclass
class Subscriber:
    """A subscription, connected or not."""

    frame: Subscribe
    acked: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    session: Session | None = None


@dataclass
class FakeBroker:
    """One broker; `start` and `stop` are its lives."""

    name: str = "b1"
    pubends: tuple[str, ...] = ("p1",)
    events: dict[str, list[EventBatch]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    publishers: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    #: acknowledgements are kept and not confirmed
    is_silent_about_acks: bool = False
    #: every frame that any client sent
    heard: list[Frame] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    #: answers Publish in place of the broker; None goes on as usual
    on_publish: Callable[[Publish], Frame | str | None] | None = None
    is_deaf: bool = False
    #: of the protocol, as it welcomes clients
    version: int = 1
    port: int = 0
    _server: asyncio.Server | None = None
    _tick: int = FIRST_TICK

    async def start(self) -> None:
        """Listen; on the port of the former life, if there was one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Session(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.sleep(0)

    async def __aenter__(self) -> FakeBroker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"tidemark://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Abort every connection."""
        for session in list(self.sessions):
            session.transport.abort()
            session.gone()

    def of(self, kind: type[Any]) -> list[Any]:
        """The frames of one kind that were heard."""
        return [frame for frame in self.heard if isinstance(frame, kind)]

    def count(self, pubend: str = "p1") -> int:
        """How many events are logged."""
        return sum(batch.count for batch in self.events.get(pubend, ()))

    # Events.

    def publish(self, frame: Publish) -> Published | Refused:
        """Log a batch unless it was logged before, as a pubend does; returns the answer."""
        key = (frame.pubend, frame.publisher)
        known, tick = self.publishers.get(key, (0, 0))
        last = frame.sequence + frame.batch.count - 1
        if frame.pubend not in self.pubends:
            return Refused("publish", frame.publisher, "pubend", "not hosted here")
        if frame.sequence > known + 1:
            return Refused("publish", frame.publisher, "sequence", f"expected {known + 1}")
        if last > known:
            batch = frame.batch.slice(max(0, known + 1 - frame.sequence), frame.batch.count)
            tick = self.append(frame.pubend, batch)
            self.publishers[key] = known, tick = last, tick
        return Published(frame.pubend, frame.publisher, max(known, last), tick)

    def append(self, pubend: str, batch: EventBatch) -> int:
        """Log a batch and deliver it to every subscriber; returns its last tick."""
        first = self._tick = self._tick + 10
        self._tick = first + batch.count - 1
        batch.fill_ticks(np.arange(first, first + batch.count, dtype=np.int64))
        self.events.setdefault(pubend, []).append(batch)
        for subscriber in self.subscribers.values():
            self.feed(subscriber)
        return self._tick

    def silence(self, pubend: str = "p1") -> int:
        """Tell every subscriber of silence; returns the tick up to which there is silence."""
        self._tick += 10
        for subscriber in self.subscribers.values():
            if subscriber.session is not None:
                self.feed(subscriber)
                base = subscriber.told.get(pubend, self._tick)
                subscriber.told[pubend] = self._tick
                subscriber.session.send(Deliver(subscriber.frame.name, pubend, base, self._tick))
        return self._tick

    def feed(self, subscriber: Subscriber) -> None:
        """Send a connected subscriber all that it was not sent yet."""
        if subscriber.session is None:
            return
        pattern = TopicPattern.parse(subscriber.frame.pattern)
        name = subscriber.frame.name
        for pubend in self.pubends:
            lost = self.lost.get(pubend, 0)
            if subscriber.told[pubend] < lost:
                subscriber.session.send(Gap(name, pubend, subscriber.told[pubend], lost))
                subscriber.told[pubend] = lost
            for batch in self.events.get(pubend, ()):
                base, upto = subscriber.told[pubend], int(batch.ticks[-1])
                if upto > base:
                    wanted = np.array([pattern.matches(shape.topic) for shape in batch.shapes])
                    rows = wanted[batch.prelude("shape")] & (batch.ticks > base)
                    part = batch.take(rows) if rows.any() else None
                    subscriber.told[pubend] = upto
                    subscriber.session.send(Deliver(name, pubend, base, upto, part))

    # Subscribers.

    def subscribe(self, session: Session, frame: Subscribe) -> None:
        """Start or resume a subscription, as a host does."""
        if "bad" in frame.selector:
            session.send(Refused("subscribe", frame.name, "selector", "there is no field `bad`"))
            return
        known = self.subscribers.get(frame.name)
        if known is None or not known.frame.durable:
            now = dict.fromkeys(self.pubends, self._tick)
            known = self.subscribers[frame.name] = Subscriber(frame, {**now, **(frame.token or {})})
        elif known.session not in (None, session):
            known.session.send(Refused("subscribe", frame.name, "taken", "connected again elsewhere"))
        known.frame, known.session = frame, session
        token = dict(frame.token) if frame.token is not None else {}
        known.told = {**known.acked, **token}
        session.send(Subscribed(frame.name, CheckpointToken(known.told)))
        self.feed(known)

    def ack(self, session: Session, frame: Ack) -> None:
        """Keep the tokens."""
        for name, token in frame.tokens:
            acked = self.subscribers[name].acked
            for pubend, tick in token.items():
                acked[pubend] = max(tick, acked.get(pubend, tick))
        if frame.ticket and not self.is_silent_about_acks:
            session.send(Acked(frame.ticket))

    def declare(self, frame: Topic) -> Topic | Refused:
        """Create a topic or add to it."""
        known = self.topics.get(frame.topic, Topic(frame.topic, frame.is_open, ()))
        if known.is_open != frame.is_open:
            return Refused("topic", frame.topic, "schema", "it is declared otherwise and stays so")
        schemas = tuple(dict.fromkeys((*known.schemas, *frame.schemas)))
        self.topics[frame.topic] = Topic(frame.topic, frame.is_open, schemas)
        return self.topics[frame.topic]


class Session(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.broker.sessions.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.gone()

    def gone(self) -> None:
        if self in self.broker.sessions:
            self.broker.sessions.remove(self)
        for name, subscriber in list(self.broker.subscribers.items()):
            if subscriber.session is self:
                subscriber.session = None
                if not subscriber.frame.durable:
                    del self.broker.subscribers[name]

    def send(self, frame: Frame) -> None:
        self.transport.writelines(encode(frame))

    def data_received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            if self not in self.broker.sessions:
                return
            self.broker.heard.append(frame)
            if not self.broker.is_deaf:
                self.handle(frame)

    def handle(self, frame: Frame) -> None:
        broker = self.broker
        match frame:
            case Connect():
                self.decoder.bytes_max = FRAME_BYTES_MAX
                self.send(Welcome(broker.name, 1, broker.version, broker.pubends))
            case Ping(stamp):
                self.send(Pong(stamp))
            case Publish():
                self.publish(frame)
            case Come(pubend, publisher, sequence, _):
                broker.publishers[pubend, publisher] = sequence, FIRST_TICK
                self.send(Published(pubend, publisher, sequence, FIRST_TICK))
            case Leave():
                pass  # the broker of the last pubend cannot be reached
            case Describe(topic):
                self.send(broker.topics.get(topic, Topic(topic, False, ())))
            case Topic():
                self.send(broker.declare(frame))
            case Subscribe():
                broker.subscribe(self, frame)
            case Unsubscribe(name):
                broker.subscribers.pop(name, None)
                self.send(Unsubscribed(name))
            case Ack():
                broker.ack(self, frame)
            case Ask(ticket, what, arguments):
                if what == "forbidden":
                    self.send(Refused("ask", str(ticket), "unknown", "there is no such question"))
                else:
                    self.send(Answer(ticket, f'{{"what": "{what}", "arguments": {arguments}}}'))
            case Credit() | Offer() | Recalled():
                pass
            case _:
                raise AssertionError(frame)

    def publish(self, frame: Publish) -> None:
        """The hook decides: a frame is the answer; "lose" logs it and says nothing; "cut" also hangs up."""
        said = self.broker.on_publish(frame) if self.broker.on_publish is not None else None
        if said is None or isinstance(said, str):
            answer = self.broker.publish(frame)
            if said is None:
                self.send(answer)
            elif said == "cut":
                self.broker.cut()
        else:
            self.send(said)
