"""Queue: what an application holds - subscribe, unsubscribe, put, get, take.

Promises, whoever crashes and when: what was put is put once; what was handed out and not consumed comes
again; what was consumed does not. No call waits for a broker longer than it was told.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from sqlite3 import Connection
from types import TracebackType

from tidemark.client import client as clients
from tidemark.client.client import Client
from tidemark.client.loop_thread import LoopThread
from tidemark.client.subscribing.subscription import CLOSE_SECONDS
from tidemark.errors import (
    ClientError,
    ClosedError,
    EmptyError,
    NotSubscribedError,
    RefusedError,
    TimedOutError,
)
from tidemark.message.batches.batch import Shape
from tidemark.queue.messages import Message, to_fields
from tidemark.queue.outbox import OUTBOX_MESSAGES_MAX, MessageOutbox
from tidemark.queue.reader import TopicReader
from tidemark.queue.state import QueueState
from tidemark.ticks import CheckpointToken

#: While a get waits: how often the silence that has passed is acknowledged, so that brokers can let go.
QUIET_SECONDS = 5.0


def connect(
    url: str,
    *,
    name: str,
    state: str | PathLike[str],
    timeout: float = clients.TIMEOUT_SECONDS,
    connect_timeout: float = clients.CONNECT_SECONDS,
) -> Queue:
    """The queue `name` at a broker; it goes on from its state file, which is made if it is not there.

    What was put and had not arrived when the process ended is on its way when this returns. `timeout` is for
    every call that does not say otherwise. NotConnectedError: no broker is there. DirectoryLockedError:
    another process uses the state file.
    """
    return Queue(url, name=name, state=state, timeout=timeout, connect_timeout=connect_timeout)


class Queue:
    """Any thread may use it; one at a time gets from a topic."""

    def __init__(
        self, url: str, *, name: str, state: str | PathLike[str], timeout: float, connect_timeout: float
    ) -> None:
        if not name or ":" in name:
            raise ClientError(f"a queue's name has at least one character and no colon: not {name!r}")
        self.name = name
        self._url = url
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        #: held while a subscription begins or ends
        self._lock = threading.RLock()
        #: held while the outbox is opened
        self._outbox_lock = threading.Lock()
        self._readers: dict[str, TopicReader] = {}
        self._outbox: MessageOutbox | None = None
        self._publishing: tuple[Client, asyncio.Task[None]] | None = None
        #: every client that was made, also if an interrupt came before it was of use
        self._clients: list[Client] = []
        self._is_closed = False
        self._state = QueueState(state, name)
        self._loop = LoopThread("tidemark queue", _closed, last=self._leave)
        try:
            self._client = self._loop.run(self._open)
        except BaseException:
            self._loop.stop()
            self._state.close()
            raise
        try:
            self._go_on()
        except BaseException:
            self.close(0)
            raise

    async def _open(self, publisher: str | None = None, pubend: str | None = None) -> Client:
        client = clients.connect(
            self._url,
            client=f"queue {self.name}" + (" puts" if publisher else ""),
            publisher=publisher,
            pubend=pubend,
            timeout=self._timeout,
            connect_timeout=self._connect_timeout,
        )
        self._clients.append(client)
        return await client.open()

    def _go_on(self) -> None:
        """Complete what a former life has begun."""
        self._subscribed = set(self._state.topics())
        self._ending = set(self._state.topics(is_ending=True))
        for topic in list(self._ending):
            # The next subscribe or unsubscribe of the topic, or the next start, tries again.
            with suppress(ClientError):
                self._end(topic)
        welcome = self._client._link.welcome
        self._publisher, self._pubend = self._state.putting(welcome.pubends if welcome is not None else ())
        self._former = self._state.outbox()
        self._former_puts = self._state.puts
        if self._former:
            self._opened_outbox()

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._is_closed:
                for topic in self._subscribed & self._readers.keys():
                    self.done(topic)
        finally:
            self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Give what was put `timeout` seconds to arrive, and end; the rest arrives after the next start.

        What was handed out and not consumed comes again. (Leaving the `with` block without an exception
        consumes it.)
        """
        with self._lock:
            if self._is_closed:
                return
            if self._outbox is not None:
                with suppress(ClientError):
                    self.flush(timeout)
            self._is_closed = True
            try:
                with suppress(ClientError):
                    self._loop.run(self._disconnect, timeout)
            finally:
                self._loop.stop()
            if self._outbox is not None:
                self._state.arrived(self._outbox.arrived)
            self._state.close()

    async def _disconnect(self, timeout: float) -> None:
        if self._publishing is not None:
            client, task = self._publishing
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await client.close(0)
        await self._client.close(timeout)

    async def _leave(self) -> None:
        for client in self._clients:
            await client.close(0)

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def _check_no_block(self) -> None:
        # What is consumed in a block that fails later would be known to the broker, and nowhere else.
        if self._state.is_mine:
            raise ClientError("a block of take() can put and use the database: end it before anything else")

    # Subscribing.

    @property
    def topics(self) -> list[str]:
        """What it is subscribed to."""
        return sorted(self._subscribed)

    def subscribe(self, topic: str) -> None:
        """From now on messages put into the topic are kept until they are consumed here.

        Who is subscribed already keeps the position. RefusedError: the name is malformed.
        """
        self._check_open()
        self._check_no_block()
        if "*" in topic or ">" in topic:
            reason = "a queue takes one topic at a time: name it without wildcards"
            raise RefusedError(reason, what="subscribe", name=topic, code="topic")
        with self._lock:
            if topic in self._ending:
                self._end(topic)
            is_new = topic not in self._subscribed
            if is_new:
                self._state.subscribe(topic)
                self._subscribed.add(topic)
            try:
                self._reader(topic)
            except RefusedError:
                if is_new:
                    self._state.forget(topic)
                    self._subscribed.discard(topic)
                raise

    def unsubscribe(self, topic: str) -> None:
        """Nothing is kept any more; what was not consumed is gone. NotSubscribedError.

        If it ends with TimedOutError, or the process dies, the broker will hear of it as soon as it can.
        """
        self._check_open()
        self._check_no_block()
        with self._lock:
            if topic not in self._subscribed | self._ending:
                raise NotSubscribedError(self.name, topic=topic)
            self._state.end(topic)
            self._subscribed.discard(topic)
            self._ending.add(topic)
            self._end(topic)

    def _end(self, topic: str) -> None:
        """End a subscription at the broker, and when that is done, here."""
        try:
            # A former life may still be connected; whoever connects last has the say.
            if topic not in self._readers:
                self._readers[topic] = self._opened(topic)
            self._loop.run(self._readers[topic].subscription.unsubscribe)
        except RefusedError as error:
            if error.code != "unknown":
                raise
        self._readers.pop(topic, None)
        self._state.forget(topic)
        self._ending.discard(topic)

    def _reader(self, topic: str) -> TopicReader:
        with self._lock:
            if topic not in self._subscribed:
                raise NotSubscribedError(self.name, topic=topic)
            reader = self._readers.get(topic)
            if reader is None:
                reader = self._readers[topic] = self._opened(topic)
            return reader

    def _opened(self, topic: str) -> TopicReader:
        token = self._state.token(topic)

        async def opened() -> TopicReader:
            subscription = self._client.subscribe(topic, durable=f"{self.name}:{topic}", checkpoint=token)
            return TopicReader(topic, self._client, await subscription.open())

        reader = self._loop.run(opened)
        if token is None:
            self._state.consume(topic, reader.kept)
        return reader

    # Getting.

    def get(self, topic: str, timeout: float | None = None) -> Message:
        """The next message; it comes again after a crash until it is consumed.

        It is consumed by the next get or take of the topic, by done(), and by leaving the queue's `with`
        block without an exception. Waits for `timeout` seconds, None is for ever. EmptyError: there is none.
        NotSubscribedError. RefusedError: brokers were told to let some messages go before they were
        consumed; the next get goes on behind them.
        """
        with self._use(topic) as reader:
            self._done(reader)
            return self._next(reader, timeout)

    @contextmanager
    def take(self, topic: str, timeout: float | None = None) -> Iterator[Message]:
        """`with queue.take(topic) as message:` - the block and the consumption of the message are one.

        Leaving the block without an exception consumes the message; after an exception, or a crash, it comes
        again. In the block, what is written to `queue.database` and what is put belongs to it: all of it
        happens, or nothing. Other threads' calls that change the state file wait meanwhile.
        """
        with self._use(topic) as reader:
            self._done(reader)
            message = self._next(reader, timeout)
            hand = reader.hand
            assert hand is not None
            reader.is_returned = True
            with self._state.transaction():
                yield message
                self._state.consume(topic, hand.token)
            self._consumed(reader, hand.token)

    def done(self, topic: str) -> None:
        """What get handed out last is consumed: it is on disk when this returns, and will not come again."""
        with self._use(topic) as reader:
            self._done(reader)

    @property
    def database(self) -> Connection:
        """The state file, for tables of the application's own, in a block of take()."""
        if not self._state.is_mine:
            raise ClientError("the database can be used in a block: `with queue.take(topic) as message:`")
        return self._state.database

    @contextmanager
    def _use(self, topic: str) -> Iterator[TopicReader]:
        self._check_open()
        self._check_no_block()
        reader = self._reader(topic)
        if not reader.lock.acquire(blocking=False):
            raise ClientError(f"another get or take of {topic!r} is under way: one at a time")
        try:
            yield reader
        finally:
            reader.lock.release()

    def _done(self, reader: TopicReader) -> None:
        if reader.hand is not None and not reader.is_returned:
            self._state.consume(reader.topic, reader.hand.token)
            self._consumed(reader, reader.hand.token)

    def _consumed(self, reader: TopicReader, token: CheckpointToken) -> None:
        reader.consumed(token)
        # It is consumed, whether the broker hears of it now or at the next start.
        with suppress(ClosedError):
            self._loop.run(reader.subscription.ack, token)

    def _next(self, reader: TopicReader, timeout: float | None) -> Message:
        """The message in hand, or the next; from now on it is handed out."""
        end = None if timeout is None else time.monotonic() + timeout
        while reader.hand is None:
            left = QUIET_SECONDS if end is None else min(QUIET_SECONDS, end - time.monotonic())
            if self._loop.run(reader.next, max(0.0, left)):
                break
            self._check_open()
            if self._readers.get(reader.topic) is not reader:
                raise NotSubscribedError(self.name, topic=reader.topic)
            quiet = reader.quiet
            if quiet is not None:
                self._state.consume(reader.topic, quiet)
                self._consumed(reader, quiet)
            is_over = end is not None and time.monotonic() >= end
            if is_over and not self._loop.run(reader.look):
                raise EmptyError(reader.topic)
        assert reader.hand is not None
        reader.is_returned = False
        if isinstance(reader.hand.message, Exception):
            raise reader.hand.message
        return reader.hand.message

    # Putting.

    @property
    def puts(self) -> int:
        """How many messages this queue has put, ever: an application can go on from here after a crash."""
        self._check_open()
        return self._state.puts

    @property
    def waiting(self) -> int:
        """How many of them are not known to be at a broker."""
        return 0 if self._outbox is None else self.puts - self._outbox.arrived

    def put(
        self, topic: str, message: Message, *, message_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Put a message; it is on the broker's disk when this returns, once.

        With a `message_id`, what was put with it already is not put again: an application that does not know
        how far it got just puts again. In a block of take() this returns at once, and the message leaves when
        the block has ended well.

        TimedOutError, RefusedError with the code "sequence" or "pubend": the message is in the state file
        and will be put, after a restart too; put it again only with a `message_id`. After any other error,
        NotConnectedError say, nothing was put.
        """
        self._check_open()
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        fields = to_fields(message)
        outbox = self._opened_outbox()
        number = None if message_id is None else self._state.find(message_id)
        if number is None:
            encoded = self._loop.run(outbox.encode, topic, fields, end - time.monotonic())
            number = self._enter(outbox, encoded, message_id)
        if not self._state.is_mine:
            self._wait(outbox, number, end)

    def _enter(self, outbox: MessageOutbox, encoded: tuple[Shape, bytes], message_id: str | None) -> int:
        """Write a message into the state file: from now on it will be put. Its number."""
        with self._state.transaction():
            number = None if message_id is None else self._state.find(message_id)
            if number is not None:
                return number  # another thread was faster
            if self._state.puts - outbox.arrived >= OUTBOX_MESSAGES_MAX:
                reason = f"{OUTBOX_MESSAGES_MAX} messages wait for a broker: nothing was put, try again later"
                raise RefusedError(reason, what="put", name=encoded[0].topic, code="full")
            # What has arrived leaves with this commit. A crash may forget that: it is sent again, and known.
            self._state.arrived(outbox.arrived)
            put = self._state.put(*encoded, message_id)
            self._state.after_commit(lambda: outbox.add(put))
        return put.number

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was put is on the broker's disk; TimedOutError if it is not in time."""
        self._check_open()
        self._check_no_block()
        if self._outbox is not None:
            end = time.monotonic() + (self._timeout if timeout is None else timeout)
            self._wait(self._outbox, self._state.puts, end)

    def _wait(self, outbox: MessageOutbox, number: int, end: float) -> None:
        outcome = outbox.outcome(number)
        if outcome is None:
            return
        try:
            outcome.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            kept = "what was put is kept and will arrive: put it again only with a message_id"
            said = outbox.refusal
            if isinstance(said, RefusedError):
                raise said.with_reason(f"{said.reason}; {kept}") from None
            raise TimedOutError(f"no broker has confirmed it in time; {kept}") from None

    def _opened_outbox(self) -> MessageOutbox:
        with self._outbox_lock:
            if self._outbox is None:
                self._outbox = self._loop.run(self._open_outbox)
            return self._outbox

    async def _open_outbox(self) -> MessageOutbox:
        if self._pubend is None:
            reason = "there was no pubend to put into: nothing was put, connect to a broker that hosts one"
            raise RefusedError(reason, what="put", name=self.name, code="unknown")
        client = await self._open(self._publisher, self._pubend)
        outbox = MessageOutbox(
            client,
            self._publisher,
            self._former,
            self._former_puts,
            wake=lambda: self._loop.soon(outbox.added),
        )
        task = asyncio.get_running_loop().create_task(outbox.send(), name="tidemark outbox")
        self._publishing = client, task
        return outbox


def _closed() -> ClosedError:
    return ClosedError("the queue is closed: open it again with tidemark.queue.connect(...)")
