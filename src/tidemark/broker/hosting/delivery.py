"""Delivery: what a subscriber is told, and what that costs it."""

from __future__ import annotations

from tidemark.broker.effects import SendClient
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.frames import ClientFrame, Deliver, Gap, Subscribed


class Delivery:
    """Speaks to the subscribers of one host, and notes what each has been told."""

    def __init__(self, turn: Turn) -> None:
        self._out = turn.out
        self._counters = turn.counters

    def tell(
        self, subscription: HostedSubscription, pubend: str, base: int, upto: int, batch: EventBatch | None
    ) -> None:
        """All there is for it in `(base, upto]`."""
        if batch is not None:
            subscription.credit -= len(batch.body)
            self._counters["events_delivered"] += batch.count
        else:
            self._counters["silences_told"] += 1
        subscription.told[pubend] = upto
        self.say(subscription, Deliver(subscription.name, pubend, base, upto, batch))

    def gap(self, pubend: str, subscription: HostedSubscription, upto: int) -> None:
        """What lies between what it was told last and `upto` is gone."""
        told = subscription.told[pubend]
        if upto > told:
            self._counters["gaps_told"] += 1
            subscription.told[pubend] = upto
            self.say(subscription, Gap(subscription.name, pubend, told, upto))

    def registered(self, subscription: HostedSubscription) -> None:
        """It is registered, has consumed this, and what it wants holds from there."""
        frame = Subscribed(subscription.name, subscription.token(), subscription.since)
        self.say(subscription, frame)

    def say(self, subscription: HostedSubscription, frame: ClientFrame) -> None:
        """Over the connection it has."""
        assert subscription.client is not None
        self._out.add(SendClient(subscription.client, frame))
