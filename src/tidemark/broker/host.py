"""Host: the subscribers of one broker (DSN'03 4, DESIGN 8).

For each pubend one constream feeds every subscriber that is not catching up: in order, and only up to the
doubt horizon. What matched whom goes to the PFS; a durable subscriber that returns, or is too slow, gets what
it missed through a catchup stream of its own, and joins the constream again at a tick, with neither hole nor
overlap: both move only here, one stimulus at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tidemark.broker.audience import Audience, Members, Rows
from tidemark.broker.catchup import CHUNK_EVENTS, Catchup
from tidemark.broker.commit import GroupCommit
from tidemark.broker.effects import (
    AppendPfs,
    ChopPfs,
    CloseClient,
    DropSubscription,
    Outbox,
    PfsRead,
    ReadPfs,
    SaveReleased,
    SaveSubscription,
    SendClient,
)
from tidemark.broker.interest import HERE, Interests
from tidemark.broker.stream import Stream
from tidemark.broker.subscription import Subscription
from tidemark.errors import TidemarkError
from tidemark.matching.selectors.parser import parse
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MAX, TICK_MIN, CheckpointToken
from tidemark.wire.frames import Ack, Credit, Deliver, Gap, Refused, Subscribe, Subscribed, Unsubscribe

MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """Thresholds in microseconds."""

    #: A subscriber without events is told of silence when its token lags this far behind.
    silence: int = 1_000 * MILLISECOND
    #: Acknowledgements are saved this often.
    save: int = 250 * MILLISECOND


@dataclass(frozen=True, slots=True)
class SavedSubscription:
    """A durable subscription as the tables have it."""

    id: int
    name: str
    pattern: str
    selector: str
    released: Mapping[str, int]


@dataclass(slots=True)
class Constream:
    """The consolidated stream of one pubend."""

    stream: Stream
    #: latest_delivered: everything at or below has gone to all live subscribers; None before the first
    delivered: int | None = None
    #: the part of it that the PFS has on disk
    synced: int | None = None
    #: subscriber -> the tick from which silence accounts for it, until the constream gets there
    starting: dict[int, int] = field(default_factory=dict)


class Host:
    """All subscribers of a broker."""

    def __init__(
        self,
        streams: Mapping[str, Stream],
        interests: Interests,
        registry: Registry,
        out: Outbox,
        policy: HostPolicy,
        pfs_commit: GroupCommit,
        tables_commit: GroupCommit,
        interest_changed: Callable[[], None],
    ) -> None:
        self._interests = interests
        self._out = out
        self._policy = policy
        self._pfs_commit = pfs_commit
        self._tables_commit = tables_commit
        self._interest_changed = interest_changed
        self._audience = Audience(registry)
        self._constreams = {name: Constream(stream) for name, stream in streams.items()}
        self._subscriptions: dict[int, Subscription] = {}
        self._by_name: dict[str, Subscription] = {}
        self._by_client: dict[int, set[int]] = {}
        self._next_id = 1
        self._sets: dict[bytes, int] = {}
        self._unsaved: set[int] = set()
        self._saved_at = 0
        self.now = self.wall = 0

    def recover(self, saved: Iterable[SavedSubscription], delivered: Mapping[str, int]) -> None:
        """After a crash: durable subscriptions from the tables, latest_delivered from the PFS."""
        for each in saved:
            self._next_id = max(self._next_id, each.id + 1)
            subscription = Subscription(each.id, each.name, each.pattern, each.selector, True, 0)
            subscription.starts = dict(each.released)
            subscription.released = dict(each.released)
            self._register(subscription)
        for pubend, constream in self._constreams.items():
            # Without a PFS - it was never synced - all since the first start is matched again.
            starts = [each.starts[pubend] for each in self._subscriptions.values() if pubend in each.starts]
            tick = delivered.get(pubend, min(starts, default=None)) if self._subscriptions else None
            if tick is not None:
                constream.delivered = constream.synced = tick
                constream.stream.position = max(constream.stream.position, tick)
                constream.stream.window.raise_floor(tick)
        version = self._attend()
        for subscription in self._subscriptions.values():
            subscription.version = version

    # From the streams.

    def advanced(self, pubend: str, tag: int, base: int) -> None:
        """First-time knowledge arrived: some may start, and the constream may move."""
        if not self._subscriptions:
            return
        constream = self._constreams[pubend]
        if constream.delivered is None:
            if base == TICK_MIN:
                return  # upstream does not know yet where the stream stands
            constream.delivered = constream.synced = base
            constream.stream.window.raise_floor(base)
        for subscription in self._subscriptions.values():
            waits = pubend not in subscription.starts and subscription.id not in constream.starting
            if waits and tag >= subscription.version:
                constream.starting[subscription.id] = base
        self._move(pubend, constream)

    def answered(self, pubend: str, base: int, upto: int, batch: EventBatch | None) -> None:
        """Something that was asked for arrived: for the constream, or for some who catch up."""
        for subscription in list(self._subscriptions.values()):
            catchup = subscription.catchups.get(pubend)
            if catchup is not None:
                catchup.arrived(base, upto, batch)
                self._catch_up(pubend, subscription, catchup)
        self._move(pubend, self._constreams[pubend])

    def lost(self, pubend: str) -> None:
        """History was let go: those who still wanted it get a gap."""
        for subscription in list(self._subscriptions.values()):
            catchup = subscription.catchups.get(pubend)
            if catchup is not None:
                self._catch_up(pubend, subscription, catchup)

    def delivered(self, pubend: str) -> int | None:
        """Up to where the window is not needed here any more; None when nobody is here."""
        return self._constreams[pubend].delivered if self._subscriptions else None

    # The constream.

    def _move(self, pubend: str, constream: Constream) -> None:
        """Deliver up to the doubt horizon, stopping wherever somebody starts; ask for what is missing."""
        if constream.delivered is None:
            return
        window = constream.stream.window
        while True:
            self._start(pubend, constream)
            horizon = window.knowledge.horizon(constream.delivered)
            stops = [tick for tick in constream.starting.values() if tick > constream.delivered]
            upto = min([horizon, *stops])
            if upto <= constream.delivered:
                break
            self._deliver(pubend, constream, upto)
        position = max(constream.stream.position, constream.delivered)
        unknown = window.knowledge.unknown(constream.delivered, position)
        if unknown:
            constream.stream.nacked(HERE, unknown, self.now, patient=True)

    def _start(self, pubend: str, constream: Constream) -> None:
        """Those whom silence accounts for from here on, or from before, start here."""
        assert constream.delivered is not None
        for number, tick in list(constream.starting.items()):
            if tick > constream.delivered:
                continue
            del constream.starting[number]
            subscription = self._subscriptions[number]
            subscription.starts[pubend] = subscription.released[pubend] = constream.delivered
            self._audience.add(number, subscription.pattern, subscription.selector)
            if subscription.durable:
                # A start is told only once it is on disk: from then on it holds release, whoever crashes.
                self._out.add(SaveReleased(number, CheckpointToken(subscription.released)))
                self._tables_commit.after(partial(self._begin, number, pubend))
            else:
                self._begin(number, pubend)

    def _begin(self, number: int, pubend: str) -> None:
        """A subscriber that has started is told so; it goes on from there."""
        subscription = self._subscriptions.get(number)
        if subscription is None or subscription.client is None or pubend in subscription.told:
            return
        start = subscription.starts[pubend]
        self._tell(subscription, pubend, start, start, None)
        self._go_on(pubend, subscription)

    def _go_on(self, pubend: str, subscription: Subscription) -> None:
        """From what it was told last: with the constream, or behind it."""
        told, delivered = subscription.told[pubend], self._constreams[pubend].delivered
        if delivered is None or told >= delivered:
            return
        if subscription.durable:
            subscription.catchups[pubend] = Catchup(told)
            self._catch_up(pubend, subscription, subscription.catchups[pubend])
        else:
            self._out.add(SendClient(_client(subscription), Gap(subscription.name, pubend, told, delivered)))
            subscription.told[pubend] = delivered

    def _deliver(self, pubend: str, constream: Constream, upto: int) -> None:
        assert constream.delivered is not None
        base = constream.delivered
        batch = _unexpired(constream.stream.window.events(base, upto), self.wall)
        matches = list(self._audience.matches(batch)) if batch is not None else []
        self._log(pubend, base, upto, batch, matches)
        constream.delivered = upto
        rows_of: dict[int, list[int]] = {}
        for at, (_, members) in enumerate(matches):
            for member in members.tolist():
                rows_of.setdefault(member, []).append(at)
        parts: dict[tuple[int, ...], EventBatch] = {}
        for subscription in list(self._subscriptions.values()):
            if not subscription.is_live(pubend):
                continue
            chosen = tuple(rows_of.get(subscription.id, ()))
            if chosen and chosen not in parts:
                assert batch is not None
                parts[chosen] = batch.take(np.sort(np.concatenate([matches[at][0] for at in chosen])))
            self._feed(pubend, subscription, upto, parts.get(chosen))

    def _feed(self, pubend: str, subscription: Subscription, upto: int, part: EventBatch | None) -> None:
        """Give a live subscriber its rows; one that cannot take them leaves the constream right here."""
        told = subscription.told[pubend]
        if part is not None and told >= part.ticks[0]:  # a token may be ahead of its host
            part = part.take(part.ticks > told)
        count = part.count if part is not None else 0
        if count > subscription.credit:
            self._go_on(pubend, subscription)
            return
        if count or upto - told >= self._policy.silence:
            self._tell(subscription, pubend, told, upto, part if count else None)

    def _log(
        self,
        pubend: str,
        base: int,
        upto: int,
        batch: EventBatch | None,
        matches: list[tuple[Rows, Members]],
    ) -> None:
        """What matched durable subscribers goes to the PFS; only then does it count as delivered upstream."""
        rows: list[Rows] = []
        sets: list[int] = []
        members: dict[int, Members] = {}
        for where, who in matches:
            durable = who[[self._subscriptions[each].durable for each in who.tolist()]]
            if len(durable):
                number = self._sets.setdefault(durable.tobytes(), len(self._sets) + 1)
                members[number] = durable
                rows.append(where)
                sets += [number] * len(where)
        places = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        order = np.argsort(places, kind="stable")
        ticks = batch.ticks[places[order]] if batch is not None else np.zeros(0, np.int64)
        numbers = np.array(sets, np.uint32)[order]
        self._out.add(AppendPfs(pubend, base, upto, ticks, numbers, members))
        constream = self._constreams[pubend]

        def synced() -> None:
            constream.synced = upto if constream.synced is None else max(constream.synced, upto)

        self._pfs_commit.after(synced)

    # Catching up.

    def read(self, answer: PfsRead) -> None:
        """The PFS said which ticks a subscriber matched."""
        subscription = self._subscriptions.get(answer.subscriber)
        catchup = subscription.catchups.get(answer.pubend) if subscription else None
        if subscription is None or catchup is None:
            return
        if answer.base > catchup.position:
            # What lies before has been acknowledged once and is gone: this token is older than that.
            self._gap(answer.pubend, subscription, catchup, answer.base)
        catchup.matched(answer.base, answer.upto, answer.ticks)
        self._catch_up(answer.pubend, subscription, catchup)

    def _catch_up(self, pubend: str, subscription: Subscription, catchup: Catchup) -> None:
        """Tell what can be told, ask for what is missing, join the constream when it is reached."""
        constream = self._constreams[pubend]
        lost = constream.stream.window.knowledge.lost
        while subscription.client is not None:
            ready = catchup.ready(subscription.credit)
            if ready is not None:
                self._tell(subscription, pubend, subscription.told[pubend], *ready)
                continue
            gap = catchup.lost(lost)
            if gap is None:
                break
            self._gap(pubend, subscription, catchup, gap)
        if constream.delivered is not None and catchup.position >= constream.delivered:
            subscription.catchups.pop(pubend, None)
        elif catchup.needs_read:
            catchup.is_reading = True
            self._out.add(ReadPfs(pubend, subscription.id, catchup.position, CHUNK_EVENTS))
        else:
            missing = catchup.missing()
            if missing:
                constream.stream.nacked(HERE, missing, self.now)

    def _gap(self, pubend: str, subscription: Subscription, catchup: Catchup, upto: int) -> None:
        told = subscription.told[pubend]
        catchup.skip(upto)
        if upto > told:
            self._out.add(SendClient(_client(subscription), Gap(subscription.name, pubend, told, upto)))
            subscription.told[pubend] = upto

    # Clients.

    def subscribe(self, client: int, frame: Subscribe) -> None:
        """A subscriber comes, for the first time or again."""
        known = self._by_name.get(frame.name)
        if known is None:
            self._create(client, frame)
        elif not known.durable or (known.pattern, known.selector) != (frame.pattern, frame.selector):
            reason = (
                f"{frame.name!r} is taken by another subscription: choose a name, or unsubscribe it first"
            )
            self._out.add(SendClient(client, Refused(f"subscribe {frame.name}", reason)))
        else:
            self._resume(client, frame, known)

    def _create(self, client: int, frame: Subscribe) -> None:
        try:
            TopicPattern.parse(frame.pattern)
            parse(frame.selector)
        except TidemarkError as error:
            self._out.add(SendClient(client, Refused(f"subscribe {frame.name}", str(error))))
            return
        number = self._next_id
        self._next_id += 1
        subscription = Subscription(number, frame.name, frame.pattern, frame.selector, frame.durable, 0)
        self._register(subscription)
        subscription.version = self._attend()
        if not frame.durable:
            self._connect(client, frame, subscription)
            return
        self._out.add(
            SaveSubscription(number, frame.name, frame.pattern, frame.selector, CheckpointToken({}))
        )
        self._tables_commit.after(lambda: self._connect_if_there(client, frame, subscription))

    def _connect_if_there(self, client: int, frame: Subscribe, subscription: Subscription) -> None:
        if self._by_name.get(frame.name) is subscription and subscription.client is None:
            self._connect(client, frame, subscription)

    def _resume(self, client: int, frame: Subscribe, subscription: Subscription) -> None:
        """It returns: the newer connection wins, and what it says it has decides where it goes on."""
        if subscription.client is not None and subscription.client != client:
            reason = f"{frame.name!r} has connected again elsewhere"
            self._out.add(SendClient(subscription.client, Refused(f"subscribe {frame.name}", reason)))
            self._out.add(CloseClient(subscription.client))
            self.gone(subscription.client)
        self._connect(client, frame, subscription)

    def _connect(self, client: int, frame: Subscribe, subscription: Subscription) -> None:
        subscription.leave()
        subscription.client = client
        subscription.credit = frame.credit
        self._by_client.setdefault(client, set()).add(subscription.id)
        token = frame.token or CheckpointToken(subscription.released)
        for pubend, start in subscription.starts.items():
            subscription.told[pubend] = token.get(pubend, start)
        self._out.add(SendClient(client, Subscribed(subscription.name, subscription.token())))
        for pubend in list(subscription.told):
            self._go_on(pubend, subscription)

    def acknowledge(self, frame: Ack) -> None:
        """A subscriber has consumed; late words of one that is unknown here are ignored."""
        subscription = self._by_name.get(frame.name)
        if subscription is not None:
            subscription.acknowledge(frame.token)
            if subscription.durable:
                self._unsaved.add(subscription.id)

    def grant(self, frame: Credit) -> None:
        """A subscriber can take more."""
        subscription = self._by_name.get(frame.name)
        if subscription is None:
            return
        subscription.credit += frame.events
        for pubend, catchup in list(subscription.catchups.items()):
            self._catch_up(pubend, subscription, catchup)

    def unsubscribe(self, frame: Unsubscribe) -> None:
        """A subscription ends."""
        subscription = self._by_name.get(frame.name)
        if subscription is not None:
            self._remove(subscription)

    def gone(self, client: int) -> None:
        """A connection is gone: durable subscriptions stay, others end."""
        for number in sorted(self._by_client.pop(client, ())):
            subscription = self._subscriptions[number]
            if subscription.durable:
                subscription.leave()
            else:
                self._remove(subscription)

    def _register(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription
        self._by_name[subscription.name] = subscription
        if subscription.starts:
            self._audience.add(subscription.id, subscription.pattern, subscription.selector)

    def _remove(self, subscription: Subscription) -> None:
        del self._subscriptions[subscription.id]
        del self._by_name[subscription.name]
        if subscription.client is not None and subscription.client in self._by_client:
            self._by_client[subscription.client].discard(subscription.id)
        self._audience.remove(subscription.id)
        self._unsaved.discard(subscription.id)
        for constream in self._constreams.values():
            constream.starting.pop(subscription.id, None)
            if not self._subscriptions:
                constream.delivered = constream.synced = None
        if subscription.durable:
            self._out.add(DropSubscription(subscription.id))
            self._tables_commit.after(lambda: None)
        self._attend()

    def _attend(self) -> int:
        """Say what is wanted here now; the version that accounts for it."""
        version = self._interests.want_here(each.wanted for each in self._subscriptions.values())
        self._interest_changed()
        return version

    def _tell(
        self, subscription: Subscription, pubend: str, base: int, upto: int, batch: EventBatch | None
    ) -> None:
        if batch is not None:
            subscription.credit -= batch.count
        subscription.told[pubend] = upto
        frame = Deliver(subscription.name, pubend, base, upto, batch)
        self._out.add(SendClient(_client(subscription), frame))

    # Time and release.

    def wake(self, now: int) -> None:
        """Silence to those who lag, acknowledgements to the tables, and another try where something waits."""
        for pubend, constream in self._constreams.items():
            self._move(pubend, constream)
        for subscription in list(self._subscriptions.values()):
            for pubend, catchup in list(subscription.catchups.items()):
                self._catch_up(pubend, subscription, catchup)
        if self._unsaved and now - self._saved_at >= self._policy.save:
            self._saved_at = now
            for number in sorted(self._unsaved):
                token = CheckpointToken(self._subscriptions[number].released)
                self._out.add(SaveReleased(number, token))
            self._unsaved.clear()
            self._tables_commit.after(lambda: None)
            for pubend in self._constreams:
                found = self.minima(pubend)
                if found is not None and found[0] < TICK_MAX:
                    self._out.add(ChopPfs(pubend, found[0]))

    @property
    def minima_unknown(self) -> bool:
        """Somebody is here, or was a moment ago: what was said of nobody does not hold."""
        return bool(self._subscriptions)

    def minima(self, pubend: str) -> tuple[int, int] | None:
        """(released, delivered) of this host; TICK_MAX when nobody is here, None when it is not known yet."""
        if not self._subscriptions:
            return TICK_MAX, TICK_MAX
        constream = self._constreams[pubend]
        if constream.synced is None:
            return None
        held = [
            each.released[pubend]
            for each in self._subscriptions.values()
            if each.durable and pubend in each.starts
        ]
        return min([constream.synced, *held]), constream.synced


def _client(subscription: Subscription) -> int:
    assert subscription.client is not None
    return subscription.client


def _unexpired(batch: EventBatch | None, wall: int) -> EventBatch | None:
    """An event past its validity is silence for whoever has not got it yet."""
    if batch is None:
        return None
    validity = batch.prelude("validity_ms").astype(np.int64) * MILLISECOND
    alive = (validity == 0) | (batch.ticks + validity > wall)
    if alive.all():
        return batch
    return batch.take(alive) if alive.any() else None
