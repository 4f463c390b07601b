"""Queue: what an application holds - subscribe, unsubscribe, put, get, take.

Whatever process crashes, and whenever: a message that was put is put once; a message that was handed out and
not consumed is handed out again; a message that was consumed is not. No call waits for a broker longer than
its timeout.
"""

from __future__ import annotations

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
from tidemark.errors import ClientError, ClosedError, EmptyError, NotSubscribedError, RefusedError
from tidemark.queue.messages import Message
from tidemark.queue.putting import MessagePutter
from tidemark.queue.reader import QueueReader
from tidemark.queue.state import QueueState
from tidemark.ticks import CheckpointToken

#: How often a get that waits acknowledges the silence that has passed, so that brokers can release it.
QUIET_SECONDS = 5.0


def connect(
    url: str,
    *,
    name: str,
    state: str | PathLike[str],
    timeout: float = clients.TIMEOUT_SECONDS,
    connect_timeout: float = clients.CONNECT_SECONDS,
) -> Queue:
    """Connect the queue `name` to a broker, and return it. It goes on from its state file, `state`.

    The state file is made if it does not exist. Messages that an earlier process put, and that had not
    arrived when it ended, are being sent when this returns. `timeout` in seconds is for every call that does
    not give its own; `connect_timeout` is for connecting. NotConnectedError if no broker could be reached;
    DirectoryLockedError if another process uses the state file; UnknownFormatError if the file is no state
    file; ClientError if it is the state file of another queue, or the name is empty or has a colon.
    """
    return Queue(url, name=name, state=state, timeout=timeout, connect_timeout=connect_timeout)


