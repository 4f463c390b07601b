"""Publisher: what an application publishes, batched, numbered, sent again until it is on disk, once.

Everything published in one turn of the loop leaves as one batch, and while the socket is congested more
gathers; nothing ever waits for company. What is not acknowledged is kept, within a bound, and sent again on
the next connection to a broker that hosts the pubend; the numbers make sure that it is logged once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.link import Link, closed
from tidemark.client.publishing.outgoing import Receipt, Stream, Ticks
from tidemark.client.topics import Topics
from tidemark.errors import (
    ClientError,
    EncodeError,
    NotConnectedError,
    RefusedError,
    TidemarkError,
    TimedOutError,
)
from tidemark.message.batches.batch import (
    EVENT_BYTES_MAX,
    KEY_BYTES_MAX,
    PRELUDE,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    VALIDITY_MS_MAX,
    EventBatch,
    Shape,
)
from tidemark.wire import rendezvous
from tidemark.wire.frames import Publish, Published, Refused, Welcome

#: Bytes that may be published and not acknowledged; beyond it publishing waits.
UNACKNOWLEDGED_BYTES_MAX = 32 << 20
#: Calls of publish() that may wait for room, or for the schema of their topic.
WAITING_EVENTS_MAX = 100_000
#: A broker that does not know what was acknowledged before has lost its disk, or is another one.
SEQUENCE_REFUSALS_MAX = 3
_UNKNOWN = (
    "whether it is logged, or still will be, is not known: publish it again only if twice does no harm, "
    "or name the publisher and number its events"
)


class Options(NamedTuple):
    """What goes with an event besides its fields."""

    key: bytes = b""
    priority: int = PRIORITY_DEFAULT
    validity_ms: int = 0
    #: the number that the application gives it; only of a named publisher
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call of publish() that could not be carried out at once."""

    topic: str
    value: Any
    options: Options
    receipt: Receipt


