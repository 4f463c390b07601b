"""Queueing: how other systems serve mobile subscribers, as MOPS describes it; only for comparison.

A broker keeps a queue for each absent subscriber that was there last: a proxy that stays subscribed for it.
When the subscriber comes to another broker, that broker subscribes, has the old broker hand the queue over,
and ends the subscription there. Subscriptions travel by reverse path forwarding with covering: all
subscribers want everything, so a neighbour is told of the first subscriber behind a broker, and of the end of
the last. The hand-over goes from broker to broker directly, which favours queues: on the tree it would pass
other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from tidemark.lab.figures.mops.roaming import PARENTS, PUBLISH_EVERY_S, DeliveryCounts, MessageCounts
from tidemark.lab.figures.simulated_overlay import STEADY
from tidemark.sim.swarm.plan import SECOND
from tidemark.sim.world.engine import Engine
from tidemark.sim.world.network import Network


@dataclass(frozen=True, slots=True)
class Notify:
    """An event, by its number; `subscriber` is set when it is handed over."""

    event: int
    subscriber: int | None = None
    kind: str = "notification"


@dataclass(frozen=True, slots=True)
class SubscribeLink:
    """A subscriber behind the sender wants events."""

    kind: str = "subscription"


@dataclass(frozen=True, slots=True)
class UnsubscribeLink:
    """No subscriber behind the sender wants events any more."""

    kind: str = "unsubscription"


@dataclass(frozen=True, slots=True)
class AskQueue:
    """The subscriber has moved from the receiver to the sender: hand its queue over."""

    subscriber: int
    kind: str = "control"


@dataclass(frozen=True, slots=True)
class QueueGiven:
    """The whole queue has been handed over."""

    subscriber: int
    kind: str = "control"


@dataclass(frozen=True, slots=True)
class EndProxy:
    """The receiver need not subscribe for this subscriber any more."""

    subscriber: int
    kind: str = "unsubscription"


Message = Notify | SubscribeLink | UnsubscribeLink | AskQueue | QueueGiven | EndProxy


@dataclass
class QueueBroker:
    """One broker with queues."""

    name: str
    neighbours: tuple[str, ...]
    send: Callable[[str, Message], None]
    deliver: Callable[[int, int], None]
    #: subscriber -> its queue while it is away, or None while it is connected
    places: dict[int, list[int] | None] = field(default_factory=dict)
    #: neighbours that want events; and neighbours that were told that this broker wants events
    wanting: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)

    def published(self, event: int, source: str | None = None) -> None:
        """Pass on an event of a publisher or a neighbour: to subscribers, queues and other neighbours."""
        for subscriber, queue in self.places.items():
            if queue is None:
                self.deliver(subscriber, event)
            else:
                queue.append(event)
        for neighbour in sorted(self.wanting - {source}):
            self.send(neighbour, Notify(event))

    def arrived(self, subscriber: int, old: str | None) -> None:
        """A subscriber has connected; `old` is the broker where it was before."""
        queue = self.places.get(subscriber) or []
        self.places[subscriber] = None
        self._subscribe()
        for event in queue:
            self.deliver(subscriber, event)
        if old is not None and old != self.name:
            self.send(old, AskQueue(subscriber))

    def left(self, subscriber: int) -> None:
        """A subscriber has left: begin its queue."""
        self.places[subscriber] = []

    def heard(self, sender: str, message: Message) -> None:
        """Handle a message from a neighbour, or from the broker that a subscriber has moved to or from."""
        match message:
            case Notify(event, None):
                self.published(event, sender)
            case Notify(event, int(subscriber)):
                self._handed_over(subscriber, event)
            case SubscribeLink():
                self.wanting.add(sender)
                self._subscribe()
            case UnsubscribeLink():
                self.wanting.discard(sender)
                self._subscribe()
            case AskQueue(subscriber):
                self._hand_over(sender, subscriber)
                self.send(sender, QueueGiven(subscriber))
            case QueueGiven(subscriber):
                self.send(sender, EndProxy(subscriber))
            case EndProxy(subscriber):
                self._hand_over(sender, subscriber)  # events that have arrived meanwhile
                del self.places[subscriber]
                self._subscribe()

    def _handed_over(self, subscriber: int, event: int) -> None:
        queue = self.places[subscriber]
        if queue is None:
            self.deliver(subscriber, event)
        else:
            queue.append(event)  # the subscriber has left again

    def _hand_over(self, to: str, subscriber: int) -> None:
        queue = self.places[subscriber]
        assert queue is not None
        self.places[subscriber] = []
        for event in queue:
            self.send(to, Notify(event, subscriber))

    def _subscribe(self) -> None:
        """Tell each neighbour whether a subscriber here or behind another neighbour wants events."""
        for neighbour in self.neighbours:
            wants = bool(self.places or self.wanting - {neighbour})
            if wants and neighbour not in self.told:
                self.told.add(neighbour)
                self.send(neighbour, SubscribeLink())
            elif not wants and neighbour in self.told:
                self.told.discard(neighbour)
                self.send(neighbour, UnsubscribeLink())


@dataclass
class QueueSubscriber:
    """A mobile subscriber that remembers its last broker and the events it got."""

    approach: QueueApproach
    number: int
    place: str | None = None
    is_here: bool = False
    got: set[int] = field(default_factory=set)
    repeated: int = 0
    #: number of the last event before its first connection; None before that
    since: int | None = None
    #: when it came to its broker, in seconds
    came_at: float = 0.0

    def come(self, at: str) -> None:
        """Connect to a broker, and tell it the last one."""
        self.came_at = self.approach.now
        self.approach.came(self, at)

    def leave(self) -> None:
        """Disconnect."""
        self.approach.left(self)

    def take(self, event: int) -> None:
        """Record an event."""
        self.repeated += event in self.got
        self.got.add(event)


class QueueApproach:
    """The approach with queues, on the simulator's network."""

    name = "queues"

    def __init__(self) -> None:
        self._engine = Engine(0)
        self.message_counts = MessageCounts()
        self._network = Network(self._engine, Random(1), lambda *_: None, self._arrive)
        self._network.faults = STEADY
        neighbours: dict[str, set[str]] = {name: set() for name in PARENTS}
        for name, parent in PARENTS.items():
            if parent is not None:
                neighbours[name].add(parent)
                neighbours[parent].add(name)
        self._brokers = {
            name: QueueBroker(name, tuple(sorted(near)), self._sender(name), self._deliverer(name))
            for name, near in neighbours.items()
        }
        self._subscribers: list[QueueSubscriber] = []
        self._events = 0
        #: event -> when it was published, in seconds
        self._published: dict[int, float] = {}
        self._is_publishing = True

    # The network.

    def _sender(self, name: str) -> Callable[[str, Message], None]:
        def send(receiver: str, message: Message) -> None:
            # EndProxy counts as an unsubscription where it arrives: there a subscriber would have sent one.
            self.message_counts.passed(
                name, None, "control" if isinstance(message, EndProxy) else message.kind
            )
            self.message_counts.passed(None, receiver, message.kind)
            self.message_counts.framed(type(message).__name__, brokers=2)
            # The network carries any object; it looks only at the type, for frames that must not be lost.
            self._network.send(name, receiver, cast(Any, message))

        return send

    def _deliverer(self, name: str) -> Callable[[int, int], None]:
        def deliver(subscriber: int, event: int) -> None:
            self.message_counts.passed(name, None, "notification")
            self.message_counts.framed("to a subscriber", brokers=1)
            came = self._subscribers[subscriber].came_at
            self.message_counts.notified(self._published[event], came, self.now)
            self._subscribers[subscriber].take(event)

        return deliver

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._engine.now / SECOND

    def _arrive(self, sender: str, receiver: str, message: Any) -> None:
        self._brokers[receiver].heard(sender, message)

    # Clients.

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self._engine.at(round(seconds * SECOND), action)

    def run(self, until: float) -> None:
        """Let simulated time pass."""
        self._engine.begin_part()
        self._engine.run(round(until * SECOND))

    def mobile_subscriber(self, number: int) -> QueueSubscriber:
        """Returns a subscriber of everything that has not come yet."""
        assert number == len(self._subscribers)
        self._subscribers.append(QueueSubscriber(self, number))
        return self._subscribers[-1]

    def came(self, subscriber: QueueSubscriber, at: str) -> None:
        """A subscriber connects; that counts as a subscription unless its queue is at this broker."""
        old, subscriber.place, subscriber.is_here = subscriber.place, at, True
        if subscriber.since is None:
            subscriber.since = self._events
        self.message_counts.passed(None, at, "control" if old == at else "subscription")
        self.message_counts.framed("from a subscriber", brokers=1)
        self._brokers[at].arrived(subscriber.number, old)

    def left(self, subscriber: QueueSubscriber) -> None:
        """A subscriber disconnects."""
        assert subscriber.place is not None
        subscriber.is_here = False
        self.message_counts.passed(None, subscriber.place, "control")
        self.message_counts.framed("from a subscriber", brokers=1)
        self._brokers[subscriber.place].left(subscriber.number)

    def publish_every(self, broker: str, seconds: float, first: float) -> None:
        """Start a publisher of an event every so many seconds."""

        def publish() -> None:
            if self._is_publishing:
                self._events += 1
                self._published[self._events] = self.now
                self.message_counts.passed(None, broker, "notification")
                self.message_counts.framed("from a publisher", brokers=1)
                self._brokers[broker].published(self._events)
                self._engine.after(round(seconds * SECOND), publish)

        self.at(first, publish)

    # Stored events.

    def stored(self, broker: str) -> int:
        """Returns the number of events in the broker's queues."""
        return sum(len(queue) for queue in self._brokers[broker].places.values() if queue is not None)

    def cached_bytes(self, broker: str) -> int:  # noqa: ARG002  (the signature of Approach)
        """Nothing is cached besides the queues."""
        return 0

    def finish(self) -> DeliveryCounts:
        """Stop publishing and let every subscriber return to its last broker; returns the counts."""
        self._is_publishing = False
        self._engine.run(self._engine.now + round(PUBLISH_EVERY_S * SECOND))
        for subscriber in self._subscribers:
            if subscriber.place is not None and not subscriber.is_here:
                subscriber.come(subscriber.place)
        self._engine.run(self._engine.now + SECOND)
        # The event that was on its way when a subscriber first came may count or not: it is left out.
        wanted = [
            set(range(each.since + 1, self._events + 1)) - {each.since + 1}
            for each in self._subscribers
            if each.since is not None
        ]
        came = [each for each in self._subscribers if each.since is not None]
        missed = sum(len(want - each.got) for want, each in zip(wanted, came, strict=True))
        return DeliveryCounts(sum(map(len, wanted)), missed, sum(each.repeated for each in came))
