"""Host: the subscribers of one broker (DSN'03 4; docs/architecture.md).

For each pubend one constream feeds every subscriber that is not catching up: in order, and only up to the
doubt horizon. Which events matched which durable subscribers goes to the PFS. A durable subscriber that
returns, or is too slow, gets what it missed through a catchup stream of its own, and joins the constream
again at a tick, with neither hole nor overlap: both kinds of stream move only in `settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tidemark.broker.access.hiding import SharedPiece
from tidemark.broker.effects import DropSubscription, SaveReleased, SaveSubscription
from tidemark.broker.hosting.acknowledgements import Acknowledgements
from tidemark.broker.hosting.catchup_streams import CatchupStreams
from tidemark.broker.hosting.constream import Constream, Ration
from tidemark.broker.hosting.delivery import Delivery, Fanout
from tidemark.broker.hosting.host_state import HostState
from tidemark.broker.hosting.match_log import MatchLog
from tidemark.broker.hosting.owed import OwedQuestions
from tidemark.broker.hosting.subscription import (
    DurableTotals,
    HostedSubscription,
    SavedSubscription,
    SelectorPeriod,
)
from tidemark.broker.publishing.fetching import Fetching
from tidemark.broker.streams.answers import Batches
from tidemark.broker.streams.interest import HERE, Interests
from tidemark.broker.streams.stream import Ranges, Stream
from tidemark.broker.turn import Turn
from tidemark.matching.audience import Audience
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.limits import CREDIT_BYTES_MAX

MILLISECOND = 1_000
#: Subscribers that are told of silence in one turn, which takes about a millisecond.
SILENCES_MAX = 200


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """Thresholds in microseconds."""

    #: A live subscriber is told of silence when events for others have passed it for this long.
    silence: int = 5_000 * MILLISECOND
    #: Acknowledgements are saved this often.
    save: int = 250 * MILLISECOND
    #: There is an archive: what pubends have let go is recalled from there before it is told as a gap.
    recall: bool = False


class StartPermission(Protocol):
    """Says where the subscribers of a host may start; `ReleaseReports` is the implementation."""

    def may_begin(self, pubend: str) -> bool:
        """Return whether the pubend's broker is known to hold everything for the subscribers here."""


