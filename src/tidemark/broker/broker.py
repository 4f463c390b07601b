"""Broker: the roles of one broker put together. One stimulus in, its effects out.

For each pubend it is publisher hosting (the pubend is here), subscriber hosting (subscribers are here) and
relay (neighbours are behind it), in any mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from tidemark.broker.admin import Admin
from tidemark.broker.commit import GroupCommit
from tidemark.broker.counters import Counters
from tidemark.broker.effects import (
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    Effect,
    LinkDown,
    LinkUp,
    LogFetched,
    LogFull,
    LogRead,
    LogSynced,
    Outbox,
    PeerFrameReceived,
    PfsRead,
    PfsSynced,
    ResumeLog,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Woken,
)
from tidemark.broker.fetching import Fetching
from tidemark.broker.host import Host, HostPolicy, SavedSubscription
from tidemark.broker.interest import HERE, Interests
from tidemark.broker.pubend import Pubend, PubendPolicy, PubendState
from tidemark.broker.recalls import Recalls
from tidemark.broker.reception import Reception
from tidemark.broker.release import Minima
from tidemark.broker.stream import Stream
from tidemark.broker.subscription import Subscription
from tidemark.broker.topics import Topics
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MAX, Thresholds
from tidemark.wire.frames import (
    Ack,
    AckExpected,
    Ask,
    Claim,
    ClientFrame,
    Credit,
    Describe,
    Fetch,
    Fetched,
    Hello,
    Interest,
    Knowledge,
    Nack,
    Offer,
    PeerFrame,
    Ping,
    Pong,
    Publish,
    Recalled,
    Refused,
    Release,
    Subscribe,
    Topic,
    Unsubscribe,
)

MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class Route:
    """Where one pubend lies, seen from a broker. `upstream` is None at the broker that hosts it."""

    upstream: str | None
    downstream: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything about a broker that does not change in its life."""

    name: str
    #: grows with every life; kept on disk
    incarnation: int
    routes: Mapping[str, Route]
    pubend_policy: PubendPolicy = field(default_factory=PubendPolicy)
    host_policy: HostPolicy = field(default_factory=HostPolicy)
    thresholds: Thresholds = field(default_factory=Thresholds)
    window_bytes_max: int = 64 << 20
    #: periodic work: silence, releases, saving
    period: int = 50 * MILLISECOND
    pfs_sync: int = 100 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a broker's disk has to say when it starts."""

    pubends: Mapping[str, PubendState] = field(default_factory=dict)
    subscriptions: Iterable[SavedSubscription] = ()
    #: no subscriber ever had this number or a higher one
    next_subscriber: int = 1
    #: pubend -> how far the PFS goes
    delivered: Mapping[str, int] = field(default_factory=dict)
    topics: Iterable[Topic] = ()


