"""SimPublisher: publishes to one pubend of a simulated world, exactly once whatever happens.

The publisher keeps its unacknowledged batches and sends them again on a new connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape, concatenate
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.wire.frames import ClientFrame, Publish, Published, Refused, Topic

if TYPE_CHECKING:
    from tidemark.sim.world.world import World

RETRY_US = 300_000
#: Validities, in milliseconds: for ever, long enough never to pass, and such that they often do.
FOR_EVER, LONG_MS, SHORT_MS = 0, 3_600_000, 150


@dataclass
class SimPublisher:
    """One publisher, its unacknowledged batches, and how many events are acknowledged."""

    world: World
    name: str
    pubend: str
    machine: str
    chance: Random
    #: validities in milliseconds, of which one is chosen for each event
    validities: tuple[int, ...] = (FOR_EVER,)
    #: the topics it publishes to; `discover` adds to them
    topics: tuple[str, ...] = ()
    client: int | None = None
    _sequence: int = 0
    #: (first sequence number, bytes, number of events) of each unacknowledged batch
    _unacknowledged: list[tuple[int, bytes, int]] = field(default_factory=list)
    #: topics that the broker has confirmed on this connection
    _declared: set[str] = field(default_factory=set)
    #: the highest sequence number that the broker has acknowledged
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self.topics = self.topics or self.world.topics

    def begin(self, until: int) -> None:
        """Do, until then, what this publisher does besides publishing: nothing."""

    def publish(self, count: int) -> None:
        """Make `count` random events and send them as one batch, as soon as the connection is ready."""
        builder = BatchBuilder()
        for _ in range(count):
            self._sequence += 1
            event: dict[str, Any] = {
                "key": f"{self.name}/{self._sequence}",
                "kind": self.chance.choice("abcd"),
                "n": self.chance.randrange(100),
            }
            if self.world.shown_fields is not None:
                event["secret"] = self._sequence * 37 % 100
            topic = self.chance.choice(self.topics)
            validity = self.chance.choice(self.validities)
            message = self.world.ground_truth.add(topic, event, validity)
            shape = Shape(topic, self.world.schema.fingerprint)
            builder.add(shape, message, publisher=self.name, validity_ms=validity)
        first = self._sequence - count + 1
        self._unacknowledged.append((first, bytes(builder.build().data), count))
        if self._is_ready:
            self._send(*self._unacknowledged[-1][:2])

    def connect(self) -> None:
        """Open a connection and declare the topics; unacknowledged batches follow once they are confirmed."""
        if self.client is not None:
            return
        if not self.world.is_up(self.machine):
            self.world.engine.after(RETRY_US, self.connect)
            return
        self.client = self._opened()
        self._declared.clear()
        for topic in self.topics:
            self._declare(topic)

    def _opened(self) -> int:
        return self.world.connect(self.machine, self.receive, self.disconnected, self.name)

    def discover(self, topic: str) -> None:
        """Publish to another topic too from now on."""
        if topic not in self.topics:
            self.topics += (topic,)
            if self.client is not None:
                self._declare(topic)

    def _declare(self, topic: str) -> None:
        assert self.client is not None
        self.world.to_broker(self.client, Topic(topic, False, (self.world.schema.text,)))

    def disconnected(self) -> None:
        """The connection is gone: connect again after a while."""
        self.client = None
        self.world.engine.after(self.chance.randint(1, RETRY_US), self.connect)

    def receive(self, frame: ClientFrame) -> None:
        """Handle a frame from the broker; ViolationError if a publisher should never get it."""
        match frame:
            case Topic(topic):
                self._declared.add(topic)
                if self._is_ready:
                    self._send_all()
            case Published(_, _, sequence, _):
                self._acknowledge(sequence)
            case Refused(_, _, code, _) if code in ("full", "sequence", "draining"):
                # There is nowhere else to go with events of this pubend: also to a broker that is being
                # drained they are offered again, until it takes them.
                self.world.fault_counts["turned_away"] += code == "draining"
                self._again()
            case _:
                raise ViolationError(f"{self.name} got {frame}")

    def _acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        self._unacknowledged = [each for each in self._unacknowledged if each[0] + each[2] - 1 > sequence]

    @property
    def _is_ready(self) -> bool:
        return self.client is not None and len(self._declared) == len(self.topics)

    def _again(self) -> None:
        """Connect again after a while: the unacknowledged batches are then sent again in order."""
        if self.client is not None:
            self.world.disconnect(self.client)
            self.disconnected()

    def _send_all(self) -> None:
        """Send everything again; the broker reads half of it as one frame, as it may what comes together."""
        waiting = self._unacknowledged
        # With accounts each frame has to wait for its publisher's quota by itself.
        joined = waiting[: 1 + len(waiting) // 2] if self.world.access is None else []
        if self.client is not None and len(joined) > 1:
            batches = [EventBatch.parse(bytearray(data)) for _, data, _ in joined]
            parts = tuple(count for _, _, count in joined)
            whole = Publish(self.pubend, self.name, joined[0][0], concatenate(batches), parts)
            self.world.to_broker(self.client, whole)
            waiting = waiting[len(joined) :]
        for first, data, _ in waiting:
            self._send(first, data)

    def _send(self, first: int, data: bytes) -> None:
        assert self.client is not None
        self._send_over(self.client, self.pubend, first, data)

    def _send_over(self, client: int, pubend: str, first: int, data: bytes) -> None:
        batch = EventBatch.parse(bytearray(data))
        self.world.to_broker(client, Publish(pubend, self.name, first, batch))

    @property
    def is_idle(self) -> bool:
        """Every event is acknowledged."""
        return not self._unacknowledged
