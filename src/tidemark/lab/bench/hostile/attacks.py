"""Attacks: the ways in which a client can make a broker work for more than the client pays.

Each is a coroutine that goes on until it is cancelled, and counts in `Attack.done` how often the broker has
been made to do the thing. A broker may refuse any of it; an attack whose connection is closed opens another.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from json import dumps
from pathlib import Path

from tidemark.lab.bench.hostile.bare_client import BareClient
from tidemark.message.batches.batch import EVENT_BYTES_MAX, BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.ticks import TICK_LAST, CheckpointToken
from tidemark.wire import answers
from tidemark.wire.codec import encode
from tidemark.wire.frames import Ack, Ask, Describe, Fetch, Ping, Publish, Subscribe, Topic
from tidemark.wire.limits import (
    ACK_ITEMS_MAX,
    ARGUMENTS_BYTES_MAX,
    CREDIT_BYTES_MAX,
    OVERLAY_BYTES_MAX,
    PUBLISH_BYTES_MAX,
    RANGES_MAX,
    ROWS_MAX,
    TOGETHER_MAX,
)

PUBEND = "main"
NUMBERS = Schema.parse("[n: long, payload: bytes]")
LISTS = Schema.parse("[n: long, many: *([a: int, b: string])*]")
TEXTS = Schema.parse("[n: long, text: string]")
#: After a connection that the broker has refused or closed, an attack waits so long.
AGAIN_SECONDS = 0.05
#: How long an attack leaves unread what the broker sends, on one connection.
UNREAD_SECONDS = 5.0
#: Connections that say nothing.
HALF_OPEN = 200


@dataclass(slots=True)
class Sizes:
    """How much each attack brings."""

    subscriptions: int
    schemas: int
    schema_fields: int
    shapes: int
    text_bytes: int
    publishers: int
    unfinished: int
    unfinished_bytes: int
    #: events with lists in one batch, and publishers' names in one
    nested: int
    names: int
    #: parts of a dotted key; bytes of the arguments of a question, and of a topology
    key_parts: int
    question_bytes: int
    document_bytes: int
    #: subscriptions in one acknowledgement, and such as want the same events
    acknowledged: int
    fanned: int
    #: ranges in one nack of a broker, claims that come together, and rows of one release
    ranges: int
    claims: int
    rows: int


#: As large as a broker takes it: a batch, what a batch names, and an event.
#: bytes of the arguments of a question, and of a topology
_LONGEST = (ARGUMENTS_BYTES_MAX, OVERLAY_BYTES_MAX)
#: as many as one frame may have, or a little less
_OF_BROKERS = (RANGES_MAX, TOGETHER_MAX, ROWS_MAX)
FULL = Sizes(
    100_000, 200, 2_800, 600, EVENT_BYTES_MAX - 64, 65_536, 60, PUBLISH_BYTES_MAX, 50_000, 1_200,
    16_000, *_LONGEST, 10_000, 5_000, *_OF_BROKERS,
)  # fmt: skip
QUICK = Sizes(
    10_000, 20, 2_800, 100, 64 << 10, 4_096, 20, 1 << 20, 20_000, 1_200, 16_000, *_LONGEST, 10_000,
    1_000, *_OF_BROKERS,
)  # fmt: skip
TINY = Sizes(20, 2, 10, 3, 1 << 10, 8, 2, 1 << 10, 10, 10, 100, 1 << 10, 1 << 10, 10, 5, 5, 5, 5)


@dataclass(slots=True)
class Attack:
    """One attack under way."""

    url: str
    sizes: Sizes
    #: the file with the key of the overlay, for attacks over links
    key: Path = Path()
    #: how often it was done
    done: int = 0
    clients: list[BareClient] = field(default_factory=list)

    async def client(self, name: str) -> BareClient:
        """A connection that is closed with the attack."""
        found = await BareClient.connected(self.url, name)
        self.clients.append(found)
        return found

    async def topic(self, client: BareClient, topic: str, schema: Schema) -> None:
        """Declare a topic and wait for the answer."""
        heard = client.heard
        await client.send(Topic(topic, False, (schema.text,)))
        await client.wait_for(heard + 1)

    def end(self) -> None:
        """Close its connections."""
        for client in self.clients:
            client.abort()


def batch_of(topic: str, schema: Schema, messages: list[bytes]) -> EventBatch:
    """Returns a batch of these messages."""
    builder = BatchBuilder()
    for message in messages:
        builder.add(Shape(topic, schema.fingerprint), message)
    return builder.build()


async def _flood(attack: Attack, name: str, events: int) -> None:
    client = await attack.client(name)
    await attack.topic(client, "hostile.flood", NUMBERS)
    message = NUMBERS.encode({"n": 1, "payload": bytes(200)})
    batch = batch_of("hostile.flood", NUMBERS, [message] * events)
    for sequence in count(1, events):
        await client.send(Publish(PUBEND, f"hostile {name} {id(client)}", sequence, batch))
        attack.done += events
        if client.is_closed:
            raise ConnectionError(client.reason)


async def flood_events(attack: Attack) -> None:
    """Publish single events, each in a frame of its own, without waiting for acknowledgements."""
    await _flood(attack, "flood of events", 1)


async def flood_batches(attack: Attack) -> None:
    """Publish batches of 1,000 events without waiting for acknowledgements."""
    await _flood(attack, "flood of batches", 1_000)


async def subscriptions(attack: Attack) -> None:
    """Make subscriptions, each with a selector of its own, then leave and begin again."""
    client = await attack.client("many subscriptions")
    heard = client.heard
    for number in range(attack.sizes.subscriptions):
        await client.send(Subscribe(f"hostile {number}", "hostile.>", f"n = {number}", False, 1 << 10))
        attack.done += 1
        if client.is_closed:
            raise ConnectionError(client.reason)
    await client.wait_for(heard + attack.sizes.subscriptions)
    client.abort()


async def questions(attack: Attack) -> None:
    """Ask for all subscriptions, connections and metrics, ten questions at a time."""
    holder = await attack.client("the subscriptions that are asked about")
    heard = holder.heard
    mine = attack.sizes.subscriptions * 3 // 10
    for number in range(mine):
        await holder.send(Subscribe(f"asked {number}", "hostile.asked", "", False, 1 << 10))
    await holder.wait_for(heard + mine)
    client = await attack.client("many questions")
    what = (answers.SUBSCRIPTIONS.what, answers.CONNECTIONS.what, answers.METRICS.what)
    for ticket in count(1):
        await client.send(Ask(ticket, what[ticket % 3], "{}"))
        attack.done += 1
        if ticket % 10 == 0:
            await client.wait_for(1 + ticket)


async def schemas(attack: Attack) -> None:
    """Declare versions of one topic, each with a large schema that has a field more."""
    client = await attack.client("large schemas")
    topic, heard = f"hostile.schemas.{id(attack)}", client.heard
    for version in range(attack.sizes.schemas):
        fields = ", ".join(f"field_{at}: int?" for at in range(attack.sizes.schema_fields + version))
        await client.send(Topic(topic, False, (f"[{fields}]",)))
        await client.wait_for(heard + 1 + version)
        attack.done += 1
    await asyncio.sleep(AGAIN_SECONDS)


async def shapes(attack: Attack) -> None:
    """Publish events of an open topic, each with other fields than all before."""
    client = await attack.client("many shapes")
    topic, publisher = f"hostile.shapes.{id(attack)}", f"shapes {id(client)}"
    for number in range(attack.sizes.shapes):
        heard = client.heard
        schema = Schema.parse(f"[n: long, only_{number}: [a: int, b: string]]")
        message = schema.encode({"n": number, f"only_{number}": {"a": 1, "b": "x"}})
        await client.send(Topic(topic, True, (schema.text,)))
        await client.send(Publish(PUBEND, publisher, number + 1, batch_of(topic, schema, [message])))
        await client.wait_for(heard + 2)
        attack.done += 1
    await asyncio.sleep(AGAIN_SECONDS)


async def like(attack: Attack) -> None:
    """Subscribe with a LIKE of 2,000 pieces, and publish long texts for it."""
    client = await attack.client("LIKE")
    await attack.topic(client, "hostile.like", TEXTS)
    pattern = "%a" * 1_999 + "%b"
    await client.send(Subscribe("like", "hostile.like", f"text LIKE '{pattern}'", False, 1 << 20))
    message = TEXTS.encode({"n": 1, "text": "a" * attack.sizes.text_bytes})
    batch = batch_of("hostile.like", TEXTS, [message])
    for sequence in count(1):
        heard = client.heard
        await client.send(Publish(PUBEND, f"like {id(client)}", sequence, batch))
        await client.wait_for(heard + 1)
        attack.done += 1


async def undecodable(attack: Attack) -> None:
    """Publish texts that are not UTF-8, which a subscriber's selector reads."""
    client = await attack.client("undecodable")
    await attack.topic(client, "hostile.texts", TEXTS)
    await client.send(Subscribe("undecodable", "hostile.texts", "text LIKE '%xy'", False, 1 << 20))
    message = TEXTS.encode({"n": 1, "text": "x" * 20}).replace(b"xxxx", b"\xff\xfe\xff\xfe")
    batch = batch_of("hostile.texts", TEXTS, [message] * 1_000)
    for sequence in count(1, 1_000):
        heard = client.heard
        await client.send(Publish(PUBEND, f"undecodable {id(client)}", sequence, batch))
        await client.wait_for(heard + 1)
        attack.done += 1_000
        if client.refused:
            sequence = 1  # a refused batch leaves the sequence where it was
            await asyncio.sleep(0)