class Publisher:
    """The publishing half of a client."""

    def __init__(
        self,
        link: Link,
        topics: Topics,
        *,
        publisher: str,
        is_named: bool,
        pubend: str | None,
        backoff: Backoff,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._topics = topics
        self._publisher = publisher
        self._is_named = is_named
        self._pinned = pubend
        self._backoff = backoff
        #: by pubend; each has a publisher id of its own, so that a refusal names one
        self._streams: dict[str, Stream] = {}
        self._streams_made = 0
        self._current: Stream | None = None
        self._bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        #: set whenever something was acknowledged, sent or given up
        self._changed = asyncio.Event()
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        #: nothing is sent until it fires
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    # Publishing.

    def publish(self, topic: str, value: Any, options: Options, timeout: float) -> asyncio.Future[int | None]:
        """Queue one event; the future has its tick once it is on disk."""
        self._check_open()
        future: asyncio.Future[int | None] = self._loop.create_future()
        receipt = Receipt(future, self._loop.time() + timeout, is_single=True)
        if self._worker is None and self._link.is_up and self._bytes < UNACKNOWLEDGED_BYTES_MAX:
            encoded = self._topics.encode(topic, value)
            if encoded is not None:
                self._add(encoded, options, receipt)
                return future
        if len(self._waiting) >= WAITING_EVENTS_MAX:
            raise ClientError(
                f"{WAITING_EVENTS_MAX} events wait to be published: await what publish() returns now and then"
            )
        self._waiting.append(_Waiting(topic, value, options, receipt))
        self._watch(receipt.deadline)
        if self._worker is None:
            self._worker = self._loop.create_task(self._work(), name="tidemark publisher")
        return future

    async def publish_many(
        self, topic: str, values: Iterable[Any], options: Options, timeout: float
    ) -> Ticks:
        """Publish in order; the ticks once all are on disk."""
        self._check_open()
        deadline = self._loop.time() + timeout
        futures: list[asyncio.Future[Ticks]] = []
        receipt: Receipt | None = None
        opened = 0
        await self._until(lambda: self._worker is None, deadline)
        for index, value in enumerate(values):
            if options.sequence is not None and index:
                options = options._replace(sequence=options.sequence + 1)
            encoded = self._topics.encode(topic, value) if self._has_room() else None
            if encoded is None:
                encoded = await self._encoded(topic, value, deadline)
                receipt = None
            stream = self._stream(options.sequence)
            if receipt is None or stream.opened != opened:
                futures.append(self._loop.create_future())
                receipt = Receipt(futures[-1], deadline, is_single=False)
                opened = stream.opened
            self._add(encoded, options, receipt)
        return [tick for ticks in await asyncio.gather(*futures) for tick in ticks]

    async def publish_batch(self, batch: EventBatch, sequence: int | None, timeout: float) -> Ticks:
        """Publish a batch that was built elsewhere, as one; all its schemas must have been declared."""
        self._check_open()
        deadline = self._loop.time() + timeout
        await self._until(lambda: self._worker is None and self._has_room(), deadline)
        future: asyncio.Future[Ticks] = self._loop.create_future()
        receipt = Receipt(future, deadline, is_single=False)
        self._bytes += self._stream(sequence).add_batch(batch, receipt)
        self._soon(deadline)
        return await future

    def _add(self, encoded: tuple[Shape, bytes], options: Options, receipt: Receipt) -> None:
        shape, message = encoded
        size = PRELUDE.size + len(message) + len(options.key)
        if size > EVENT_BYTES_MAX:
            raise EncodeError(
                f"an event of {size} bytes is over the limit of {EVENT_BYTES_MAX}: publish less"
            )
        stream = self._stream(options.sequence)
        self._bytes += stream.add(
            shape,
            message,
            receipt,
            key=options.key,
            priority=options.priority,
            validity_ms=options.validity_ms,
        )
        self._soon(receipt.deadline)

    def _stream(self, sequence: int | None = None) -> Stream:
        """Where events go now: the pubend stays the same as long as its broker is there."""
        stream = self._current
        if stream is None:
            pubend = self._choose_pubend()
            stream = self._streams.get(pubend) or self._make_stream(pubend, sequence or 1)
            self._current = stream
        if self._is_named and sequence != stream.next:
            raise ClientError(
                f"the named publisher {self._publisher!r} has to number its events without gaps: "
                f"publish(..., sequence={stream.next}) is next, not {sequence}"
            )
        return stream

    def _choose_pubend(self) -> str:
        assert self._link.welcome is not None
        hosted = self._link.welcome.pubends
        broker = self._link.welcome.broker
        if self._pinned is not None and self._pinned not in hosted:
            reason = f"the broker {broker!r} does not host it: connect to the one that does"
            raise RefusedError(reason, what="publish", name=self._pinned, code="pubend")
        if not hosted:
            reason = "it hosts no pubend, so nothing can be published there: connect to another broker"
            raise RefusedError(reason, what="publish", name=broker, code="pubend")
        # Publishers spread over the pubends, and each finds its own again.
        return self._pinned or rendezvous.chosen(self._publisher, hosted)

    def _make_stream(self, pubend: str, first: int) -> Stream:
        self._streams_made += 1
        name = self._publisher
        if not self._is_named and self._streams_made > 1:
            name = f"{name}.{self._streams_made}"
        stream = Stream(name, pubend, first if self._is_named else 1, is_named=self._is_named)
        self._streams[pubend] = stream
        return stream

    # Waiting for a schema, for room, for a broker.

    async def _work(self) -> None:
        """Carry out, in their order, the calls that could not be carried out at once."""
        try:
            while self._waiting:
                await self._carry_out(self._waiting[0])
                self._waiting.popleft()
        finally:
            self._worker = None
            self._changed.set()

    async def _carry_out(self, waiting: _Waiting) -> None:
        promise = waiting.receipt.promise
        if promise.done():
            return  # its time was over
        try:
            encoded = await self._encoded(waiting.topic, waiting.value, waiting.receipt.deadline)
            if not promise.done():
                self._add(encoded, waiting.options, waiting.receipt)
        except TidemarkError as error:
            if not promise.done():
                promise.set_exception(error)

    def _has_room(self) -> bool:
        return self._link.is_up and self._bytes < UNACKNOWLEDGED_BYTES_MAX

    async def _encoded(self, topic: str, value: Any, deadline: float) -> tuple[Shape, bytes]:
        await self._until(self._has_room, deadline)
        encoded = self._topics.encode(topic, value)
        while encoded is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._topics.prepare(topic, value)
            except TimeoutError:
                raise TimedOutError(
                    f"the broker did not say what {topic!r} is: nothing was published"
                ) from None
            encoded = self._topics.encode(topic, value)
        await self._until(self._has_room, deadline)
        return encoded

    async def _until(self, condition: Callable[[], bool], deadline: float) -> None:
        while not condition():
            self._check_open()
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                raise self._no_room() from None

    def _no_room(self) -> TidemarkError:
        if not self._link.is_up:
            return NotConnectedError("no broker came back in time: nothing was published, publish it again")
        refused = next((each.refusal for each in self._streams.values() if each.refusal is not None), None)
        return refused or TimedOutError(
            f"{self._bytes} bytes wait to be acknowledged and the broker does not: nothing was published, "
            "publish it again"
        )

    # Sending.

    def _soon(self, deadline: float) -> None:
        """Send at the end of this turn of the loop, with all that is published until then."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        self._watch(deadline)

    def _flush(self) -> None:
        self._is_flushing = False
        self.writable()
        # This is the end of the turn: another one would only cost time.
        self._link.flush()

    def writable(self) -> None:
        """Send what can be sent."""
        welcome = self._link.welcome
        if welcome is None or self._retry is not None:
            return
        for stream in self._streams.values():
            if stream.pubend not in welcome.pubends:
                continue
            for sequence, batch in stream.unsent():
                self._link.send(Publish(stream.pubend, stream.publisher, sequence, batch))
                if self._link.is_congested:
                    return

    def up(self, welcome: Welcome) -> None:
        """A new connection: whatever is not acknowledged is sent again, in order, where its pubend is."""
        if self._current is not None and self._current.pubend not in welcome.pubends:
            self._current = None
        for stream in self._streams.values():
            stream.rewind()
        self.writable()
        self._changed.set()

    # Outcomes.

    def published(self, frame: Published) -> None:
        """A broker has it on disk."""
        stream = self._streams.get(frame.pubend)
        if stream is None or stream.publisher != frame.publisher:
            return
        self._bytes -= stream.published(frame.sequence, frame.tick)
        self._backoff.reset()
        self._changed.set()

    def refused(self, frame: Refused) -> None:
        """A broker did not take a batch."""
        error = RefusedError(frame.reason, what=frame.what, name=frame.name, code=frame.code)
        for stream in [each for each in self._streams.values() if each.publisher == frame.name]:
            if frame.code == "full":
                self._later(stream, error)
            elif frame.code == "sequence" and self._retry is not None:
                pass  # of what was sent behind the refused one: it all goes again
            elif frame.code == "sequence" and stream.refusals < SEQUENCE_REFUSALS_MAX:
                stream.refusals += 1
                self._later(stream, None)
            else:
                self._give_up(stream, error)

    def _later(self, stream: Stream, refusal: RefusedError | None) -> None:
        """Send all of it again after a while."""
        stream.refusal = refusal or stream.refusal
        if self._retry is None:
            self._retry = self._loop.call_later(self._backoff.delay(), self._again)

    def _again(self) -> None:
        self._retry = None
        for stream in self._streams.values():
            stream.rewind()
        self.writable()

    def _give_up(self, stream: Stream, error: TidemarkError | None) -> None:
        """Its numbers are of no use any more: what comes next goes under another publisher id."""
        self._bytes -= stream.abandon(error)
        self._streams.pop(stream.pubend, None)
        if self._current is stream:
            self._current = None
        self._changed.set()

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        """End the waiting of those whose time is over."""
        self._timer = None
        now = self._loop.time()
        for stream in list(self._streams.values()):
            for receipt in list(stream.overdue(now)):
                receipt.promise.set_exception(self._overdue(stream))
            welcome = self._link.welcome
            if stream.deadline() is None and (welcome is None or stream.pubend not in welcome.pubends):
                # Nobody waits and its broker is away. Kept for ever it would take the room of others.
                self._give_up(stream, None)
        queued = [waiting.receipt for waiting in self._waiting if not waiting.receipt.promise.done()]
        for receipt in queued:
            if receipt.deadline <= now:
                receipt.promise.set_exception(self._no_room())
        deadlines = [at for each in self._streams.values() if (at := each.deadline()) is not None]
        deadlines += [receipt.deadline for receipt in queued if receipt.deadline > now]
        if deadlines:
            self._watch(min(deadlines))

    def _overdue(self, stream: Stream) -> TidemarkError:
        if isinstance(stream.refusal, RefusedError):
            said = stream.refusal
            return RefusedError(
                f"{said.reason}. It is still tried: {_UNKNOWN}",
                what=said.what,
                name=said.name,
                code=said.code,
            )
        where = f"the broker that hosts the pubend {stream.pubend!r}"
        return TimedOutError(f"{where} has not acknowledged the event in time; {_UNKNOWN}")

    # The end.

    async def drain(self, deadline: float) -> None:
        """Wait until everything is acknowledged, or the time is over."""
        while not self._is_idle():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _is_idle(self) -> bool:
        return self._worker is None and all(stream.is_empty for stream in self._streams.values())

    def close(self) -> None:
        """Whoever still waits learns that nobody will answer."""
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        for waiting in self._waiting:
            if not waiting.receipt.promise.done():
                waiting.receipt.promise.set_exception(closed())
        self._waiting.clear()
        for stream in list(self._streams.values()):
            error = TimedOutError(f"the client was closed before the event was acknowledged; {_UNKNOWN}")
            self._give_up(stream, error)

    def _check_open(self) -> None:
        if self._closed:
            raise closed()


def options(key: str | bytes, priority: int, validity: float | None, sequence: int | None) -> Options:
    """Checked arguments of publish(); EncodeError says what is wrong with one."""
    raw = key.encode() if isinstance(key, str) else bytes(key)
    if len(raw) > KEY_BYTES_MAX:
        raise EncodeError(f"a key has at most {KEY_BYTES_MAX} bytes, not {len(raw)}")
    if not 0 <= priority <= PRIORITY_MAX:
        raise EncodeError(f"a priority is from 0 to {PRIORITY_MAX}, not {priority}")
    milliseconds = 0 if validity is None else ceil(validity * 1_000)
    if validity is not None and not 0 < milliseconds <= VALIDITY_MS_MAX:
        raise EncodeError(
            f"a validity is more than 0 and at most {VALIDITY_MS_MAX // 1_000} s, not {validity}"
        )
    return Options(raw, priority, milliseconds, sequence)
