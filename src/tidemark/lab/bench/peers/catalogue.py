"""The systems that are compared: how each is started, spoken to and read from, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.lab.bench.peers.bare_peer import BarePublisher
from tidemark.lab.bench.peers.protocols.amqp import AmqpPublisher, AmqpReader
from tidemark.lab.bench.peers.protocols.mqtt import MqttPublisher, MqttReader
from tidemark.lab.bench.peers.protocols.nats import NatsPublisher, NatsReader
from tidemark.lab.bench.peers.protocols.rabbit_stream import StreamPublisher, StreamReader
from tidemark.lab.bench.peers.protocols.redis import GroupReader, RedisPublisher, XreadReader
from tidemark.lab.bench.peers.protocols.stomp import StompPublisher, StompReader
from tidemark.lab.bench.peers.protocols.tidemark import TidemarkPublisher, TidemarkReader
from tidemark.lab.bench.system.load import Load


@dataclass(frozen=True, slots=True)
class Peer:
    """A system in one of its forms."""

    #: the column in the table
    name: str
    #: the server in `servers.SERVERS`, and what it is told beyond its defaults here
    server: str
    options: tuple[str, ...]
    publisher: Callable[[Load], BarePublisher]
    #: makes a subscriber of a record and of whom it tells about deliveries
    reader: Callable[..., Any]
    #: when an event is acknowledged
    durability: str
    #: how a subscriber says which events it wants, and who keeps its place
    selection: str


TIDEMARK = "Tidemark"
_BY_NAME = "a stream for each quarter"
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            TIDEMARK,
            "tidemark",
            ("sync",),
            TidemarkPublisher,
            TidemarkReader,
            "after fdatasync",
            "a selector over a field; the broker keeps the place",
        ),
        Peer(
            "Redis groups, synced",
            "redis",
            ("always",),
            RedisPublisher,
            GroupReader,
            "after fdatasync (appendfsync always)",
            f"{_BY_NAME}, XREADGROUP and XACK; the server keeps the place",
        ),
        Peer(
            "Redis XREAD, synced",
            "redis",
            ("always",),
            RedisPublisher,
            XreadReader,
            "after fdatasync (appendfsync always)",
            f"{_BY_NAME}, XREAD; the client keeps the place",
        ),
        Peer(
            "Redis XREAD, not synced",
            "redis",
            ("everysec",),
            RedisPublisher,
            XreadReader,
            "before it is synced, up to a second later (appendfsync everysec)",
            f"{_BY_NAME}, XREAD; the client keeps the place",
        ),
        Peer(
            "NATS JetStream",
            "nats",
            (),
            NatsPublisher,
            NatsReader,
            "before it is synced, up to two minutes later",
            f"{_BY_NAME}, durable push consumers; the server keeps the place",
        ),
        Peer(
            "Mosquitto",
            "mosquitto",
            (),
            MqttPublisher,
            MqttReader,
            "in memory, saved now and then",
            "a topic for each quarter, QoS 1, sessions that stay; the server keeps the place",
        ),
        Peer(
            "RabbitMQ streams",
            "rabbitmq",
            ("stream",),
            StreamPublisher,
            StreamReader,
            "written and not synced",
            f"{_BY_NAME}; the client keeps the offset",
        ),
        Peer(
            "RabbitMQ classic",
            "rabbitmq",
            ("classic",),
            AmqpPublisher,
            AmqpReader,
            "persistent and confirmed, as classic queues sync",
            "a durable queue for each subscriber, bound by a key; the server keeps the place",
        ),
        Peer(
            "ActiveMQ",
            "activemq",
            (),
            StompPublisher,
            StompReader,
            "after a sync of the journal (KahaDB's default)",
            "an SQL selector over a header, durable subscribers; the server keeps the place",
        ),
    )
}
