"""Acknowledgements: what the durable subscribers of a host have consumed, and what may go because of that.

Only acknowledgements that are on disk let anything go: a token that the broker keeps must never point at
events that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Protocol

from tidemark.broker.effects import ChopPfs, SaveReleased
from tidemark.broker.hosting.host_state import HostState
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX, CheckpointToken

#: Acknowledgements on disk that are gone through in one turn, which takes about a millisecond.
SAVED_MAX = 500


class ReleaseListener(Protocol):
    """What a host does once more of a subscriber's acknowledgements are on disk."""

    def released(self, subscription: HostedSubscription) -> None:
        """More of what the subscriber has acknowledged is on disk."""


class Acknowledgements:
    """What the subscribers of one host have acknowledged, saved and not."""

    def __init__(self, state: HostState, turn: Turn, listener: ReleaseListener) -> None:
        self._subscriptions = state.subscriptions
        self._constreams = state.constreams
        self._turn = turn
        self._out = turn.out
        self._listener = listener
        #: ids of the subscribers with acknowledgements that are not saved yet
        self._unsaved: set[int] = set()
        #: id of a subscriber -> what it has acknowledged on disk, where that was not gone through yet
        self._reported: dict[int, CheckpointToken] = {}
        #: who is answered when all of it is gone through
        self._answers: list[Callable[[], None]] = []
        #: ids of the subscribers for which something was let go
        self._over_quota: set[int] = set()

    def note(self, subscription: HostedSubscription) -> None:
        """A subscriber has acknowledged more; a durable one's `released` is saved later."""
        if subscription.durable:
            self._unsaved.add(subscription.id)
        else:
            subscription.saved = subscription.released

    def forget(self, subscription: HostedSubscription) -> None:
        """A subscriber is gone for good."""
        self._unsaved.discard(subscription.id)
        self._over_quota.discard(subscription.id)
        for constream in self._constreams.values():
            constream.held = None

    def let_go(self, subscription: HostedSubscription) -> None:
        """Hold nothing of what there is so far for a subscriber, although it has not acknowledged that."""
        self._over_quota.add(subscription.id)
        for pubend, constream in self._constreams.items():
            if pubend in subscription.starts and constream.delivered is not None:
                subscription.let_go[pubend] = constream.delivered
                constream.held = None

    def save_all(self) -> None:
        """Save every acknowledgement that is not saved yet."""
        if self._unsaved:
            self.save(sorted(self._unsaved))

    def save(self, numbers: Iterable[int], done: Callable[[], None] = lambda: None) -> None:
        """Save what these subscribers acknowledged, in one transaction; call `done` once it is on disk."""
        saved: dict[int, CheckpointToken] = {}
        for number in numbers:
            self._unsaved.discard(number)
            released = self._subscriptions[number].released
            # Names and ticks of it were those of a token, or of a pubend.
            token = CheckpointToken.of_checked({name: released[name] for name in sorted(released)})
            self._out.add(SaveReleased(number, token))
            saved[number] = token
        self._turn.tables.after(partial(self._saved_all, saved, done))

    def _saved_all(self, saved: dict[int, CheckpointToken], done: Callable[[], None]) -> None:
        """What these subscribers acknowledged is on disk: go through it, now or in the next turns.

        Who acknowledges for many is answered when all is gone through, and so is not faster than that.
        """
        was_behind = self.is_behind
        self._reported |= saved
        if len(saved) > SAVED_MAX:
            self._answers.append(done)
        if not was_behind:
            self.go_on()
        if len(saved) <= SAVED_MAX:
            done()

    @property
    def is_behind(self) -> bool:
        """Whether more is on disk than fitted into one turn: it lets nothing go before `go_on`."""
        return bool(self._reported)

    def go_on(self) -> None:
        """Go through some more of what is on disk."""
        for number in list(islice(self._reported, SAVED_MAX)):
            self.saved(number, self._reported.pop(number))
        if not self._reported:
            answers, self._answers = self._answers, []
            for answer in answers:
                answer()

    def saved(self, number: int, released: CheckpointToken) -> None:
        """What a subscriber acknowledged is on disk: from now on it holds nothing up to there."""
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return
        starts = subscription.starts
        for pubend, tick in released.items():
            before = subscription.saved.get(pubend)
            held = subscription.holds_beyond(pubend) if pubend in starts else None
            subscription.saved[pubend] = tick if before is None else max(before, tick)
            constream = self._constreams.get(pubend)
            if constream is None or (before is not None and held != constream.held):
                continue
            if before is None or held is None or subscription.holds_beyond(pubend) != held:
                constream.held = None
        self._listener.released(subscription)

    def chop(self) -> None:
        """Let the PFS discard what every durable subscriber has released."""
        for pubend, constream in self._constreams.items():
            found = self.minima(pubend)
            if found is None:
                continue
            # The PFS keeps what matched for those that are over their quota: others may hold the events.
            saved = (self._subscriptions[number].saved.get(pubend, TICK_MAX) for number in self._over_quota)
            upto = min((found[0], *saved))
            if constream.chopped < upto < TICK_MAX:
                constream.chopped = upto
                self._out.add(ChopPfs(pubend, upto))

    def minima(self, pubend: str) -> tuple[int, int] | None:
        """Return (released, delivered) of this host at a pubend.

        Both are TICK_MAX if there are no subscribers; None while they are not known yet.
        """
        if not self._subscriptions:
            return TICK_MAX, TICK_MAX
        constream = self._constreams[pubend]
        if constream.synced is None:
            return None
        if constream.held is None:
            constream.held = min(self._held(pubend), default=TICK_MAX)
        return min(constream.synced, constream.held), constream.synced

    def last_event(self, pubend: str) -> int:
        """Return the tick of the last event that was delivered here; TICK_MIN before the first."""
        return self._constreams[pubend].last_event

    def _held(self, pubend: str) -> list[int]:
        found: list[int] = []
        for each in self._subscriptions.values():
            if each.durable and (start := each.periods[0].since.get(pubend)) is not None:
                # As `holds_beyond` says: there may be thousands, and a call takes longer than all of this.
                saved = each.saved.get(pubend, start)
                found.append(max(saved, each.let_go.get(pubend, saved)) if each.let_go else saved)
        return found
