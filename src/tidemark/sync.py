"""The client for programs without asyncio: the same methods, blocking.

One background thread runs the event loop; any number of threads may publish. Events cross over to the thread
that iterates a batch at a time, so going on to the next event costs no switch of threads.

    with tidemark.sync.connect("tidemark://127.0.0.1:7676") as tm:
        tm.publish("trades", {"symbol": "ACME", "price": 10.5})
        with tm.subscribe("trades", where="price > 10", durable="audit") as sub:
            for event in sub:
                ...
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any, Generic, Literal, Unpack, cast, overload

from tidemark.client import client as asynchronous
from tidemark.client.client import FETCH_BYTES, Into
from tidemark.client.connecting.options import ConnectOptions
from tidemark.client.events import Batch, Event, Gap
from tidemark.client.listening import LEASE_SECONDS
from tidemark.client.listening import listen as asynchronous_listen
from tidemark.client.loop_thread import LoopThread
from tidemark.client.subscribing.arguments import SubscribeOptions
from tidemark.client.subscribing.session import Upto
from tidemark.client.subscribing.subscription import CLOSE_SECONDS, ItemT
from tidemark.client.subscribing.subscription import Subscription as AsyncSubscription
from tidemark.client.subscribing.transaction import Transaction as AsyncTransaction
from tidemark.errors import ClosedError
from tidemark.message.batches.batch import PRIORITY_DEFAULT, EventBatch
from tidemark.message.schema import Schema
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Fetched
from tidemark.wire.questions import Answered, Question

#: Bytes of batches that `publish_batches` has under way: less than a client may have unacknowledged.
UNDER_WAY_BYTES_MAX = 24 << 20

__all__ = ["Client", "Subscription", "Transaction", "connect", "listen"]


def connect(url: str, **options: Unpack[ConnectOptions]) -> Client:
    """Connect to one of the brokers, and return the connected client; see tidemark.connect.

    NotConnectedError, with what each broker answered, if none could be reached within `connect_timeout`.
    """
    return Client(asynchronous.connect(url, **options))


def listen(
    url: str,
    address: str = "127.0.0.1:0",
    *,
    lease: float = LEASE_SECONDS,
    **options: Unpack[ConnectOptions],
) -> Client:
    """Connect a client that holds no connection while it is idle, and return it; see tidemark.listen."""
    return Client(asynchronous_listen(url, address, lease=lease, **options))


class Client:
    """A connection to Tidemark, made by `tidemark.sync.connect` or `listen`; any thread may use it.

    Every method but `close` raises ClosedError once the client is closed. Methods raise what those of
    tidemark.Client of the same name raise.
    """

    def __init__(self, client: asynchronous.Client) -> None:
        """For `connect` and `listen`: connects `client`, whose loop runs on a thread of its own."""
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
        """Wait until what was published is on disk and what was consumed is acknowledged, then disconnect.

        Waits at most `timeout` seconds; see Client.close of tidemark. Closing twice does nothing.
        """
        try:
            self._loop.run(self._client.close, timeout)
        except ClosedError:
            return
        finally:
            self._loop.stop()

    @property
    def name(self) -> str:
        """The name by which administrators know this client."""
        return self._client.name

    @property
    def is_connected(self) -> bool:
        """A broker is connected just now, or holds the lease of this client."""
        return self._client.is_connected

    @property
    def broker(self) -> str:
        """The name of the broker that the client is connected to; NotConnectedError if there is none now."""
        return self._client.broker

    def create_topic(
        self, topic: str, schema: str | Schema | type | None = None, *, is_open: bool = False
    ) -> None:
        """Declare a topic, or a new version of its schema; an open topic without a schema or with `is_open`.

        See tidemark.Client.create_topic.
        """
        self._loop.run(self._client.create_topic, topic, schema, is_open=is_open)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic: nothing can be published to it until it is created again.

        See tidemark.Client.remove_topic.
        """
        self._loop.run(self._client.remove_topic, topic)

    def schemas(self, topic: str) -> list[Schema]:
        """All versions of the schema of a topic, oldest first; see tidemark.Client.schemas."""
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
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Publish a dict or dataclass instance; return the event's tick once it is on disk.

        See tidemark.Client.publish.
        """
        return self._loop.run(
            self._client.publish,
            topic,
            value,
            key=key,
            priority=priority,
            validity=validity,
            sequence=sequence,
            traceparent=traceparent,
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
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> list[int | None]:
        """Publish values in order, in as few batches as possible; return their ticks once all are on disk.

        See tidemark.Client.publish_many.
        """
        # A generator of the application must not run, and perhaps block, on the loop's thread.
        return self._loop.run(
            self._client.publish_many,
            topic,
            list(values),
            key=key,
            priority=priority,
            validity=validity,
            sequence=sequence,
            traceparent=traceparent,
            timeout=timeout,
        )

    def publish_batch(
        self, batch: EventBatch, *, sequence: int | None = None, timeout: float | None = None
    ) -> list[int | None]:
        """Publish an event batch that a BatchBuilder has built; return its ticks once all events are on disk.

        See tidemark.Client.publish_batch.
        """
        return self._loop.run(self._client.publish_batch, batch, sequence=sequence, timeout=timeout)

    def move_publisher(self, *, after: int) -> None:
        """Publish at this broker the events of the named publisher beyond the number `after`.

        See tidemark.Client.move_publisher.
        """
        self._loop.run(self._client.move_publisher, after=after)

    def publish_batches(
        self, batches: Sequence[EventBatch], *, sequence: int | None = None, timeout: float | None = None
    ) -> list[list[int | None]]:
        """Publish event batches in order, without waiting for one before the next; return the ticks of each.

        `sequence` is the number of the first event of the first batch; the other events are numbered from
        there. As much is under way at a time as a client may have. See tidemark.Client.publish_batch.
        """
        numbers = accumulate((batch.count for batch in batches), initial=sequence or 0)

        async def published() -> list[list[int | None]]:
            ticks: list[list[int | None]] = []
            under_way: deque[tuple[int, asyncio.Task[list[int | None]]]] = deque()
            size = 0
            try:
                for batch, number in zip(batches, numbers, strict=False):
                    while under_way and size + len(batch.data) > UNDER_WAY_BYTES_MAX:
                        size -= under_way[0][0]
                        ticks.append(await under_way[0][1])
                        under_way.popleft()
                    first = None if sequence is None else number
                    publishing = self._client.publish_batch(batch, sequence=first, timeout=timeout)
                    under_way.append((len(batch.data), asyncio.create_task(publishing)))
                    size += len(batch.data)
                    await asyncio.sleep(0)  # it is added now, so that batches stay in order
                while under_way:
                    ticks.append(await under_way[0][1])
                    under_way.popleft()
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)
            return ticks

        return self._loop.run(published)

    def _publish_each(
        self, batches: Iterator[EventBatch], sequence: int, published: Callable[[EventBatch], None]
    ) -> None:
        """For Tidemark's own pipeline: publish the batches of an iterator, in order, as they come out of it.

        The iterator runs on a thread while other batches are under way, and at most UNDER_WAY_BYTES_MAX of
        batches are in memory at a time, or a batch more. `published` is called with each batch that is on
        disk, in order. Raises what `publish_batch` raises; some batches may have been published then.
        """
        publisher, timeout = self._client._publisher, self._client._seconds(None)

        async def each() -> None:
            number, size = sequence, 0
            under_way: deque[tuple[EventBatch, asyncio.Task[list[int | None]]]] = deque()
            try:
                while (batch := await asyncio.to_thread(next, batches, None)) is not None or under_way:
                    while under_way and (batch is None or size + len(batch.data) > UNDER_WAY_BYTES_MAX):
                        await under_way[0][1]
                        oldest, _ = under_way.popleft()
                        size -= len(oldest.data)
                        published(oldest)
                    if batch is None:
                        return
                    publishing = publisher.publish_batch(batch, number, timeout, wants_ticks=False)
                    under_way.append((batch, asyncio.create_task(publishing)))
                    number, size = number + batch.count, size + len(batch.data)
                    await asyncio.sleep(0)  # it is added now, so that batches stay in order
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)

        self._loop.run(each)

    @overload
    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        gaps: Literal[False] = False,
        into: None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Event]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        gaps: Literal[True],
        into: None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Event | Gap]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        gaps: Literal[False] = False,
        into: type[Into],
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Into]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        gaps: Literal[True],
        into: type[Into],
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Into | Gap]: ...

    def subscribe(
        self,
        topic: str,
        where: str = "",
        *,
        gaps: bool = False,
        into: type[Any] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Any]:
        """Subscribe to a topic or pattern, and return the subscription, which is open.

        See tidemark.Client.subscribe, and tidemark.Subscription.open for what opening raises.
        """

        async def opened() -> AsyncSubscription[Any]:
            subscribe: Callable[..., AsyncSubscription[Any]] = self._client.subscribe
            return await subscribe(topic, where, gaps=gaps, into=into, **options)

        return Subscription(self._loop.run(opened), self._loop)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Acknowledge several subscriptions together: `with tm.transaction() as tx: tx.ack(sub)`.

        `timeout`, by default that of the client, is how many seconds the commit may take.
        """
        return Transaction(self._client.transaction(timeout=timeout), self._loop)

    def unsubscribe(self, name: str) -> None:
        """End the durable subscription `name` for good; see tidemark.Client.unsubscribe."""
        self._loop.run(self._client.unsubscribe, name)

    def _fetch(
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
        """For Tidemark's own pipeline: read a pubend in bulk, as Client._fetch of tidemark.client does."""
        return self._loop.run(
            self._client._fetch, pubend, base, upto, pattern, where, bytes_max=bytes_max, timeout=timeout
        )

    @overload
    def ask(
        self, what: Question[Answered], *, timeout: float | None = None, **arguments: Any
    ) -> Answered: ...

    @overload
    def ask(self, what: str, *, timeout: float | None = None, **arguments: Any) -> Any: ...

    def ask(self, what: str | Question[Any], *, timeout: float | None = None, **arguments: Any) -> Any:
        """Ask the broker what administrators ask, `tm.ask("status")`; return what the JSON answer says.

        With a question of `tidemark.admin` in place of a name, return its dataclass. See tidemark.Client.ask.
        """
        ask: Callable[..., Awaitable[Any]] = self._client.ask
        return self._loop.run(ask, what, timeout=timeout, **arguments)


class Subscription(Generic[ItemT]):
    """A subscription, which one thread at a time iterates over; `with` closes it at the end of the block.

    See tidemark.Subscription, whose methods of the same name raise the same errors.
    """

    def __init__(self, subscription: AsyncSubscription[ItemT], loop: LoopThread) -> None:
        """For Client.subscribe, which makes subscriptions."""
        self._subscription = subscription
        self._session = subscription._session
        self._loop = loop

    @property
    def name(self) -> str:
        """The name by which the broker knows the subscription: `durable`, or a name that the client made."""
        return self._subscription.name

    def __enter__(self) -> Subscription[ItemT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._subscription.__aexit__, kind, error, trace)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop. A durable subscription stays at the broker, which keeps events for it.

        Waits up to `timeout` seconds until the broker has stored what was consumed.
        """
        self._loop.run(self._subscription.close, timeout)

    def unsubscribe(self) -> None:
        """End the subscription for good: the broker keeps no events for it any more."""
        self._loop.run(self._subscription.unsubscribe)

    def __iter__(self) -> Iterator[ItemT]:
        """Events in the order of each pubend, until the subscription is closed.

        A gap is raised as a GapError, and iterating again goes on behind it; with `gaps=True` it is an item.
        """
        session = self._session
        while True:
            if session.must_commit:
                self._loop.run(session.commit)
            item = session.step()
            if item is not None:
                yield cast(ItemT, item)
            elif not self._loop.run(session.load):
                return

    def next(self, timeout: float | None = None) -> ItemT | None:
        """The next item; None if none came within `timeout` seconds or the subscription is closed.

        Without a timeout it waits until there is one. A gap is raised as a GapError unless gaps are items.
        """
        if self._session.must_commit:
            self._loop.run(self._session.commit)
        item = self._session.step()
        return self._loop.run(self._subscription.next, timeout) if item is None else cast(ItemT, item)

    @overload
    def batches(self: Subscription[Event], timeout: float | None = None) -> Iterator[Batch]: ...

    @overload
    def batches(self, timeout: float | None = None) -> Iterator[Batch | Gap]: ...

    def batches(self, timeout: float | None = None) -> Iterator[Batch | Gap]:
        """Iterate over batches: all events of a pubend that arrived together, as arrays.

        A gap is raised as a GapError unless gaps are items. The iteration ends when nothing came for
        `timeout` seconds; without a timeout, when the subscription is closed.
        """
        session = self._session
        while True:
            if session.must_commit:
                self._loop.run(session.commit)
            item = session.step_batch()
            if item is not None:
                yield item
            elif not self._loop.run(self._load, timeout):
                return

    async def _load(self, timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._session.load()
        except TimeoutError:
            return False

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of everything that was handed out, including what the application is working on.

        An application that keeps its own place stores this token in the transaction of its data.
        """
        return self._subscription.checkpoint

    def ack(self, upto: Upto = None, *, sync: bool = False) -> None:
        """Acknowledge everything up to an event, gap, batch or token; without `upto` all that was handed out.

        With `sync` this returns when the broker has the acknowledgement on disk. See
        tidemark.Subscription.ack.
        """
        self._loop.run(self._subscription.ack, upto, sync=sync)


class Transaction:
    """Acknowledgements of several subscriptions that hold together, or not at all.

    `with tm.transaction() as tx:` collects acknowledgements; leaving the block commits them, as with
    tidemark.Transaction.
    """

    def __init__(self, transaction: AsyncTransaction, loop: LoopThread) -> None:
        """For Client.transaction, which makes transactions."""
        self._transaction = transaction
        self._loop = loop

    def ack(self, what: Subscription[Any] | Event | Batch, upto: Upto = None) -> None:
        """Acknowledge, when the transaction commits, everything up to an event or batch.

        `tx.ack(event)` is enough. See tidemark.Transaction.ack.
        """
        self._transaction.ack(what._subscription if isinstance(what, Subscription) else what, upto)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._transaction.__aexit__, kind, error, trace)


def _closed() -> ClosedError:
    return ClosedError("the client is closed: open a new one with tidemark.sync.connect(...)")
