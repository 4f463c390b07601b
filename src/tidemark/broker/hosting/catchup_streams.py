"""CatchupStreams: the subscribers of a host that are behind the constream, and how they catch up.

Each of them has a catchup stream per pubend. The PFS says what matched, and the window or the pubend has the
events. What lies before this host knew the subscriber is fetched from the pubend's log, and what pubends have
let go is recalled from the archive. Nothing is told twice or left out: a catchup stream is told in order, and
ends where it reaches the constream.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tidemark.broker.effects import PfsRead, ReadPfs
from tidemark.broker.hosting.catchup import (
    CHUNK_EVENTS_MAX,
    READ_EVENTS_ALL_MAX,
    READ_EVENTS_MAX,
    Catchup,
    Ticks,
)
from tidemark.broker.hosting.delivery import Delivery
from tidemark.broker.hosting.host_state import HostState
from tidemark.broker.hosting.match_log import MatchLog
from tidemark.broker.hosting.recalls import Recalls
from tidemark.broker.hosting.subscription import HostedSubscription
from tidemark.broker.publishing.fetching import Fetching
from tidemark.broker.publishing.past_fetches import PastFetches
from tidemark.broker.streams.answers import Batches
from tidemark.broker.streams.interest import HERE
from tidemark.broker.streams.stream import Ranges
from tidemark.broker.streams.window import Cuts, WindowPiece, unexpired
from tidemark.broker.turn import Turn
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Bools
from tidemark.ticks import NO_TICKS, TICK_MAX, Range
from tidemark.wire.frames import Fetched

#: Answers of the PFS that are remembered, so that subscribers that were answered the same share it.
ANSWERS_MAX = 64


class SharedTicks:
    """The answers of the PFS of late. Subscribers whose events are the same have the same array of ticks.

    By that array whatever is made for one of them is found for the others (`Cuts.at`), whatever the texts of
    their selectors are.
    """

    def __init__(self) -> None:
        #: (number of ticks, first tick, last tick) -> the newest answer with these
        self._known: dict[tuple[int, int, int], Ticks] = {}

    def of(self, ticks: Ticks) -> Ticks:
        """Return the array that was answered before with the same ticks, else this one."""
        if not len(ticks):
            return NO_TICKS
        key = len(ticks), ticks.item(0), ticks.item(-1)
        found = self._known.pop(key, ticks)
        if found is not ticks and not np.array_equal(found, ticks):
            found = ticks
        self._known[key] = found  # the last of all
        if len(self._known) > ANSWERS_MAX:
            del self._known[next(iter(self._known))]
        return found


class CatchupStreams:
    """All catchup streams of one host."""

    def __init__(
        self,
        state: HostState,
        delivery: Delivery,
        match_log: MatchLog,
        fetching: Fetching,
        turn: Turn,
        *,
        recall: bool,
    ) -> None:
        """`recall`: there is an archive that may have what pubends have let go."""
        self._subscriptions = state.subscriptions
        self._constreams = state.constreams
        self._audience = state.audience
        self._delivery = delivery
        self._match_log = match_log
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._recall = recall
        self.recalls = Recalls(turn, self)
        #: what is fetched for subscribers from before this host knew them
        self._fetches = PastFetches(fetching, self._fetched)
        self._shared_ticks = SharedTicks()
        #: (pubend, subscriber) whose catchup stream may be able to go on; `settle` takes them one by one
        self._calls: dict[tuple[str, int], None] = {}

    # Coming and going.

    def begin(self, pubend: str, number: int, told: int) -> None:
        """A subscriber is behind the constream: it catches up from `told` on."""
        self._counters["catchups"] += 1
        self._constreams[pubend].catchups[number] = Catchup(told)
        self.call(pubend, number)

    def end(self, pubend: str, number: int) -> None:
        """A subscriber does not catch up any more: give up what was asked for it."""
        if self._constreams[pubend].catchups.pop(number, None) is not None:
            self.recalls.end(pubend, number)
            self._fetches.end((pubend, number))

    def call(self, pubend: str, number: int) -> None:
        """The catchup stream of a subscriber, if it has one, may be able to go on."""
        if number in self._constreams[pubend].catchups:
            self._calls[pubend, number] = None

    def call_all(self, pubend: str) -> None:
        """All catchup streams of a pubend may be able to go on."""
        for number in self._constreams[pubend].catchups:
            self._calls[pubend, number] = None

    def wake(self, pubend: str) -> None:
        """Time has passed: all catchup streams of a pubend may go on, and ask again for what they lack."""
        constream = self._constreams[pubend]
        if not constream.catchups:
            constream.stream.window.forget_pieces()
        for number, catchup in constream.catchups.items():
            catchup.ask_again()
            self._calls[pubend, number] = None

    def settle(self) -> bool:
        """Let one catchup stream go on that may be able to; return False if there is none."""
        if not self._calls:
            return False
        pubend, number = next(iter(self._calls))
        del self._calls[pubend, number]
        constream = self._constreams.get(pubend)
        catchup = constream.catchups.get(number) if constream is not None else None
        if catchup is not None:
            self._catch_up(pubend, self._subscriptions[number], catchup)
        return True

    # What arrives.

    def answered(self, pubend: str, base: int, upto: int, batches: Batches, damaged: Ranges) -> None:
        """An answer of the stream arrived: give it to every catchup stream of the pubend.

        The log of a pubend hosted here has all that there is, so who comes a moment later need not read it
        again. An answer of a neighbour may lack what nobody wanted when it was asked for.
        """
        constream = self._constreams[pubend]
        cuts = Cuts.of(batches)
        if constream.stream.is_hosted and cuts is not None and constream.catchups and not damaged:
            constream.stream.window.remember(WindowPiece(base, upto, cuts, []))
        readable = self._readable(cuts)
        for number, catchup in constream.catchups.items():
            catchup.arrived(base, upto, cuts, damaged, partial(self._chosen, pubend, number), readable)
            self._calls[pubend, number] = None

    def learnt(self) -> None:
        """A topic has become known: what waited for one may be able to go on."""
        for pubend, constream in self._constreams.items():
            for number, catchup in constream.catchups.items():
                if catchup.waits_for_topic:
                    catchup.waits_for_topic = False
                    self._calls[pubend, number] = None

    def read(self, answer: PfsRead) -> None:
        """The PFS has answered which ticks matched a subscriber."""
        catchup = self._constreams[answer.pubend].catchups.get(answer.subscriber)
        if catchup is None or catchup.reads_from != answer.base:
            return  # for a catchup stream of a former connection, which began at another tick
        unknown = answer.unknown
        if unknown is None and answer.upto <= answer.base < catchup.reads_upto:
            # What was let go before the constream got there is not in the PFS, and nothing comes after it.
            unknown = (answer.base, catchup.reads_upto)
        self._counters["refilters"] += unknown is not None
        self._counters["pfs_reads"] += 1
        self._counters["pfs_reads_to_end"] += answer.upto >= catchup.reads_upto
        ticks = self._shared_ticks.of(answer.ticks)
        catchup.matched(answer.upto, ticks, unknown, is_exact=answer.is_exact)
        self._calls[answer.pubend, answer.subscriber] = None

    def _catch_up(self, pubend: str, subscription: HostedSubscription, catchup: Catchup) -> None:
        """Tell what can be told, ask for what is missing, join the constream when it is reached."""
        constream = self._constreams[pubend]
        lost = constream.stream.window.knowledge.lost
        while True:
            self._tell_ready(pubend, subscription, catchup)
            gap = catchup.gap(lost)
            if gap is None or (self._recall and not catchup.is_given_up):
                break
            catchup.skip(gap)
            self._delivery.gap(pubend, subscription, gap)
        known = subscription.known.get(pubend)
        if known is None or self._fetches.is_under_way((pubend, subscription.id)):
            return  # it is not known yet what the subscriber lacks, or that is on its way
        if constream.delivered is not None and catchup.position >= max(constream.delivered, known):
            self._counters["switchovers"] += 1
            self.end(pubend, subscription.id)
        elif gap is not None or catchup.position < known:
            if subscription.credit > 0 and not catchup.waits_for_topic:
                self._reach_back(pubend, subscription, catchup, known, gap)
        elif catchup.needs_read and not subscription.durable:
            # The PFS has nothing of subscribers that are not durable: everything is matched again.
            assert constream.delivered is not None
            catchup.matched(catchup.position, NO_TICKS, (catchup.position, constream.delivered))
            self.call(pubend, subscription.id)
        elif catchup.needs_read:
            self._read(pubend, subscription, catchup)
        elif subscription.credit > 0:
            self._fetch(pubend, subscription, catchup)

    def _read(self, pubend: str, subscription: HostedSubscription, catchup: Catchup) -> None:
        """Find what matched beyond the position of a catchup stream: in memory, or else in the PFS."""
        recent = self._match_log.recent(pubend, subscription.id, catchup.position)
        if recent is not None:
            self._counters["pfs_reads_saved"] += 1
            catchup.matched(recent[0], self._shared_ticks.of(recent[1]), None)
            self.call(pubend, subscription.id)
            return
        delivered = self._constreams[pubend].delivered
        catchup.reads_from = catchup.position
        catchup.reads_upto = catchup.position if delivered is None else max(catchup.position, delivered)
        share = READ_EVENTS_ALL_MAX // max(1, len(self._constreams[pubend].catchups))
        limit = min(max(CHUNK_EVENTS_MAX, share), READ_EVENTS_MAX)
        self._out.add(ReadPfs(pubend, subscription.id, catchup.position, limit))

    def _tell_ready(self, pubend: str, subscription: HostedSubscription, catchup: Catchup) -> None:
        """Tell a subscriber what its catchup stream has ready, without events whose validity has passed."""
        while (ready := catchup.ready(subscription.credit)) is not None:
            upto, batch = ready
            alive = None
            if batch is not None:
                alive = unexpired(batch, self._turn.wall)
                if alive is not batch:
                    self._counters["events_expired"] += batch.count - (
                        alive.count if alive is not None else 0
                    )
                self.recalls.told(pubend, subscription.id, len(batch.body))
            self._delivery.tell(subscription, pubend, subscription.told[pubend], upto, alive, is_late=True)

    # Ranges that are not in the PFS here, or not at the pubend any more.

    def _reach_back(
        self, pubend: str, subscription: HostedSubscription, catchup: Catchup, known: int, gap: int | None
    ) -> None:
        """Ask for what no stream has.

        That is what is L up to `gap`, of the archive, or else what lies before `known`: of the window, where
        that accounts for what the subscriber wants, and else of the pubend's log.
        """
        base, lost = catchup.position, self._constreams[pubend].stream.window.knowledge.lost
        if self._recall and base < lost:
            # All up to `lost` is L, however little the PFS has read yet: one recall, not one for each piece.
            gap = lost if gap is None else max(gap, lost)
        upto = known if gap is None else gap
        lines = subscription.lines(pubend, base, upto)
        if not lines or lines[0].base > base:
            self._told_of_past(pubend, subscription.id, base, lines[0].base if lines else upto, None, ())
        elif gap is not None:
            if not self.recalls.is_asked(pubend, subscription.id):
                self.recalls.ask(pubend, subscription.id, base, upto, lines)
        else:
            line = lines[0]
            period = next(subscription.in_force(pubend, base, upto))[0]
            remembered = self._constreams[pubend].stream.accounted(base, line.upto, period.version)
            end = remembered[0][0] if remembered else line.upto
            if end == base:
                self._remember(pubend, subscription.id, *remembered[0])
                return
            self._fetches.begin((pubend, subscription.id), base, end, line.wanted)

    def _remember(self, pubend: str, number: int, base: int, upto: int) -> None:
        """Take from the window what lies before this host knew the subscriber, in a piece of bounded size."""
        window = self._constreams[pubend].stream.window
        upto = window.reach(base, upto)
        batch = window.events(base, upto)
        if batch is not None:
            batch = batch.take(np.flatnonzero(self._chosen(pubend, number, batch)))
        self._counters["remembered"] += 1
        damaged = window.damaged.parts(base, upto)
        self._told_of_past(pubend, number, base, upto, batch if batch and batch.count else None, damaged)

    def _fetched(self, number: int, frame: Fetched) -> bool:
        """The pubend's log has answered with a part of what lies before this host knew the subscriber.

        Returns whether the subscriber can take more.
        """
        lost = min(frame.lost, frame.upto)
        if lost > frame.base and self._recall:
            self._fetches.end((frame.pubend, number))
            self._constreams[frame.pubend].stream.lose(frame.lost)
            self._calls[frame.pubend, number] = None
            return False
        gone = list(frame.damaged)
        if lost > frame.base:
            gone.insert(0, (frame.base, lost))
        self._told_of_past(frame.pubend, number, frame.base, frame.upto, frame.batch, gone)
        return self._subscriptions[number].credit > 0

    def recalled(
        self, pubend: str, number: int, base: int, upto: int, batch: EventBatch | None, gone: Sequence[Range]
    ) -> None:
        """Take all that the archive has for a subscriber in `(base, upto]`; what is `gone` is L for good.

        Nobody can read an event whose schema is not known here: the subscriber waits before it until it is.
        """
        strange = self._audience.unknown_from(batch) if batch is not None else None
        if batch is not None and strange is not None:
            self._counters["topics_unknown"] += 1
            self._constreams[pubend].catchups[number].waits_for_topic = True
            self.recalls.end(pubend, number)
            upto = int(batch.ticks[strange]) - 1
            batch = batch.slice(0, strange) if strange else None
            gone = [(first, min(last, upto)) for first, last in gone if first < upto]
        self._told_of_past(pubend, number, base, upto, batch, gone, for_good=True)

    def _told_of_past(
        self,
        pubend: str,
        number: int,
        base: int,
        upto: int,
        batch: EventBatch | None,
        gone: Sequence[Range],
        *,
        for_good: bool = False,
    ) -> None:
        """Take all there is for a subscriber in `(base, upto]`; what is `gone`, maybe for good, is a gap."""
        catchup = self._constreams[pubend].catchups[number]
        catchup.recalled(base, upto, batch, gone, for_good=for_good)
        self._calls[pubend, number] = None

    def _fetch(self, pubend: str, subscription: HostedSubscription, catchup: Catchup) -> None:
        """Take what is missing from the window, in pieces that other subscribers share, or ask for it."""
        span = catchup.span()
        if span is None or catchup.waits_for_topic:
            return
        stream = self._constreams[pubend].stream
        piece = stream.window.piece(*span)
        if piece is None:
            # What comes first is being read from the log for another subscriber: everybody gets that. Asking
            # for the little that the other one did not want would be a read of its own for each of many.
            is_coming = stream.is_hosted and stream.is_awaited_here(span[0] + 1)
            if not is_coming and catchup.is_worth_asking(span[1]):
                log_upto = self._constreams[pubend].delivered if stream.is_hosted else None
                stream.nacked(HERE, catchup.missing(log_upto=log_upto))
            return
        chosen = partial(self._chosen, pubend, subscription.id)
        readable = self._readable(piece.cuts)
        catchup.arrived(piece.base, piece.upto, piece.cuts, piece.damaged, chosen, readable)
        self._tell_ready(pubend, subscription, catchup)
        # Not further at once: others take the same piece before the next one is put together.
        self._calls[pubend, subscription.id] = None

    def _readable(self, cuts: Cuts | None) -> int:
        """Return the tick before the first event whose topic or schema is not known here."""
        if cuts is None or self._audience.knows(cuts.shapes):
            return TICK_MAX
        strange = self._audience.unknown_from(cuts.batch)
        if strange is None:
            return TICK_MAX
        self._counters["topics_unknown"] += 1
        return int(cuts.ticks[strange]) - 1

    def _chosen(self, pubend: str, number: int, batch: EventBatch) -> Bools:
        """Return chosen[row]: the event satisfies the selector that was in force for the subscriber then."""
        chosen = np.zeros(batch.count, np.bool_)
        base, upto = int(batch.ticks[0]) - 1, int(batch.ticks[-1])
        for period, first, last in self._subscriptions[number].in_force(pubend, base, upto):
            times = (batch.ticks > first) & (batch.ticks <= last)
            chosen |= times & self._audience.chosen(period.member, batch)
        return chosen
