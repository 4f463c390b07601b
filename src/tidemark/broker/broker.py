"""Broker: the parts of one broker put together. One stimulus goes in, its effects come out.

For each pubend a broker is publisher hosting (the pubend is here), subscriber hosting (subscribers are here)
and relay (neighbours follow it), in any mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tidemark.broker.access.access_control import AccessControl
from tidemark.broker.access.held_quota import HeldQuota
from tidemark.broker.admin import Admin
from tidemark.broker.config import BrokerConfig, Recovered
from tidemark.broker.departures import Departures
from tidemark.broker.effects import (
    AccessChanged,
    CacheRead,
    CacheWritten,
    ClientCame,
    ClientFrameReceived,
    ClientGone,
    Effect,
    HostRemoved,
    LinkDown,
    LinkMeasured,
    LinkUp,
    LogExpired,
    LogFetched,
    LogFull,
    LogRead,
    LogSynced,
    PeerFrameReceived,
    PfsCounted,
    PfsRead,
    PfsSynced,
    RecoveredPubend,
    RefuseClient,
    RefusePeer,
    ResumeLog,
    RoutesChanged,
    SendClient,
    Stimulus,
    TablesCommitted,
    Woken,
)
from tidemark.broker.hearing import is_published
from tidemark.broker.hosting.admission import Admission
from tidemark.broker.hosting.host import Host
from tidemark.broker.hosting.recalls import Recalls
from tidemark.broker.hosting.sessions import Sessions
from tidemark.broker.overlay.layout import Layout
from tidemark.broker.overlay.overlay import OverlayRole
from tidemark.broker.overlay.trust import Trust
from tidemark.broker.preparation import Preparation
from tidemark.broker.publishing.consumed_limit import ConsumedLimit
from tidemark.broker.publishing.fetching import Fetching
from tidemark.broker.publishing.pubend import Pubend
from tidemark.broker.publishing.publishing import Publishing, parted
from tidemark.broker.publishing.release_reports import ReleaseReports
from tidemark.broker.streams.disk_cache import DiskCache
from tidemark.broker.streams.interest import Interests
from tidemark.broker.streams.stream import Stream
from tidemark.broker.topics import Topics
from tidemark.broker.turn import Turn
from tidemark.errors import FrameError
from tidemark.message.registry import Registry
from tidemark.ticks import Range
from tidemark.wire.answers import LinkCondition, PubendStatus
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
    Subscribe,
    Together,
    Topic,
    Unfollow,
    Unsubscribe,
    Ways,
    Yielded,
)
from tidemark.wire.moving.frames import Come, Leave, Left
from tidemark.wire.peer_layouts import singly


class Broker:
    """One broker. State changes only in `handle`, or in its parts `hear`, `append`, `settle`, `deliver`."""

    def __init__(self, config: BrokerConfig, registry: Registry, recovered: Recovered) -> None:
        self.config = config
        self._turn = turn = Turn(config.observer)
        self.counters = turn.counters
        self._departures = Departures(config.silence_patience)
        self._woken_at = 0
        #: nothing was heard since the broker has settled but what was published, which only the log gets
        self._is_settled = False
        #: what `next_wake` has returned, while that is so
        self._wake_at: int | None = None
        #: the stimulus that is being handled is the passing of time
        self._is_woken = False
        self._pfs_synced_at = 0
        #: pubend of the layout -> its stream; only this class adds and removes. `OverlayRole`, `Fetching` and
        #: `ReleaseReports` hold it too
        self._streams: dict[str, Stream] = {}
        #: pubend hosted here -> itself; only this class adds and removes. `Fetching`, `ReleaseReports` and
        #: `Admin` hold it too
        self._pubends: dict[str, Pubend] = {}
        self._cache = DiskCache(turn, config.cache_bytes_max)
        self._access = AccessControl(config.access, registry, turn)
        self._interests = Interests(config.incarnation, registry, turn)
        self.fetching = Fetching(self._pubends, self._streams, registry, turn, self._access)
        self._overlay = OverlayRole(config, self._streams, self._interests, turn)
        me, life, overlay = config.name, config.incarnation, self._overlay
        self._reports = reports = ReleaseReports(
            me, life, self._streams, self._pubends, overlay, turn, config.release_period
        )
        self._overlay.listeners += (self.fetching, self._reports)
        self._host = Host(registry, self._interests, turn, config.host_policy, self.fetching, self._reports)
        self._reports.consumption = self._host.acknowledgements
        self._topics = Topics(
            registry, turn, self._overlay, self._host, config.topic_limits, config.client_limits, self._access
        )
        #: the steps that are taken before something is handled; whoever runs the broker takes them
        self.preparation = Preparation(
            registry, self._topics, self._host.audience, self._interests, self.fetching
        )
        self._publishing = Publishing(self._pubends, self._streams, self._topics, self._access, turn)
        self._publishing.drain_notice = config.drain_notice
        for name in config.layout.pubends:
            state = recovered.pubends.get(name, RecoveredPubend())
            self._open(name, config.layout, state, recovered.hosts.get(name))
        self._topics.recover(recovered.topics)
        last = {name: state.last for name, state in recovered.pubends.items()}
        self._host.recover(
            recovered.subscriptions, recovered.delivered, last, doubtful_above=recovered.doubtful_above
        )
        consumed = ConsumedLimit(self._pubends, self._streams, turn, config.pubend_policy.lease_ahead)
        admission = Admission(registry, consumed, config.client_limits, self._access, turn)
        self._sessions = Sessions(me, self._host, admission, turn, reports, overlay, self._access)
        self._held_quota = HeldQuota(
            self._host, turn, self._access.quotas.held_bytes, config.held_quota_period
        )
        self._sessions.recover(recovered.next_subscriber)
        self._trust = Trust(config, overlay, self._sessions.handover, reports, self._topics, turn)
        self._topics.existence_listeners = (self._sessions,)
        hosts = reports.hosts
        self._admin = Admin(self._host, self._sessions, registry, self._pubends, hosts, turn, self._access)
        for name, pubend in self._pubends.items():
            if self._host.delivered(name) is None:
                self._streams[name].window.raise_floor(pubend.position)

    @property
    def access(self) -> AccessControl:
        """What clients may do and see; the process around the broker only asks it."""
        return self._access

    def publish_wait(self, client: int, now: int) -> int:
        """Return the microseconds until a client may publish; 0 is now. A new user gets an allowance."""
        return self._access.quotas.wait(client, now)

    def describe_pubends(self) -> list[PubendStatus]:
        """Return how the pubends that are hosted here stand."""
        return self._admin.pubends()

    @property
    def recalls(self) -> Recalls:
        """What the archive is asked for. For reading only."""
        return self._host.catchup_streams.recalls

    def handle(self, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        """Take one stimulus; return its effects, to be carried out in order.

        `now` is monotonic and drives thresholds; `wall` is the time of day, gives ticks, and may jump.
        """
        return self.hear(stimulus, now, wall) + self.settle()

    def hear(self, stimulus: Stimulus, now: int, wall: int) -> list[Effect]:
        """Do the first half of `handle`, which answers publishers; call `settle` next (but see `hearing`).

        If it raises, the broker's state is in doubt, and the broker must not be used any more. A frame that
        cannot be handled does not raise: it changes nothing, and the connection that it came over is refused.
        """
        turn = self._turn
        turn.now = now
        turn.wall = wall
        if not is_published(stimulus):
            self._is_settled, self._wake_at = False, None
        try:
            self._dispatch(stimulus)
        except FrameError as error:
            self._refuse(stimulus, error)
        self._is_woken = type(stimulus) is Woken
        if self._is_woken:
            self._periodic()
        return self._departures.take(turn.out.take(), now) if turn.out.effects else []

    def _refuse(self, stimulus: Stimulus, error: FrameError) -> None:
        """Refuse the connection of a frame that was only looked at, or raise `error` if more was done.

        This is the line between an error that ends a connection and one that ends the broker: a FrameError is
        raised in `Turn.looking` only, where nothing is changed. All other errors pass through `hear`.
        """
        if not isinstance(stimulus, ClientFrameReceived | PeerFrameReceived) or self._turn.out.effects:
            raise error  # something else than a frame, or a frame that has had effects already
        self.counters["frames_refused"] += 1
        reason = f"the frame {type(stimulus.frame).__name__} cannot be handled: {error}"
        if isinstance(stimulus, ClientFrameReceived):
            self._turn.out.add(RefuseClient(stimulus.client, reason, error.__cause__ or error))
        else:
            self._turn.out.add(RefusePeer(stimulus.peer, reason, error.__cause__ or error))

    def append(self) -> list[Effect]:
        """Give what was published to the log, whose sync publishers wait for, before `settle` does more."""
        if not self._turn.log.gathering:
            return []
        for pubend in self._pubends.values():
            pubend.log()
        self._turn.log.flush()
        return self._departures.take(self._turn.out.take(), self._turn.now)

    def deliver(self, now: int, wall: int) -> list[Effect]:
        """Go on with what was too much for one turn: see `is_behind`. All must be settled."""
        self._turn.now, self._turn.wall = now, wall
        self._is_settled, self._wake_at = False, None
        self._host.go_on()
        return self.settle()

    @property
    def is_behind(self) -> bool:
        """Whether there is more to deliver, or to release, than fits into one turn; see `deliver`."""
        return self._host.is_behind

    def settle(self, *, is_log_held: bool = False) -> list[Effect]:
        """Do the second half of `handle`: deliver, follow, ask and save what the first has made possible.

        With `is_log_held` what was published is not given to the log yet: settle again soon. If nothing was
        heard since the last time but what was published, there is nothing to do but that.
        """
        if self._is_settled:
            return [] if is_log_held else self.append()
        self._is_settled = True
        for pubend in self._pubends.values():
            if not is_log_held:
                pubend.log()
            pubend.settle()
        self._sessions.settle(is_woken=self._is_woken)
        self._overlay.settle()
        if self._interests.is_unsaid and (not self._interests.is_large or self._is_woken):
            self._interests.is_unsaid = False
            self._overlay.say_interest()
        self._host.settle()
        for stream in self._streams.values():
            stream.shrink()
            stream.wake()
        if not is_log_held:
            self._turn.log.flush()
        self._turn.tables.flush()
        others = self._departures.take(self._turn.out.take(), self._turn.now)
        return others + self._departures.leave(self._turn.now)

    def hosts(self, name: str) -> bool:
        """Return whether a subscription of this name is here, maybe until another broker's claim settles."""
        return self._sessions.find(name) is not None

    def known_from(self, name: str, pubend: str) -> int | None:
        """Return the tick beyond which the PFS here knows what matched a subscriber; None if it does not."""
        found = self._sessions.find(name)
        return found.known.get(pubend) if found is not None else None

    def held_for(self, name: str) -> dict[str, Range]:
        """Return pubend -> the range whose events are held for a durable subscription and counted."""
        found = self._sessions.find(name)
        return {} if found is None else self._host.owed.held_for(found)

    def stream(self, pubend: str) -> Stream | None:
        """Return a pubend's stream, for reading only; None if there is no such pubend."""
        return self._streams.get(pubend)

    def link_condition(self, peer: str) -> LinkCondition:
        """Return how well the link to a neighbour has worked."""
        return self._overlay.condition(peer)

    def awaits(self, peer: str, frame: Knowledge | Fetched) -> list[Range]:
        """Return the parts of what an answer of `peer` tells that somebody here waits for."""
        if isinstance(frame, Fetched):
            return [(frame.base, frame.upto)] if self.fetching.awaits(frame) else []
        stream = self._streams.get(frame.pubend)
        if stream is not None and stream.upstream == peer:
            return stream.awaited(frame.base, frame.upto)
        return []

    def window_bytes(self) -> list[tuple[str, int]]:
        """Return each pubend with the bytes of its window."""
        return [(name, stream.window.bytes) for name, stream in self._streams.items()]

    @property
    def publishers_bytes(self) -> int:
        """The memory of the named publishers that the pubends here remember."""
        return sum(pubend.publishers_bytes for pubend in self._pubends.values())

    def next_wake(self) -> int:
        """Return the monotonic time when the broker wants a Woken at the latest."""
        if self._wake_at is not None:
            return self._wake_at
        if self._sessions.is_leaving or self._host.is_telling or self._host.is_behind:
            return self._turn.now
        times = [self._woken_at + self.config.period]
        times += [at for stream in self._streams.values() if (at := stream.next_wake()) is not None]
        times += [at for part in (self._overlay, self._departures) if (at := part.next_wake()) is not None]
        self._wake_at = min(times)
        return self._wake_at

    def _dispatch(self, stimulus: Stimulus) -> None:
        match stimulus:
            case ClientFrameReceived(client, frame):
                self._client_frame(client, frame)
            case PeerFrameReceived(peer, frame):
                self._peer_frame(peer, frame)
            case LogSynced(ticket):
                self._turn.log.synced(ticket)
            case ClientCame(client, principal, origin):
                self._access.came(client, principal, origin)
            case AccessChanged(document):
                self._access.change(document)
            case ClientGone(client):
                self._access.gone(client)
                self._sessions.gone(client)
                self._topics.gone(client)
                self.fetching.gone(client)
                self._host.catchup_streams.recalls.gone(client)
            case LinkUp(peer):
                self._overlay.link_up(peer)
            case LinkDown(peer):
                self._departures.link_down(peer)
                self._overlay.link_down(peer)
                self.fetching.gone(peer)
            case LinkMeasured():
                self._overlay.measured(stimulus)
            case LogFull(ticket):
                if self._turn.log.failed(ticket):
                    self.counters["log_full"] += 1
                    self._turn.out.add(ResumeLog())
            case PfsSynced(ticket):
                self._turn.pfs.synced(ticket)
            case TablesCommitted(ticket):
                self._turn.tables.synced(ticket)
            case LogRead():
                if stimulus.pubend in self._streams:
                    self._streams[stimulus.pubend].read(stimulus)
            case LogFetched():
                self.fetching.read(stimulus)
            case CacheWritten(number):
                self._cache.written(number)
            case CacheRead():
                if stimulus.asked.pubend in self._streams:
                    self._streams[stimulus.asked.pubend].cached(stimulus)
            case LogExpired():
                if stimulus.pubend in self._pubends:
                    self._pubends[stimulus.pubend].expired(stimulus)
            case PfsRead():
                self._host.catchup_streams.read(stimulus)
            case PfsCounted():
                self._host.owed.counted(stimulus)
            case RoutesChanged(layout, pubends, drain_notice):
                self._publishing.drain_notice = drain_notice
                for pubend in self._pubends.values():
                    pubend.is_draining = drain_notice is not None
                self._change(layout, pubends)
            case HostRemoved(host):
                self._reports.remove_host(host)
            case Woken():
                pass
            case _:
                assert_never(stimulus)

    # Neighbours.

    def _peer_frame(self, peer: str, frame: PeerFrame) -> None:
        if isinstance(frame, Hello):
            self._look(peer, frame)
            if self._overlay.hello(peer, frame):
                self._greet(peer)
            return
        if not self._overlay.is_present(peer):
            self.counters["former_lives"] += 1  # or the neighbour has not introduced itself yet
            return
        # Whatever can be refused is looked at before anything is changed: all of it counts, or nothing.
        parts = singly(frame)
        self._trust.look_at_nacks(peer, parts)
        for each in parts:
            self._look(peer, each)
        for each in parts:
            self._peer_part(peer, each)

    def _peer_part(self, peer: str, frame: PeerFrame) -> None:
        """Hear a frame of a neighbour that came alone or with others, and was looked at."""
        match frame:
            case Interest():
                self._overlay.followed(peer, frame)
            case Unfollow():
                self._overlay.unfollowed(peer, frame)
            case Links():
                self._overlay.linked(peer, frame)
            case Ways():
                self._overlay.ways_said(peer, frame)
            case Claim():
                self._sessions.handover.heard(peer, frame)
            case Yielded():
                self._sessions.handover.yielded(frame)
            case Topic():
                self._topics.heard(peer, frame)
            case Fetch():
                self.fetching.passed(peer, frame)
            case Fetched():
                self.fetching.fetched(peer, frame)
            case Leave():
                self._publishing.passed(peer, frame)
            case Left():
                self._publishing.left(peer, frame)
            case Ping() | Pong() | Hello() | Together():
                pass  # between the two ends of the link, or never inside another frame
            case Knowledge() | Nack() | AckExpected() | Release() | Heard():
                # A neighbour may go by another layout: frames of pubends not in this one are dropped.
                if frame.pubend in self._streams:
                    self._stream_frame(peer, frame, self._streams[frame.pubend])
            case _:
                assert_never(frame)

    def _look(self, peer: str, frame: PeerFrame) -> None:
        """Look at a frame of a neighbour, and change nothing: FrameError if it is refused."""
        self._trust.look(peer, frame)
        if isinstance(frame, Interest):
            self._interests.look(frame)
        elif isinstance(frame, Fetch):
            self.fetching.look(frame)

    def _stream_frame(
        self, peer: str, frame: Knowledge | Nack | AckExpected | Release | Heard, stream: Stream
    ) -> None:
        match frame:
            case Knowledge(_, base, upto, lost, first, version, batch, damaged):
                if peer == stream.upstream and first:
                    stream.first(base, upto, lost, version, batch)
                elif peer == stream.upstream:
                    stream.answer(base, upto, lost, version, batch, damaged)
                    self._overlay.reached(frame.pubend)
                elif frame.first:
                    self._overlay.passed_on(peer, frame)
            case Nack(_, ranges, version):
                stream.nacked(peer, ranges, version=version)
            case AckExpected(pubend, tick):
                if peer == stream.upstream and stream.ack_expected(tick):
                    self._reports.ack_expected(pubend, tick)
            case Release(pubend, rows):
                self._reports.released(peer, pubend, self._trust.believed(peer, pubend, rows))
            case Heard():
                if self._trust.may_answer(frame.pubend, peer):
                    self._reports.heard(frame)
            case _:
                assert_never(frame)

    def _greet(self, peer: str) -> None:
        """A neighbour has come up, and may have been away: tell it topics and claims."""
        self._topics.tell_all(peer)
        self._sessions.handover.tell_all(peer)

    def _change(self, layout: Layout, states: Mapping[str, RecoveredPubend]) -> None:
        """Go by another layout; `states` is what the log knows of pubends newly hosted here."""
        self.counters["routes_changed"] += 1
        for name in sorted(set(self._streams) - set(layout.pubends)):
            self._close(name)
        for name in sorted(set(layout.pubends) - set(self._streams)):
            self._open(name, layout, states.get(name, RecoveredPubend()), {})
        for peer in self._overlay.change(layout):
            self._greet(peer)
        self._reports.keep_only(layout.brokers)
        self._trust.keep_only(layout.brokers)

    # Clients.

    def _client_frame(self, client: int, said: ClientFrame) -> None:
        frame: ClientFrame | Refused = said
        if not self._access.is_open:
            frame = self._turn.looking.at(self._access.checked, client, said)
        if frame is not said and isinstance(frame, Refused):
            if isinstance(said, Publish) and said.parts:
                for part in parted(said):  # the refusal names an event of one frame
                    self._client_frame(client, part)
                return
            self.counters["denied"] += 1
            self._turn.out.add(SendClient(client, frame))
            return
        match frame:
            case Publish():
                self._publishing.publish(client, frame)
            case Leave():
                self._publishing.leave(client, frame)
            case Come():
                self._publishing.come(client, frame)
            case Ack():
                self._sessions.acknowledge(client, frame)
                for each in frame.credits:
                    self._sessions.grant(client, each)
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
                self.fetching.asked(client, frame)
            case Offer():
                self.recalls.offered(client, frame)
            case Recalled():
                self.recalls.answered(client, frame)
            case Ask():
                self._admin.asked(client, frame)
            case _:
                refused = Refused(type(frame).__name__, "", "frame", "a broker says this, not a client")
                self._turn.out.add(SendClient(client, refused))

    # Pubends, release and time.

    def _open(
        self, name: str, layout: Layout, state: RecoveredPubend, hosts: Mapping[str, int] | None
    ) -> None:
        """Open a pubend of the layout: its stream, and if it is hosted here the pubend itself.

        `hosts` is what the tables say of its subscriber hosting brokers, None if they say nothing.
        """
        config = self.config
        is_hosted = layout.pubends[name] == config.name
        self._streams[name] = stream = Stream(
            name,
            self._interests,
            self._turn,
            config.window_bytes_max,
            config.thresholds,
            is_hosted=is_hosted,
            cache=self._cache,
        )
        self._reports.open(name)
        if is_hosted:
            pubend = self._pubends[name] = Pubend(name, state, config.policy_of(name), self._turn, stream)
            pubend.is_draining = self._publishing.drain_notice is not None
            stream.position = pubend.position
            stream.window.lose(pubend.lost)
            self._reports.open_hosted(name, state, hosts, layout)
        self._host.join(name, stream)

    def _close(self, name: str) -> None:
        """Close a pubend that is not in the layout any more; subscribers keep it in their tokens."""
        self._host.part(name)
        self._interests.forget_pubend(name)
        self._reports.close(name)
        self._cache.forget_pubend(name)
        del self._streams[name]
        self._pubends.pop(name, None)

    def _periodic(self) -> None:
        now = self._woken_at = self._turn.now
        self._host.wake()
        self._held_quota.wake()
        self._overlay.wake()
        self._sessions.wake()
        for name, pubend in self._pubends.items():
            pubend.beat()
            pubend.expire()
            if (tick := pubend.announcement()) is not None:
                self._streams[name].ack_expected(tick)
        self._reports.wake()
        if now - self._pfs_synced_at >= self.config.pfs_sync:
            self._pfs_synced_at = now
            self._turn.pfs.flush()
