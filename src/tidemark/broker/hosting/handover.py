"""Handover: which broker hosts a durable subscription, when its subscriber goes from one to another.

A subscriber presents its name, its selector and its token to any broker. That broker takes the subscription
over and claims it, under an epoch that is higher than any it has heard of; the claim spreads through the
overlay. The broker that had the subscription ends its connection at once, but goes on holding what the
subscriber has not consumed. It drops the subscription only when the claim is settled, which is when every
pubend has heard that the new host holds for the subscriber. A broker that was away is told when it comes
back. So at every moment at least one broker holds, and in the end only one.

A subscriber names the broker that it asked before. The claim then goes to that broker alone, which answers
when it has let go. If it does not have the subscription and does not know who has, it tells all brokers of
the claim; and so does the claiming broker itself if no answer comes, and a broker that is to let go of a
subscription before its own claim of it was made, and answered or settled. A claim that all brokers have been
told of needs no answer: each of them remembers it for neighbours that were away. A later claim for one broker
takes its place in that memory: a neighbour that comes back may still have the subscription from before the
earlier one.

Of two claims the one of the higher epoch counts, and a neighbour that tells of a lower one is told the higher
one: that of a subscription here when it is on disk, and as settled when it is held. A claim says whose the
subscription is: one of another user under the same name is another subscription, which nobody lets go for it.
An epoch is the time of day at which the subscriber came, by the subscriber's clock, so that the later
connection wins also among brokers that could not hear of each other. With several clocks the earlier
connection may win, but never both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from tidemark.broker.access.owner_digest import digest_of
from tidemark.broker.effects import SendPeer
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.overlay.neighbourhood import Neighbourhood
from tidemark.broker.turn import Turn
from tidemark.wire.frames import Claim, Yielded
from tidemark.wire.limits import EPOCH_MAX

#: Claims that are remembered, for neighbours that were away; the oldest are forgotten first.
CLAIMS_MAX = 65_536
#: The host of a subscription that has ended.
NOBODY = ""
#: A claim that was for one broker is told to all after so many microseconds without an answer.
ANSWER_US = 5_000_000
#: Microseconds for which a settled claim, and the answer to it, may wait at each broker for other frames.
CLAIM_PATIENCE_US = 300_000
ANSWER_PATIENCE_US = 500_000


class MovingSubscriptions(Protocol):
    """What the broker does with a subscription that moves; `Sessions` is the implementation."""

    def find(self, name: str) -> HostedSubscription | None:
        """Return the subscription of this name; None if it is not here."""

    def save(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        """Put a subscription on disk, with its epoch, then call `done`."""

    def after_save(self, action: Callable[[], None]) -> None:
        """Run `action` once everything saved so far is on disk."""

    def fence(self, subscription: HostedSubscription, broker: str) -> None:
        """End the subscription's connection, if it has one: the subscriber is at another broker now."""

    def remove(self, subscription: HostedSubscription) -> None:
        """Drop a subscription: another broker holds it, or it has ended."""


