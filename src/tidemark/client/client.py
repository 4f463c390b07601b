"""Client: what an application holds. Publishing, subscribing, topics and administration over one link."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from functools import partial
from os import getpid
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidemark.client.connecting.addresses import SocketAddress, is_tls, parse_addresses, parse_url
from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.connection import PING_SECONDS
from tidemark.client.connecting.credentials import Credentials, LoginOptions
from tidemark.client.connecting.link import Link, closed, forked, not_open
from tidemark.client.connecting.options import ConnectOptions
from tidemark.client.connecting.pending_requests import PendingRequests, connection_lost, first_pages, within
from tidemark.client.connecting.push_link import PushLink
from tidemark.client.connecting.refusals import error_of
from tidemark.client.events import Event, Gap
from tidemark.client.publishing.options import EventOptions, event_options
from tidemark.client.publishing.outgoing import Ticks
from tidemark.client.publishing.traced import made_publisher
from tidemark.client.recalls import IncomingRecalls
from tidemark.client.subscribing.acks import Acks
from tidemark.client.subscribing.arguments import SubscribeArguments, SubscribeOptions
from tidemark.client.subscribing.open_subscriptions import OpenSubscriptions
from tidemark.client.subscribing.session import SubscriptionSession
from tidemark.client.subscribing.subscription import CLOSE_SECONDS, Subscription
from tidemark.client.subscribing.traced import traced_delivery
from tidemark.client.subscribing.transaction import Transaction
from tidemark.client.topics import REMOVAL_VERSION, ClientTopics
from tidemark.errors import ClientError, NotConnectedError
from tidemark.message.batches.batch import PRIORITY_DEFAULT, EventBatch
from tidemark.message.generations import is_removed
from tidemark.message.publisher_names import made_name
from tidemark.message.schema import Schema
from tidemark.wire.frames import (
    Acked,
    Answer,
    ClientFrame,
    Deliver,
    Fetched,
    Published,
    Recall,
    RecallMore,
    RecallOver,
    Refused,
    Subscribed,
    Topic,
    Unsubscribed,
    Welcome,
)
from tidemark.wire.frames import Gap as GapFrame
from tidemark.wire.moving.frames import Left
from tidemark.wire.questions import Answered, Question

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: Seconds that a broker has to answer, unless the call says otherwise.
TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
#: Bytes that a broker reads from its log for one answer of `_fetch`.
FETCH_BYTES = 4 << 20
_PLAIN = EventOptions()
#: The dataclass that `subscribe(..., into=...)` hands events out as.
Into = TypeVar("Into")


def connect(url: str, **options: Unpack[ConnectOptions]) -> Client:
    """A client of the brokers at `tidemark://host:port[,host:port...]`; `async with` or `await` connects it.

    The client stays connected to one of the brokers, and goes on where it was after every break. Options are
    `client`, `publisher`, `pubend`, `timeout`, `connect_timeout`, `wait_for_broker`, `ping` and
    `tracer_provider`: see ConnectOptions. ConfigError if the URL is malformed; connecting raises
    NotConnectedError if no broker answers within `connect_timeout`, and at once if nobody listens anywhere.
    """
    return Client(url, **options)


class Client:
    """A connection to Tidemark, made by `tidemark.connect` or `tidemark.listen`.

    All methods are for the event loop on which the client was opened. Every method but `open` and `close`
    raises ClosedError while the client is not open.
    """

    def __init__(
        self,
        url: str,
        *,
        client: str | None = None,
        publisher: str | None = None,
        pubend: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        connect_timeout: float = CONNECT_SECONDS,
        wait_for_broker: bool = False,
        ping: float = PING_SECONDS,
        tracer_provider: TracerProvider | None = None,
        push: tuple[SocketAddress, int] | None = None,
        **login: Unpack[LoginOptions],
    ) -> None:
        """For `connect` and `listen`: see ConnectOptions. `push`: where to listen, the lease in seconds."""
        self._addresses = parse_url(url)
        self._credentials = Credentials.of(login, is_tls=is_tls(url))
        self._name = client or f"client-{token_hex(6)}"
        self._publisher_name = publisher
        self._pubend = pubend
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._wait_for_broker = wait_for_broker
        self._ping = ping
        self._push = push
        self._tracers = tracer_provider
        self._is_open = False
        self._was_open = False
        #: the process that opened the client; the connection is not for its forked children
        self._process = 0
        self._recalls: IncomingRecalls | None = None

    # Opening and closing.

    async def open(self) -> Client:
        """Connect, and return this client; `async with` and `await` do the same. Opening twice does nothing.

        NotConnectedError, with what each broker answered, if no broker could be reached within
        `connect_timeout`; VersionError if none speaks a version of the protocol that this client knows.
        """
        if self._is_open:
            return self
        self._link = self._made_link()
        self._topics = ClientTopics(self._link.send)
        self._acks = Acks(self._link)
        self._requests = PendingRequests(self._link.send)
        self._subscriptions = OpenSubscriptions(
            self._name, self._link, self._topics, self._acks, self.ask, self._timeout
        )
        self._publisher = made_publisher(
            self._tracers,
            link=self._link,
            topics=self._topics,
            publisher=self._publisher_name or made_name(token_hex(8)),
            is_named=self._publisher_name is not None,
            pubend=self._pubend,
            backoff=Backoff(),
            ask=self.ask,
        )
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Deliver: traced_delivery(self._tracers, self._subscriptions.delivered),
            Published: self._publisher.published,
            Left: self._publisher.left,
            GapFrame: self._subscriptions.gap,
            Subscribed: self._subscriptions.subscribed,
            Acked: self._acks.acked,
            Topic: self._topics.answered,
            Answer: self._requests.answered,
            Fetched: self._requests.answered,
            Unsubscribed: self._subscriptions.unsubscribed,
            Refused: self._refused,
        }
        self._is_open = self._was_open = True
        self._process = getpid()
        try:
            await self._link.open(self._connect_timeout)
        except BaseException:
            self._is_open = self._was_open = False
            raise
        return self

    def _made_link(self) -> Link:
        callbacks: dict[str, Any] = {
            "on_frame": self._frame,
            "on_up": self._up,
            "on_down": self._down,
            "on_writable": self._writable,
            "backoff": Backoff(),
            "ping_seconds": self._ping,
            "waits": self._wait_for_broker,
            "credentials": self._credentials,
        }
        if self._push is None:
            return Link(self._addresses, self._name, **callbacks)
        address, seconds = self._push
        return PushLink(self._addresses, self._name, listen=address, lease_seconds=seconds, **callbacks)

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

        Waits at most `timeout` seconds. Calls that are still pending then raise ClosedError, and publishes
        TimedOutError, since whether their events are on disk is not known.
        """
        if not self._is_open:
            return
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            await self._subscriptions.close(deadline)
            if self._link.is_up:
                await self._publisher.drain(deadline)
        finally:
            self._end_waiting()
            await self._link.close()

    def _end_waiting(self) -> None:
        """Take no more calls, and end those that wait for an answer: none will come."""
        self._is_open = False
        self._publisher.close()
        self._acks.close()
        if self._recalls is not None:
            self._recalls.close()
        self._requests.fail_all(closed)
        self._topics.end_waiting()
        self._subscriptions.end_waiting()

    @property
    def name(self) -> str:
        """The name by which administrators know this client."""
        return self._name

    @property
    def is_connected(self) -> bool:
        """A broker is connected just now, or holds the lease of this client."""
        return self._is_open and self._link.is_up

    @property
    def broker(self) -> str:
        """The name of the broker that the client is connected to; NotConnectedError if there is none now."""
        return self._welcome().broker

    def _welcome(self) -> Welcome:
        self._check_open()
        if self._link.welcome is None:
            raise NotConnectedError("there is no broker just now: it is being looked for")
        return self._link.welcome

    # Topics.

    async def create_topic(
        self, topic: str, schema: str | Schema | type | None = None, *, is_open: bool = False
    ) -> None:
        """Declare a topic, or a new version of its schema; an open topic without a schema or with `is_open`.

        The schema is a text of the schema language, a Schema, or a dataclass. For an open topic it is one of
        the shapes that events of the topic have, and is added to them. Declaring again what is declared
        already changes nothing. SchemaSyntaxError if the text is malformed. RefusedError if readers of an
        older version could not read the new one, and if the topic exists and is of the other kind, open or
        declared. A topic that was removed is created again, with this schema as its first. TimedOutError if
        the broker does not answer in time; declaring again is safe.
        """
        self._check_open()
        parsed = Schema.parse(schema) if isinstance(schema, str) else schema
        if parsed is not None and not isinstance(parsed, Schema):
            parsed = Schema.of(parsed)
        declared = self._topics.create(topic, parsed, is_open=is_open or parsed is None)
        await within(declared, f"the declaration of {topic!r}", self._timeout)

    async def remove_topic(self, topic: str) -> None:
        """Remove a topic: nothing can be published to it until it is created again, with any schema.

        Events that were published before stay, with the schema they have: subscriptions get what they are
        owed, and then wait as for a topic that does not exist. RefusedError if there is no such topic or it
        may not be removed. TimedOutError if the broker does not answer in time; removing again is safe.
        """
        if self._welcome().version < REMOVAL_VERSION:
            raise ClientError(f"the broker {self.broker!r} is too old to remove topics: update it first")
        await within(self._topics.remove(topic), f"the removal of {topic!r}", self._timeout)

    async def schemas(self, topic: str) -> list[Schema]:
        """All versions of the schema of a topic, oldest first; of an open topic, all shapes.

        An empty list if there is no such topic. TimedOutError if the broker does not answer in time.
        """
        self._check_open()
        answer = await within(self._topics.describe(topic), f"the question for {topic!r}", self._timeout)
        return [] if is_removed(answer.generation) else [Schema.parse(text) for text in answer.schemas]

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
        traceparent: str | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[int | None]:
        """Publish a dict or dataclass instance. Await the result: the event's tick, once it is on disk.

        The event is queued at once, in the order of the calls, also if the result is awaited later: many
        events may be under way. After a break the event is sent again, and logged once. The tick is None in
        one case: the acknowledgement was lost with a connection, and a later one covered the event.

        `key` and `priority` (0 to 9) go with the event. `validity` is in seconds; after that time the event
        is not delivered any more, without it there is no limit. `sequence` is for a client with a named
        publisher, and required there: 1, 2, 3 ... for each event that the publisher ever publishes. The
        application keeps the number with its own data, and after a crash publishes again from a number that
        it is sure of: what is logged already is acknowledged and not logged again. The event carries
        `traceparent` to its subscribers. `timeout` is in seconds, by default that of the client.

        EncodeError if the value does not fit the topic. TimedOutError and RefusedError if the event was not
        acknowledged in time: whether it is, or will be, on disk is not known then. NotConnectedError if no
        broker came back in time to take it: nothing was published. ClientError if `sequence` is not the next
        number, or too many events wait.
        """
        self._check_open()
        is_plain = key == b"" and validity is None and priority == PRIORITY_DEFAULT and sequence is None
        if is_plain and traceparent is None:
            return self._publisher.publish(topic, value, _PLAIN, self._seconds(timeout))
        options = event_options(key, priority, validity, sequence, traceparent)
        return self._publisher.publish(topic, value, options, self._seconds(timeout))

    async def publish_many(
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
    ) -> Ticks:
        """Publish values in order, in as few batches as possible; return their ticks once all are on disk.

        `key`, `priority`, `validity` and `traceparent` go with every event; `sequence` is the number of the
        first. The rest is as with `publish`. If one value fails, the events before it are published.
        """
        self._check_open()
        checked = event_options(key, priority, validity, sequence, traceparent)
        return await self._publisher.publish_many(topic, values, checked, self._seconds(timeout))

    async def publish_batch(
        self, batch: EventBatch, *, sequence: int | None = None, timeout: float | None = None
    ) -> Ticks:
        """Publish an event batch that a BatchBuilder has built; return its ticks once all events are on disk.

        The topics and schemas of the batch must be declared: see `create_topic`. `sequence` is the number of
        the first event. A batch of more than 4 MiB is sent in parts. Raises what `publish` raises.
        """
        self._check_open()
        return await self._publisher.publish_batch(batch, sequence, self._seconds(timeout))

    async def move_publisher(self, *, after: int) -> None:
        """Publish at this broker the events of the named publisher beyond the number `after`.

        It is for a last broker that will not come back: what it has beyond `after` is then published twice.
        """
        self._check_open()
        self._publisher.move_anyway(after)

    # Subscribing.

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
        """Subscribe to a topic or pattern; `async with` or `await` opens the subscription.

        `where` is a selector; without it every event of the topic is delivered. Iterating gives events and
        raises a gap as a GapError; with `gaps` a gap is an item like an event. With a dataclass as `into`
        events are handed out as its instances. Options are `durable`, `checkpoint`, `ack`, `start` and
        `window_bytes_max`: see SubscribeOptions. With a name in `durable` the
        subscription goes on while nobody is connected: the next client that subscribes with this name gets
        what was missed.

        Who keeps the place of a durable subscription is a choice. The broker keeps it from acknowledgements,
        by `ack`: "gathered", the default, soon after the application takes the next event; "auto", on disk
        before it gets the next event; "client", when it calls `ack()`; "transacted", several subscriptions
        together. Or the application keeps it: it gives the token that it stored as `checkpoint`, None the
        first time, and calls `ack()` once it has stored another: brokers can release the events before it.

        A durable subscription that does not exist yet begins now, or at its `start` in the past: "earliest",
        a datetime (UTC if it has no zone), or a token; brokers and the archive behind them deliver what they
        have since then. A subscription that exists goes on where it was, whatever `start` says. One that is
        not durable starts there each time; nothing is held for it, so what is released meanwhile is a gap.

        The broker sends at most `window_bytes_max` bytes of events ahead of what was consumed. ClientError if
        the arguments contradict each other; opening raises RefusedError if the broker refuses them.
        """
        self._check_open()
        arguments = SubscribeArguments(topic, where, gaps=gaps, into=into, **options)
        arguments.check(datetime.now(UTC))
        return Subscription(SubscriptionSession(self._subscriptions, arguments))

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Acknowledge several subscriptions together: `async with tm.transaction() as tx: tx.ack(sub)`.

        `timeout`, by default that of the client, is how many seconds the commit may take.
        """
        self._check_open()
        return Transaction(self._acks, self._seconds(timeout))

    async def unsubscribe(self, name: str) -> None:
        """End the durable subscription `name` for good: the broker keeps no events for it any more.

        RefusedError with the code "unknown" if the broker has no such subscription; TimedOutError if the
        broker does not answer in time.
        """
        self._check_open()
        await self._subscriptions.unsubscribe(name)

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
        `tidemark.admin`, as in `await tm.ask(STATUS)`, returns its dataclass. A long answer comes in pages: a
        question of `tidemark.admin` fetches them all, and one by name gets them with `limit` and `after`.

        RefusedError if the broker does not know the question; NotConnectedError if there is no broker just
        now, or it was lost before it answered; TimedOutError if it does not answer within `timeout` seconds,
        by default those of the client.
        """
        if isinstance(what, str):
            return await self._ask(what, timeout, arguments)
        if not what.is_paged:
            return what.read(await self._ask(what.what, timeout, arguments))
        return what.read((await first_pages(partial(self._ask, what.what, timeout), arguments))[0])

    async def _ask(self, name: str, timeout: float | None, arguments: dict[str, Any]) -> Any:
        self._welcome()
        asked = self._requests.ask(name, json.dumps(arguments))
        return json.loads(await within(asked, f"the answer to {name!r}", self._seconds(timeout)))

    # For Tidemark's own pipeline and console.

    async def _fetch(
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
        """Read `(base, upto]` of a pubend that this broker hosts, or a first part of it, in bulk.

        The `upto` of the answer says how far it reaches: fetch again from there. Events at or below its
        `lost`, and in its `damaged` ranges, are gone. The broker keeps nothing for a reader that fetches:
        subscribe for that. Raises what `ask` raises.
        """
        self._welcome()
        asked = self._requests.fetch(pubend, base, upto, pattern, where, bytes_max)
        return await within(asked, f"what lies beyond {base} of {pubend!r}", self._seconds(timeout))

    def _offer(self, recalls_max: int) -> IncomingRecalls:
        """Offer to answer, from an archive, what brokers do not have any more; iterate over the recalls.

        The broker has at most `recalls_max` recalls under way. A client offers once; it repeats the offer by
        itself after every break, which ends the recalls that were under way.
        """
        self._check_open()
        assert self._recalls is None, "a client offers once"
        assert recalls_max > 0
        recalls = self._recalls = IncomingRecalls(self._link, recalls_max)
        self._handlers |= {Recall: recalls.recall, RecallMore: recalls.more, RecallOver: recalls.over}
        recalls.up()
        return recalls

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    # From the link.

    def _up(self, welcome: Welcome) -> None:
        self._topics.again()
        if self._recalls is not None:
            self._recalls.up()
        self._acks.up()
        self._subscriptions.up()
        self._publisher.up(welcome)

    def _down(self) -> None:
        self._subscriptions.down()
        if self._recalls is not None:
            self._recalls.down()
        self._requests.fail_all(connection_lost)

    def _writable(self) -> None:
        self._publisher.writable()
        if self._recalls is not None:
            self._recalls.writing()

    def _frame(self, frame: ClientFrame) -> None:
        handler = self._handlers.get(type(frame))
        # A newer broker may send frames that this client does not know.
        if handler is not None:
            handler(frame)

    def _refused(self, frame: Refused) -> None:
        if frame.code == "draining":
            self._leave_drained_broker(frame)
            return
        match frame.what:
            case "publish":
                self._publisher.refused(frame)
            case "subscribe":
                self._subscriptions.subscribe_refused(frame)
            case "topic" | "describe":
                self._topics.refused(frame)
            case "ack":
                self._acks.refused(frame)
            case "unsubscribe":
                self._subscriptions.unsubscribe_refused(frame, error_of(frame))
            case "ask" | "fetch":
                self._requests.refused(frame)
            case _:
                raise error_of(frame)

    def _leave_drained_broker(self, frame: Refused) -> None:
        """The broker is being drained: connect to another one. What it refused to publish was not logged."""
        if frame.what == "publish":
            self._publisher.refused(frame)
        self._link.move(parse_addresses(frame.addresses), frame.reason)

    def _check_open(self) -> None:
        if not self._is_open:
            raise closed() if self._was_open else not_open()
        if self._process != getpid():
            raise forked()
