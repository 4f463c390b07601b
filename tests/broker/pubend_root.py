"""Root: a pubend with its surroundings written down."""

from __future__ import annotations

from tests.broker.desk import batch
from tidemark.broker.effects import AppendEvents, Effect, RecoveredPubend, SendClient, SyncLog
from tidemark.broker.publishing.pubend import Pubend, PubendPolicy
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import TICK_MIN
from tidemark.wire.frames import Publish, Published, Refused


class Root:
    """A pubend with its surroundings written down."""

    def __init__(self, state: RecoveredPubend | None = None, policy: PubendPolicy | None = None) -> None:
        self.turn = Turn()
        self.commit = self.turn.log
        self.syncs: list[int] = []
        #: knowledge passed on: base, upto, ticks of events
        self.known: list[tuple[int, int, list[int]]] = []
        #: what was told as let go at once
        self.lost = TICK_MIN
        self.pubend = Pubend("p", state or RecoveredPubend(), policy or PubendPolicy(), self.turn, self)

    @property
    def counters(self) -> dict[str, int]:
        return self.turn.counters

    def first(self, base: int, upto: int, lost: int, version: int, batch: EventBatch | None) -> None:
        """The pubend passes knowledge on."""
        del lost, version
        self.known.append((base, upto, [] if batch is None else batch.ticks.tolist()))

    def tell_lost(self, lost: int) -> None:
        """The pubend has let go of something at once."""
        self.lost = lost

    def take(self) -> list[Effect]:
        """The effects since the last call, without syncs, whose tickets are kept."""
        effects = self.turn.out.take()
        self.syncs += [each.ticket for each in effects if isinstance(each, SyncLog)]
        return [each for each in effects if not isinstance(each, SyncLog)]

    def publish(
        self, sequence: int, count: int, wall: int, publisher: str = "me", validity_ms: int = 0
    ) -> list[Effect]:
        self.turn.wall = wall
        events = batch(*range(count), validity_ms=validity_ms)
        self.pubend.received(7, Publish("p", publisher, sequence, events))
        self.pubend.log()
        self.pubend.settle()
        self.commit.flush()
        return self.take()

    def sync(self) -> list[Effect]:
        self.commit.synced(self.syncs[-1])
        self.pubend.settle()
        self.commit.flush()
        return self.take()

    def full(self) -> list[Effect]:
        assert self.commit.failed(self.syncs[-1])
        return self.take()

    def beat(self, now: int, wall: int | None = None) -> list[Effect]:
        self.turn.now, self.turn.wall = now, now if wall is None else wall
        self.pubend.beat()
        self.commit.flush()
        return self.take()

    def expire(self, now: int, wall: int | None = None) -> list[Effect]:
        self.turn.now, self.turn.wall = now, now if wall is None else wall
        self.pubend.expire()
        return self.take()

    def released(self, released: int, delivered: int, wall: int = 0) -> list[Effect]:
        self.turn.now, self.turn.wall = 0, wall
        self.pubend.released(released, delivered)
        return self.take()


def appended(effects: list[Effect]) -> list[tuple[str, int, list[int]]]:
    """Publisher, first sequence number and ticks of what is logged."""
    return [
        (each.publisher, each.sequence, each.batch.ticks.tolist())
        for each in effects
        if isinstance(each, AppendEvents)
    ]


def published(sequence: int, tick: int, publisher: str = "me") -> SendClient:
    return SendClient(7, Published("p", publisher, sequence, tick))


def refused(code: str, reason: str, publisher: str = "me") -> SendClient:
    return SendClient(7, Refused("publish", publisher, code, reason))


def announced(root: Root, now: int) -> int | None:
    """What the pubend announces at this monotonic time."""
    root.turn.now = now
    return root.pubend.announcement()
