"""Delivery: the frames that go to subscribers, and the credit that they cost.

Events that were matched before the subscriber's present selector came into force pass through `Sight`: a rule
of access that was tightened holds for everything that was not yet delivered, however long ago it matched.
Fields that are hidden from the subscriber are taken out then. A subscriber that does not see everything is
told no names of topics and publishers but those of its own events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.access.rights import Hidden
from tidemark.broker.access.hiding import Hiding, SharedPiece
from tidemark.broker.access.sight import Sight
from tidemark.broker.effects import SendClient
from tidemark.broker.hosting.constream import MatchedPiece
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.wire.frames import ClientFrame, Deliver, Gap, Subscribed


class Delivery:
    """Sends frames to the subscribers of one host, and notes how far each has been told."""

    def __init__(self, turn: Turn, registry: Registry) -> None:
        self._sight = Sight(registry)
        self._hiding = Hiding(registry)
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        #: a batch that was told last with fewer names, and what was told: many in a row get the same one
        self._named: tuple[EventBatch, EventBatch] | None = None

    def shared(
        self, piece: MatchedPiece, told: Iterable[tuple[HostedSubscription, Sequence[int]]]
    ) -> dict[Hidden, SharedPiece]:
        """Strip what subscribers are told of a piece, once for all from whom the same is hidden.

        `told` has for each subscriber which groups of `piece.matches` it is told.
        """
        groups: dict[Hidden, set[int]] = {}
        for subscription, at in told:
            if subscription.hidden:
                groups.setdefault(subscription.hidden, set()).update(at)
        return {
            hidden: SharedPiece(self._hiding, hidden, piece.part(sorted(of))) for hidden, of in groups.items()
        }

    def tell(
        self,
        subscription: HostedSubscription,
        pubend: str,
        base: int,
        upto: int,
        batch: EventBatch | None,
        shared: SharedPiece | None = None,
        *,
        is_late: bool = False,
    ) -> None:
        """Tell a subscriber everything there is for it in `(base, upto]`; a `batch` of None is silence.

        `shared` has the events of `batch` for all from whom the same is hidden as from this one. `is_late`:
        the subscriber's catchup stream tells it.
        """
        # Few have had another selector, so that is asked first: every delivery passes here.
        if (
            len(subscription.periods) > 1
            and batch is not None
            and subscription.seen
            and subscription.has_changed_since(pubend, base)
        ):
            batch = self._sight.of(subscription, batch)
        if batch is not None and subscription.hidden:
            hidden = subscription.hidden
            batch = shared.part(batch) if shared is not None else self._hiding.stripped(hidden, batch)
        if batch is not None:
            if not subscription.sees_all and (len(batch.shapes) > 1 or len(batch.publishers) > 1):
                batch = self._with_used_names(batch)
            subscription.credit -= len(batch.body)
            self._counters["events_delivered"] += batch.count
            if self._turn.observer.is_tracing:
                self._turn.observer.told(subscription.name, pubend, batch, is_late=is_late)
        else:
            self._counters["silences_told"] += 1
        subscription.told[pubend] = upto
        self.say(subscription, Deliver(subscription.name, pubend, base, upto, batch))

    def _with_used_names(self, batch: EventBatch) -> EventBatch:
        if self._named is None or self._named[0] is not batch:
            self._named = batch, batch.with_used_names()
        return self._named[1]

    def gap(self, pubend: str, subscription: HostedSubscription, upto: int) -> None:
        """Tell a subscriber of a gap from where it was told last up to `upto`; nothing if that is empty."""
        told = subscription.told[pubend]
        if upto > told:
            self._counters["gaps_told"] += 1
            subscription.gaps += 1
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