class Queue:
    """A queue, made by `tidemark.queue.connect`. Any thread may use it; one at a time gets from a topic.

    Every method but `close` raises ClosedError once the queue is closed. Leaving the `with` block of a queue
    closes it; without an exception, it first consumes what `get` handed out last, of every topic.
    """

    def __init__(
        self, url: str, *, name: str, state: str | PathLike[str], timeout: float, connect_timeout: float
    ) -> None:
        """For `connect`, which see."""
        if not name or ":" in name:
            raise ClientError(f"a queue's name has at least one character and no colon: not {name!r}")
        self._name = name
        self._url = url
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        #: held while a subscription begins or ends
        self._lock = threading.RLock()
        self._readers: dict[str, QueueReader] = {}
        #: every client that was made, also if an interrupt came before it was used
        self._clients: list[Client] = []
        self._is_closed = False
        self._state = QueueState(state, name)
        self._loop = LoopThread("tidemark queue", _closed, last=self._leave)
        self._putter = MessagePutter(name, self._state, self._loop, self._open)
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
            client=f"queue {self._name}" + (" puts" if publisher else ""),
            publisher=publisher,
            pubend=pubend,
            timeout=self._timeout,
            connect_timeout=self._connect_timeout,
            wait_for_broker=True,
        )
        self._clients.append(client)
        return await client.open()

    def _go_on(self) -> None:
        """Complete what an earlier process has begun."""
        self._subscribed = set(self._state.topics())
        self._ending = set(self._state.topics(is_ending=True))
        for topic in list(self._ending):
            # The next subscribe or unsubscribe of the topic, or the next start, tries again.
            with suppress(ClientError):
                self._end(topic)
        welcome = self._client._link.welcome
        hosted = welcome.pubends if welcome is not None else ()
        self._putter.go_on(hosted)

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
        """Give what was put `timeout` seconds to arrive, and close; the rest arrives after the next start.

        A message that was handed out and not consumed is handed out again. (Leaving the `with` block without
        an exception consumes it.) Closing twice does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            with suppress(ClientError):
                self.flush(timeout)
            self._is_closed = True
            try:
                with suppress(ClientError):
                    self._loop.run(self._disconnect, timeout)
            finally:
                self._loop.stop()
            self._putter.forget_arrived()
            self._state.close()

    async def _disconnect(self, timeout: float) -> None:
        await self._putter.disconnect()
        await self._client.close(timeout)

    async def _leave(self) -> None:
        for client in self._clients:
            await client.close(0)

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def _check_no_block(self) -> None:
        # If a message were consumed in a block that fails later, the broker alone would know of it.
        if self._state.is_mine:
            raise ClientError("a block of take() can put and use the database: end it before anything else")

    # Subscribing.

    @property
    def name(self) -> str:
        """The name by which brokers know the queue."""
        return self._name

    @property
    def topics(self) -> list[str]:
        """The topics that the queue is subscribed to, sorted."""
        return sorted(self._subscribed)

    def subscribe(self, topic: str) -> None:
        """Keep the messages that are put into the topic from now on until this queue has consumed them.

        A queue that is subscribed already keeps its position. RefusedError if the name of the topic is
        malformed or has wildcards; TimedOutError if the broker does not answer in time; ClientError in a
        block of take().
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
        """Keep no messages of the topic any more; those that were not consumed are gone.

        NotSubscribedError if the queue is not subscribed. After TimedOutError, or the death of the process,
        the next call for the topic or the next start of the queue ends the subscription at the broker.
        """
        self._check_open()
        self._check_no_block()
        with self._lock:
            if topic not in self._subscribed | self._ending:
                raise NotSubscribedError(self._name, topic=topic)
            self._state.end(topic)
            self._subscribed.discard(topic)
            self._ending.add(topic)
            self._end(topic)

    def _end(self, topic: str) -> None:
        """End a subscription at the broker, and then in the state file."""
        try:
            # An earlier process may still be connected: the connection that subscribes last decides.
            if topic not in self._readers:
                self._readers[topic] = self._opened(topic)
            self._loop.run(self._readers[topic].subscription.unsubscribe)
        except RefusedError as error:
            if error.code != "unknown":
                raise
        self._readers.pop(topic, None)
        self._state.forget(topic)
        self._ending.discard(topic)

    def _reader(self, topic: str) -> QueueReader:
        with self._lock:
            if topic not in self._subscribed:
                raise NotSubscribedError(self._name, topic=topic)
            reader = self._readers.get(topic)
            if reader is None:
                reader = self._readers[topic] = self._opened(topic)
            return reader

    def _opened(self, topic: str) -> QueueReader:
        token = self._state.token(topic)

        async def opened() -> QueueReader:
            name = f"{self._name}:{topic}"
            subscription = self._client.subscribe(topic, durable=name, checkpoint=token, gaps=True)
            return QueueReader(topic, self._client, await subscription.open())

        reader = self._loop.run(opened)
        if token is None:
            self._state.consume(topic, reader.kept)
        return reader

    # Getting.

    def get(self, topic: str, timeout: float | None = None) -> Message:
        """Return the next message. After a crash it is returned again, until it is consumed.

        The message is consumed by the next get or take of the topic, by done(), and by leaving the queue's
        `with` block without an exception. Waits up to `timeout` seconds, by default for ever. EmptyError if
        there is no message; NotSubscribedError if the queue is not subscribed to the topic; RefusedError if
        an administrator's policy released messages before they were consumed: the next get goes on behind
        them. ClientError if another get or take of the topic is under way.
        """
        with self._use(topic) as reader:
            self._done(reader)
            return self._next(reader, timeout)

    @contextmanager
    def take(self, topic: str, timeout: float | None = None) -> Iterator[Message]:
        """`with queue.take(topic) as message:` - the block and the consumption of the message are one.

        Leaving the block without an exception consumes the message; after an exception, or a crash, it is
        handed out again. What the block writes to `queue.database`, and what it puts, belongs to it: all of
        it happens, or nothing. Calls of other threads that change the state file wait until the block ends.
        Waits and raises as get() does.
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
        """Consume the message that get returned last: once this returns, it is not handed out again.

        NotSubscribedError if the queue is not subscribed to the topic.
        """
        with self._use(topic) as reader:
            self._done(reader)

    @property
    def database(self) -> Connection:
        """The state file, for tables of the application's own, in a block of take(); else ClientError."""
        if not self._state.is_mine:
            raise ClientError("the database can be used in a block: `with queue.take(topic) as message:`")
        return self._state.database

    @contextmanager
    def _use(self, topic: str) -> Iterator[QueueReader]:
        self._check_open()
        self._check_no_block()
        reader = self._reader(topic)
        if not reader.lock.acquire(blocking=False):
            raise ClientError(f"another get or take of {topic!r} is under way: one at a time")
        try:
            yield reader
        finally:
            reader.lock.release()

    def _done(self, reader: QueueReader) -> None:
        if reader.hand is not None and not reader.is_returned:
            self._state.consume(reader.topic, reader.hand.token)
            self._consumed(reader, reader.hand.token)

    def _consumed(self, reader: QueueReader, token: CheckpointToken) -> None:
        reader.consumed(token)
        # The message is consumed, whether the broker learns of it now or at the next start.
        with suppress(ClosedError):
            self._loop.run(reader.subscription.ack, token)

    def _next(self, reader: QueueReader, timeout: float | None) -> Message:
        """Hand out the message in hand, or the next one; see get() for the errors."""
        end = None if timeout is None else time.monotonic() + timeout
        while reader.hand is None:
            left = QUIET_SECONDS if end is None else min(QUIET_SECONDS, end - time.monotonic())
            if self._loop.run(reader.next, max(0.0, left)):
                break
            self._check_open()
            if self._readers.get(reader.topic) is not reader:
                raise NotSubscribedError(self._name, topic=reader.topic)
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
        """How many messages this queue has ever put: an application can go on from here after a crash."""
        self._check_open()
        return self._state.puts

    @property
    def waiting(self) -> int:
        """How many of the messages that were put are not known to be at a broker."""
        arrived = self._putter.arrived
        return 0 if arrived is None else self.puts - arrived

    def put(
        self, topic: str, message: Message, *, message_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Put a message, bytes, str or dict; when this returns the message is on the broker's disk, once.

        A message with a `message_id` that was put already is not put again: an application that does not know
        how far it got just puts again. In a block of take() this returns at once, and the message is sent
        when the block has ended without an exception. `timeout` is in seconds, by default that of the queue.

        After TimedOutError, and RefusedError with the code "sequence" or "pubend", the message is in the
        state file and will be put, also after a restart; put it again only with a `message_id`. After any
        other error nothing was put: NotConnectedError if there is no broker, EncodeError if the message does
        not fit its topic, RefusedError with the code "full" if 10,000 messages wait for a broker.
        """
        self._check_open()
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        self._putter.put(topic, message, message_id, end)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all messages that were put are on the broker's disk.

        TimedOutError, or RefusedError with what the broker said, if they are not within `timeout` seconds, by
        default those of the queue; the messages will still arrive. ClientError in a block of take().
        """
        self._check_open()
        self._check_no_block()
        self._putter.flush(time.monotonic() + (self._timeout if timeout is None else timeout))


def _closed() -> ClosedError:
    return ClosedError("the queue is closed: open it again with tidemark.queue.connect(...)")