async def publishers(attack: Attack) -> None:
    """Publish one event under each of many publishers' names."""
    client = await attack.client("many publishers")
    await attack.topic(client, "hostile.names", NUMBERS)
    batch = batch_of("hostile.names", NUMBERS, [NUMBERS.encode({"n": 1, "payload": b""})])
    heard = client.heard
    for number in range(attack.sizes.publishers):
        await client.send(Publish(PUBEND, f"publisher {id(client)} {number}", 1, batch))
        attack.done += 1
        if number % 64 == 63:
            await client.wait_for(heard + 1 + number)


async def unfinished(attack: Attack) -> None:
    """Send frames of nearly 4 MiB without their last byte, each on a connection of its own."""
    whole = b"".join(
        bytes(piece)
        for piece in encode(
            Publish(
                PUBEND,
                "unfinished",
                1,
                batch_of(
                    "hostile.flood",
                    NUMBERS,
                    [NUMBERS.encode({"n": 1, "payload": bytes(attack.sizes.unfinished_bytes - 4_096)})],
                )
                if attack.sizes.unfinished_bytes > 8_192
                else batch_of("hostile.flood", NUMBERS, [NUMBERS.encode({"n": 1, "payload": b""})]),
            )
        )
    )
    for number in range(attack.sizes.unfinished):
        client = await attack.client(f"unfinished {number}")
        await client.send_bytes(whole[:-1])
        attack.done += 1
    await asyncio.sleep(10)


