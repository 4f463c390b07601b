"""Subscriber: a subscriber of a simulated world, and what it writes down.

It checks as it goes that nothing is out of order and nothing is left out between one frame and the next, and
keeps a ledger for each life of its subscription, for the oracle to judge. Kinds:
- holds its token itself, together with what it consumed, as an application does in its own database;
- leaves its token to the broker, which says where it goes on;
- is not durable: every connection is a life of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal

from tidemark.message.batches.batch import EventBatch
from tidemark.sim.judging.ground_truth import ViolationError
from tidemark.sim.world.publisher import RETRY_US
from tidemark.ticks import TICK_MAX, CheckpointToken
from tidemark.wire.frames import (
    Ack,
    Acked,
    ClientFrame,
    Credit,
    Deliver,
    Gap,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)

if TYPE_CHECKING:
    from tidemark.sim.world.world import World

Kind = Literal["holds", "leaves", "passes"]
#: How far before its time a subscriber may want to begin.
PAST_US_MAX = 2_000_000


@dataclass
class ConsumedPubend:
    """What was consumed of one pubend: where it started, up to where, events in order, gaps."""

    start: int
    upto: int
    events: list[tuple[int, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def cut(self, upto: int) -> None:
        """What lies beyond `upto` never happened."""
        self.upto = upto
        self.events = [each for each in self.events if each[0] <= upto]
        self.gaps = [(base, min(stop, upto)) for base, stop in self.gaps if base < upto]


@dataclass
class SelectorSince:
    """What a subscriber wants, and in which pubend from which tick on."""

    pattern: str
    selector: str
    since: dict[str, int] = field(default_factory=dict)


@dataclass
class Life:
    """One life of a subscription, from its making to its end."""

    name: str
    wants: list[SelectorSince]
    durable: bool
    ledger: dict[str, ConsumedPubend] = field(default_factory=dict)
    #: where it wanted to begin, if that was in the past
    past: CheckpointToken | None = None
    #: it has been at another broker, or is taken as if it had
    has_moved: bool = False
    #: the subscriber was there to the end, so that all there is must have come
    is_last: bool = True

    def wanted_at(self, pubend: str, tick: int) -> SelectorSince | None:
        """What held at this tick; None before the start."""
        held = [each for each in self.wants if each.since.get(pubend, TICK_MAX) < tick]
        return held[-1] if held else None

    def surely_wants(self, pubend: str, tick: int, matches: Callable[[SelectorSince], bool]) -> bool:
        """Whatever of a change has not been told to the subscriber yet, it wants what `matches`."""
        held = self.wanted_at(pubend, tick)
        open_changes = [each for each in self.wants if pubend not in each.since]
        return held is not None and all(matches(each) for each in [held, *open_changes])


@dataclass
class SimSubscriber:
    """See above."""

    world: World
    name: str
    machine: str
    pattern: str
    selector: str
    chance: Random
    #: bytes of events it takes before it grants more
    credit: int
    kind: Kind = "holds"
    #: the chance that a life of its subscription begins before its time
    reaches_back: float = 0.0
    #: the chance that it comes back at another broker
    moves: float = 0.0
    client: int | None = None
    is_away: bool = True
    is_subscribed: bool = False
    #: it has asked for this life: a broker may know it
    _has_asked: bool = False
    #: the broker that it asked last
    asked_at: str | None = None
    #: the broker has said, on this connection, where it goes on
    is_welcome: bool = False
    #: its subscription is being ended for good
    is_ending: bool = False
    lives: list[Life] = field(default_factory=list)
    #: since the last commit
    pending: dict[str, ConsumedPubend] = field(default_factory=dict)
    _owed: int = 0
    _ticket: int = 0
    #: ticket -> what was acknowledged with it; and what is known to be on the broker's disk
    _acks: dict[int, CheckpointToken] = field(default_factory=dict)
    _acked: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin()

    @property
    def life(self) -> Life:
        """The present one."""
        return self.lives[-1]

    def _begin(self) -> None:
        if self.lives:
            self.life.is_last = False
        wants = [SelectorSince(self.pattern, self.selector)]
        self.lives.append(Life(f"{self.name}.{len(self.lives)}", wants, self.kind != "passes"))
        if self.kind == "holds" and self.reaches_back and self.chance.random() < self.reaches_back:
            self.life.past = self._some_time_ago()
        self.is_subscribed = self.is_ending = False
        self.asked_at = None
        self._acks.clear()
        self._acked.clear()

    def _some_time_ago(self) -> CheckpointToken:
        now = self.world.engine.now
        return CheckpointToken(
            {pubend: now - self.chance.randrange(PAST_US_MAX) for pubend in self.world.ground_truth.durable}
        )

    # Coming and going.

    def come(self) -> None:
        """Connect, or keep trying."""
        self.is_away = False
        if self.client is not None:
            return
        if self.kind == "holds" and self.is_subscribed and self.moves and self.chance.random() < self.moves:
            self._move(self.chance.choice(sorted(self.world.machines)))
        if not self.world.is_up(self.machine):
            self.world.engine.after(RETRY_US, self._retry)
            return
        if self.kind == "passes" and self._has_asked:
            self._begin()
        self._has_asked = True
        self.client = self.world.connect(self.machine, self.receive, self.disconnected)
        self.life.has_moved |= self.asked_at not in (None, self.machine) or self._shows_a_change
        self.asked_at = self.machine
        if self.is_ending:
            self.world.to_broker(self.client, Unsubscribe(self.life.name))
            return
        token = self.life.past
        if self.is_subscribed:
            token = self._token() if self.kind == "holds" else None
        want = self.life.wants[-1]
        now = self.world.engine.now
        frame = Subscribe(
            self.life.name, want.pattern, want.selector, self.life.durable, self.credit, token, now
        )
        self.world.to_broker(self.client, frame)

    @property
    def _shows_a_change(self) -> bool:
        """It wants something else than before from its token on, as if it came from another broker."""
        return self.kind == "holds" and self.is_subscribed and len(self.life.wants) > 1

    def _move(self, machine: str) -> None:
        """Go to another broker, in the middle of whatever was going on at the last one."""
        self.machine = machine

    def _token(self) -> CheckpointToken:
        return CheckpointToken({name: each.upto for name, each in self.life.ledger.items()})

    def _retry(self) -> None:
        if not self.is_away:
            self.come()

    def leave(self, *, unnoticed: bool = False) -> None:
        """Go away, orderly or not: what was not committed never happened."""
        self.is_away = True
        if self.client is not None:
            self.world.disconnect(self.client, unnoticed=unnoticed)
        self._forget()

    def disconnected(self) -> None:
        """The connection is gone."""
        self._forget()
        if not self.is_away:
            self.world.engine.after(self.chance.randint(1, RETRY_US), self._retry)

    def _forget(self) -> None:
        self.client = None
        self.is_welcome = False
        self.pending.clear()
        self._owed = 0

    def unsubscribe(self) -> None:
        """End the subscription for good, and begin another one."""
        if self.client is not None and self.is_subscribed and self.life.durable:
            self.is_ending = True
            self.world.to_broker(self.client, Unsubscribe(self.life.name))

    def change(self, selector: str) -> None:
        """Want something else from the next connection on, once the last change holds everywhere."""
        settled = set(self.life.wants[-1].since) == set(self.world.ground_truth.durable)
        if self.life.durable and self.is_subscribed and settled and not self.is_ending:
            self.life.wants.append(SelectorSince(self.pattern, selector))
            self.leave()
            self.come()

    # Consuming.

    def commit(self) -> None:
        """Make what was consumed durable at this side, then acknowledge it."""
        if self.client is None or self.is_ending or not self.is_welcome:
            return
        for name, pending in self.pending.items():
            kept = self.life.ledger.setdefault(name, ConsumedPubend(pending.start, pending.start))
            kept.upto = pending.upto
            kept.events += pending.events
            kept.gaps += pending.gaps
        self.pending.clear()
        token = self._token()
        ticket = 0
        if self.kind == "leaves":
            self._ticket += 1
            ticket = self._ticket
            self._acks[ticket] = token
        self.world.to_broker(self.client, Ack(((self.life.name, token),), ticket))
        if self._owed:
            self.world.to_broker(self.client, Credit(self.life.name, self._owed))
            self._owed = 0

    def receive(self, frame: ClientFrame) -> None:
        """A broker told something."""
        match frame:
            case Subscribed(_, token, since):
                self._subscribed(token, since)
            case Deliver(_, pubend, base, upto, batch):
                into = self._next(pubend, base, upto)
                if batch is not None:
                    self._consume(into, batch, base, upto)
            case Gap(_, pubend, base, upto):
                self._next(pubend, base, upto).gaps.append((base, upto))
            case Acked(ticket):
                self._acked.update(self._acks.pop(ticket, CheckpointToken()))
            case Unsubscribed():
                self._ended()
            case Refused("unsubscribe", _, "unknown", _):
                self._ended()  # it was carried out, and the answer lost
            case Refused():
                self.world.refused(self, frame)
            case _:
                raise ViolationError(f"{self.name} got {frame}")

    def _subscribed(self, token: CheckpointToken, since: CheckpointToken) -> None:
        """The first word on a connection says where it goes on, a later one that a change holds."""
        self._since(since)
        if self.kind == "leaves" and not self.is_welcome:
            self._go_on_from(token)
        for pubend, tick in token.items():
            if pubend not in self.life.ledger and pubend not in self.pending:
                self._next(pubend, tick, tick)  # it was told that it starts there, and lost that
        self.is_subscribed = self.is_welcome = True

    def _go_on_from(self, token: CheckpointToken) -> None:
        for pubend, received in self.life.ledger.items():
            tick = token.get(pubend, received.start)
            if not self._acked.get(pubend, received.start) <= tick <= received.upto:
                raise ViolationError(
                    f"{self.name} at {pubend}: acknowledged up to {self._acked.get(pubend)}, "
                    f"consumed up to {received.upto}, and told to go on from {tick}"
                )
            received.cut(tick)

    def _since(self, since: CheckpointToken) -> None:
        """From where on what it wants now holds; at a new broker, from its token on."""
        held = self.life.wants[-1].since
        for pubend, tick in since.items():
            known = held.setdefault(pubend, tick)
            if known != tick and not self.life.has_moved:
                raise ViolationError(f"{self.name} at {pubend}: wants from {known}, then from {tick}")
            held[pubend] = min(known, tick)

    def _ended(self) -> None:
        if self.is_ending:
            if self.client is not None:
                self.world.disconnect(self.client)
            self._forget()
            self._begin()
            if not self.is_away:
                self.world.engine.after(self.chance.randint(1, RETRY_US), self._retry)

    def _next(self, pubend: str, base: int, upto: int) -> ConsumedPubend:
        known = self.pending.get(pubend) or self.life.ledger.get(pubend)
        if known is not None and known.upto != base:
            raise ViolationError(f"{self.name} at {pubend}: told up to {known.upto}, then from {base}")
        if upto < base:
            raise ViolationError(f"{self.name} at {pubend}: a range that goes back, ({base}, {upto}]")
        pending = self.pending.setdefault(pubend, ConsumedPubend(base, base))
        pending.upto = upto
        # Where it starts after it has moved, only what it wants now was ever heard of.
        is_new = known is None and self.life.has_moved
        for want in self.life.wants if is_new else self.life.wants[:1]:
            want.since.setdefault(pubend, pending.start)
        return pending

    def _consume(self, into: ConsumedPubend, batch: EventBatch, base: int, upto: int) -> None:
        ticks = batch.ticks.tolist()
        if ticks != sorted(set(ticks)) or not base < ticks[0] or ticks[-1] > upto:
            raise ViolationError(f"{self.name}: ticks out of order in ({base}, {upto}]")
        for row, tick in enumerate(ticks):
            key = self.world.key_of(batch, row)
            if batch.message(row) != self.world.ground_truth[key].message:
                raise ViolationError(f"{self.name}: {key} at {tick} is not as it was published")
            into.events.append((tick, key))
        self._owed += len(batch.body)