class Holds(Protocol):
    """How a host makes sure that nothing is let go too early; `ReleaseReports` is the implementation."""

    def hold(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        """Make every pubend hold what the subscriber has not consumed, then call `done`."""


class Handover:
    """The claims that one broker has made and heard."""

    def __init__(
        self,
        me: str,
        turn: Turn,
        subscriptions: MovingSubscriptions,
        holds: Holds,
        neighbourhood: Neighbourhood,
    ) -> None:
        self._me = me
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._subscriptions = subscriptions
        self._holds = holds
        self._neighbourhood = neighbourhood
        #: name of a subscription, and the digest of its owner -> the newest claim of it
        self._claims: OrderedDict[tuple[str, str], Claim] = OrderedDict()
        #: those of which all brokers were told a claim, this one or an earlier one: brokers that were away
        #: then have yet to hear of the newest
        self._told_to_all: set[tuple[str, str]] = set()
        #: the monotonic times when the claims that this broker has made for one broker are told to all
        self._unanswered: OrderedDict[tuple[str, str], int] = OrderedDict()

    # Here.

    def next_epoch(self, name: str, wall: int, owner: str = "") -> int:
        """Return an epoch for a subscription that comes here: higher than any this broker has heard of.

        `owner` is the principal that the subscription belongs to.
        """
        known = self._claims.get((name, digest_of(owner)))
        return max(wall, _after(known.epoch) if known is not None else 1)

    def is_latest(self, name: str, came: int, owner: str = "") -> bool:
        """Return whether a subscriber that came at `came` came after the newest claim heard of was made."""
        known = self._claims.get((name, digest_of(owner)))
        return known is None or came > known.epoch

    def known_epoch(self, claim: Claim) -> int:
        """Return the highest epoch that this broker knows of what is claimed; 0 if it knows none."""
        known, mine = self._claims.get(_key(claim)), self._mine(claim)
        return max(known.epoch if known is not None else 0, mine.holding.epoch if mine is not None else 0)

    def _mine(self, claim: Claim) -> HostedSubscription | None:
        """Return the subscription here that a claim is about; None if there is none of that user."""
        mine = self._subscriptions.find(claim.name)
        if mine is None or not claim.owner or not mine.owner or digest_of(mine.owner) == claim.owner:
            return mine
        self._counters["claims_of_others"] += 1
        return None

    def claim(self, subscription: HostedSubscription, last: str = "") -> None:
        """The subscription is on disk here, under its epoch: claim it, and settle that once it is held.

        `last` is the broker that had it before, as the subscriber says; empty if that is not known.
        """
        subscription.holding.moved_to = None
        self._counters["claims"] += 1
        to = last if last != self._me else ""
        settled = Claim(
            subscription.name, subscription.holding.epoch, self._me, True, to, digest_of(subscription.owner)
        )
        self._holds.hold(subscription, partial(self._settle, subscription, settled))
        known = self._claims.get(_key(settled))
        if known is None or not known.settled or _rank(known) != _rank(settled):
            self._tell(replace(settled, settled=False))

    def ended(self, subscription: HostedSubscription) -> None:
        """The subscription has ended here for good; brokers that may still have it from before are told."""
        owner = digest_of(subscription.owner)
        known = self._claims.get((subscription.name, owner))
        if known is not None and subscription.holding.moved_to is None:
            epoch = _after(max(known.epoch, subscription.holding.epoch))
            self._spread(Claim(subscription.name, epoch, NOBODY, True, owner=owner))

    def _settle(self, subscription: HostedSubscription, claim: Claim) -> None:
        """Every pubend has heard that this broker holds for the subscriber: settle the claim."""
        if self._is_mine(subscription, claim.epoch):
            self._tell(claim)

    def _claim_anew(self, subscription: HostedSubscription, claim: Claim) -> None:
        """Claim a subscription that another broker has claimed, although its subscriber came here later."""
        subscription.holding.epoch = epoch = _after(claim.epoch)
        done = partial(self._claim_if_mine, subscription, epoch, claim.broker)
        self._subscriptions.save(subscription, done)

    def _claim_if_mine(self, subscription: HostedSubscription, epoch: int, last: str) -> None:
        if self._is_mine(subscription, epoch):
            self.claim(subscription, last)

    def _is_mine(self, subscription: HostedSubscription, epoch: int) -> bool:
        is_here = self._subscriptions.find(subscription.name) is subscription
        return is_here and subscription.holding.epoch == epoch and subscription.holding.moved_to is None

    def wake(self) -> None:
        """Tell all brokers of the claims of this one that nobody has answered."""
        while self._unanswered and next(iter(self._unanswered.values())) <= self._turn.now:
            key, _ = self._unanswered.popitem(last=False)
            claim = self._claims.get(key)
            if claim is not None and claim.broker == self._me and claim.to:
                self._counters["claims_unanswered"] += 1
                self._spread(replace(claim, to=""))

    # From neighbours.

    def heard(self, peer: str, claim: Claim) -> None:
        """A neighbour tells of a claim, or passes one on that is for one broker."""
        if claim.to not in ("", self._me):
            way = self._neighbourhood.way_to(claim.to)
            if way is not None and way != peer:
                self._out.add(SendPeer(way, claim, CLAIM_PATIENCE_US if claim.settled else 0))
                return
            claim = replace(claim, to="")  # there is no way to that broker: all are told
        known, mine = self._claims.get(_key(claim)), self._mine(claim)
        if mine is not None and mine.holding.moved_to is None:
            epoch = mine.holding.epoch or mine.holding.made_at
            own = Claim(mine.name, epoch, self._me, True, owner=digest_of(mine.owner))
            if _rank(own) > _rank(claim) and (known is None or _rank(own) > _rank(known)):
                self._counters["claims_late"] += 1
                self._answer_late(peer, claim, mine, own)
                return
        if known is not None and _rank(known) > _rank(claim):
            self._counters["claims_late"] += 1
            self._tell_better(peer, replace(known, to=""))
            return
        if known is not None and _news(known) >= _news(claim):
            return
        is_answered = self._unanswered.pop(_key(claim), None) is None and not self._is_unsettled(known)
        if not claim.to:
            self._spread(claim, but=peer)
        elif mine is None and known is not None and known.broker not in (NOBODY, self._me, claim.broker):
            self._tell(replace(claim, to=known.broker))  # the one that had it from here, which will answer
            return
        elif mine is None or not mine.is_kept or not is_answered or self._is_for_all(claim):
            # Somebody else has it, or may still have it: what is not on disk here yet was not claimed.
            self._spread(replace(claim, to=""))
        else:
            self._remember(claim)
        if mine is not None and claim.broker != self._me:
            self._yield(mine, claim)
        if claim.to and claim.settled:
            # Nobody tells this broker again once it has answered: it must not have the subscription after a
            # crash.
            answer = Yielded(claim.name, claim.epoch, claim.broker)
            self._subscriptions.after_save(partial(self._answer, answer))

    def _answer_late(self, peer: str, claim: Claim, mine: HostedSubscription, own: Claim) -> None:
        """A neighbour tells of a claim, which is lower than that of a subscription here, `own`.

        Whoever has the subscription lets go when it hears that a higher claim is settled. So nobody is told
        before the subscription here is on disk, where it may never get, and before it is held.
        """
        if not mine.is_kept:
            # It is in a commit that has not been reported yet, or comes later in the one being reported.
            self._turn.tables.after(partial(self.heard, peer, claim))
        elif mine.holding.epoch:
            self.claim(mine)
        else:
            self._tell_better(peer, own)

    def _tell_better(self, peer: str, best: Claim) -> None:
        """Tell a neighbour, which has told of a lower claim, of the highest: as a claim for all, and so all.

        The neighbour does not pass on what it has heard already. If it were told alone, a broker that the
        lower claim was for, and that somebody else now tells of the highest, might never hear of either.
        """
        if self._is_for_all(best):
            self._out.add(SendPeer(peer, best))
        else:
            self._spread(best)

    def _answer(self, frame: Yielded) -> None:
        way = self._neighbourhood.way_to(frame.to)
        if way is not None:
            self._out.add(SendPeer(way, frame, ANSWER_PATIENCE_US))

    def yielded(self, frame: Yielded) -> None:
        """Whoever had a subscription has heard of a claim: of one of this broker, or of one behind it."""
        if frame.to != self._me:
            self._answer(frame)
            return
        mine = self._subscriptions.find(frame.name)
        key = (frame.name, digest_of(mine.owner) if mine is not None else "")
        claim = self._claims.get(key)
        if claim is not None and claim.epoch == frame.epoch and claim.broker == self._me:
            self._unanswered.pop(key, None)

    def tell_all(self, peer: str) -> None:
        """A neighbour has come up, and may have been away: tell it every claim that is for all."""
        for key, claim in self._claims.items():
            if claim.to and key in self._told_to_all:
                # From now on it is for all, so that the peer also hears when it is settled.
                claim = self._claims[key] = replace(claim, to="")
            if not claim.to:
                self._out.add(SendPeer(peer, claim))

    def _yield(self, mine: HostedSubscription, claim: Claim) -> None:
        """Another broker claims a subscription that is here, under a higher epoch."""
        is_here = mine.client is not None and mine.holding.moved_to is None
        if is_here and mine.holding.connected_at > claim.epoch:
            # The subscriber came here after that, while the brokers could not hear of each other.
            self._claim_anew(mine, claim)
            return
        mine.holding.moved_to = claim.broker
        self._counters["fences"] += mine.client is not None
        self._subscriptions.fence(mine, claim.broker)
        if claim.settled:
            self._counters["moves"] += 1
            self._subscriptions.remove(mine)

    def _tell(self, claim: Claim) -> None:
        """Tell the broker that a claim is for, or all if there is no way to it or it is for none.

        All are told that a claim is settled if they were told of it before that.
        """
        way = self._neighbourhood.way_to(claim.to) if claim.to and not self._is_for_all(claim) else None
        if way is None:
            self._spread(replace(claim, to=""))
            return
        self._remember(claim)
        if claim.broker == self._me:
            self._unanswered[_key(claim)] = self._turn.now + ANSWER_US
            self._unanswered.move_to_end(_key(claim))
        self._out.add(SendPeer(way, claim, CLAIM_PATIENCE_US if claim.settled else 0))

    def _is_unsettled(self, known: Claim | None) -> bool:
        """Return whether a claim is one of this broker, and who had the subscription before still holds."""
        return known is not None and known.broker == self._me and not known.settled

    def _is_for_all(self, claim: Claim) -> bool:
        """Return whether all brokers have been told of a claim, as it was before it was settled."""
        known = self._claims.get(_key(claim))
        return known is not None and _rank(known) == _rank(claim) and not known.to

    def _spread(self, claim: Claim, *, but: str | None = None) -> None:
        self._unanswered.pop(_key(claim), None)
        self._remember(claim)
        self._told_to_all.add(_key(claim))
        for peer in self._neighbourhood.present():
            if peer != but:
                self._out.add(SendPeer(peer, claim))

    def _remember(self, claim: Claim) -> None:
        self._claims[_key(claim)] = claim
        self._claims.move_to_end(_key(claim))
        while len(self._claims) > CLAIMS_MAX:
            key, _ = self._claims.popitem(last=False)
            self._told_to_all.discard(key)


def _key(claim: Claim) -> tuple[str, str]:
    return claim.name, claim.owner


def _after(epoch: int) -> int:
    """Return the next epoch. After the last one there is none: the names of brokers decide from then on."""
    return min(epoch + 1, EPOCH_MAX)


def _rank(claim: Claim) -> tuple[int, str]:
    return claim.epoch, claim.broker


def _news(claim: Claim) -> tuple[tuple[int, str], bool, bool]:
    """Return by what the newer of two claims is found: one for all says more than one for one broker."""
    return _rank(claim), claim.settled, not claim.to