async def nested(attack: Attack) -> None:
    """Publish large batches of events with lists, which have to be looked at one by one."""
    client = await attack.client("nested")
    await attack.topic(client, "hostile.nested", LISTS)
    message = LISTS.encode({"n": 1, "many": [{"a": 1, "b": "x"}]})
    batch = batch_of("hostile.nested", LISTS, [message] * attack.sizes.nested)
    for sequence in count(1, attack.sizes.nested):
        heard = client.heard
        await client.send(Publish(PUBEND, f"nested {id(client)}", sequence, batch))
        await client.wait_for(heard + 1)
        attack.done += 1


async def names(attack: Attack) -> None:
    """Publish batches, each of which names thousands of publishers that no other batch names."""
    client = await attack.client("names")
    await attack.topic(client, "hostile.names", NUMBERS)
    message = NUMBERS.encode({"n": 1, "payload": b""})
    shape = Shape("hostile.names", NUMBERS.fingerprint)
    for number in count():
        builder = BatchBuilder()
        for each in range(attack.sizes.names):
            builder.add(shape, message, publisher=f"{number} {each} {'x' * 200}")
        heard = client.heard
        sequence = 1 + number * attack.sizes.names
        await client.send(Publish(PUBEND, f"names {id(client)}", sequence, builder.build()))
        await client.wait_for(heard + 1)
        attack.done += 1


async def topics(attack: Attack) -> None:
    """Declare topics with large schemas, publish one event to each, and subscribe to all of them."""
    client = await attack.client("wide topics")
    await client.send(Subscribe("wide topics", "hostile.wide.>", "nobody_has = 1", False, 1 << 10))
    await client.wait_for(2)
    fields = ", ".join(f"field_{at}: int?" for at in range(attack.sizes.schema_fields))
    schema = Schema.parse(f"[{fields}]")
    message = schema.encode({})
    for number in count(1):
        heard, topic = client.heard, f"hostile.wide.{id(client)}_{number}"
        await client.send(Topic(topic, False, (schema.text,)))
        batch = batch_of(topic, schema, [message])
        await client.send(Publish(PUBEND, f"wide {id(client)}", number, batch))
        await client.wait_for(heard + 2)
        attack.done += 1


async def future(attack: Attack) -> None:
    """Subscribe with tokens from the future, and acknowledge what was never told."""
    client = await attack.client("future")
    token = CheckpointToken({PUBEND: TICK_LAST})
    await client.send(Subscribe("future", "hostile.>", "", False, 1 << 10))
    for number in count(1):
        heard = client.heard
        await client.send(Subscribe(f"future {number}", "hostile.>", "", True, 1 << 10, token))
        await client.send(Ack((("future", token),)))
        await client.wait_for(heard + 1)
        attack.done += 1


async def fetches(attack: Attack) -> None:
    """Read the log from its beginning, again and again, with a selector that is true for nothing."""
    client = await attack.client("fetches")
    for ticket in count(1):
        heard = client.heard
        await client.send(Fetch(ticket, PUBEND, 0, TICK_LAST, ">", "nobody LIKE '%a%b'", 8 << 20))
        await client.wait_for(heard + 1)
        attack.done += 1