class Broker:
    """One broker. `handle` is its only door."""

    def __init__(self, config: BrokerConfig, registry: Registry, recovered: Recovered) -> None:
        self.config = config
        self.counters = Counters()
        self._out = Outbox()
        self._now = self._wall = 0
        self._woken_at = 0
        self._pfs_synced_at = 0
        self._peers = sorted({peer for route in config.routes.values() for peer in _neighbours(route)})
        self._interests = Interests(self._peers, config.incarnation, registry, self.counters)
        #: incarnation of each neighbour whose Hello was heard on the link that is up
        self._lives: dict[str, int] = {}
        #: what is wanted has changed since neighbours were told
        self._interest_unsaid = False
        self._last_life: dict[str, int] = {}
        self._log_commit = GroupCommit(lambda ticket: self._out.add(SyncLog(ticket)))
        self._pfs_commit = GroupCommit(lambda ticket: self._out.add(SyncPfs(ticket)))
        self._tables_commit = GroupCommit(lambda ticket: self._out.add(CommitTables(ticket)))
        self._streams = {
            name: Stream(
                name,
                route.upstream,
                route.downstream,
                self._interests,
                self._out,
                self.counters,
                config.window_bytes_max,
                config.thresholds,
            )
            for name, route in config.routes.items()
        }
        self._minima = {name: Minima([HERE, *route.downstream]) for name, route in config.routes.items()}
        self._reported: dict[str, tuple[int, int]] = {}
        self._pubends = {
            name: self._pubend(name, recovered.pubends.get(name, PubendState()))
            for name, route in config.routes.items()
            if route.upstream is None
        }
        self._fetching = Fetching(self._pubends, self._streams, registry, self._out, self.counters)
        self._host = Host(
            self._streams,
            self._interests,
            registry,
            self._out,
            self.counters,
            config.host_policy,
            self._pfs_commit,
            self._tables_commit,
            self._fetching,
            self._interest_changed,
        )
        self._topics = Topics(
            registry,
            self._out,
            self.counters,
            self._tables_commit,
            lambda: sorted(self._lives),
            self._host.learnt,
        )
        for name, stream in self._streams.items():
            stream.listener = self._host
            if name in self._pubends:
                pubend = self._pubends[name]
                stream.position = pubend.position
                stream.window.lose(pubend.lost)
        self._topics.recover(recovered.topics)
        last = {name: state.last for name, state in recovered.pubends.items()}
        self._host.recover(recovered.subscriptions, recovered.delivered, last)
        self._reception = Reception(
            config.name,
            self._host,
            registry,
            self._out,
            self.counters,
            recovered.next_subscriber,
            lambda: sorted(self._lives),
            self._hold,
        )
        self._reception.claim_again()
        self._admin = Admin(self._host, self._reception, registry, self._pubends, self._out)
        for name, pubend in self._pubends.items():
            if self._host.delivered(name) is None:
                self._streams[name].window.raise_floor(pubend.position)

    def describe_pubends(self) -> list[dict[str, Any]]:
        """Where those stand that are hosted here."""
        return self._admin.pubends()

    @property
    def recalls(self) -> Recalls:
        """What the archive is asked for."""
        return self._host.latecomers.recalls

    def handle(self, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        """Take one stimulus; what is to be done about it.

        `now` is monotonic and drives thresholds; `wall` is the time of day, gives ticks, and may jump.
        """
        self._now = self._host.now = self._fetching.now = now
        self._wall = self._host.wall = wall
        self._host.latecomers.now, self._host.latecomers.wall = now, wall
        self._dispatch(stimulus)
        if isinstance(stimulus, Woken):
            self._periodic()
        self._host.settle()
        if self._interest_unsaid and (not self._interests.is_large or isinstance(stimulus, Woken)):
            self._say_interest()
        for stream in self._streams.values():
            stream.shrink()
            stream.wake(now)
        self._log_commit.flush()
        self._tables_commit.flush()
        return self._out.take()

    def known_from(self, name: str, pubend: str) -> int | None:
        """From where on the stream of a pubend here accounts for a subscriber; None when it does not."""
        found = self._reception.find(name)
        return found.known.get(pubend) if found is not None else None

    def window_bytes(self) -> list[tuple[str, int]]:
        """How much it remembers of each pubend."""
        return [(name, stream.window.bytes) for name, stream in self._streams.items()]

    def next_wake(self) -> int:
        """When, in monotonic time, the broker wants a Woken at the latest."""
        times = [self._woken_at + self.config.period]
        times += [at for stream in self._streams.values() if (at := stream.next_wake()) is not None]
        return min(times)

    def _dispatch(self, stimulus: Stimulus) -> None:
        match stimulus:
            case PeerFrameReceived(peer, frame):
                self._peer_frame(peer, frame)
            case ClientFrameReceived(client, frame):
                self._client_frame(client, frame)
            case ClientGone(client):
                self._reception.gone(client)
                self._fetching.gone(client)
                self._host.latecomers.recalls.gone(client)
            case LinkUp(peer):
                self._lives.pop(peer, None)
                self._out.add(SendPeer(peer, Hello(self.config.name, self.config.incarnation)))
            case LinkDown(peer):
                self._link_down(peer)
            case LogSynced(ticket):
                self._log_commit.synced(ticket)
            case LogFull(ticket):
                if self._log_commit.failed(ticket):
                    self.counters["log_full"] += 1
                    self._out.add(ResumeLog())
            case PfsSynced(ticket):
                self._pfs_commit.synced(ticket)
            case TablesCommitted(ticket):
                self._tables_commit.synced(ticket)
            case LogRead():
                self._streams[stimulus.pubend].read(stimulus)
            case LogFetched():
                self._fetching.read(stimulus)
            case PfsRead():
                self._host.latecomers.read(stimulus)
            case Woken():
                pass
            case _:
                assert_never(stimulus)

    # Neighbours.

    def _peer_frame(self, peer: str, frame: PeerFrame) -> None:
        if isinstance(frame, Hello):
            self._hello(peer, frame)
            return
        if peer not in self._lives:
            self.counters["former_lives"] += 1  # or it has not introduced itself yet
            return
        if getattr(frame, "pubend", None) not in (None, *self._streams):
            return  # its topology is another one: what is not known here goes nowhere from here
        match frame:
            case Knowledge():
                self._knowledge(peer, frame)
            case Nack(pubend, ranges):
                self._streams[pubend].nacked(peer, ranges, self._now)
            case AckExpected(pubend, tick):
                self._streams[pubend].ack_expected(tick)
            case Release(pubend, released, delivered, version):
                # Word that nobody is there, overtaken by word that somebody is, must not undo it.
                if released < TICK_MAX or version >= self._interests.heard_version(peer):
                    self._minima[pubend].report(peer, released, delivered)
                    self._report(pubend)
            case Interest():
                self._interests.heard(peer, frame)
                if frame.wanted is None or frame.wanted:
                    for minima in self._minima_of(peer):
                        minima.doubt(peer)
                self._interest_changed()
            case Claim():
                self._reception.moves.heard(peer, frame)
            case Topic():
                self._topics.heard(peer, frame)
            case Fetch():
                self._fetching.passed(peer, frame)
            case Fetched():
                self._fetching.fetched(frame)
            case Ping() | Pong():
                pass  # between the two ends of the link
            case _:
                assert_never(frame)

    def _hello(self, peer: str, frame: Hello) -> None:
        """A neighbour introduces itself. Born again, it has forgotten all, and what it said is forgotten."""
        if frame.incarnation < self._last_life.get(peer, 0):
            self.counters["former_lives"] += 1
            return
        self._lives[peer] = frame.incarnation
        if self._last_life.get(peer) != frame.incarnation:
            self._last_life[peer] = frame.incarnation
            self._interests.forget(peer)
            for minima in self._minima_of(peer):
                minima.doubt(peer)
        self._topics.tell_all(peer)
        self._reception.moves.tell_all(peer)
        said = self._interests.say(peer, again=True)
        assert said is not None
        self._out.add(SendPeer(peer, said))
        for stream in self._streams.values():
            stream.link_up(peer, self._now)
        self._fetching.link_up(peer)
        for name, stream in self._streams.items():
            if stream.upstream == peer:
                self._reported.pop(name, None)  # say again what holds now, if anything is known
                self._report(name)
        self._interest_changed()

    def _link_down(self, peer: str) -> None:
        self._lives.pop(peer, None)
        self._fetching.gone(peer)
        for stream in self._streams.values():
            stream.link_down(peer)

    def _minima_of(self, peer: str) -> list[Minima]:
        return [self._minima[name] for name, route in self.config.routes.items() if peer in route.downstream]

    def _knowledge(self, peer: str, frame: Knowledge) -> None:
        stream = self._streams[frame.pubend]
        if peer != stream.upstream:
            return
        if frame.first:
            stream.first(frame.base, frame.upto, frame.lost, frame.version, frame.batch)
        else:
            stream.answer(frame.base, frame.upto, frame.lost, frame.batch, frame.damaged)

    def _interest_changed(self) -> None:
        """Somebody here or behind a neighbour wants something else than before."""
        if self._host.minima_unknown:
            for minima in self._minima.values():
                minima.doubt(HERE)
        self._interest_unsaid = True

    def _say_interest(self) -> None:
        self._interest_unsaid = False
        for peer in self._peers:
            if peer in self._lives:
                said = self._interests.say(peer)
                if said is not None:
                    self._out.add(SendPeer(peer, said))

    def _hold(self, subscription: Subscription, done: Callable[[], None]) -> None:
        """Make sure that every pubend holds what a subscriber has not consumed, then `done`."""
        if all(pubend in self._pubends for pubend in subscription.released):
            done()

    # Clients.

    def _client_frame(self, client: int, frame: ClientFrame) -> None:
        match frame:
            case Publish():
                self._publish(client, frame)
            case Ack():
                self._reception.acknowledge(client, frame)
            case Credit():
                self._reception.grant(client, frame)
            case Subscribe():
                self._reception.subscribe(client, frame)
            case Unsubscribe():
                self._reception.unsubscribe(client, frame)
            case Topic():
                self._topics.declare(client, frame)
            case Describe():
                self._topics.describe(client, frame)
            case Fetch():
                self._fetching.asked(client, frame)
            case Offer():
                self.recalls.offered(client, frame)
            case Recalled():
                self.recalls.answered(client, frame)
            case Ask():
                self._admin.asked(client, frame)
            case _:
                kind = type(frame).__name__
                refused = Refused(kind, "", "frame", "a broker says this, not a client")
                self._out.add(SendClient(client, refused))

    def _publish(self, client: int, frame: Publish) -> None:
        pubend = self._pubends.get(frame.pubend)
        if pubend is None:
            reason = f"the pubend {frame.pubend!r} is not hosted here"
            self._out.add(SendClient(client, Refused("publish", frame.publisher, "pubend", reason)))
            return
        problem = self._topics.problem_of(frame.batch)
        if problem is not None:
            self.counters["publishes_refused"] += 1
            self._out.add(SendClient(client, Refused("publish", frame.publisher, "schema", problem)))
        else:
            pubend.received(client, frame, self._wall)

    # Pubends, release and time.

    def _pubend(self, name: str, state: PubendState) -> Pubend:
        stream = self._streams[name]

        def publish(base: int, upto: int, batch: EventBatch | None) -> None:
            stream.first(base, upto, self._pubends[name].lost, 0, batch)

        policy = self.config.pubend_policy
        return Pubend(name, state, policy, self._out, self.counters, self._log_commit, publish)

    def _periodic(self) -> None:
        self._woken_at = self._now
        self._host.wake(self._now)
        for name, pubend in self._pubends.items():
            pubend.beat(self._now, self._wall)
            tick = pubend.announcement(self._now)
            if tick is not None:
                self._streams[name].ack_expected(tick)
        for name in self._streams:
            here = self._host.acknowledgements.minima(name)
            if here is None:
                self._minima[name].doubt(HERE)
            else:
                self._minima[name].report(HERE, *here)
            self._report(name)
        if self._now - self._pfs_synced_at >= self.config.pfs_sync:
            self._pfs_synced_at = self._now
            self._pfs_commit.flush()

    def _report(self, name: str) -> None:
        """Pass the minima on: to the pubend if it is here, else upstream, when they have changed."""
        total = self._minima[name].total()
        if total is None:
            return
        if name in self._pubends:
            pubend = self._pubends[name]
            released, delivered = total
            limit = pubend.position
            pubend.released(min(released, limit), min(delivered, limit), self._now, self._wall)
            self._streams[name].lose(pubend.lost)
            return
        upstream = self._streams[name].upstream
        if total != self._reported.get(name) and upstream in self._lives and upstream is not None:
            self._reported[name] = total
            version = self._interests.said_version(upstream)
            self._out.add(SendPeer(upstream, Release(name, *total, version)))


def _neighbours(route: Route) -> tuple[str, ...]:
    return route.downstream if route.upstream is None else (route.upstream, *route.downstream)
