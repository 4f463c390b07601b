"""Actors: the publishers and subscribers of a simulated world, and what they write down.

A publisher keeps what has not been acknowledged and sends it again after a break. A subscriber keeps its
token and what it consumed in one place, as an application does in its own database, and checks as it goes
that nothing is out of order and nothing is left out between one frame and the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import (
    Ack,
    ClientFrame,
    Credit,
    Deliver,
    Gap,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

if TYPE_CHECKING:
    from tidemark.sim.world import World

RETRY_US = 300_000


class ViolationError(AssertionError):
    """An invariant of the protocol does not hold."""


@dataclass
class Publisher:
    """Publishes to one pubend, exactly once whatever happens."""

    world: World
    name: str
    pubend: str
    machine: str
    chance: Random
    client: int | None = None
    _sequence: int = 0
    _unacknowledged: list[tuple[int, bytes, int]] = field(default_factory=list)
    #: sequence numbers that the broker has acknowledged
    acknowledged: int = 0

    def publish(self, count: int) -> None:
        """Make some events up and send them."""
        builder = BatchBuilder()
        for _ in range(count):
            self._sequence += 1
            event: dict[str, Any] = {
                "key": f"{self.name}/{self._sequence}",
                "kind": self.chance.choice("abcd"),
                "n": self.chance.randrange(100),
            }
            topic = self.chance.choice(self.world.topics)
            self.world.facts[event["key"]] = (topic, event)
            shape = Shape(topic, self.world.schema.fingerprint)
            builder.add(shape, self.world.schema.encode(event), publisher=self.name)
        first = self._sequence - count + 1
        self._unacknowledged.append((first, bytes(builder.build().data), count))
        self._send(*self._unacknowledged[-1][:2])

    def connect(self) -> None:
        """Open a connection and send again what has not been acknowledged."""
        if self.client is None and self.world.is_up(self.machine):
            self.client = self.world.connect(self.machine, self.receive, self.disconnected)
            for first, data, _ in list(self._unacknowledged):
                self._send(first, data)

    def disconnected(self) -> None:
        """The connection is gone; try again soon."""
        self.client = None
        self.world.engine.after(self.chance.randint(1, RETRY_US), self.connect)

    def receive(self, frame: ClientFrame) -> None:
        """A broker answered."""
        match frame:
            case Published(_, _, sequence, _):
                self.acknowledged = max(self.acknowledged, sequence)
                self._unacknowledged = [
                    each for each in self._unacknowledged if each[0] + each[2] - 1 > sequence
                ]
            case Refused():
                self._again()
            case _:
                raise ViolationError(f"{self.name} got {frame}")

    def _again(self) -> None:
        if self.client is not None:
            self.world.disconnect(self.client)
            self.disconnected()

    def _send(self, first: int, data: bytes) -> None:
        if self.client is not None:
            batch = EventBatch.parse(bytearray(data))
            self.world.to_broker(self.client, Publish(self.pubend, self.name, first, batch))

    @property
    def is_idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._unacknowledged


@dataclass
class Received:
    """What a subscriber has consumed of one pubend: where it started, events in order, gaps."""

    start: int
    upto: int
    events: list[tuple[int, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Subscriber:
    """A durable subscriber that holds its own token."""

    world: World
    name: str
    machine: str
    pattern: str
    selector: str
    chance: Random
    credit: int
    client: int | None = None
    is_away: bool = True
    is_subscribed: bool = False
    #: committed with the token, as in one transaction
    ledger: dict[str, Received] = field(default_factory=dict)
    #: since the last commit
    _pending: dict[str, Received] = field(default_factory=dict)
    _owed: int = 0

    def come(self) -> None:
        """Connect, or keep trying."""
        self.is_away = False
        if self.client is not None:
            return
        if not self.world.is_up(self.machine):
            self.world.engine.after(RETRY_US, self._retry)
            return
        self.client = self.world.connect(self.machine, self.receive, self.disconnected)
        token = CheckpointToken({name: each.upto for name, each in self.ledger.items()})
        frame = Subscribe(
            self.name, self.pattern, self.selector, True, self.credit, token if self.is_subscribed else None
        )
        self.world.to_broker(self.client, frame)

    def _retry(self) -> None:
        if not self.is_away:
            self.come()

    def leave(self) -> None:
        """Go away, orderly or not: what was not committed never happened."""
        self.is_away = True
        if self.client is not None:
            self.world.disconnect(self.client)
        self._forget()

    def disconnected(self) -> None:
        """The connection is gone."""
        self._forget()
        if not self.is_away:
            self.world.engine.after(self.chance.randint(1, RETRY_US), self._retry)

    def _forget(self) -> None:
        self.client = None
        self._pending.clear()
        self._owed = 0

    def commit(self) -> None:
        """Make what was consumed durable at this side, then acknowledge it."""
        if self.client is None:
            return
        for name, pending in self._pending.items():
            kept = self.ledger.setdefault(name, Received(pending.start, pending.start))
            kept.upto = pending.upto
            kept.events += pending.events
            kept.gaps += pending.gaps
        self._pending.clear()
        token = CheckpointToken({name: each.upto for name, each in self.ledger.items()})
        self.world.to_broker(self.client, Ack(self.name, token))
        if self._owed:
            self.world.to_broker(self.client, Credit(self.name, self._owed))
            self._owed = 0

    def receive(self, frame: ClientFrame) -> None:
        """A broker told something."""
        match frame:
            case Subscribed():
                self.is_subscribed = True
            case Deliver(_, pubend, base, upto, batch):
                into = self._next(pubend, base, upto)
                if batch is not None:
                    self._consume(into, batch, base, upto)
            case Gap(_, pubend, base, upto):
                self._next(pubend, base, upto).gaps.append((base, upto))
            case Refused():
                self.world.refused(self, frame)
            case _:
                raise ViolationError(f"{self.name} got {frame}")

    def unsubscribe(self) -> None:
        """End the subscription for good."""
        if self.client is not None:
            self.world.to_broker(self.client, Unsubscribe(self.name))

    def _next(self, pubend: str, base: int, upto: int) -> Received:
        known = self._pending.get(pubend) or self.ledger.get(pubend)
        if known is not None and known.upto != base:
            raise ViolationError(f"{self.name} at {pubend}: told up to {known.upto}, then from {base}")
        if upto < base:
            raise ViolationError(f"{self.name} at {pubend}: a range that goes back, ({base}, {upto}]")
        pending = self._pending.setdefault(pubend, Received(base, base))
        pending.upto = upto
        return pending

    def _consume(self, into: Received, batch: EventBatch, base: int, upto: int) -> None:
        ticks = batch.ticks.tolist()
        if ticks != sorted(set(ticks)) or not base < ticks[0] or ticks[-1] > upto:
            raise ViolationError(f"{self.name}: ticks out of order in ({base}, {upto}]")
        key = self.world.schema.accessor("key")
        into.events += [(tick, key(batch.message(row))) for row, tick in enumerate(ticks)]
        self._owed += len(ticks)
