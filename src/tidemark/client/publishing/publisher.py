"""Publisher: what an application publishes, batched, numbered, and sent until it is on a broker's disk, once.

Everything that is published in one turn of the loop leaves as one batch, and while the socket is congested
batches grow; no event waits only to fill a batch. Events that are not acknowledged are kept, within a bound,
and sent again on the next connection to a broker that hosts their pubend; by their numbers the pubend logs
each of them once. Those of a named publisher can go on to a pubend of another broker (`PublisherPlace`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import time_ns
from typing import Any

from tidemark.client.connecting.backoff import Backoff
from tidemark.client.connecting.link import Link, closed
from tidemark.client.connecting.refusals import error_of
from tidemark.client.publishing.assignment import AssignmentRule, PubendChoice, read_rule
from tidemark.client.publishing.options import EventOptions
from tidemark.client.publishing.outgoing import PublisherStream, Receipt, Ticks
from tidemark.client.publishing.publisher_move import PublisherPlace
from tidemark.client.topics import ClientTopics
from tidemark.errors import (
    ClientError,
    ClosedError,
    EncodeError,
    NotConnectedError,
    RefusedError,
    TidemarkError,
    TimedOutError,
)
from tidemark.message.batches.batch import (
    EVENT_BYTES_MAX,
    PRELUDE,
    EventBatch,
    Shape,
)
from tidemark.message.publisher_names import is_made
from tidemark.wire.frames import Publish, Published, Refused, Welcome
from tidemark.wire.limits import PUBLISH_BYTES_MAX, PUBLISH_NAMES_BYTES_MAX
from tidemark.wire.moving.frames import Leave, Left

#: Bytes of events that may be published and not acknowledged; beyond that, publishing waits.
UNACKNOWLEDGED_BYTES_MAX = 32 << 20
#: Calls of publish() that may wait for room, or for the schema of their topic.
WAITING_EVENTS_MAX = 100_000
#: Refusals of a sequence number, in a row, that are answered by sending again. A broker that refuses more
#: often does not know what was acknowledged before: it has lost its disk, or is another one.
SEQUENCE_REFUSALS_MAX = 3
#: The version of the protocol from which on a broker lets publishers move.
MOVES_VERSION = 7
#: A pubend that does not answer a publisher which wants to leave is asked again after so long.
LEAVE_SECONDS = 1.0
_UNKNOWN = (
    "whether it is logged, or still will be, is not known: publish it again only if twice does no harm, "
    "or name the publisher and number its events"
)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call of publish() that could not be carried out at once."""

    topic: str
    value: Any
    options: EventOptions
    receipt: Receipt


