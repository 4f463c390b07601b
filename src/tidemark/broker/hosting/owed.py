"""OwedQuestions: what durable subscribers are owed, for administrators who ask.

Owed are the events that matched a subscriber and that it has not acknowledged. The PFS has what matched, so
nothing is matched for the count, and it keeps its counts from one question to the next. Not counted are
events of before this host knew the subscriber, and not owed are events that have become a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark.broker.effects import CountPfs, Owed, PfsCounted
from tidemark.broker.hosting.constream import Constream
from tidemark.broker.hosting.host_state import HostState
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.turn import Turn
from tidemark.ticks import TICK_MAX, TICK_MIN, Range

#: (subscriber, pubend) -> what it is owed; without pubends at which the subscriber has not begun.
OwedOf = Mapping[tuple[int, str], Owed]


@dataclass(slots=True)
class _Counting:
    """A question that waits for the PFS."""

    done: Callable[[OwedOf], None]
    #: pubend -> subscriber -> beyond which tick to count
    waiting: dict[str, dict[int, int]] = field(default_factory=dict)
    owed: dict[tuple[int, str], Owed] = field(default_factory=dict)
    #: of these more may be owed than the PFS knows
    inexact: set[tuple[int, str]] = field(default_factory=set)


class OwedQuestions:
    """Counts for one host. Questions are bounded by what each connection may ask at once."""

    def __init__(self, state: HostState, turn: Turn, *, recall: bool) -> None:
        """`recall`: what pubends have let go is still owed, because there is an archive."""
        self._constreams = state.constreams
        self._out = turn.out
        self._recall = recall
        #: ticket -> the question that waits
        self._countings: dict[int, _Counting] = {}
        self._next_ticket = 1

    def count(self, subscriptions: Iterable[HostedSubscription], done: Callable[[OwedOf], None]) -> None:
        """Call `done` with what these subscribers are owed; at once if nothing has to be read for that."""
        counting = _Counting(done)
        for subscription in subscriptions:
            if subscription.durable:
                for pubend, constream in self._constreams.items():
                    self._begin(counting, subscription, pubend, constream)
        if not counting.waiting:
            done(counting.owed)
            return
        ticket = self._next_ticket
        self._next_ticket += 1
        self._countings[ticket] = counting
        for pubend, bases in counting.waiting.items():
            self._out.add(CountPfs(ticket, pubend, bases))

    def held_for(self, subscription: HostedSubscription) -> dict[str, Range]:
        """Return pubend -> the range whose events pubends keep for a subscription, and which are counted."""
        ranges: dict[str, Range] = {}
        for pubend, constream in self._constreams.items():
            if pubend in subscription.released and constream.delivered is not None:
                lost = TICK_MIN if self._recall else constream.stream.window.knowledge.lost
                known = subscription.known.get(pubend, TICK_MAX)
                base = max(subscription.holds_beyond(pubend), known, lost)
                ranges[pubend] = min(base, constream.delivered), constream.delivered
        return ranges

    def _begin(
        self, counting: _Counting, subscription: HostedSubscription, pubend: str, constream: Constream
    ) -> None:
        """Note from where on a subscriber is to be counted at a pubend."""
        acknowledged = subscription.released.get(pubend)
        if acknowledged is None or constream.delivered is None:
            return
        place = subscription.id, pubend
        known = subscription.known.get(pubend, TICK_MAX)
        base = acknowledged if self._recall else max(acknowledged, constream.stream.window.knowledge.lost)
        is_exact = base >= min(known, constream.delivered)
        base = max(base, known)
        counting.owed[place] = Owed(is_exact=is_exact)
        if base < constream.delivered:
            counting.waiting.setdefault(pubend, {})[subscription.id] = base
            if not is_exact:
                counting.inexact.add(place)

    def counted(self, answer: PfsCounted) -> None:
        """The PFS has counted, or has to be asked again."""
        counting = self._countings[answer.ticket]
        if answer.owed is None:
            self._out.add(CountPfs(answer.ticket, answer.pubend, counting.waiting[answer.pubend]))
            return
        del counting.waiting[answer.pubend]
        for subscriber, owed in answer.owed.items():
            place = subscriber, answer.pubend
            counting.owed[place] = replace(owed, is_exact=False) if place in counting.inexact else owed
        if not counting.waiting:
            del self._countings[answer.ticket]
            counting.done(counting.owed)
