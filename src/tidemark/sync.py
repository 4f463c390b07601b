"""The client for programs without asyncio: the same methods, blocking.

One background thread runs the loop; any number of threads may publish. Events cross over a batch at a time
and are stepped through in the thread that iterates: going on to the next event costs no switch of threads.

    with tidemark.sync.connect("tidemark://127.0.0.1:7676") as tm:
        tm.publish("trades", {"symbol": "ACME", "price": 10.5})
        with tm.subscribe("trades", where="price > 10", durable="audit") as sub:
            for event in sub:
                ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, overload

from tidemark.client import client as asynchronous
from tidemark.client.client import FETCH_BYTES, ConnectOptions
from tidemark.client.events import Batch, Event, Gap
from tidemark.client.loop_thread import LoopThread
from tidemark.client.subscribing.acks import Transaction as AsyncTransaction
from tidemark.client.subscribing.start_position import Start
from tidemark.client.subscribing.subscription import (
    CLOSE_SECONDS,
    SERVER_KEPT,
    WINDOW_BYTES_MAX,
    AckMode,
    ServerKept,
)
from tidemark.client.subscribing.subscription import Subscription as AsyncSubscription
from tidemark.errors import ClosedError
from tidemark.message.batches.batch import PRIORITY_DEFAULT, EventBatch
from tidemark.message.schema import Schema
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Fetched

if TYPE_CHECKING:
    from tidemark.wire.answers import Answered, Question


def connect(url: str, **options: Unpack[ConnectOptions]) -> Client:
    """Connect to one of the brokers; see tidemark.connect. NotConnectedError if none is there."""
    return Client(asynchronous.connect(url, **options))


def listen(
    url: str,
    address: str = "127.0.0.1:0",
    *,
    lease: float = asynchronous.LEASE_SECONDS,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Be called by a broker in place of an open connection; see tidemark.listen."""
    return Client(asynchronous.listen(url, address, lease=lease, **options))


