"""SimSubscriber: a subscriber of a simulated world, and its ledger.

The subscriber checks at every frame that ranges follow one another without hole or overlap, and keeps a
ledger for each life of its subscription, which the oracle checks at the end. There are three kinds:
- "holds": the subscriber stores its token with what it consumed, as an application does in its database;
- "leaves": the broker keeps the token and says where the subscriber goes on; with `is_auto` the subscriber
  takes an event only when its acknowledgement of the one before is on disk;
- "passes": not durable; every connection is a life of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Literal

from tidemark.access.document import AccessDocument
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
#: How many microseconds before its first connection a subscription may begin.
PAST_US_MAX = 2_000_000


@dataclass
class ConsumedPubend:
    """What was consumed of one pubend in `(start, upto]`: (tick, key) of the events in order, and gaps."""

    start: int
    upto: int
    events: list[tuple[int, str]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def cut(self, upto: int) -> None:
        """Forget everything after `upto`."""
        self.upto = upto
        self.events = [each for each in self.events if each[0] <= upto]
        self.gaps = [(base, min(stop, upto)) for base, stop in self.gaps if base < upto]


@dataclass
class DatedSelector:
    """A pattern and selector, with the tick of each pubend after which they hold."""

    pattern: str
    selector: str
    since: dict[str, int] = field(default_factory=dict)


@dataclass
class Life:
    """One subscription from its creation to its end, with its selectors and its ledger."""

    name: str
    wants: list[DatedSelector]
    durable: bool
    ledger: dict[str, ConsumedPubend] = field(default_factory=dict)
    #: the token at which the subscription asked to begin, if that was in the past
    past: CheckpointToken | None = None
    #: the subscription was at another broker, or returned with a changed selector, which is handled alike
    has_moved: bool = False
    #: this is the life at the end of the run, which must be complete
    is_last: bool = True
    #: who it belongs to
    user: str = ""
    #: the access documents that were in force somewhere when the life began, and how many had been until then
    documents: tuple[tuple[AccessDocument, ...], int] = ((), 0)

    def wanted_at(self, pubend: str, tick: int) -> DatedSelector | None:
        """Returns the selector that holds at a tick, or None before the start."""
        held = [each for each in self.wants if each.since.get(pubend, TICK_MAX) < tick]
        return held[-1] if held else None

    def surely_wants(self, pubend: str, tick: int, matches: Callable[[DatedSelector], bool]) -> bool:
        """Whether an event is wanted by the selector that holds and by every unconfirmed change."""
        held = self.wanted_at(pubend, tick)
        open_changes = [each for each in self.wants if pubend not in each.since]
        return held is not None and all(matches(each) for each in [held, *open_changes])


@dataclass
class SimSubscriber:
    """A subscriber of one of the three kinds."""

    world: World
    name: str
    machine: str
    pattern: str
    selector: str
    chance: Random
    #: bytes of events that the broker may send before the subscriber grants more
    credit: int
    kind: Kind = "holds"
    is_auto: bool = False
    #: the chance that a life of its subscription begins in the past
    reaches_back: float = 0.0
    #: the chance that the subscriber returns to another broker
    moves: float = 0.0
    client: int | None = None
    is_away: bool = True
    is_subscribed: bool = False
    #: the present life was asked for, so that a broker may know it
    _has_asked: bool = False
    #: the broker that was asked last
    asked_at: str | None = None
    #: the broker has answered Subscribe on this connection
    is_welcome: bool = False
    #: the subscription is being ended for good
    is_ending: bool = False
    lives: list[Life] = field(default_factory=list)
    #: pubend -> what was consumed since the last commit
    pending: dict[str, ConsumedPubend] = field(default_factory=dict)
    _owed: int = 0
    #: what was acknowledged last on this connection
    _said: CheckpointToken | None = None
    _ticket: int = 0
    #: ticket -> the token acknowledged with it; pubend -> the tick that the broker has confirmed on disk
    _acks: dict[int, CheckpointToken] = field(default_factory=dict)
    _acked: dict[str, int] = field(default_factory=dict)
    #: with `is_auto`: what has come and was not taken yet, and the ticket that has to come back before
    _inbox: deque[Deliver | Gap | Subscribed] = field(default_factory=deque)
    _awaited: int = 0

    def __post_init__(self) -> None:
        self._begin()

    @property
    def life(self) -> Life:
        """The present life of the subscription."""
        return self.lives[-1]

    def _begin(self) -> None:
        if self.lives:
            self.life.is_last = False
        wants = [DatedSelector(self.pattern, self.selector)]
        life = Life(f"{self.name}.{len(self.lives)}", wants, self.kind != "passes", user=self.name)
        self.lives.append(life)
        if self.world.access is not None:
            life.documents = self.world.access.now(), self.world.access.count
        if self.kind != "leaves" and self.reaches_back and self.chance.random() < self.reaches_back:
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
        """Connect and subscribe, or try again later while the broker is down."""
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
        self.client = self.world.connect(self.machine, self.receive, self.disconnected, self.name)
        last = self.asked_at if self.asked_at not in (None, self.machine) else ""
        self.life.has_moved |= self.asked_at not in (None, self.machine) or self._shows_a_change
        # Rules may have changed its selector since, although it presents the same one.
        self.life.has_moved |= self.asked_at is not None and self.world.access is not None
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
            self.life.name,
            want.pattern,
            want.selector,
            self.life.durable,
            self.credit,
            token,
            now,
            last or "",
        )
        self.world.to_broker(self.client, frame)

    @property
    def _shows_a_change(self) -> bool:
        """The subscriber presents its token with a changed selector, which a broker treats as a move."""
        return self.kind == "holds" and self.is_subscribed and len(self.life.wants) > 1

    def _move(self, machine: str) -> None:
        """Use another broker from the next connection on."""
        self.machine = machine

    def _token(self) -> CheckpointToken:
        return CheckpointToken({name: each.upto for name, each in self.life.ledger.items()})

    def _retry(self) -> None:
        if not self.is_away:
            self.come()

    def leave(self, *, unnoticed: bool = False) -> None:
        """Disconnect; everything that was not committed is forgotten."""
        self.is_away = True
        if self.client is not None:
            self.world.disconnect(self.client, unnoticed=unnoticed)
        self._forget()

    def disconnected(self) -> None:
        """The broker's end of the connection is gone: forget what was not committed, and come again."""
        self._forget()
        if not self.is_away:
            self.world.engine.after(self.chance.randint(1, RETRY_US), self._retry)

    def _forget(self) -> None:
        self.client = None
        self.is_welcome = False
        self.pending.clear()
        self._inbox.clear()
        self._awaited = 0
        self._owed = 0
        self._said = None

    def unsubscribe(self) -> None:
        """End the subscription for good; another one begins once the broker has confirmed that."""
        if self.client is not None and self.is_subscribed and self.life.durable:
            self.is_ending = True
            self.world.to_broker(self.client, Unsubscribe(self.life.name))

    def change(self, selector: str) -> None:
        """Change the selector and reconnect, unless the last change does not hold in every pubend yet."""
        settled = set(self.life.wants[-1].since) == set(self.world.ground_truth.durable)
        if self.life.durable and self.is_subscribed and settled and not self.is_ending:
            self.life.wants.append(DatedSelector(self.pattern, selector))
            self.leave()
            self.come()

    # Consuming.

    def commit(self) -> None:
        """Move what was consumed to the ledger, acknowledge it, and grant credit for it."""
        if self.client is None or self.is_ending or not self.is_welcome:
            return
        for name, pending in self.pending.items():
            kept = self.life.ledger.setdefault(name, ConsumedPubend(pending.start, pending.start))
            kept.upto = pending.upto
            kept.events += pending.events
            kept.gaps += pending.gaps
        self.pending.clear()
        token = self._token()
        if token == self._said and not self._owed:
            return  # nothing is new
        self._said = token
        ticket = 0
        if self.kind == "leaves":
            self._ticket += 1
            ticket = self._ticket
            self._acks[ticket] = token
        granted = (Credit(self.life.name, self._owed),) if self._owed else ()
        self._owed = 0
        self.world.to_broker(self.client, Ack(((self.life.name, token),), ticket, granted))

    def receive(self, frame: ClientFrame) -> None:
        """Handle a frame from the broker; ViolationError if its range or its events are not as promised."""
        match frame:
            case Subscribed() if self._inbox:
                self._inbox.append(frame)  # what was told before it counts first
            case Subscribed(_, token, since):
                self._subscribed(token, since)
            case Deliver() | Gap() if self.is_auto:
                self._inbox.append(frame)
                self._take_one_by_one()
            case Deliver() | Gap():
                self._take(frame)
            case Acked(ticket):
                self._acked.update(self._acks.pop(ticket, CheckpointToken()))
                if ticket == self._awaited:
                    self._awaited = 0
                    self._take_one_by_one()
            case Unsubscribed():
                self._ended()
            case Refused("unsubscribe", _, "unknown", _):
                self._ended()  # an earlier Unsubscribe was carried out and its answer lost
            case Refused("subscribe", _, "token", _) if self.life.past is not None and not self.is_subscribed:
                # The clock of the pubend's broker went back before anything was published: it cannot have
                # been then. The subscription begins now.
                self.life.past = None
                self.leave()
                self.come()
            case Refused("subscribe", _, "denied" | "limit", _) if self.world.access is not None:
                # The rules show it nothing of what it asks for, or have changed faster than it acknowledges.
                self.world.fault_counts["denied"] += 1
                self.leave()
                self.is_away = False
                self.world.engine.after(RETRY_US, self._retry)
            case Refused():
                self.world.refused(self, frame)
            case _:
                raise ViolationError(f"{self.name} got {frame}")

    def _take(self, frame: Deliver | Gap) -> None:
        into = self._next(frame.pubend, frame.base, frame.upto)
        if isinstance(frame, Gap):
            into.gaps.append((frame.base, frame.upto))
        elif frame.batch is not None:
            self._consume(into, frame.batch, frame.base, frame.upto)

    def _take_one_by_one(self) -> None:
        """Take what has come up to the next event, acknowledge it, and go on when that is on disk."""
        while self._inbox and not self._awaited:
            frame = self._inbox.popleft()
            if isinstance(frame, Subscribed):
                self._subscribed(frame.token, frame.since)
            elif isinstance(frame, Deliver) and frame.batch is not None:
                batch, tick = frame.batch, int(frame.batch.ticks[0])
                rest = batch.slice(1, batch.count) if batch.count > 1 else None
                if frame.upto > tick:
                    self._inbox.appendleft(replace(frame, base=tick, batch=rest))
                self._take(replace(frame, upto=tick, batch=batch.slice(0, 1)))
                before = self._ticket
                self.commit()
                self._awaited = self._ticket if self._ticket != before else 0
            else:
                self._take(frame)

    def _subscribed(self, token: CheckpointToken, since: CheckpointToken) -> None:
        """The first Subscribed on a connection has the token to go on from, later ones confirm a change."""
        self._since(since)
        if self.kind == "leaves" and not self.is_welcome:
            self._go_on_from(token)
        for pubend, tick in token.items():
            if pubend not in self.life.ledger and pubend not in self.pending:
                self._next(pubend, tick, tick)  # an earlier connection lost the answer that it starts there
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
        """Note from which ticks the present selector holds; only after a move may they differ from before."""
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
        # A broker that it moved to, and where it starts, knows only the present selector.
        is_new = known is None and self.life.has_moved
        for want in self.life.wants if is_new else self.life.wants[:1]:
            want.since.setdefault(pubend, pending.start)
        # The first one holds from the start, also where the broker has told since when a changed rule does.
        first = self.life.wants[0].since
        first[pubend] = min(first[pubend], pending.start)
        return pending

    def _consume(self, into: ConsumedPubend, batch: EventBatch, base: int, upto: int) -> None:
        ticks = batch.ticks.tolist()
        if ticks != sorted(set(ticks)) or not base < ticks[0] or ticks[-1] > upto:
            raise ViolationError(f"{self.name}: ticks out of order in ({base}, {upto}]")
        for row, tick in enumerate(ticks):
            key = self.world.key_of(batch, row)
            if not self.world.is_as_published(batch, row):
                raise ViolationError(f"{self.name}: {key} at {tick} is not as it was published")
            into.events.append((tick, key))
        self._owed += len(batch.body)
