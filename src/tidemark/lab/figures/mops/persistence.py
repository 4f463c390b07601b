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
    PARENTS,
    PUBLISH_EVERY_S,
    VALIDITY_MS,
    DeliveryCounts,
    MessageCounts,
)
from tidemark.lab.figures.simulated_overlay import STEADY, ObservedSubscriber, SimulatedOverlay
from tidemark.sim.swarm.plan import WorldPlan
from tidemark.wire.frames import (
    ClientFrame,
    Deliver,
    Fetched,
    Interest,
    Knowledge,
    PeerFrame,
    Publish,
    Subscribe,
    Unsubscribe,
)

#: A hierarchy of twenty types.
TOPICS = (
    *(f"t.k{one}" for one in range(4)),
    *(f"t.k{one}.k{two}" for one in range(4) for two in range(4)),
)


@dataclass
class PersistentMobileSubscriber:
    """A mobile subscriber of Tidemark."""

    observed: ObservedSubscriber

    def come(self, at: str) -> None:
        """Connect to this broker."""
        self.observed.come_to(at)

    def leave(self) -> None:
        """Acknowledge what was consumed, and disconnect."""
        self.observed.commit()
        self.observed.leave()


class PersistenceApproach:
    """The approach of Tidemark, in the simulator."""

    def __init__(self, name: str, policy: PubendPolicy) -> None:
        self.name = name
        pubends = {f"p{name}": name for name in PARENTS}
        layout = Layout.of_tree(PARENTS, pubends)
        plan = WorldPlan(layout, STEADY, pubend_policy=policy, topics=TOPICS, validities=(VALIDITY_MS,))
        self.message_counts = MessageCounts()
        self._overlay = SimulatedOverlay(plan)
        self._overlay.listen(self._between, self._to_client, self._from_client)
        #: (sender, receiver, pubend) -> the last interest sent
        self._wanted: dict[tuple[str, str, str], Interest] = {}

    # Frames on the way.

    def _between(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        match frame:
            case Knowledge(batch=batch) | Fetched(batch=batch) if batch is not None:
                self.message_counts.passed(sender, receiver, "notification", batch.count)
            case Knowledge():
                self.message_counts.passed(sender, receiver, "silence")
            case Interest():
                self.message_counts.passed(sender, receiver, self._kind(sender, receiver, frame))
            case _:
                self.message_counts.passed(sender, receiver, "control")

    def _kind(self, sender: str, receiver: str, frame: Interest) -> str:
        """Returns "unsubscription" for an interest that only shrinks, otherwise "subscription"."""
        before = self._wanted.get((sender, receiver, frame.pubend))
        self._wanted[sender, receiver, frame.pubend] = frame
        if before is None or before.wanted is None or frame.wanted is None:
            return "subscription"
        return "subscription" if set(frame.wanted) - set(before.wanted) else "unsubscription"

    def _to_client(self, broker: str, frame: ClientFrame) -> None:
        match frame:
            case Deliver(batch=batch) if batch is not None:
                self.message_counts.passed(broker, None, "notification", batch.count)
            case Deliver():
                self.message_counts.passed(broker, None, "silence")
            case _:
                self.message_counts.passed(broker, None, "control")

    def _from_client(self, broker: str, frame: ClientFrame) -> None:
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
        """Returns a subscriber of everything that has not come yet."""
        return PersistentMobileSubscriber(self._overlay.subscriber(f"s{number}", next(iter(PARENTS))))

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