class Client:
    """A connection to Tidemark; any thread may use it."""

    def __init__(self, client: asynchronous.Client) -> None:
        """Connects."""
        self._client = client
        self._loop = LoopThread("tidemark client", _closed, last=lambda: client.close(0))
        try:
            self._loop.run(client.open)
        except BaseException:
            self.close(0)
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait until what was published is on disk and what was consumed is acknowledged, and disconnect."""
        try:
            self._loop.run(self._client.close, timeout)
        except ClosedError:
            return
        finally:
            self._loop.stop()

    @property
    def name(self) -> str:
        """What administrators see."""
        return self._client.name

    @property
    def is_connected(self) -> bool:
        """A broker is there just now."""
        return self._client.is_connected

    def create_topic(
        self, topic: str, schema: str | Schema | type | None = None, *, is_open: bool = False
    ) -> None:
        """Declare a topic, or a new version of its schema; open without a schema, or with `is_open`."""
        self._loop.run(self._client.create_topic, topic, schema, is_open=is_open)

    def schemas(self, topic: str) -> list[Schema]:
        """All versions of a topic's schema, oldest first."""
        return self._loop.run(self._client.schemas, topic)

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity: float | None = None,
        sequence: int | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Publish a dict or dataclass instance; its tick, once it is on disk. See Client.publish."""
        return self._loop.run(
            self._client.publish,
            topic,
            value,
            key=key,
            priority=priority,
            validity=validity,
            sequence=sequence,
            timeout=timeout,
        )

    def publish_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        key: str | bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity: float | None = None,
        sequence: int | None = None,
        timeout: float | None = None,
    ) -> list[int | None]:
        """Publish in order, in as few batches as possible; the ticks, once all are on disk."""
        # A generator of the caller's must not run, and perhaps block, on the loop's thread.
        return self._loop.run(
            self._client.publish_many,
            topic,
            list(values),
            key=key,
            priority=priority,
            validity=validity,
            sequence=sequence,
            timeout=timeout,
        )

    def publish_batch(
        self, batch: EventBatch, *, sequence: int | None = None, timeout: float | None = None
    ) -> list[int | None]:
        """Publish an event batch that was built elsewhere."""
        return self._loop.run(self._client.publish_batch, batch, sequence=sequence, timeout=timeout)

    def publish_batches(
        self, batches: Sequence[EventBatch], *, sequence: int | None = None, timeout: float | None = None
    ) -> list[list[int | None]]:
        """Publish event batches in order, without waiting for one before the next; the ticks of each.

        `sequence` is the number of the first event of the first one; the others go on from there.
        """
        numbers = accumulate((batch.count for batch in batches), initial=sequence or 0)

        async def published() -> list[list[int | None]]:
            return await asyncio.gather(
                *(
                    self._client.publish_batch(
                        batch, sequence=None if sequence is None else number, timeout=timeout
                    )
                    for batch, number in zip(batches, numbers, strict=False)
                )
            )

        return self._loop.run(published)

    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        durable: str | None = None,
        checkpoint: CheckpointToken | ServerKept | None = SERVER_KEPT,
        ack: AckMode | None = None,
        start: Start | None = None,
        window_bytes_max: int = WINDOW_BYTES_MAX,
    ) -> Subscription:
        """Subscribe to a topic or pattern, see Client.subscribe; it is open when this returns."""

        async def opened() -> AsyncSubscription:
            return await self._client.subscribe(
                topic,
                where,
                durable=durable,
                checkpoint=checkpoint,
                ack=ack,
                start=start,
                window_bytes_max=window_bytes_max,
            )

        return Subscription(self._loop.run(opened), self._loop)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Acknowledge several subscriptions together: `with tm.transaction() as tx: tx.ack(sub)`."""
        return Transaction(self._client.transaction(timeout=timeout), self._loop)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription for good."""
        self._loop.run(self._client.unsubscribe, name)

    def fetch(
        self,
        pubend: str,
        base: int,
        upto: int,
        pattern: str = ">",
        where: str = "",
        *,
        bytes_max: int = FETCH_BYTES,
        timeout: float | None = None,
    ) -> Fetched:
        """Read a pubend in bulk: see `tidemark.client.Client.fetch`."""
        return self._loop.run(
            self._client.fetch, pubend, base, upto, pattern, where, bytes_max=bytes_max, timeout=timeout
        )

    @overload
    def ask(
        self, what: Question[Answered], *, timeout: float | None = None, **arguments: Any
    ) -> Answered: ...

    @overload
    def ask(self, what: str, *, timeout: float | None = None, **arguments: Any) -> Any: ...

    def ask(self, what: str | Question[Any], *, timeout: float | None = None, **arguments: Any) -> Any:
        """Ask the broker what administrators ask: see `tidemark.client.Client.ask`."""
        ask: Callable[..., Awaitable[Any]] = self._client.ask
        return self._loop.run(ask, what, timeout=timeout, **arguments)


class Subscription:
    """A subscription, iterated by one thread at a time."""

    def __init__(self, subscription: AsyncSubscription, loop: LoopThread) -> None:
        self._subscription = subscription
        self._loop = loop

    @property
    def name(self) -> str:
        """As the broker knows it."""
        return self._subscription.name

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._subscription.__aexit__, kind, error, trace)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop. A durable subscription stays at the broker."""
        self._loop.run(self._subscription.close, timeout)

    def unsubscribe(self) -> None:
        """End it for good."""
        self._loop.run(self._subscription.unsubscribe)

    def __iter__(self) -> Iterator[Event | Gap]:
        """Events and gaps, for ever; until the subscription is closed."""
        while True:
            item = self._subscription.step()
            if item is not None:
                yield item
            elif not self._loop.run(self._subscription.load):
                return

    def next(self, timeout: float | None = None) -> Event | Gap | None:
        """The next event or gap; None when none came in time, or the subscription is closed."""
        return self._subscription.step() or self._loop.run(self._subscription.next, timeout)

    def batches(self, timeout: float | None = None) -> Iterator[Batch | Gap]:
        """All events of a pubend that came together, as arrays; ends when none came in time."""
        while True:
            item = self._subscription.step_batch()
            if item is not None:
                yield item
            elif not self._loop.run(self._load, timeout):
                return

    async def _load(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._subscription.load()
        except TimeoutError:
            return False

    @property
    def checkpoint(self) -> CheckpointToken:
        """All that was handed out, what the application is working on included: store it with your data."""
        return self._subscription.checkpoint

    def ack(self, upto: object = None, *, sync: bool = False) -> None:
        """All up to an event, gap, batch or token, or all handed out, is consumed and may be let go."""
        self._loop.run(self._subscription.ack, upto, sync=sync)


class Transaction:
    """Acknowledgements of several subscriptions that hold together, or not at all."""

    def __init__(self, transaction: AsyncTransaction, loop: LoopThread) -> None:
        self._transaction = transaction
        self._loop = loop

    def ack(self, subscription: Subscription, upto: object = None) -> None:
        """Everything handed out so far, or up to `upto`, is consumed when this commits."""
        self._transaction.ack(subscription._subscription, upto)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._transaction.__aexit__, kind, error, trace)


def _closed() -> ClosedError:
    return ClosedError("the client is closed: open a new one with tidemark.sync.connect(...)")