class Host:
    """All subscribers of a broker and the streams that feed them; `Sessions` has their connections."""

    def __init__(
        self,
        registry: Registry,
        interests: Interests,
        turn: Turn,
        policy: HostPolicy,
        fetching: Fetching,
        starts: StartPermission,
    ) -> None:
        self.fetching = fetching
        self._interests = interests
        self._turn = turn
        self._out = turn.out
        self._counters = turn.counters
        self._policy = policy
        self._starts = starts
        #: every selector of every subscriber here; `Preparation` makes its matchers ahead of events
        self.audience = Audience(registry)
        state = HostState(self.audience)
        #: shared with this host's parts; see `HostState`
        self.constreams = state.constreams
        self.subscriptions = state.subscriptions
        #: of the durable ones among them; `Admission` holds it too
        self.durables = DurableTotals()
        #: member of the audience -> the subscriber and the selector that it stands for
        self._members: dict[int, tuple[HostedSubscription, SelectorPeriod]] = {}
        #: member -> the interest version of this broker that first asks for it. Constreams read it
        self._versions: dict[int, int] = {}
        self._next_member = 1
        log = self._match_log = MatchLog(turn)
        #: pubends whose constream may be able to move; `settle` takes them one by one
        self._dirty_pubends: dict[str, None] = {}
        self._ration = Ration()
        self.acknowledgements = Acknowledgements(state, turn, self)
        delivery = self._delivery = Delivery(turn, registry)
        self.catchup_streams = CatchupStreams(state, delivery, log, fetching, turn, recall=policy.recall)
        #: ids of subscribers that have connected and are told so at the end of the turn: whatever starts in
        #: the same turn is told with that
        self._newcomers: dict[int, None] = {}
        self.owed = OwedQuestions(state, turn, recall=policy.recall)
        self._saved_at = self._silence_at = 0
        #: ids of subscribers that may have to be told of silence, and are not yet
        self._to_be_told: list[int] = []
        self._doubtful_above: int | None = None

    # Subscribers come and go.

    def recover(
        self,
        subscriptions: Iterable[SavedSubscription],
        delivered: Mapping[str, int],
        last: Mapping[str, int],
        *,
        doubtful_above: int | None = None,
    ) -> None:
        """After a crash: durable subscriptions from the tables, latest_delivered from the PFS.

        `last` is the tick of the last event of each pubend hosted here. Subscribers with greater ids than
        `doubtful_above` came after the tables had lost rows: if one was here before, nobody knows how far it
        had got, so each is told a gap up to where it starts.
        """
        self._doubtful_above = doubtful_above
        for each in subscriptions:
            periods = [
                SelectorPeriod(saved.wanted, since=dict(saved.since), kept=set(saved.since))
                for saved in each.history
            ]
            subscription = HostedSubscription(each.id, each.name, True, [], dict(each.released))
            subscription.saved = dict(each.released)
            subscription.holding.epoch, subscription.holding.made_at = each.epoch, each.made_at
            subscription.owner = each.owner
            subscription.known = dict(periods[0].since if each.known is None else each.known)
            self.subscriptions[each.id] = subscription
            self.durables.subscriptions += 1
            for period in periods:
                self._add_period(subscription, period)
        for pubend, constream in self.constreams.items():
            # If the PFS was never synced, everything since the first start here is matched again.
            started = [each for each in self.subscriptions.values() if pubend in each.known]
            starts = [max(each.known[pubend], each.starts[pubend]) for each in started]
            tick = delivered.get(pubend, min(starts, default=None)) if self.subscriptions else None
            if tick is not None:
                constream.begin(tick)
                constream.last_event = min(tick, last.get(pubend, tick))
        self._interests.note_change()

    def join(self, pubend: str, stream: Stream) -> None:
        """There is one pubend more, whose stream is to feed the subscribers here."""
        stream.listener = self
        self.constreams[pubend] = Constream(stream)
        for subscription in self.subscriptions.values():
            # Only the current selector can come into force there.
            self.constreams[pubend].waiting[subscription.current.member] = TICK_MIN

    def part(self, pubend: str) -> None:
        """A pubend is not in the layout any more; what was acknowledged of it stays in the tokens."""
        for number in list(self.constreams[pubend].catchups):
            self.catchup_streams.end(pubend, number)
        del self.constreams[pubend]
        self._dirty_pubends.pop(pubend, None)
        self._ration.forget(pubend)
        for subscription in self.subscriptions.values():
            subscription.told.pop(pubend, None)

    def enter(
        self, subscription: HostedSubscription, period: SelectorPeriod, token: CheckpointToken | None = None
    ) -> None:
        """A new subscriber. With a token it comes from another broker, or wants events of before."""
        if token:
            self._counters["taken_over"] += 1
            since = {pubend: tick for pubend, tick in token.items() if pubend in self.constreams}
            subscription.released = dict(since)
            period.since, period.kept = dict(since), set(since)  # the subscriber is told once that is on disk
        self.subscriptions[subscription.id] = subscription
        self.durables.subscriptions += subscription.durable
        self._add_period(subscription, period)
        self._interests.note_change()

    def change(self, subscription: HostedSubscription, period: SelectorPeriod) -> None:
        """A subscriber has changed its selector."""
        self._add_period(subscription, period)
        self._interests.note_change()

    def _add_period(self, subscription: HostedSubscription, period: SelectorPeriod) -> None:
        """Add a selector of a subscriber; at each pubend it holds from a tick that the stream gives."""
        period.member, self._next_member = self._next_member, self._next_member + 1
        subscription.periods.append(period)
        period.version = self._interests.want_here(period.wanted)
        self._members[period.member] = subscription, period
        self.durables.count(subscription, period)
        self._versions[period.member] = period.version
        self.audience.add(period.member, period.wanted.pattern, period.wanted.selector)
        self.audience.prepare(period.member)
        for pubend, constream in self.constreams.items():
            if pubend in period.since and pubend in subscription.known:
                # The selector was recovered: it comes into force where the constream passes that tick again.
                tick = max(period.since[pubend], subscription.known[pubend])
                constream.starting[period.member] = tick
                self._dirty_pubends[pubend] = None
            else:
                constream.waiting[period.member] = TICK_MIN

    def joined_topics(self, subscription: HostedSubscription) -> int:
        """Return in how many matchers of topics a subscriber may have a place: leaving them takes as long."""
        return sum(self.audience.joined_topics(period.member) for period in subscription.periods)

    def leave(self, subscription: HostedSubscription) -> None:
        """A subscriber is gone for good."""
        del self.subscriptions[subscription.id]
        self.durables.subscriptions -= subscription.durable
        self.acknowledgements.forget(subscription)
        self.disconnect(subscription)
        for period in subscription.periods:
            self._forget(period)
        if not self.subscriptions:
            for constream in self.constreams.values():
                constream.end()
        if subscription.durable:
            self._out.add(DropSubscription(subscription.id))
            self._turn.tables.after()
        self._interests.note_change()

    def released(self, subscription: HostedSubscription) -> None:
        """Forget the subscriber's oldest selector once everything of its time is acknowledged on disk."""
        outlived = subscription.outlived(list(self.constreams))
        if outlived is not None:
            subscription.periods.remove(outlived)
            self._forget(outlived)
            self.save(subscription, lambda: None)
            self._interests.note_change()

    def _forget(self, period: SelectorPeriod) -> None:
        self.durables.count(self._members[period.member][0], period, -1)
        del self._members[period.member], self._versions[period.member]
        self._interests.want_no_more(period.wanted)
        self.audience.remove(period.member)
        for constream in self.constreams.values():
            constream.forget(period.member)

    def save(self, subscription: HostedSubscription, done: Callable[[], None]) -> None:
        """Put a subscription, with all its selectors, into the tables; call `done` once it is on disk."""
        known = CheckpointToken(subscription.known)
        self._out.add(
            SaveSubscription(
                subscription.id,
                subscription.name,
                subscription.history,
                known,
                subscription.holding.epoch,
                subscription.holding.made_at,
                subscription.owner,
            )
        )
        if subscription.released:
            released = CheckpointToken(subscription.released)
            self._out.add(SaveReleased(subscription.id, released))
            self._turn.tables.after(partial(self.acknowledgements.saved, subscription.id, released))
        self._turn.tables.after(done)

    def after_save(self, action: Callable[[], None]) -> None:
        """Run `action` once everything saved so far is on disk: at once if it is."""
        if self._turn.tables.is_idle:
            action()
        else:
            self._turn.tables.after(action)

    # Connections.

    def connect(
        self, subscription: HostedSubscription, client: int, credit: int, token: CheckpointToken
    ) -> None:
        """A subscriber has connected and has consumed up to `token`; it goes on from there."""
        self.disconnect(subscription)
        subscription.client = client
        subscription.credit = credit
        for pubend, start in subscription.starts.items():
            if self._is_started(subscription, pubend):
                subscription.told[pubend] = token.get(pubend, start)
        self._newcomers[subscription.id] = None

    def _welcome(self, subscription: HostedSubscription) -> None:
        """Tell a subscriber that has connected where it starts and goes on; then it does."""
        self._delivery.registered(subscription)
        for pubend in list(subscription.told):
            # The selector for earlier ticks was discarded once they were acknowledged, so the subscriber is
            # told of a gap.
            self._delivery.gap(pubend, subscription, subscription.starts[pubend])
            self._go_on(pubend, subscription)

    def disconnect(self, subscription: HostedSubscription) -> None:
        """A subscriber's connection is gone."""
        self._newcomers.pop(subscription.id, None)
        subscription.leave()
        for pubend in self.constreams:
            self.catchup_streams.end(pubend, subscription.id)

    def grant(self, subscription: HostedSubscription, count: int) -> None:
        """A subscriber can take `count` bytes more."""
        subscription.credit = min(subscription.credit + count, CREDIT_BYTES_MAX)
        for pubend in self.constreams:
            self.catchup_streams.call(pubend, subscription.id)

    def _is_started(self, subscription: HostedSubscription, pubend: str) -> bool:
        """Return whether the subscriber's start at a pubend is on disk, or need not be."""
        return pubend in subscription.starts and (not subscription.durable or pubend in subscription.saved)

    # From the streams.

    def advanced(self, pubend: str, tag: int, base: int, upto: int) -> None:
        """First-time knowledge arrived: subscribers may start, and the constream may move."""
        if not self.subscriptions:
            return
        constream = self.constreams[pubend]
        if constream.delivered is None:
            if base == TICK_MIN or not self._starts.may_begin(pubend):
                return  # it is not known yet how far the stream reaches, or the pubend does not hold yet
            constream.begin(base)
        if constream.waiting:
            constream.expected(tag, base, upto, self._versions)
        self._dirty_pubends[pubend] = None

    def answered(self, pubend: str, base: int, upto: int, batches: Batches, damaged: Ranges) -> None:
        """An answer arrived, for the constream or for catchup streams."""
        self.catchup_streams.answered(pubend, base, upto, batches, damaged)
        self._dirty_pubends[pubend] = None

    def lost(self, pubend: str) -> None:
        """History was let go: catchup streams that still lack some of it tell a gap."""
        self.catchup_streams.call_all(pubend)

    def wanting(self, topic: str) -> list[HostedSubscription]:
        """Return the subscriptions of a topic, of which one may come more than once."""
        return [self._members[member][0] for member in self.audience.wanting(topic)]

    def learnt(self) -> None:
        """A topic has become known: what waited for it can move."""
        for pubend in self.constreams:
            self._dirty_pubends[pubend] = None
        self.catchup_streams.learnt()
        self.fetching.learnt()

    def delivered(self, pubend: str) -> int | None:
        """Return the tick up to which the window is not needed here any more; None without subscribers."""
        return self.constreams[pubend].delivered if self.subscriptions else None

    def settle(self) -> None:
        """Move every constream and catchup stream as far as the stimulus has made possible."""
        self._ration.begin()
        if self._newcomers:
            for pubend in self._dirty_pubends:
                if self.constreams[pubend].fanout is None:
                    self._start(pubend, self.constreams[pubend])
            newcomers, self._newcomers = self._newcomers, {}
            for number in newcomers:
                self._welcome(self.subscriptions[number])
        while self._dirty_pubends or self.catchup_streams.settle():
            if self._dirty_pubends:
                pubend = next(iter(self._dirty_pubends))
                del self._dirty_pubends[pubend]
                self._move(pubend, self.constreams[pubend])

    @property
    def is_behind(self) -> bool:
        """Whether there was more to deliver, or on disk, than fitted into a turn."""
        return bool(self._ration.unfinished) or self.acknowledgements.is_behind

    def go_on(self) -> None:
        """Let the constreams that had more to deliver go on in the next `settle`, and what is on disk."""
        self.acknowledgements.go_on()
        self._dirty_pubends |= self._ration.finish()

    # The constream.

    def _move(self, pubend: str, constream: Constream) -> None:
        """Deliver up to the doubt horizon, stopping wherever a selector starts; ask for what is missing."""
        if constream.delivered is None:
            return
        while self._fan_out(pubend, constream):
            if constream.starting:
                self._start(pubend, constream)
            upto = constream.next_stop()
            if upto is None:
                break
            gap = constream.gap(upto)
            if gap is not None:
                self._break(pubend, constream, gap)
                continue
            if not self._ration.may_go_on(pubend):
                break
            piece = constream.piece(upto, self.audience, self._turn)
            if piece is None:
                self._counters["topics_unknown"] += 1
                break
            self._ration.took(piece)
            self._match_log.write(pubend, constream, piece)
            constream.delivered = piece.upto
            self._counters["events_expired"] += piece.expired
            if piece.matches:
                fanout = Fanout(self, self._delivery, self._turn, pubend, constream.active, piece)
                constream.fanout = fanout if fanout.is_unfinished_by(self._ration) else None
        stream, at = constream.stream, constream.delivered
        if stream.position > at and (unknown := stream.window.knowledge.unknown(at, stream.position)):
            # While the window is full, only the first hole, which everything waits for, is worth asking for.
            stream.nacked(HERE, unknown[:1] if stream.window.is_full else unknown, patient=True)

    def _start(self, pubend: str, constream: Constream) -> None:
        """Bring the selectors into force for which knowledge is complete from `delivered` on."""
        delivered = constream.delivered
        if delivered is None:
            return
        for member in sorted(m for m, tick in constream.starting.items() if tick <= delivered):
            del constream.starting[member]
            self._come_into_force(pubend, constream, *self._members[member], delivered)

    def _come_into_force(
        self,
        pubend: str,
        constream: Constream,
        subscription: HostedSubscription,
        period: SelectorPeriod,
        tick: int,
    ) -> None:
        recovered = pubend in period.since and pubend in subscription.known
        period.since.setdefault(pubend, tick)
        at = subscription.periods.index(period)
        for other in subscription.periods[:at]:
            constream.forget(other.member)
            # An older selector that was never in force here is passed over: it holds for no tick.
            other.since.setdefault(pubend, period.since[pubend])
        constream.active.set(period.member, subscription.id, durable=subscription.durable)
        constream.held = None
        if recovered:
            return
        changed = pubend in subscription.known
        if changed:
            self._counters["changes"] += 1
            constream.changing += 1
        else:
            self._counters["starts"] += 1
            subscription.known[pubend] = tick
            subscription.released.setdefault(pubend, 0 if self._is_doubtful(subscription) else tick)
        if not subscription.durable:
            subscription.saved = subscription.released
            period.kept.add(pubend)
            self._begin(subscription.id, pubend)
            self.catchup_streams.call(pubend, subscription.id)
            return
        # A start is told, and a change passed, only once it is on disk: from then on it holds, whichever
        # broker crashes.
        self.save(subscription, partial(self._in_force, subscription.id, pubend, period, changed=changed))

    def _in_force(self, number: int, pubend: str, period: SelectorPeriod, *, changed: bool) -> None:
        """A start or a change of a subscriber's selector at a pubend is on disk."""
        constream = self.constreams[pubend]
        if changed:
            constream.changing -= 1
            self._dirty_pubends[pubend] = None
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return
        period.kept.add(pubend)
        self._begin(number, pubend)
        self.catchup_streams.call(pubend, number)  # what a subscriber with a token lacks is known now
        if changed and subscription.client is not None and number not in self._newcomers:
            self._delivery.registered(subscription)

    def _begin(self, number: int, pubend: str) -> None:
        """Tell a subscriber that has started at a pubend so; it goes on from there."""
        subscription = self.subscriptions.get(number)
        if subscription is None or subscription.client is None or pubend in subscription.told:
            return
        start = subscription.starts[pubend]
        if number in self._newcomers:
            is_lost = self._is_doubtful(subscription) and subscription.released[pubend] < start
            subscription.told[pubend] = subscription.released[pubend] if is_lost else start
            return
        if self._is_doubtful(subscription) and subscription.released[pubend] < start:
            subscription.told[pubend] = subscription.released[pubend]
            self._delivery.gap(pubend, subscription, start)
        else:
            self._delivery.tell(subscription, pubend, start, start, None)
        self._go_on(pubend, subscription)

    def _is_doubtful(self, subscription: HostedSubscription) -> bool:
        """Return whether the subscriber may have been here before, in rows that the tables have lost."""
        above = self._doubtful_above
        return above is not None and subscription.durable and subscription.id > above

    def _go_on(self, pubend: str, subscription: HostedSubscription) -> None:
        """Let a subscriber go on from where it was told last: with the constream, or behind it."""
        constream = self.constreams[pubend]
        told, delivered = subscription.told[pubend], constream.delivered
        is_known = told >= subscription.known.get(pubend, TICK_MAX)
        if is_known and (delivered is None or told >= delivered):
            self._counters["tokens_ahead"] += delivered is not None and told > delivered
            return
        if subscription.durable or subscription.replays:
            self.catchup_streams.begin(pubend, subscription.id, told)
        else:
            assert delivered is not None
            self._delivery.gap(pubend, subscription, delivered)

    def _fan_out(self, pubend: str, constream: Constream) -> bool:
        """Hand on the piece that some have still to be told of; return whether there is none any more."""
        if constream.fanout is not None:
            if not self._ration.may_go_on(pubend) or constream.fanout.is_unfinished_by(self._ration):
                return False
            constream.fanout = None
        return True

    def is_live(self, subscription: HostedSubscription, pubend: str) -> bool:
        """Return whether the constream feeds the subscriber: it is connected, started and not catching up."""
        connected = subscription.client is not None and pubend in subscription.told
        return connected and subscription.id not in self.constreams[pubend].catchups

    def feed(
        self,
        pubend: str,
        subscription: HostedSubscription,
        upto: int,
        part: EventBatch,
        shared: SharedPiece | None,
    ) -> None:
        """Tell a live subscriber its rows; one without credit leaves the constream right here."""
        told = subscription.told[pubend]
        if told >= part.ticks[0]:  # a subscriber's token may be ahead of its host
            rows = np.flatnonzero(part.ticks > told)
            if not len(rows):
                return
            part = part.take(rows)
        if subscription.credit <= 0:
            self._counters["catchups_slow"] += 1
            subscription.slow += 1
            self._go_on(pubend, subscription)
            return
        self._delivery.tell(subscription, pubend, told, upto, part, shared)

    def _break(self, pubend: str, constream: Constream, upto: int) -> None:
        """All up to `upto` is L and was never matched: a gap, unless an archive may have what was let go."""
        base = constream.delivered
        assert base is not None
        is_archived = self._policy.recall and upto <= constream.stream.window.knowledge.lost
        constream.delivered = upto
        constream.last_event = max(constream.last_event, upto)
        for subscription in self.subscriptions.values():
            if self.is_live(subscription, pubend):
                told = subscription.told[pubend]
                if told < base:  # silence that was not worth a frame before
                    self._delivery.tell(subscription, pubend, told, base, None)
                if is_archived and subscription.durable:
                    self._go_on(pubend, subscription)
                else:
                    self._delivery.gap(pubend, subscription, upto)

    # Time and release.

    def wake(self) -> None:
        """Tell silence to subscribers that lag, save acknowledgements, and try again what waits."""
        now = self._turn.now
        self.go_on()
        for pubend in self.constreams:
            self._dirty_pubends[pubend] = None
            self.catchup_streams.wake(pubend)
        self.fetching.wake()
        if now - self._silence_at >= self._policy.silence:
            self._silence_at = now
            self._to_be_told = list(self.subscriptions)
        self._be_silent()
        if now - self._saved_at >= self._policy.save:
            self._saved_at = now
            self.acknowledgements.save_all()
            self.acknowledgements.chop()

    def _be_silent(self) -> None:
        """Tell some live subscribers of silence, so that their tokens keep up; others at the next wake."""
        now, self._to_be_told = self._to_be_told[:SILENCES_MAX], self._to_be_told[SILENCES_MAX:]
        for subscription in [self.subscriptions[each] for each in now if each in self.subscriptions]:
            for pubend, constream in self.constreams.items():
                delivered, last = constream.delivered, constream.last_event
                if delivered is None or not self.is_live(subscription, pubend):
                    continue
                if constream.fanout is not None:
                    continue  # it may have to be told of an event first
                if subscription.told[pubend] < min(last, delivered):
                    self._delivery.tell(subscription, pubend, subscription.told[pubend], delivered, None)

    @property
    def is_telling(self) -> bool:
        """Whether some subscribers have still to be told of silence."""
        return bool(self._to_be_told)
