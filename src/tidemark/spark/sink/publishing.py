"""Publishing what is staged, exactly once: the commit of a micro-batch or of a job.

See `spark.sink.sink` for the whole argument. Everything here can be repeated from any point: a record decides
what a batch is, and its sequence numbers let the pubend recognise what it has already taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol
from uuid import uuid4

from tidemark import sync
from tidemark.client.client import connect
from tidemark.errors import ConfigError, NotConnectedError, RefusedError, StorageError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.schema import Schema
from tidemark.spark.connections import CONNECT_SECONDS_MAX, RetryingClient
from tidemark.spark.locations import folder_at
from tidemark.spark.options import SinkOptions
from tidemark.spark.sink.dead_letters import LETTER, write_letters
from tidemark.spark.sink.staging import BatchRecord, StagedFile, Staging, in_order
from tidemark.wire import rendezvous
from tidemark.wire.answers import TopicStatus


class RecordPublisher(Protocol):
    """Publishes the events of records. `BrokerPublisher` is the one that is used."""

    def pubend_of(self, publisher: str, before: str | None) -> str:
        """Where the events of a publisher go; `before` is the pubend of its last batch."""

    def publish(self, staging: Staging, record: BatchRecord) -> None:
        """Publish every event of the record, once, however often this is called with it."""


def commit(
    staging: Staging,
    name: str,
    batch: int,
    parts: Sequence[StagedFile],
    publisher: RecordPublisher,
) -> None:
    """Publish the staged parts as the batch of this number, unless that is done already.

    `name` is that of the query or job, and becomes a part of the publisher's name.
    """
    last = staging.last()
    if last is not None and not staging.is_published(last):
        _finish(staging, last, publisher)  # a driver that was killed has begun it
    if last is not None and batch <= last.batch:
        staging.discard(set(parts) - set(last.parts))
        return
    wanted = in_order(parts)
    if not wanted:
        return
    record = staging.record(_next(name, batch, wanted, last, publisher))
    _finish(staging, record, publisher)
    staging.discard(set(wanted) - set(record.parts))


def _next(
    name: str,
    batch: int,
    parts: tuple[StagedFile, ...],
    last: BatchRecord | None,
    publisher: RecordPublisher,
) -> BatchRecord:
    """The record of a new batch, whose numbers go on where the last batch ended.

    Without a last batch, or if the pubend has changed, the record has a new publisher.
    """
    if last is not None and publisher.pubend_of(last.publisher, last.pubend) == last.pubend:
        return BatchRecord(batch, last.publisher, last.pubend, last.first + last.count, parts)
    fresh = f"spark-{name}-{uuid4().hex[:12]}"
    return BatchRecord(batch, fresh, publisher.pubend_of(fresh, None), 1, parts)


def _finish(staging: Staging, record: BatchRecord, publisher: RecordPublisher) -> None:
    try:
        publisher.publish(staging, record)
    except StorageError:
        if staging.is_published(record):
            return  # another driver of the same query has published it and removed the files
        raise
    staging.mark_published(record)


class BrokerPublisher:
    """Publishes at the broker that the options of a sink name."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def pubend_of(self, publisher: str, before: str | None) -> str:
        """The pubend that the option names, else the one of the last batch, else one of the broker's."""
        if self._options.pubend is not None or before is not None:
            return self._options.pubend or before or ""
        with RetryingClient(self._options.broker, self._options.retry_seconds) as broker:
            hosted: list[str] = [each.pubend for each in broker.pubends()]
        if not hosted:
            raise ConfigError("the broker hosts no pubend: name another one", key="broker")
        return rendezvous.chosen(publisher, hosted)

    def publish(self, staging: Staging, record: BatchRecord) -> None:
        """Publish every event of the record, once, however often this is called with it."""
        with RetryingClient(
            self._options.broker,
            self._options.retry_seconds,
            publisher=record.publisher,
            pubend=record.pubend,
        ) as broker:
            _StagedEvents(staging, record).publish(broker)
        if any(part.dead for part in record.parts):
            assert self._options.dead_letter is not None
            dead = (batch for batch, is_dead in _staged(staging, record) if is_dead)
            # The name is that of the record, so that a batch that is published again has the same file.
            folder = folder_at(self._options.dead_letter, self._options.storage)
            write_letters(folder, f"{record.publisher}-{record.batch}", dead)


