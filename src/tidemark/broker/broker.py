"""Broker: the roles of one broker put together. One stimulus in, its effects out.

For each pubend it is publisher hosting (the pubend is here), subscriber hosting (subscribers are here) and
relay (neighbours are behind it), in any mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tidemark.broker.admin import Admin
from tidemark.broker.commit import GroupCommit
from tidemark.broker.counters import Counters
from tidemark.broker.effects import (
    ClientFrameReceived,
    ClientGone,
    CommitTables,
    Effect,
    HostRemoved,
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
    PubendState,
    ResumeLog,
    RoutesChanged,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Woken,
)
from tidemark.broker.hosting.host import Host, HostPolicy, SavedSubscription
from tidemark.broker.hosting.recalls import Recalls
from tidemark.broker.hosting.sessions import Sessions
from tidemark.broker.hosting.subscription import Subscription
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.overlay.overlay import Overlay
from tidemark.broker.publishing.fetching import Fetching
from tidemark.broker.publishing.pubend import Pubend, PubendPolicy
from tidemark.broker.publishing.release import Hosts, Minima, Releases, Rows
from tidemark.broker.streams.interest import HERE, STARTED_ONLY, Interests
from tidemark.broker.streams.stream import Stream
from tidemark.broker.topics import Topics
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.ticks import TICK_MIN, Thresholds
from tidemark.wire.answers import PubendStatus
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
    Heard,
    Hello,
    Interest,
    Knowledge,
    Links,
    Nack,
    Offer,
    PeerFrame,
    Ping,
    Pong,
    Publish,
    Recalled,
    Refused,
    Release,
    ReleaseRow,
    Subscribe,
    Topic,
    Unfollow,
    Unsubscribe,
)
from tidemark.wire.limits import ROWS_MAX

MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything about a broker that does not change in its life."""

    name: str
    #: grows with every life; kept on disk
    incarnation: int
    layout: Layout
    pubend_policy: PubendPolicy = field(default_factory=PubendPolicy)
    host_policy: HostPolicy = field(default_factory=HostPolicy)
    thresholds: Thresholds = field(default_factory=Thresholds)
    window_bytes_max: int = 64 << 20
    #: periodic work: silence, releases, saving
    period: int = 50 * MILLISECOND
    pfs_sync: int = 100 * MILLISECOND
    #: a better way to a pubend that has come (back) is taken after half of this to all of it
    return_delay: int = 1_000 * MILLISECOND
    #: what a neighbour wanted whose link is gone is asked for on for so long
    linger: int = 10_000 * MILLISECOND


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
    #: pubend hosted here -> the brokers that may have subscribers of it -> the oldest row of theirs that
    #: counts; not there: nobody ever said
    hosts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Broker:
    """One broker. `handle` is its only door."""

    def __init__(self, config: BrokerConfig, registry: Registry, recovered: Recovered) -> None:
        self.config = config
        self.counters = Counters()
        #: where publishers are to go, while nothing new is taken here; "" otherwise
        self.elsewhere = ""
        self._out = Outbox()
        self._now = self._wall = 0
        self._woken_at = 0
        #: the stimulus that is being handled is the passing of time
        self._is_woken = False
        self._pfs_synced_at = 0
        self._interests = Interests(config.incarnation, registry, self.counters)
        #: what is wanted has changed since neighbours were told
        self._interest_unsaid = False
        self._log_commit = GroupCommit(lambda ticket: self._out.add(SyncLog(ticket)))
        self._pfs_commit = GroupCommit(lambda ticket: self._out.add(SyncPfs(ticket)))
        self._tables_commit = GroupCommit(lambda ticket: self._out.add(CommitTables(ticket)))
        self._streams: dict[str, Stream] = {}
        self._pubends: dict[str, Pubend] = {}
        self._hosts: dict[str, Hosts] = {}
        self._rows: dict[str, Rows] = {}
        self._releases = Releases(config.name, config.incarnation)
        self._fetching = Fetching(self._pubends, self._streams, registry, self._out, self.counters)
        self._overlay = Overlay(
            config.name,
            config.incarnation,
            config.layout,
            self._streams,
            self._interests,
            self._out,
            self.counters,
            return_us=config.return_delay,
            linger_us=config.linger,
            attached=self._attached,
            changed=self._interest_changed,
        )
        for name in config.layout.pubends:
            self._open(name, recovered.pubends.get(name, PubendState()), recovered.hosts.get(name))
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
            self._may_begin,
        )
        self._topics = Topics(
            registry,
            self._out,
            self.counters,
            self._tables_commit,
            lambda: sorted(self._overlay.lives),
            self._host.learnt,
        )
        for stream in self._streams.values():
            stream.listener = self._host
        self._topics.recover(recovered.topics)
        last = {name: state.last for name, state in recovered.pubends.items()}
        self._host.recover(recovered.subscriptions, recovered.delivered, last)
        self._sessions = Sessions(
            config.name,
            self._host,
            registry,
            self._out,
            self.counters,
            recovered.next_subscriber,
            lambda: sorted(self._overlay.lives),
            self._hold,
        )
        self._sessions.claim_again()
        self._admin = Admin(self._host, self._sessions, registry, self._pubends, self._hosts, self._out)
        for name, pubend in self._pubends.items():
            if self._host.delivered(name) is None:
                self._streams[name].window.raise_floor(pubend.position)

    def describe_pubends(self) -> list[PubendStatus]:
        """Return how the pubends that are hosted here stand."""
        return self._admin.pubends()

    @property
    def recalls(self) -> Recalls:
        """What the archive is asked for."""
        return self._host.catchup_streams.recalls

    def handle(self, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        """Take one stimulus; what is to be done about it.

        `now` is monotonic and drives thresholds; `wall` is the time of day, gives ticks, and may jump.
        """
        return self.hear(stimulus, now, wall) + self.settle()

    def hear(self, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        """The first part of `handle`, which answers publishers; nothing else may come before `settle`."""
        self._now = self._host.now = self._fetching.now = now
        self._wall = self._host.wall = wall
        self._host.catchup_streams.now, self._host.catchup_streams.wall = now, wall
        self._overlay.now = now
        self._dispatch(stimulus)
        self._is_woken = isinstance(stimulus, Woken)
        if self._is_woken:
            self._periodic()
        return self._out.take()

    def settle(self) -> list[Effect]:
        """The second part: deliver, follow, ask, and put on disk what the first has made possible."""
        for pubend in self._pubends.values():
            pubend.settle()
        self._host.settle()
        self._overlay.settle(self._now)
        if self._interest_unsaid and (not self._interests.is_large or self._is_woken):
            self._interest_unsaid = False
            self._overlay.say_interest()
        for stream in self._streams.values():
            stream.shrink()
            stream.wake(self._now)
        self._log_commit.flush()
        self._tables_commit.flush()
        return self._out.take()

    def hosts(self, name: str) -> bool:
        """A subscription of this name is here, if only until another broker has it for sure."""
        return self._sessions.find(name) is not None

    def known_from(self, name: str, pubend: str) -> int | None:
        """From where on the stream of a pubend here accounts for a subscriber; None when it does not."""
        found = self._sessions.find(name)
        return found.known.get(pubend) if found is not None else None

    def stream(self, pubend: str) -> Stream | None:
        """A pubend's stream as it is here; None if there is no such pubend."""
        return self._streams.get(pubend)

    def window_bytes(self) -> list[tuple[str, int]]:
        """How much it remembers of each pubend."""
        return [(name, stream.window.bytes) for name, stream in self._streams.items()]

    def next_wake(self) -> int:
        """When, in monotonic time, the broker wants a Woken at the latest."""
        times = [self._woken_at + self.config.period]
        times += [at for stream in self._streams.values() if (at := stream.next_wake()) is not None]
        if (taken := self._overlay.next_wake()) is not None:
            times.append(taken)
        return min(times)

    def _dispatch(self, stimulus: Stimulus) -> None:
        match stimulus:
            case PeerFrameReceived(peer, frame):
                self._peer_frame(peer, frame)
            case ClientFrameReceived(client, frame):
                self._client_frame(client, frame)
            case ClientGone(client):
                self._sessions.gone(client)
                self._fetching.gone(client)
                self._host.catchup_streams.recalls.gone(client)
            case LinkUp(peer):
                self._overlay.link_up(peer)
            case LinkDown(peer):
                self._overlay.link_down(peer)
                self._fetching.gone(peer)
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
                if stimulus.pubend in self._streams:
                    self._streams[stimulus.pubend].read(stimulus)
            case LogFetched():
                self._fetching.read(stimulus)
            case PfsRead():
                self._host.catchup_streams.read(stimulus)
            case RoutesChanged(layout, pubends):
                self._change(layout, pubends)
            case HostRemoved(host):
                for hosts in self._hosts.values():
                    hosts.remove(host)
            case Woken():
                pass
            case _:
                assert_never(stimulus)

    # Neighbours.

    def _peer_frame(self, peer: str, frame: PeerFrame) -> None:
        if isinstance(frame, Hello):
            if self._overlay.hello(peer, frame):
                self._greet(peer)
            return
        if peer not in self._overlay.lives:
            self.counters["former_lives"] += 1  # or it has not introduced itself yet
            return
        match frame:
            case Interest():
                self._overlay.followed(peer, frame)
            case Unfollow():
                self._overlay.unfollowed(peer, frame)
            case Links():
                self._overlay.linked(peer, frame)
            case Claim():
                self._sessions.handover.heard(peer, frame)
            case Topic():
                self._topics.heard(peer, frame)
            case Fetch():
                self._fetching.passed(peer, frame)
            case Fetched():
                self._fetching.fetched(frame)
            case Ping() | Pong():
                pass  # between the two ends of the link
            case Knowledge() | Nack() | AckExpected() | Release() | Heard():
                # If its layout is another one: what is not known here goes nowhere from here.
                if frame.pubend in self._streams:
                    self._stream_frame(peer, frame, self._streams[frame.pubend])
            case _:
                assert_never(frame)

    def _stream_frame(
        self, peer: str, frame: Knowledge | Nack | AckExpected | Release | Heard, stream: Stream
    ) -> None:
        match frame:
            case Knowledge():
                if peer == stream.upstream:
                    self._knowledge(frame, stream)
            case Nack(_, ranges, version):
                stream.nacked(peer, ranges, self._now, version=version)
            case AckExpected(pubend, tick):
                if peer == stream.upstream and stream.ack_expected(tick, self._now):
                    self._rows[pubend].say_again()
            case Release(pubend, rows):
                self._released(peer, pubend, rows)
            case Heard(pubend, host, sequence):
                self._heard(pubend, host, sequence)
            case _:
                assert_never(frame)

    def _knowledge(self, frame: Knowledge, stream: Stream) -> None:
        if frame.first:
            stream.first(frame.base, frame.upto, frame.lost, frame.version, frame.batch)
        else:
            stream.answer(frame.base, frame.upto, frame.lost, frame.version, frame.batch, frame.damaged)

    def _interest_changed(self) -> None:
        """Somebody here or behind a neighbour wants something else than before, and waits for it."""
        self._interest_unsaid = True
        for pubend in self._pubends.values():
            pubend.hasten()

    def _greet(self, peer: str) -> None:
        """A neighbour is there, and may have been away."""
        self._topics.tell_all(peer)
        self._sessions.handover.tell_all(peer)

    def _attached(self, pubend: str) -> None:
        """Its stream comes from another neighbour, which knows nothing of what is behind this broker."""
        self._fetching.attached(pubend)
        self._rows[pubend].say_again()
        self._report(pubend)

    def _change(self, layout: Layout, states: Mapping[str, PubendState]) -> None:
        """The overlay is another one."""
        self.counters["routes_changed"] += 1
        for name in sorted(set(self._streams) - set(layout.pubends)):
            self._close(name)
        for name in sorted(set(layout.pubends) - set(self._streams)):
            self._open(name, states.get(name, PubendState()), {}, layout)
            self._streams[name].listener = self._host
            self._host.join(name, self._streams[name])
        for peer in self._overlay.change(layout):
            self._greet(peer)
        for rows in self._rows.values():
            rows.keep_only(layout.brokers)

    def _hold(self, subscription: Subscription, done: Callable[[], None]) -> None:
        """Make sure that every pubend holds what a subscriber has not consumed, then `done`."""
        elsewhere = self._streams.keys() - self._pubends.keys()
        released = subscription.released
        self._releases.hold_all({each: released[each] for each in released if each in elsewhere}, done)

    # Clients.

    def _client_frame(self, client: int, frame: ClientFrame) -> None:
        match frame:
            case Publish():
                self._publish(client, frame)
            case Ack():
                self._sessions.acknowledge(client, frame)
            case Credit():
                self._sessions.grant(client, frame)
            case Subscribe():
                self._sessions.subscribe(client, frame)
            case Unsubscribe():
                self._sessions.unsubscribe(client, frame)
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
        elif self.elsewhere and not pubend.has(frame):
            pubend.turn_away(client, frame, self.elsewhere)
        else:
            pubend.received(client, frame, self._wall)

    # Pubends, release and time.

    def _open(
        self, name: str, state: PubendState, hosts: Mapping[str, int] | None, layout: Layout | None = None
    ) -> None:
        """A pubend of the layout: its stream, and if it is hosted here the pubend itself."""
        layout, config = layout or self.config.layout, self.config
        is_hosted = layout.pubends[name] == config.name
        self._streams[name] = stream = Stream(
            name,
            self._interests,
            self._out,
            self.counters,
            config.window_bytes_max,
            config.thresholds,
            is_hosted=is_hosted,
            wall=lambda: self._wall,
        )
        self._rows[name] = Rows()
        if is_hosted:
            pubend = self._pubends[name] = self._pubend(name, state)
            stream.position = pubend.position
            stream.window.lose(pubend.lost)
            self._hosts[name] = self._hosts_of(name, state, hosts, layout)

    def _hosts_of(
        self, name: str, state: PubendState, hosts: Mapping[str, int] | None, layout: Layout
    ) -> Hosts:
        """Where there is history and nobody ever said who hosts subscribers, anyone may."""
        has_history = max(state.last, state.lost) > TICK_MIN
        others = [each for each in layout.brokers if each != self.config.name] if has_history else []
        known = dict.fromkeys(others, 0) if hosts is None else hosts
        found = Hosts(name, known, self._out, self._tables_commit)
        if hosts is None:
            found.save()
        return found

    def _close(self, name: str) -> None:
        """The pubend is not in the layout any more; what subscribers have of it stays in their tokens."""
        self._host.part(name)
        self._interests.forget_pubend(name)
        self._releases.forget(name)
        del self._streams[name], self._rows[name]
        self._pubends.pop(name, None)
        self._hosts.pop(name, None)

    def _pubend(self, name: str, state: PubendState) -> Pubend:
        stream = self._streams[name]

        def publish(base: int, upto: int, batch: EventBatch | None) -> None:
            stream.first(base, upto, self._pubends[name].lost, 0, batch)

        policy = self.config.pubend_policy
        return Pubend(name, state, policy, self._out, self.counters, self._log_commit, publish)

    def _periodic(self) -> None:
        self._woken_at = self._now
        self._host.wake(self._now)
        self._overlay.wake(self._now)
        for name, pubend in self._pubends.items():
            pubend.beat(self._now, self._wall)
            tick = pubend.announcement(self._now)
            if tick is not None:
                self._streams[name].ack_expected(tick, self._now)
        for name in self._streams:
            self._report(name)
        if self._now - self._pfs_synced_at >= self.config.pfs_sync:
            self._pfs_synced_at = self._now
            self._pfs_commit.flush()

    def _report(self, name: str) -> None:
        """Say what those here and behind have consumed: to the pubend if it is here, else upstream."""
        here = self._host.acknowledgements.minima(name)
        if name in self._pubends:
            self._release(name, here)
            return
        row = self._releases.row(name, here, self._now)
        if row is not None:
            self._rows[name].learn(HERE, row, self._now)
        self._pass_rows(name)

    def _pass_rows(self, name: str, *, asking_only: bool = False) -> None:
        upstream = self._streams[name].upstream
        if upstream is None:
            return
        rows = self._rows[name].unsaid(upstream, asking_only=asking_only)
        for at in range(0, len(rows), ROWS_MAX):
            self._out.add(SendPeer(upstream, Release(name, rows[at : at + ROWS_MAX])))

    def _release(self, name: str, here: Minima | None) -> None:
        pubend = self._pubends[name]
        total = self._hosts[name].total(None if here is None else self._releases.bounded(name, here))
        if total is not None:
            released, delivered = (min(each, pubend.position) for each in total)
            pubend.released(released, delivered, self._now, self._wall)
            self._streams[name].lose(pubend.lost)

    def _released(self, peer: str, name: str, rows: Iterable[ReleaseRow]) -> None:
        """Hosts behind a neighbour say how far they are; what asks to be heard does not wait."""
        for row in rows:
            if row.host not in self._overlay.routing.members or row.host == self.config.name:
                continue  # itself, or struck off, or not known yet: then it will say it again
            if name in self._pubends:
                self._hosts[name].received(peer, row, self._overlay.lives.__contains__)
                if row.asks:
                    self._pubends[name].hasten()
            else:
                self._rows[name].learn(peer, row, self._now)
        if name not in self._pubends:
            self._pass_rows(name, asking_only=True)

    def _heard(self, name: str, host: str, sequence: int) -> None:
        """The pubend's broker has heard of a host, which may be this one."""
        if host == self.config.name:
            if self._releases.heard(name, sequence):
                position = self._streams[name].position
                self._host.advanced(name, STARTED_ONLY, position, position)
            return
        way = self._rows[name].way_back(host)
        if way is not None and way in self._overlay.lives:
            self._out.add(SendPeer(way, Heard(name, host, sequence)))

    def _may_begin(self, name: str) -> bool:
        """Subscribers here may start: the pubend's broker knows that there are some, and holds."""
        if name in self._pubends or self._releases.may_begin(name):
            return True
        self._report(name)
        return False
