"""Persistence: how Tidemark serves mobile subscribers, for the comparison with queues.

An event is stored once, at the broker of its publisher, until every subscriber has it or its validity is
over. A subscriber presents its token at any broker; no broker queues events for it while it is away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.broker.overlay.layout import Layout
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.lab.figures.mops.roaming import (
    KINDS,
    PARENTS,
    PUBLISH_EVERY_S,
    VALIDITY_MS,
    DeliveryCounts,
    MessageCounts,
)
from tidemark.lab.figures.signs_of_life import SignsOfLife
from tidemark.lab.figures.simulated_overlay import STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.sim.swarm.plan import SECOND, WorldPlan
from tidemark.ticks import TICK_MIN
from tidemark.wire.frames import (
    ClientFrame,
    Deliver,
    Fetched,
    Interest,
    Knowledge,
    PeerFrame,
    Publish,
    Release,
    Subscribe,
    Together,
    Unsubscribe,
)
from tidemark.wire.peer_layouts import singly

#: A hierarchy of twenty types.
TOPICS = (
    *(f"t.k{one}" for one in range(4)),
    *(f"t.k{one}.k{two}" for one in range(4) for two in range(4)),
)


@dataclass
class PersistentMobileSubscriber:
    """A mobile subscriber of Tidemark, and how long it waits at a broker that it has come to."""

    observed: ObservedSubscriber
    counts: MessageCounts
    overlay: SimulatedOverlay
    #: when it came to its broker, in seconds
    _came: float = 0.0
    #: what it waits for, since when, and for each pubend the tick that it has to be told of
    _waits: tuple[str, int, dict[str, int]] | None = None

    def __post_init__(self) -> None:
        self.observed.on_frame = self._heard
        self.observed.on_deliver = self._delivered

    def _delivered(self, _: ObservedSubscriber, frame: Deliver) -> None:
        for published, latency in self.overlay.latencies(frame):
            self.counts.notified(published, self._came, published + latency)

    def come(self, at: str) -> None:
        """Connect to this broker."""
        world, observed = self.observed.world, self.observed
        what, ticks = "start", dict.fromkeys(world.ground_truth.durable, TICK_MIN)
        if observed.is_subscribed:
            what = "return" if at == observed.machine else "move"
            for pubend in ticks:
                received = observed.life.ledger[pubend].upto if pubend in observed.life.ledger else 0
                missed = world.ground_truth.within(pubend, received, world.latest)
                ticks[pubend] = max((tick for tick, _ in missed), default=TICK_MIN)
        self._waits = what, world.engine.now, ticks
        self._came = self.overlay.now
        observed.come_to(at)

    def _heard(self) -> None:
        """Something has come: end the wait once everything of before has."""
        if self._waits is None or not self.observed.is_welcome:
            return
        what, since, ticks = self._waits
        consumed = self.observed.pending | {
            name: each
            for name, each in self.observed.life.ledger.items()
            if name not in self.observed.pending
        }
        if all(name in consumed and consumed[name].upto >= tick for name, tick in ticks.items()):
            self.counts.waited(what, (self.observed.world.engine.now - since) / SECOND)
            self._waits = None

    def leave(self) -> None:
        """Acknowledge what was consumed, and disconnect."""
        self._waits = None
        self.observed.commit()
        self.observed.leave()


class PersistenceApproach:
    """The approach of Tidemark, in the simulator."""

    def __init__(self, name: str, policy: PubendPolicy, selectors: tuple[str, ...] = ("",)) -> None:
        """`selectors`: what the first, the second ... subscriber wants, in turns."""
        self.name = name
        self._selectors = selectors
        pubends = {f"p{name}": name for name in PARENTS}
        layout = Layout.of_tree(PARENTS, pubends)
        plan = WorldPlan(layout, STEADY, pubend_policy=policy, topics=TOPICS, validities=(VALIDITY_MS,))
        self.message_counts = MessageCounts()
        self._overlay = SimulatedOverlay(plan)
        self._signs = SignsOfLife(self._overlay, self._counted)
        self._overlay.listen(self._between, self._to_client, self._from_client)
        #: (sender, receiver, pubend) -> the last interest sent
        self._wanted: dict[tuple[str, str, str], Interest] = {}

    # Frames on the way.

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        self._counted(sender, receiver, frame)
        self._signs.passed(sender, receiver, frame)

    def _counted(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        """Count a frame: its notifications one by one, and whatever else is in it as one message."""
        self.message_counts.framed(_kind_of(frame), brokers=2)
        others: list[str] = []
        for each in singly(frame):
            match each:
                case Knowledge(batch=batch) | Fetched(batch=batch) if batch is not None:
                    self.message_counts.passed(sender, receiver, "notification", batch.count)
                case Knowledge():
                    others.append("silence")
                case Interest():
                    others.append(self._kind(sender, receiver, each))
                case _:
                    others.append("control")
        if others:
            kind = next((kind for kind in KINDS if kind in others), "control")
            self.message_counts.passed(sender, receiver, kind)

    def _kind(self, sender: str, receiver: str, frame: Interest) -> str:
        """Returns "unsubscription" for an interest that only shrinks, otherwise "subscription"."""
        before = self._wanted.get((sender, receiver, frame.pubend))
        self._wanted[sender, receiver, frame.pubend] = frame
        if before is None or before.wanted is None or frame.wanted is None:
            return "subscription"
        return "subscription" if set(frame.wanted) - set(before.wanted) else "unsubscription"

    def _to_client(self, broker: str, frame: ClientFrame) -> None:
        self.message_counts.framed(_kind_of(frame), brokers=1)
        match frame:
            case Deliver(batch=batch) if batch is not None:
                self.message_counts.passed(broker, None, "notification", batch.count)
            case Deliver():
                self.message_counts.passed(broker, None, "silence")
            case _:
                self.message_counts.passed(broker, None, "control")

    def _from_client(self, broker: str, frame: ClientFrame) -> None:
        self.message_counts.framed(_kind_of(frame), brokers=1)
        match frame:
            case Publish(batch=batch):
                self.message_counts.passed(None, broker, "notification", batch.count)
            case Subscribe():
                self.message_counts.passed(None, broker, "subscription")
            case Unsubscribe():
                self.message_counts.passed(None, broker, "unsubscription")
            case _:
                self.message_counts.passed(None, broker, "control")

    # Clients.

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action."""
        self._overlay.at(seconds, action)

    def run(self, until: float) -> None:
        """Let simulated time pass."""
        self._overlay.run(until)

    def mobile_subscriber(self, number: int) -> PersistentMobileSubscriber:
        """Returns a subscriber that has not come yet."""
        selector = self._selectors[number % len(self._selectors)]
        observed = self._overlay.subscriber(f"s{number}", next(iter(PARENTS)), selector)
        return PersistentMobileSubscriber(observed, self.message_counts, self._overlay)

    def publish_every(self, broker: str, seconds: float, first: float) -> None:
        """Start a publisher of an event every so many seconds."""
        self._overlay.publisher(f"p{broker}", broker, seconds, first)

    # Stored events.

    def stored(self, broker: str) -> int:
        """Returns the number of events in the logs of the broker's pubends."""
        return self._overlay.logged(broker)

    def cached_bytes(self, broker: str) -> int:
        """Returns the bytes in the broker's windows."""
        return self._overlay.remembered_bytes(broker)

    def finish(self) -> DeliveryCounts:
        """Let the world rest and check it; a ViolationError ends the experiment."""
        self._overlay.stop_publishing()
        self._overlay.run(self._overlay.now + PUBLISH_EVERY_S)
        self._overlay.finish()
        lives = [life for each in self._overlay.subscribers for life in each.lives]
        events = sum(len(received.events) for life in lives for received in life.ledger.values())
        return DeliveryCounts(events, missed=0, repeated=0)


def _kind_of(frame: PeerFrame | ClientFrame) -> str:
    """Returns the kind of a frame for the table of frames, with what it is about where that matters."""
    kind = type(frame).__name__
    match frame:
        case Together(frames=frames):
            return " + ".join(sorted({_kind_of(each) for each in frames}))
        case Knowledge(first=False):
            return f"{kind}, an answer"
        case Knowledge() | Deliver():
            return f"{kind}, {'silence' if frame.batch is None else 'events'}"
        case Release():
            return f"{kind}, asking" if any(row.asks for row in frame.rows) else kind
        case _:
            return kind
