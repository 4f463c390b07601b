"""Delivery: the frames that go to subscribers, and the credit that they cost.

A piece of a constream goes to as many of its subscribers in one turn as fit (`Fanout`).

Events that were matched before the subscriber's present selector came into force pass through `Sight`: a rule
of access that was tightened holds for everything that was not yet delivered, however long ago it matched.
Fields that are hidden from the subscriber are taken out then. A subscriber that does not see everything is
told no names of topics and publishers but those of its own events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tidemark.access.rights import Hidden
from tidemark.broker.access.hiding import Hiding, SharedPiece
from tidemark.broker.access.sight import Sight
from tidemark.broker.effects import SendClient
from tidemark.broker.hosting.constream import (
    DELIVERY_COPIED_BYTES,
    DELIVERY_LINES,
    ActiveSelectors,
    MatchedPiece,
    Ration,
)
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
            if hidden := subscription.view.hidden:
                groups.setdefault(hidden, set()).update(at)
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
        view = subscription.view
        # Few have had another selector, so that is asked first: every delivery passes here.
        if (
            len(subscription.periods) > 1
            and batch is not None
            and view.seen
            and subscription.has_changed_since(pubend, base)
        ):
            batch = self._sight.of(subscription, batch)
        if batch is not None and (hidden := view.hidden):
            batch = shared.part(batch) if shared is not None else self._hiding.stripped(hidden, batch)
        if batch is not None:
            if not view.sees_all and (len(batch.shapes) > 1 or len(batch.publishers) > 1):
                batch = self._with_used_names(batch)
            subscription.credit -= len(batch.body)
            self._counters["events_delivered"] += batch.count
            if self._turn.observer.is_tracing:
                self._turn.observer.told(subscription.name, pubend, batch, is_late=is_late)
        else:
            self._counters["silences_told"] += 1
        subscription.told[pubend] = upto
        assert subscription.client is not None
        frame = Deliver(subscription.name, pubend, base, upto, batch)
        self._out.effects.append(SendClient(subscription.client, frame))

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


class Feeding(Protocol):
    """Feeds the live subscribers of constreams; `Host` is the implementation."""

    @property
    def subscriptions(self) -> Mapping[int, HostedSubscription]:
        """The subscriptions that are hosted here, by their ids."""

    def is_live(self, subscription: HostedSubscription, pubend: str) -> bool:
        """Return whether the constream feeds the subscriber."""

    def feed(
        self,
        pubend: str,
        subscription: HostedSubscription,
        upto: int,
        part: EventBatch,
        shared: SharedPiece | None,
    ) -> None:
        """Tell a live subscriber those of the rows that it was not told before."""


class Fanout:
    """A matched piece on its way to its subscribers, a bounded number of deliveries in each turn.

    Between two turns subscribers may leave, come back or fall behind: each is looked at when its turn comes,
    and is told nothing twice. Meanwhile no selector comes into force at the constream, so that `active` loses
    members and gets none.
    """

    def __init__(
        self,
        host: Feeding,
        delivery: Delivery,
        turn: Turn,
        pubend: str,
        active: ActiveSelectors,
        piece: MatchedPiece,
    ) -> None:
        self._host = host
        self._delivery = delivery
        self._turn = turn
        self._pubend = pubend
        self._active = active
        self._piece = piece
        #: the next of the groups of `piece.matches` to be looked at for who wants it
        self._group = 0
        #: subscriber -> the groups that it wants
        self._rows_of: dict[int, list[int]] = {}
        #: those that have still to be told; None until all groups are looked at
        self._untold: Iterator[tuple[int, list[int]]] | None = None
        #: groups -> the events of these, for all that want the same
        self._parts: dict[tuple[int, ...], EventBatch] = {}
        self._shared: dict[Hidden, SharedPiece] | None = None

    def is_unfinished_by(self, ration: Ration) -> bool:
        """Tell as many subscribers as fit into the turn; return whether others have still to be told."""
        if self._untold is None and not self._find_who(ration):
            return True
        assert self._untold is not None
        piece, pubend, host, parts = self._piece, self._pubend, self._host, self._parts
        assert piece.batch is not None
        left = ration.deliveries
        for number, chosen in self._untold:
            left -= 1
            subscription = host.subscriptions.get(number)
            if subscription is not None and host.is_live(subscription, pubend):
                key = tuple(chosen)
                part = parts.get(key)
                if part is None:
                    part = parts[key] = piece.part(chosen)
                    if part is not piece.batch:
                        left -= len(part.body) // DELIVERY_COPIED_BYTES
                hidden = subscription.view.hidden
                stripped = self._stripped(hidden) if hidden else None
                host.feed(pubend, subscription, piece.upto, part, stripped)
            if left <= 0:
                break
        else:
            ration.deliveries = left
            self._turn.observer.delivered(piece.batch, piece.matches)
            return False
        ration.deliveries = left
        ration.unfinished[pubend] = None
        return True

    def _find_who(self, ration: Ration) -> bool:
        """Find out which rows each subscriber wants; return whether that fitted into the turn."""
        lines = ration.deliveries * DELIVERY_LINES
        for at in range(self._group, len(self._piece.matches)):
            if lines <= 0:
                self._group = at
                ration.deliveries = 0
                ration.unfinished[self._pubend] = None
                return False
            rows, members = self._piece.matches[at]
            self._turn.counters["events_matched"] += len(rows)
            chosen = self._active.chosen(members).tolist()
            lines -= 1 + len(chosen)
            for number in chosen:
                self._rows_of.setdefault(number, []).append(at)
        ration.deliveries = max(1, lines // DELIVERY_LINES)
        self._untold = iter(self._rows_of.items())
        return True

    def _stripped(self, hidden: Hidden) -> SharedPiece | None:
        """Return the piece without these fields; None if nobody who wanted it had them hidden at first."""
        if self._shared is None:
            there = self._host.subscriptions
            told = ((there[each], at) for each, at in self._rows_of.items() if each in there)
            self._shared = self._delivery.shared(self._piece, told)
        return self._shared.get(hidden)