class _StagedEvents:
    """The events of a record on their way to the broker, and how far they are."""

    def __init__(self, staging: Staging, record: BatchRecord) -> None:
        self._staging = staging
        self._record = record
        #: how many batches the broker has acknowledged, and how many events are in those
        self._batches = self._events = 0

    def publish(self, broker: RetryingClient) -> None:
        """Publish all of them. Raises NotConnectedError if the broker is away and acknowledges nothing more.

        They go on where they were when the broker was lost; what it has not acknowledged is sent again.
        """
        while True:
            before = self._batches
            try:
                return broker.run(self._publish_rest)
            except NotConnectedError:
                if self._batches == before:
                    raise
                # The numbers that this client has given have an open fate; a new one gives them again.
                broker.close()
            except RefusedError as error:
                if error.code != "sequence":
                    raise
                raise error.with_reason(
                    f"{error.reason}. The broker has forgotten what was published before: it has lost its "
                    f"disk, or is another one. To go on as a new publisher remove {self._staging.folder}"
                ) from None

    def _publish_rest(self, client: sync.Client) -> None:
        live = (batch for batch, is_dead in _staged(self._staging, self._record) if not is_dead)
        rest = islice(live, self._batches, None)
        client._publish_each(rest, self._record.first + self._events, self._is_published)

    def _is_published(self, batch: EventBatch) -> None:
        self._batches += 1
        self._events += batch.count


def _staged(staging: Staging, record: BatchRecord) -> Iterator[tuple[EventBatch, bool]]:
    """The batches of a record, and of each whether it has rows that do not fit and are not published."""
    for part in record.parts:
        for at, batch in enumerate(staging.read(part)):
            yield batch, at in part.dead


def topic_schema(options: SinkOptions, columns: Callable[[], Schema]) -> Schema:
    """The schema that new events of the topic are written in.

    That is the newest version of a declared topic. In an open topic, or one that nobody has declared, the
    columns are a shape of their own, which is registered here.
    """
    with RetryingClient(options.broker, min(CONNECT_SECONDS_MAX, options.retry_seconds)) as broker:
        found = _existing(broker, options.topic)
    if found is not None and not found.open:
        return Schema.parse(found.schemas[-1])
    shape = columns()
    if found is None or shape.text not in found.schemas:
        asyncio.run(_open(options, shape))
    return shape


def declare_dead_letters(options: SinkOptions) -> None:
    """Create the topic of rows that do not fit. Raises ConfigError if it exists with another schema."""
    assert options.dead_letter is not None
    with RetryingClient(options.broker, min(CONNECT_SECONDS_MAX, options.retry_seconds)) as broker:
        found = _existing(broker, options.dead_letter)
        if found is None:
            topic = options.dead_letter
            broker.run(lambda client: client.create_topic(topic, LETTER))
        elif LETTER.text not in found.schemas:
            raise ConfigError(f"{options.dead_letter!r} is no topic of {LETTER.text}", key="deadLetter")


def _existing(broker: RetryingClient, topic: str) -> TopicStatus | None:
    """The topic as it is now, None if there is none; ConfigError if it was removed."""
    creations = [each for each in broker.topics() if each.topic == topic]
    if creations and creations[-1].is_removed:
        raise ConfigError(
            f"the topic {topic!r} was removed: create it again with `tidemark topic create`, or use another",
            key="topic",
        )
    return creations[-1] if creations else None


async def _open(options: SinkOptions, shape: Schema) -> None:
    async with connect(options.broker) as client:
        await client.create_topic(options.topic, shape, is_open=True)
