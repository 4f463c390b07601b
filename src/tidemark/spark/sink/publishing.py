"""Publishing what is staged, exactly once: the commit of a micro-batch or of a job.

See `spark.sink.sink` for the whole argument. Everything here can be repeated from any point: a record decides
what a batch is, its sequence numbers let the pubend recognise what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from uuid import uuid4

from tidemark.client.client import connect
from tidemark.errors import ConfigError, RefusedError, StorageError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.schema import Schema
from tidemark.spark.connections import CONNECT_SECONDS_MAX, RetryingClient
from tidemark.spark.options import SinkOptions
from tidemark.spark.sink.staging import BatchRecord, StagedFile, Staging, in_order

#: Of at most `fitting.PUBLISH_BYTES` each; a client has room for all of them at once.
GROUP_BATCHES = 8

Publish = Callable[[Staging, BatchRecord], None]
#: (publisher, pubend of its last batch) -> pubend
ChoosePubend = Callable[[str, str | None], str]


def commit(
    staging: Staging,
    name: str,
    batch: int,
    parts: Sequence[StagedFile],
    choose_pubend: ChoosePubend,
    publish: Publish,
) -> None:
    """Publish the staged parts as the batch of this number, unless that is done already.

    `choose_pubend` says where a publisher's events go, given where they went before.
    """
    last = staging.last()
    if last is not None and not staging.is_published(last):
        _finish(staging, last, publish)  # a former life has begun it
    if last is not None and batch <= last.batch:
        staging.discard(set(parts) - set(last.parts))
        return
    wanted = in_order(parts)
    if not wanted:
        return
    record = staging.record(_next(name, batch, wanted, last, choose_pubend))
    _finish(staging, record, publish)
    staging.discard(set(wanted) - set(record.parts))


def _next(
    name: str,
    batch: int,
    parts: tuple[StagedFile, ...],
    last: BatchRecord | None,
    choose_pubend: ChoosePubend,
) -> BatchRecord:
    """Numbers go on where the last batch ended; under a new publisher if there is none, or another pubend."""
    if last is not None and choose_pubend(last.publisher, last.pubend) == last.pubend:
        return BatchRecord(batch, last.publisher, last.pubend, last.first + last.count, parts)
    publisher = f"spark-{name}-{uuid4().hex[:12]}"
    return BatchRecord(batch, publisher, choose_pubend(publisher, None), 1, parts)


def _finish(staging: Staging, record: BatchRecord, publish: Publish) -> None:
    try:
        publish(staging, record)
    except StorageError:
        if staging.is_published(record):
            return  # by another life of this driver, which has removed the files
        raise
    staging.mark_published(record)


def publish_record(options: SinkOptions, staging: Staging, record: BatchRecord) -> None:
    """Every event of the record is at the broker when this returns: once, however often it is called."""
    sequence = record.first
    with RetryingClient(
        options.broker, options.retry_seconds, publisher=record.publisher, pubend=record.pubend
    ) as broker:
        for group in _grouped(batch for part in record.parts for batch in staging.read(part)):
            _publish(broker, group, sequence, staging)
            sequence += sum(batch.count for batch in group)


def _grouped(batches: Iterator[EventBatch]) -> Iterator[list[EventBatch]]:
    """Batches that leave together: one that waits for the last one's sync would leave the broker idle."""
    while group := list(islice(batches, GROUP_BATCHES)):
        yield group


def _publish(broker: RetryingClient, group: list[EventBatch], sequence: int, staging: Staging) -> None:
    try:
        broker.run(lambda client: client.publish_batches(group, sequence=sequence))
    except RefusedError as error:
        if error.code != "sequence":
            raise
        raise error.with_reason(
            f"{error.reason}. The broker has forgotten what was published before: it has lost its disk, or "
            f"is another one. To go on as a new publisher remove {staging.path}"
        ) from None


def chosen_pubend(options: SinkOptions) -> ChoosePubend:
    """Where a publisher publishes: where the option says, else where it did, else at one of the broker's."""

    def choose(publisher: str, before: str | None) -> str:
        if options.pubend is not None or before is not None:
            return options.pubend or before or ""
        with RetryingClient(options.broker, options.retry_seconds) as broker:
            hosted: list[str] = [each["pubend"] for each in broker.ask("pubends")]
        if not hosted:
            raise ConfigError("the broker hosts no pubend: name another one", key="broker")
        return max(hosted, key=lambda each: blake2b(f"{publisher}\0{each}".encode()).digest())

    return choose


def topic_schema(options: SinkOptions, columns: Callable[[], Schema]) -> Schema:
    """What new events of the topic are written in.

    The newest version of a declared topic. In an open one, or one that nobody has declared, the columns are a
    shape of their own, which becomes known here.
    """
    with RetryingClient(options.broker, min(CONNECT_SECONDS_MAX, options.retry_seconds)) as broker:
        topics = {each["topic"]: each for each in broker.ask("topics")}
    found = topics.get(options.topic)
    if found is not None and not found["open"]:
        return Schema.parse(found["schemas"][-1])
    shape = columns()
    if found is None or shape.text not in found["schemas"]:
        asyncio.run(_open(options, shape))
    return shape


async def _open(options: SinkOptions, shape: Schema) -> None:
    async with connect(options.broker) as client:
        await client.create_topic(options.topic, shape, is_open=True)
