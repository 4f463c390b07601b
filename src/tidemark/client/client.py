"""Client: what an application holds. Publishing, subscribing, topics and administration over one link."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from tidemark.client.connecting.addresses import Address, addresses_in, parse_listen, parse_url
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.connection import PING_SECONDS
from tidemark.client.connecting.link import Link, closed
from tidemark.client.connecting.pending_requests import Questions, lost
from tidemark.client.connecting.push_link import PushLink
from tidemark.client.publishing.outgoing import Ticks
from tidemark.client.publishing.publisher import Options, Publisher, options
from tidemark.client.recalls import Recalls
from tidemark.client.subscribing.acks import Acks, Transaction
from tidemark.client.subscribing.start_position import Start, check_start, starting_token
from tidemark.client.subscribing.subscription import (
    CLOSE_SECONDS,
    SERVER_KEPT,
    WINDOW_BYTES_MAX,
    AckMode,
    ServerKept,
    Subscription,
    check_arguments,
)
from tidemark.client.topics import Topics
from tidemark.errors import (
    ClientError,
    NotConnectedError,
    RefusedError,
    TidemarkError,
    TimedOutError,
    WireError,
)
from tidemark.message.batches.batch import PRIORITY_DEFAULT, EventBatch
from tidemark.message.schema import Schema
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Acked,
    Answer,
    ClientFrame,
    Deliver,
    Fetched,
    Gap,
    Published,
    Recall,
    RecallMore,
    RecallOver,
    Refused,
    Subscribed,
    Topic,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)

if TYPE_CHECKING:
    from tidemark.wire.answers import Answered, Question

#: How long anything waits for its answer unless the call says otherwise.
TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
LEASE_SECONDS = 60.0
#: Read from the log for one answer of `fetch`.
FETCH_BYTES = 4 << 20
_PLAIN = Options()


class ConnectOptions(TypedDict, total=False):
    """What `connect` and `listen` both take. Times are in seconds."""

    #: the name that administrators see; a new one each time unless it is given
    client: str | None
    #: who publishes, for applications that number their events themselves: see Client.publish
    publisher: str | None
    #: where to publish, if not where the broker puts it
    pubend: str | None
    #: how long anything waits for its answer
    timeout: float
    #: how long the first connection may take
    connect_timeout: float
    #: how often a silent broker is asked whether it is there
    ping: float


def connect(url: str, **options: Unpack[ConnectOptions]) -> Client:
    """A client of the brokers at `tidemark://host:port[,host:port...]`; `async with` or `await` connects it.

    It stays connected to one of them, and goes on where it was after every break. Options: `client`,
    `publisher`, `pubend`, `timeout`, `connect_timeout` and `ping`, see ConnectOptions.
    """
    return Client(url, **options)


def listen(
    url: str,
    address: str = "127.0.0.1:0",
    *,
    lease: float = LEASE_SECONDS,
    **options: Unpack[ConnectOptions],
) -> Client:
    """A client that is called by its broker when there is something for it, in place of an open connection.

    It listens at `address`; all else is as with `connect`. It may be unreachable for `lease` seconds before
    the broker takes it for gone, or less if the broker grants less. RefusedError with the code "address" if
    the broker does not call there.
    """
    return Client(url, push=(parse_listen(address), max(1, round(lease))), **options)


class Client:
    """A connection to Tidemark. All methods are for the loop it was opened on."""

    def __init__(
        self,
        url: str,
        *,
        client: str | None = None,
        publisher: str | None = None,
        pubend: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        connect_timeout: float = CONNECT_SECONDS,
        ping: float = PING_SECONDS,
        push: tuple[Address, int] | None = None,
    ) -> None:
        """See ConnectOptions; `push`: listen there, and hold a lease of so many seconds."""
        self._addresses = parse_url(url)
        self.name = client or f"client-{token_hex(6)}"
        self._publisher_name = publisher
        self._pubend = pubend
        self.timeout = timeout
        self._connect_timeout = connect_timeout
        self._ping = ping
        self._push = push
        self._is_open = False
        self._subscriptions: dict[str, Subscription] = {}
        self._names_made = 0
        self._unsubscribing: dict[str, asyncio.Future[None]] = {}
        #: of those, what was sent again: it may be done already
        self._unsubscribed_again: set[str] = set()
        self._recalls: Recalls | None = None

    # Opening and closing.

    async def open(self) -> Client:
        """Connect; NotConnectedError with what each broker said if none is there."""
        if self._is_open:
            return self
        self.link = self._made_link()
        self.topics = Topics(self.link.send)
        self.acks = Acks(self.link)
        self._questions = Questions(self.link.send)
        self._publisher = Publisher(
            self.link,
            self.topics,
            publisher=self._publisher_name or f"publisher-{token_hex(8)}",
            is_named=self._publisher_name is not None,
            pubend=self._pubend,
            backoff=Backoff(),
        )
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Deliver: self._deliver,
            Published: self._publisher.published,
            Gap: self._gap,
            Subscribed: self._subscribed,
            Acked: self.acks.acked,
            Topic: self.topics.answered,
            Answer: self._questions.answered,
            Fetched: self._questions.answered,
            Unsubscribed: self._unsubscribed,
            Refused: self._refused,
        }
        self._is_open = True
        try:
            await self.link.open(self._connect_timeout)
        except BaseException:
            self._is_open = False
            raise
        return self

    def _made_link(self) -> Link:
        told: dict[str, Any] = {
            "on_frame": self._frame,
            "on_up": self._up,
            "on_down": self._down,
            "on_writable": self._writable,
            "backoff": Backoff(),
            "ping_seconds": self._ping,
        }
        if self._push is None:
            return Link(self._addresses, self.name, **told)
        address, seconds = self._push
        return PushLink(self._addresses, self.name, listen=address, lease_seconds=seconds, **told)

    def __await__(self) -> Generator[Any, None, Client]:
        return self.open().__await__()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait until what was published is on disk and what was consumed is acknowledged, then disconnect.

        At most `timeout` seconds: what is still open then ends with an error that says what is not known.
        """
        if not self._is_open:
            return
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            for subscription in list(self._subscriptions.values()):
                await subscription.close(max(0.0, deadline - asyncio.get_running_loop().time()))
            if self.link.is_up:
                await self._publisher.drain(deadline)
        finally:
            self._end_waiting()
            await self.link.close()

    def _end_waiting(self) -> None:
        """Nothing can be asked any more, and whoever waits for an answer learns that none will come."""
        self._is_open = False
        self._publisher.close()
        self.acks.close()
        if self._recalls is not None:
            self._recalls.close()
        self._questions.void(closed)
        for future in self._unsubscribing.values():
            if not future.done():
                future.set_exception(closed())

    @property
    def is_connected(self) -> bool:
        """A broker is there just now, or holds our lease."""
        return self._is_open and self.link.is_up

    @property
    def broker(self) -> str:
        """The name of the broker it is connected to; NotConnectedError when there is none."""
        return self._welcome().broker

    def _welcome(self) -> Welcome:
        self._check_open()
        if self.link.welcome is None:
            raise NotConnectedError("there is no broker just now: it is being looked for")
        return self.link.welcome

    # Topics.

    async def create_topic(
        self, topic: str, schema: str | Schema | type | None = None, *, is_open: bool = False
    ) -> None:
        """Declare a topic, or a new version of its schema; without a schema, or with `is_open`, it is open.

        The schema is a text of the schema language, a Schema, or a dataclass; of an open topic it is one of
        the shapes that its events have, and is added to them. Declaring again what is declared already
        changes nothing. RefusedError when readers of an older version could not follow, and when the topic
        is there and of the other kind.
        """
        self._check_open()
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        if parsed is not None and not isinstance(parsed, Schema):
            parsed = Schema.of(parsed)
        declared = self.topics.declare(topic, parsed, is_open=is_open or parsed is None)
        await self._within(declared, f"the declaration of {topic!r}")

    async def schemas(self, topic: str) -> list[Schema]:
        """All versions of a topic's schema, oldest first; of an open topic, all shapes. [] for no topic."""
        self._check_open()
        answer = await self._within(self.topics.describe(topic), f"the question for {topic!r}")
        return [Schema.parse(text) for text in answer.schemas]

    # Publishing.

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
    ) -> asyncio.Future[int | None]:
        """Publish a dict or dataclass instance. Await the result: the event's tick, once it is on disk.

        The event is queued at once, in the order of the calls, also if the result is awaited later: many may
        be under way. It is sent again after a break, and logged once. The tick is None in one case: the
        acknowledgement was lost with a connection, and a later one covered the event.

        `validity` is in seconds; after that it is not delivered any more. `sequence` is for a client with a
        named publisher, and required there: 1, 2, 3 ... for each event it ever publishes. The application
        keeps the number with its own data, and after a crash publishes again from a number that it is sure
        of: what is logged already is acknowledged and not logged again.

        EncodeError: it does not fit the topic. TimedOutError, RefusedError: not acknowledged in time.
        """
        self._check_open()
        seconds = self.timeout if timeout is None else timeout
        if not key and validity is None and priority == PRIORITY_DEFAULT and sequence is None:
            return self._publisher.publish(topic, value, _PLAIN, seconds)
        return self._publisher.publish(topic, value, options(key, priority, validity, sequence), seconds)

    async def publish_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        key: str | bytes = b"",
        priority: int = PRIORITY_DEFAULT,
        validity: float | None = None,
        sequence: int | None = None,
        timeout: float | None = None,
    ) -> Ticks:
        """Publish in order, in as few batches as possible; the ticks, once all are on disk.

        If it fails, the events before the failing one are published. `key`, `priority` and `validity` are
        of every one of them; `sequence` is the first one's.
        """
        self._check_open()
        checked = options(key, priority, validity, sequence)
        seconds = self.timeout if timeout is None else timeout
        return await self._publisher.publish_many(topic, values, checked, seconds)

    async def publish_batch(
        self, batch: EventBatch, *, sequence: int | None = None, timeout: float | None = None
    ) -> Ticks:
        """Publish an event batch that was built elsewhere. Its topics and schemas must be declared."""
        self._check_open()
        seconds = self.timeout if timeout is None else timeout
        return await self._publisher.publish_batch(batch, sequence, seconds)

    # Subscribing.

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
        """Subscribe to a topic or pattern; `async with` or `await` opens the subscription.

        With a name in `durable` it goes on while nobody is connected: the next one to come with this name
        gets what was missed. Who keeps the place is a choice: the broker, from acknowledgements (`ack`:
        "auto", when the application takes the next event; "client", when it calls `ack()`; "transacted",
        several together); or the application, that gives the token it stored as `checkpoint`, None the
        first time, and calls `ack()` once it has stored another, so that brokers can let go what lies before.

        A durable subscription that is not there yet begins now, or at its `start` in the past: "earliest", a
        datetime (UTC if it has no zone), or a token; brokers and the archive behind them give what they have
        since then. One that is there goes on where it was, whatever `start` says.
        """
        self._check_open()
        check_arguments(durable, checkpoint, ack)
        check_start(start, durable, datetime.now(UTC))
        return Subscription(self, topic, where, durable, checkpoint, ack, window_bytes_max, start)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Acknowledge several subscriptions together: `async with tm.transaction() as tx: tx.ack(sub)`."""
        self._check_open()
        return Transaction(lambda: self.acks, self.timeout if timeout is None else timeout)

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription for good: the broker keeps nothing for it any more."""
        self._check_open()
        future = self._unsubscribing.get(name)
        if future is None:
            future = self._unsubscribing[name] = asyncio.get_running_loop().create_future()
            self.link.send(Unsubscribe(name))
        try:
            await self._within(asyncio.shield(future), f"the end of {name!r}")
        finally:
            self._unsubscribing.pop(name, None)
            self._unsubscribed_again.discard(name)

    # Administration.

    @overload
    async def ask(
        self, what: Question[Answered], *, timeout: float | None = None, **arguments: Any
    ) -> Answered: ...

    @overload
    async def ask(self, what: str, *, timeout: float | None = None, **arguments: Any) -> Any: ...

    async def ask(self, what: str | Question[Any], *, timeout: float | None = None, **arguments: Any) -> Any:
        """Ask the broker what administrators ask.

        `await tm.ask("status")` returns plain JSON: dicts, lists and numbers. A question of
        `tidemark.admin`, as in `await tm.ask(STATUS)`, returns its dataclass.
        """
        self._welcome()
        name = what if isinstance(what, str) else what.what
        asked = self._questions.ask(name, json.dumps(arguments))
        found = json.loads(await self._within(asked, f"the answer to {name!r}", timeout))
        return found if isinstance(what, str) else what.read(found)

    async def fetch(
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
        """Read `(base, upto]` of a pubend hosted at this broker, or a first part of it, in bulk.

        The answer's `upto` says how far it reaches: go on from there. What lies at or below its `lost`, and
        its `damaged` ranges, are gone. Nothing is held for who reads like this: subscribe for that.
        """
        self._welcome()
        asked = self._questions.fetch(pubend, base, upto, pattern, where, bytes_max)
        fetched: Fetched = await self._within(asked, f"what lies beyond {base} of {pubend!r}", timeout)
        return fetched

    def offer(self, recalls_max: int) -> Recalls:
        """For pipelines: answer, from an archive, what brokers do not have any more; iterate over recalls.

        The broker has at most `recalls_max` of them under way. Offered once a client, and again by itself
        after every break, which ends the recalls that were under way.
        """
        self._check_open()
        assert self._recalls is None, "a client offers once"
        assert recalls_max > 0
        recalls = self._recalls = Recalls(self.link, recalls_max)
        self._handlers |= {Recall: recalls.recall, RecallMore: recalls.more, RecallOver: recalls.over}
        recalls.up()
        return recalls

    async def _within(self, answer: Any, what: str, timeout: float | None = None) -> Any:
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise TimedOutError(f"{what} did not come within {seconds:g} s: ask again") from None

    # What subscriptions need.

    def enter(self, subscription: Subscription) -> None:
        """Frames for its name go to it from now on."""
        if self._subscriptions.setdefault(subscription.name, subscription) is not subscription:
            raise ClientError(
                f"the durable subscription {subscription.name!r} is open in this client: close it first"
            )

    def leave(self, subscription: Subscription) -> None:
        """Frames for its name are nobody's."""
        if self._subscriptions.get(subscription.name) is subscription:
            del self._subscriptions[subscription.name]

    def fresh_name(self) -> str:
        """A name that no other subscription has."""
        self._names_made += 1
        return f"~{self.name}.{self._names_made}"

    async def starting_token(self, name: str, start: Start) -> CheckpointToken | None:
        """The token of a start; None if the subscription is there already."""
        return await starting_token(self.ask, name, start)

    # From the link.

    def _up(self, welcome: Welcome) -> None:
        self.topics.again()
        if self._recalls is not None:
            self._recalls.up()
        self.acks.up()
        for subscription in list(self._subscriptions.values()):
            try:
                subscription.up()
            except WireError as error:  # its token may have outgrown a frame: the others go on
                subscription.fail(error)
        for name in self._unsubscribing:
            self._unsubscribed_again.add(name)
            self.link.send(Unsubscribe(name))
        self._publisher.up(welcome)

    def _down(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.down()
        if self._recalls is not None:
            self._recalls.down()
        self._questions.void(lost)

    def _writable(self) -> None:
        self._publisher.writable()
        if self._recalls is not None:
            self._recalls.writing()

    def _frame(self, frame: ClientFrame) -> None:
        handler = self._handlers.get(type(frame))
        # A newer broker may say more than this client understands.
        if handler is not None:
            handler(frame)

    def _deliver(self, frame: Deliver) -> None:
        subscription = self._subscriptions.get(frame.name)
        if subscription is not None:
            subscription.delivered(frame)

    def _gap(self, frame: Gap) -> None:
        subscription = self._subscriptions.get(frame.name)
        if subscription is not None:
            subscription.gap(frame)

    def _subscribed(self, frame: Subscribed) -> None:
        subscription = self._subscriptions.get(frame.name)
        if subscription is not None:
            subscription.subscribed(frame)

    def _unsubscribed(self, frame: Unsubscribed) -> None:
        future = self._unsubscribing.get(frame.name)
        if future is not None and not future.done():
            future.set_result(None)

    def _refused(self, frame: Refused) -> None:
        if frame.code == "draining":
            self._sent_elsewhere(frame)
            return
        match frame.what:
            case "publish":
                self._publisher.refused(frame)
            case "subscribe":
                subscription = self._subscriptions.get(frame.name)
                if subscription is not None:
                    subscription.refused(frame)
            case "topic" | "describe":
                self.topics.refused(frame)
            case "ack":
                self.acks.refused(frame)
            case "unsubscribe" if frame.code == "unknown" and frame.name in self._unsubscribed_again:
                self._unsubscribed(Unsubscribed(frame.name))
            case "unsubscribe":
                future = self._unsubscribing.get(frame.name)
                if future is not None and not future.done():
                    future.set_exception(_refusal(frame))
            case "ask" | "fetch":
                self._questions.refused(frame)
            case _:
                raise _refusal(frame)

    def _sent_elsewhere(self, frame: Refused) -> None:
        """The broker is to be taken away: subscriptions go on at another, what it refused was not logged."""
        if frame.what == "publish":
            self._publisher.refused(frame)
        self.link.move(addresses_in(frame.reason), frame.reason)

    def _check_open(self) -> None:
        if not self._is_open:
            raise closed()


def _refusal(frame: Refused) -> TidemarkError:
    return RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code)