class Publisher:
    """The publishing half of a client."""

    def __init__(
        self,
        link: Link,
        topics: ClientTopics,
        *,
        publisher: str,
        is_named: bool,
        pubend: str | None,
        backoff: Backoff,
        ask: Callable[[str], Awaitable[object]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._topics = topics
        self._publisher = publisher
        self._is_named = is_named
        #: the application has not said at which pubend the publisher is to stay, and pubends never forget it
        self._may_move = is_named and pubend is None and not is_made(publisher)
        #: where the named publisher is, once it has published something, if it may move
        self._place: PublisherPlace | None = None
        #: asks a pubend again to let the publisher go
        self._leaving: asyncio.TimerHandle | None = None
        self._choice = PubendChoice(publisher, pubend, is_named=is_named)
        self._ask = ask
        #: asks the broker for its rule
        self._asking: asyncio.Task[None] | None = None
        self._backoff = backoff
        #: pubend -> its stream; each stream has its own publisher id, since a refusal names only that
        self._streams: dict[str, PublisherStream] = {}
        self._streams_made = 0
        #: the stream that new events go to that go by the publisher
        self._current: PublisherStream | None = None
        #: bytes of events in all streams
        self._bytes = 0
        self._waiting: deque[_Waiting] = deque()
        #: carries out what is in `_waiting`, while there is something
        self._worker: asyncio.Task[None] | None = None
        #: set whenever an event was acknowledged or given up, or a connection is up
        self._changed = asyncio.Event()
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        #: nothing is sent until this timer fires
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    # Publishing.

    def publish(
        self, topic: str, value: Any, options: EventOptions, timeout: float
    ) -> asyncio.Future[int | None]:
        """Queue one event; the future has the event's tick once it is on disk. See Client.publish."""
        self._check_open()
        future: asyncio.Future[int | None] = self._loop.create_future()
        receipt = Receipt(future, self._loop.time() + timeout, is_single=True)
        if self._worker is None and self._has_room():
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
        self, topic: str, values: Iterable[Any], options: EventOptions, timeout: float
    ) -> Ticks:
        """Publish values in order; return their ticks once all are on disk. See Client.publish_many."""
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
            stream = self._stream(options)
            if receipt is None or stream.opened != opened:
                futures.append(self._loop.create_future())
                receipt = Receipt(futures[-1], deadline, is_single=False)
                opened = stream.opened
            self._add(encoded, options, receipt)
        return [tick for ticks in await asyncio.gather(*futures) for tick in ticks]

    async def publish_batch(
        self, batch: EventBatch, sequence: int | None, timeout: float, *, wants_ticks: bool = True
    ) -> Ticks:
        """Publish a batch as it is; return its ticks once it is on disk. See Client.publish_batch.

        To list the ticks of a million events takes a tenth of a second; without `wants_ticks` none are
        listed.
        """
        self._check_open()
        deadline = self._loop.time() + timeout
        await self._until(lambda: self._worker is None and self._has_room(), deadline)
        if batch.names_bytes > PUBLISH_NAMES_BYTES_MAX:
            raise EncodeError(
                f"the topics, schemas and publishers that the batch names take {batch.names_bytes} bytes, "
                f"and at most {PUBLISH_NAMES_BYTES_MAX} can be published together: publish it in parts"
            )
        futures: list[asyncio.Future[Ticks]] = []
        stream = self._own_stream(sequence)
        for part in batch.split(PUBLISH_BYTES_MAX):
            futures.append(self._loop.create_future())
            receipt = Receipt(futures[-1], deadline, is_single=False, wants_ticks=wants_ticks)
            self._bytes += stream.add_batch(part, receipt)
        self._soon(deadline)
        if len(futures) == 1:
            return await futures[0]
        return [tick for ticks in await asyncio.gather(*futures) for tick in ticks]

    def _add(self, encoded: tuple[Shape, bytes], options: EventOptions, receipt: Receipt) -> None:
        shape, message = encoded
        size = PRELUDE.size + len(message) + len(options.key)
        if size > EVENT_BYTES_MAX:
            raise EncodeError(
                f"an event of {size} bytes is over the limit of {EVENT_BYTES_MAX}: publish less"
            )
        stream = self._stream(options)
        self._bytes += stream.add(
            shape,
            message,
            receipt,
            key=options.key,
            priority=options.priority,
            validity_ms=options.validity_ms,
            traceparent=options.traceparent,
        )
        self._soon(receipt.deadline)

    def _stream(self, options: EventOptions) -> PublisherStream:
        """The stream that a new event goes to. Raises as `_own_stream`."""
        pubend = self._choice.pubend(options)
        if pubend is None:
            return self._own_stream(options.sequence)
        return self._streams.get(pubend) or self._make_stream(pubend, 1)

    def _own_stream(self, sequence: int | None) -> PublisherStream:
        """The stream of events that go by the publisher, whose pubend stays as long as the broker hosts it.

        RefusedError if the broker hosts no pubend, or not the one that the application named; ClientError if
        a named publisher does not give the next `sequence`.
        """
        stream = self._current
        if stream is None:
            pubend = self._choice.of_publisher()
            stream = self._streams.get(pubend) or self._make_stream(pubend, sequence or 1)
            self._current = stream
        if self._is_named and sequence != stream.next:
            raise ClientError(
                f"the named publisher {self._publisher!r} has to number its events without gaps: "
                f"publish(..., sequence={stream.next}) is next, not {sequence}"
            )
        return stream

    def _make_stream(self, pubend: str, first: int) -> PublisherStream:
        self._streams_made += 1
        name = self._publisher
        if not self._is_named and self._streams_made > 1:
            name = f"{name}.{self._streams_made}"
        stream = PublisherStream(name, pubend, first if self._is_named else 1, is_named=self._is_named)
        self._streams[pubend] = stream
        if self._may_move:
            self._place = PublisherPlace(stream)
        return stream

    # Waiting for a schema, for room, for a broker.

    async def _work(self) -> None:
        """Carry out, in their order, the calls of publish() that could not be carried out at once."""
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
            return  # the call has timed out
        try:
            encoded = await self._encoded(waiting.topic, waiting.value, waiting.receipt.deadline)
            if not promise.done():
                self._add(encoded, waiting.options, waiting.receipt)
        except TidemarkError as error:
            if not promise.done():
                promise.set_exception(error)

    def _has_room(self) -> bool:
        return self._link.is_up and self._choice.is_known and self._bytes < UNACKNOWLEDGED_BYTES_MAX

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
        """Send at the end of this turn of the loop, with everything that is published until then."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        self._watch(deadline)

    def _flush(self) -> None:
        self._is_flushing = False
        self.writable()
        # This is the end of the turn: waiting for the connection's own flush would cost another one.
        self._link.flush()

    def writable(self) -> None:
        """Send batches until none is left or the socket is congested."""
        welcome = self._link.welcome
        if welcome is None or self._retry is not None:
            return
        for stream in list(self._streams.values()):
            if not self._is_ready(stream, welcome):
                continue
            for sequence, batch in stream.unsent():
                self._link.send(Publish(stream.pubend, stream.publisher, sequence, batch))
                if self._link.is_congested:
                    return

    def _is_ready(self, stream: PublisherStream, welcome: Welcome) -> bool:
        """Whether batches can be sent. A publisher that has to move for that does what is next."""
        place = self._place
        if place is None or stream is not place.stream or welcome.version < MOVES_VERSION:
            return stream.pubend in welcome.pubends
        if stream.is_empty:
            return False
        step = place.next_step(welcome.pubends)
        if step is not None:
            self._link.send(step)
        if isinstance(step, Leave):
            if self._leaving is not None:
                self._leaving.cancel()
            self._leaving = self._loop.call_later(LEAVE_SECONDS, self._leave_again)
        return place.is_ready(welcome.pubends)

    def _leave_again(self) -> None:
        self._leaving = None
        if self._place is not None:
            self._place.again()
            self.writable()

    def up(self, welcome: Welcome) -> None:
        """A new connection: send again, in order, what is not acknowledged, if its pubend is hosted there."""
        if self._place is not None:
            self._place.again()
        can_move = self._place is not None and welcome.version >= MOVES_VERSION
        if self._current is not None and self._current.pubend not in welcome.pubends and not can_move:
            self._current = None
        if self._choice.up(welcome):
            self._asking = self._loop.create_task(self._learn_rule(), name="tidemark assignment")
        for stream in self._streams.values():
            stream.rewind()
        self.writable()
        self._changed.set()

    async def _learn_rule(self) -> None:
        """Ask the broker by what events are assigned to its pubends."""
        rule: AssignmentRule | None = None
        while rule is None:
            try:
                rule = read_rule(await self._ask("assignment"))
            except RefusedError:
                rule = AssignmentRule()  # the broker is older than such rules
            except TimedOutError:
                continue
            except (NotConnectedError, ClosedError):
                return  # it is asked on the next connection
        self._choice.learn(rule)
        self._changed.set()

    # Outcomes.

    def published(self, frame: Published) -> None:
        """The broker has a batch, and everything before it, on disk."""
        stream = self._streams.get(frame.pubend)
        if stream is None or stream.publisher != frame.publisher:
            return
        if self._place is not None:
            self._place.settled()
        self._bytes -= stream.published(frame.sequence, frame.tick)
        self._backoff.reset()
        self._changed.set()

    def left(self, frame: Left) -> None:
        """A pubend has let the publisher go, or says where it is."""
        place = self._place
        if place is not None and place.left(frame):
            tick = frame.tick if frame.to != frame.pubend else None
            self._moved(place, frame.pubend, frame.sequence, tick)

    def _moved(self, place: PublisherPlace, before: str, sequence: int, tick: int | None) -> None:
        """The publisher goes from the pubend `before` to another; events up to `sequence` are on disk."""
        stream = place.stream
        self._bytes -= stream.published(sequence, tick)
        self._streams.pop(before, None)
        self._streams[stream.pubend] = stream
        stream.rewind()
        self.writable()
        self._changed.set()

    def move_anyway(self, after: int) -> None:
        """Go on at the broker at hand, without asking the last one. See Client.move_publisher."""
        welcome = self._link.welcome
        if not self._may_move:
            raise ClientError("only a publisher with a name and without a fixed pubend moves: see connect()")
        if welcome is None:
            raise NotConnectedError("there is no broker just now: it is being looked for")
        if welcome.version < MOVES_VERSION:
            raise ClientError(f"the broker {welcome.broker!r} is too old: update it first")
        pubend = self._choice.of_publisher()
        stream = self._current or self._make_stream(pubend, after + 1)
        if not 0 <= after < stream.next:
            raise ClientError(f"{after} events cannot be logged: {stream.next} is the number of the next one")
        self._current = stream
        before = stream.pubend
        assert self._place is not None
        self._place.go_anyway(pubend, after, time_ns() // 1_000)
        self._moved(self._place, before, after, None)

    def refused(self, frame: Refused) -> None:
        """The broker refused a batch."""
        error = error_of(frame)
        if frame.code == "removed":
            self._topics.doubt()
        for stream in [each for each in self._streams.values() if each.publisher == frame.name]:
            if frame.code == "full":
                self._later(stream, error)
            elif self._place is not None and frame.code in ("moved", "draining", "pubend"):
                self._turned_away(self._place, frame.code, error)
            elif frame.code == "sequence" and self._retry is not None:
                pass  # a batch behind the one that was refused: all of them are sent again anyway
            elif frame.code == "sequence" and stream.refusals < SEQUENCE_REFUSALS_MAX:
                stream.refusals += 1
                self._later(stream, None)
            else:
                self._give_up(stream, error)

    def _turned_away(self, place: PublisherPlace, code: str, error: RefusedError) -> None:
        """The publisher, which may move, is not taken where it is: find out where it is, or go elsewhere."""
        if code == "moved":
            place.doubt()
            self.writable()
        elif code == "pubend":
            place.stream.refusal = error  # of calls that time out: it is asked for again
        # The client leaves a broker that is being drained, and the publisher follows.

    def _later(self, stream: PublisherStream, refusal: RefusedError | None) -> None:
        """Send all batches again after a while; `refusal` is the error of calls that time out until then."""
        stream.refusal = refusal or stream.refusal
        if self._retry is None:
            self._retry = self._loop.call_later(self._backoff.delay(), self._again)

    def _again(self) -> None:
        self._retry = None
        if self._place is not None:
            self._place.again()
        for stream in self._streams.values():
            stream.rewind()
        self.writable()

    def _give_up(self, stream: PublisherStream, error: TidemarkError | None) -> None:
        """Forget a stream whose numbers are of no use any more: new events go under another publisher id.

        Calls that wait for its events raise `error`.
        """
        self._bytes -= stream.abandon(error)
        self._streams.pop(stream.pubend, None)
        if self._place is not None and self._place.stream is stream:
            self._place = None
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
        """Raise an error in every call whose time is over, and forget streams that nobody waits for."""
        self._timer = None
        now = self._loop.time()
        for stream in list(self._streams.values()):
            for receipt in list(stream.overdue(now)):
                receipt.promise.set_exception(self._overdue(stream))
            welcome = self._link.welcome
            is_away = welcome is None or stream.pubend not in welcome.pubends
            if stream.deadline() is None and is_away and self._place is None:
                # Its broker is away and no call waits for it: kept for ever it would take up the room.
                self._give_up(stream, None)
        queued = [waiting.receipt for waiting in self._waiting if not waiting.receipt.promise.done()]
        for receipt in queued:
            if receipt.deadline <= now:
                receipt.promise.set_exception(self._no_room())
        deadlines = [at for each in self._streams.values() if (at := each.deadline()) is not None]
        deadlines += [receipt.deadline for receipt in queued if receipt.deadline > now]
        if deadlines:
            self._watch(min(deadlines))

    def _overdue(self, stream: PublisherStream) -> TidemarkError:
        if isinstance(stream.refusal, RefusedError):
            return stream.refusal.with_reason(f"{stream.refusal.reason}. It is still tried: {_UNKNOWN}")
        where = f"the broker that hosts the pubend {stream.pubend!r}"
        return TimedOutError(f"{where} has not acknowledged the event in time; {_UNKNOWN}")

    # The end.

    async def drain(self, deadline: float) -> None:
        """Wait until everything is acknowledged, but not beyond `deadline`, in the loop's time."""
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
        """Take no more calls; those that still wait raise ClosedError, or TimedOutError if they were sent."""
        self._closed = True
        for task in (self._worker, self._asking):
            if task is not None:
                task.cancel()
        for timer in (self._timer, self._retry, self._leaving):
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
