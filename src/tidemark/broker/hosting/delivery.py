"""Delivery: the frames that go to subscribers, and the credit that they cost."""

from __future__ import annotations

from tidemark.broker.effects import SendClient
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.frames import ClientFrame, Deliver, Gap, Subscribed


class Delivery:
    """Sends frames to the subscribers of one host, and notes how far each has been told."""

    def __init__(self, turn: Turn) -> None:
        self._out = turn.out
        self._counters = turn.counters

    def tell(
        self, subscription: HostedSubscription, pubend: str, base: int, upto: int, batch: EventBatch | None
    ) -> None:
        """Tell a subscriber everything there is for it in `(base, upto]`; a `batch` of None is silence."""
        if batch is not None:
            subscription.credit -= len(batch.body)
            self._counters["events_delivered"] += batch.count
        else:
            self._counters["silences_told"] += 1
        subscription.told[pubend] = upto
        self.say(subscription, Deliver(subscription.name, pubend, base, upto, batch))

    def gap(self, pubend: str, subscription: HostedSubscription, upto: int) -> None:
        """Tell a subscriber of a gap from where it was told last up to `upto`; nothing if that is empty."""
        told = subscription.told[pubend]
        if upto > told:
            self._counters["gaps_told"] += 1
            subscription.told[pubend] = upto
            self.say(subscription, Gap(subscription.name, pubend, told, upto))

    def registered(self, subscription: HostedSubscription) -> None:
        """Tell a subscriber that it is registered, where it goes on, and since when its selector holds."""
        frame = Subscribed(subscription.name, subscription.token(), subscription.since)
        self.say(subscription, frame)

    def say(self, subscription: HostedSubscription, frame: ClientFrame) -> None:
        """Send a frame over the subscriber's connection, which it must have."""
        assert subscription.client is not None
        self._out.add(SendClient(subscription.client, frame))