async def churn(attack: Attack) -> None:
    """Connect, say hello, and go, over and over."""
    while True:
        client = await BareClient.connected(attack.url, "churn")
        client.abort()
        attack.done += 1


async def half_open(attack: Attack) -> None:
    """Keep connections open that never say who they are."""
    for _ in range(HALF_OPEN):
        attack.clients.append(await BareClient.strange(attack.url))
        attack.done += 1
    while not any(client.is_closed for client in attack.clients):
        await asyncio.sleep(AGAIN_SECONDS)


async def dotted_keys(attack: Attack) -> None:
    """Propose topologies with a key of thousands of parts, which `tomllib` takes quadratic time for."""
    client = await attack.client("dotted keys")
    texts = ("brokers" + ".a" * (each * attack.sizes.key_parts) + " = 1" for each in cycle((1, 2)))
    for ticket, text in enumerate(texts, 1):
        heard = client.heard
        await client.send(Ask(ticket, answers.PROPOSE.what, dumps({"base": 0, "text": text})))
        await client.wait_for(heard + 1)
        attack.done += 1


async def large_questions(attack: Attack) -> None:
    """Ask with arguments of as many values as fit, and propose topologies as long as they may be."""
    client = await attack.client("large questions")
    values = '{"a": [' + "[]," * (attack.sizes.question_bytes // 3 - 8) + "0]}"
    text = "a = [" + "1," * (attack.sizes.document_bytes // 2 - 8) + "1]"
    document = dumps({"base": 0, "text": text})
    for ticket in count(1, 2):
        heard = client.heard
        await client.send(Ask(ticket, answers.TOPICS.what, values))
        await client.send(Ask(ticket + 1, answers.PROPOSE.what, document))
        await client.wait_for(heard + 2)
        attack.done += 2


async def large_acknowledgements(attack: Attack) -> None:
    """Acknowledge for thousands of subscriptions that are not there, with tokens of many pubends."""
    client = await attack.client("large acknowledgements")
    token = CheckpointToken({f"p{at}": 1 for at in range(16)})
    size = min(attack.sizes.acknowledged, ACK_ITEMS_MAX // (1 + len(token)))
    acks = Ack(tuple((f"nobody {at}", token) for at in range(size)))
    raw = b"".join(bytes(piece) for piece in encode(acks))
    for number in count():
        await client.send_bytes(raw)
        heard = client.heard
        await client.send(Ping(number))
        await client.wait_for(heard + 1)
        attack.done += 1


async def own_acknowledgements(attack: Attack) -> None:
    """Acknowledge, and wait until it is on disk, for thousands of durable subscriptions of its own."""
    client = await attack.client("own acknowledgements")
    size = min(attack.sizes.acknowledged, ACK_ITEMS_MAX // 2)
    names = [f"own {at}" for at in range(size)]
    heard = client.heard
    for name in names:
        await client.send(Subscribe(name, "hostile.own", "", True, 1 << 10))
    await client.wait_for(heard + size)
    token = CheckpointToken({PUBEND: 1})
    tokens = tuple((name, token) for name in names)
    for number in count(1):
        heard = client.heard
        await client.send(Ack(tokens, number))
        await client.wait_for(heard + 1)
        attack.done += 1


async def unread_topics(attack: Attack) -> None:
    """Ask again and again what a large topic is, and read no answer."""
    client = await attack.client("unread topics")
    fields = ", ".join(f"field_{at}: int?" for at in range(attack.sizes.schema_fields))
    await attack.topic(client, "hostile.unread", Schema.parse(f"[{fields}]"))
    client.stop_reading()
    with suppress(TimeoutError):
        async with asyncio.timeout(UNREAD_SECONDS):
            while True:
                await client.send(Describe("hostile.unread"))
                attack.done += 1
    client.abort()


async def fan_out(attack: Attack) -> None:
    """Publish small batches of events, each of which thousands of subscriptions of the attacker want."""
    client = await attack.client("fan-out")
    await attack.topic(client, "hostile.fanned", NUMBERS)
    heard, size = client.heard, attack.sizes.fanned
    for number in range(size):
        await client.send(Subscribe(f"fanned {number}", "hostile.fanned", "", False, CREDIT_BYTES_MAX))
    await client.wait_for(heard + size)
    batch = batch_of("hostile.fanned", NUMBERS, [NUMBERS.encode({"n": 1, "payload": b""})] * 4)
    for sequence in count(1, 4):
        heard = client.heard
        await client.send(Publish(PUBEND, f"fan-out {id(client)}", sequence, batch))
        # The acknowledgement, and a delivery to each.
        await client.wait_for(heard + 1 + size)
        attack.done += 1
