"""Machine: a simulated computer that runs one broker, its disk, and its end of every link."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, cast

from tidemark.access.document import AccessDocument
from tidemark.access.principal import Principal
from tidemark.broker.broker import Broker
from tidemark.broker.config import BrokerConfig
from tidemark.broker.effects import (
    AccessChanged,
    AppendEvents,
    ClientCame,
    ClientFrameReceived,
    ClientGone,
    DrainNotice,
    DropAnswers,
    Effect,
    LinkDown,
    LinkMeasured,
    LinkUp,
    LogExpired,
    LogFetched,
    LogFull,
    LogRead,
    LogSynced,
    LoseLog,
    PeerFrameReceived,
    ReadLog,
    RecoveredPubend,
    RefuseClient,
    RefusePeer,
    ResumeLog,
    RoutesChanged,
    SendClient,
    SendPeer,
    Stimulus,
    Woken,
)
from tidemark.broker.hearing import may_settle_later
from tidemark.broker.overlay.layout import Layout
from tidemark.errors import DamagedError, DiskFailedError, DiskFullError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.registry import Registry
from tidemark.sim.world.disk_thread import SMALL_STORE, SimDiskThread
from tidemark.sim.world.engine import Engine
from tidemark.ticks import Range
from tidemark.wire.codec import encoder_for_link
from tidemark.wire.decoder import FrameDecoder
from tidemark.wire.frames import ClientFrame, PeerFrame, Publish
from tidemark.wire.limits import FRAME_BYTES_MAX, LINK_NEWEST

if TYPE_CHECKING:
    from tidemark.sim.world.world import World

#: A broker that could not start because of its disk is started again after so many microseconds.
START_AGAIN_US = 200_000
#: A document takes up to so many microseconds to a neighbour, and to the disk.
TELLS_US_MAX = 60_000
SAVES_US_MAX = 20_000


def spoken(frame: PeerFrame, version: int) -> Sequence[PeerFrame]:
    """Returns what a neighbour hears that speaks this version, through the bytes that real links carry."""
    if version == LINK_NEWEST:
        return (frame,)
    decoder = FrameDecoder(FRAME_BYTES_MAX)
    said = decoder.feed(b"".join(encoder_for_link(version)(frame)))
    return cast(Sequence[PeerFrame], said)


class Machine:
    """One broker's computer. Every start and crash increments `life`, which cancels scheduled actions."""

    def __init__(self, world: World, name: str, chance: Random) -> None:
        self._world = world
        self._engine: Engine = world.engine
        self.name = name
        self._disk = SimDiskThread(
            self._engine,
            chance,
            name,
            self._disk_did,
            self._give,
            self._disk_failed,
            replace(
                SMALL_STORE,
                is_cached=world.plan.cache_bytes_max > 0,
                pfs_group_bits=world.plan.pfs_group_bits,
                os_pubends=tuple(world.plan.pubends) if world.plan.is_durable_once_written else (),
            ),
        )
        self.life = 0
        self.broker: Broker | None = None
        #: microseconds that this machine's time of day is ahead of the world's
        self.skew = 0
        self._links: set[str] = set()
        #: neighbour -> how often its link came up, and how many of these LinkUps the broker has handled
        #: the topics that the broker knows, for the oracle
        self.registry = Registry()
        self._came_up: dict[str, int] = {}
        self._heard_up: dict[str, int] = {}
        self._clients: set[int] = set()
        self._wake_at: int | None = None
        #: number of the last topology change that the broker was told of
        self._topology_change = 0
        #: stimuli that a paused broker will handle when it goes on
        self._held: deque[Stimulus] = deque()
        self._paused_until = 0
        #: appended to the log and not yet synced
        self._unsynced: list[AppendEvents] = []
        #: the access document on disk; None while brokers are open
        self.document: AccessDocument | None = None if world.access is None else world.access.first
        #: the document that the broker goes by
        self._in_force = self.document
        # A generator of its own: what is drawn from it leaves the rest of the world unchanged.
        self._access_chance = Random(f"access at {name}, {world.seed}")
        #: client that has published more than its quota -> what it has said since, which is not read yet
        self._unread: dict[int, deque[ClientFrameReceived]] = {}
        #: the clients of which the broker knows who they are; from others it takes nothing
        self._logged_in_clients: set[int] = set()
        #: the newest version of the protocol between brokers that the program here speaks
        self.link_version = world.plan.link_versions.get(name, LINK_NEWEST)
        # A generator of its own: what is drawn from it leaves the rest of the world unchanged.
        self._version_chance = Random(f"link versions at {name}, {world.seed}")

    def start(self) -> None:
        """Start a new life of the broker from its disk; try again later if the disk is full or fails."""
        assert self.broker is None
        if self.life:
            self.upgrade(self._version_chance.randint(self.link_version, LINK_NEWEST))
        self.life += 1
        self._topology_change = self._world.topology_changes
        hosted = [pubend for pubend, host in self._world.layout.pubends.items() if host == self.name]
        try:
            recovered, incarnation = self._disk.start(hosted, self._engine.now + self.skew)
        except (DiskFullError, DiskFailedError):
            self._engine.after(START_AGAIN_US, lambda: self._world.restart(self.name))
            return
        except DamagedError:
            # An administrator reads why, and puts the right tables back.
            self._disk.put_tables_back()
            self._world.fault_counts["refused"] += 1
            self._engine.after(START_AGAIN_US, lambda: self._world.restart(self.name))
            return
        for pubend, state in recovered.pubends.items():
            self._world.recovered(pubend, state, *self._logged(pubend, state), rots=self._disk.rots)
        config: BrokerConfig = self._world.config_of(self.name, incarnation)
        if self._world.access is not None and self.document is not None:
            config = replace(config, access=self.document)
            self._goes_by(self.document)
        self.registry = Registry()
        self.broker = Broker(config, self.registry, recovered)
        self._world.started(self)
        self._give(Woken())

    def upgrade(self, version: int) -> None:
        """The program of the broker, which is down, speaks this version from now on, or a newer one."""
        assert self.broker is None
        self._world.fault_counts["upgrade"] += self.link_version < version
        self.link_version = max(version, self.link_version)

    def topology_changed(self, number: int, layout: Layout, drain_notice: DrainNotice | None) -> None:
        """Tell the broker of a topology change, unless it already knows a later one."""
        if number > self._topology_change:
            self._topology_change = number
            self._give(RoutesChanged(layout, drain_notice=drain_notice))
            for peer in sorted(self._links - set(layout.neighbours(self.name))):
                self._world.part(self.name, peer)

    def access_heard(self, document: AccessDocument) -> None:
        """An administrator or a neighbour brings an access document: it is put on disk if it is newer."""
        life = self.life

        def saved() -> None:
            if self.life == life and self.document is not None and document.supersedes(self.document):
                self.document = document
                self._give(AccessChanged(document))
                for peer in sorted(self._links):
                    self._tell_access(peer)

        if self.broker is not None and self.document is not None and document.supersedes(self.document):
            self._engine.after(self._access_chance.randint(1_000, SAVES_US_MAX), saved)

    def _tell_access(self, peer: str) -> None:
        """Tell a neighbour which document is on disk here; it arrives if the link is up then."""
        document = self.document
        if document is not None:
            delay = self._access_chance.randint(200, TELLS_US_MAX)
            self._engine.after(delay, lambda: self._world.tell_access(self.name, peer, document))

    def crash(self) -> None:
        """Switch the machine off at once, with its broker, links and clients."""
        if self.broker is None:
            return
        self._world.count(self.broker.counters)
        self._note("crashes")
        self.broker = None
        self.life += 1
        self._links.clear()
        self._came_up.clear()
        self._heard_up.clear()
        self._held.clear()
        self._unread.clear()
        self._logged_in_clients.clear()
        self._paused_until = 0
        self._unsynced.clear()
        clients, self._clients = self._clients, set()
        self._disk.crash()
        self._wake_at = None
        for client in sorted(clients):
            self._world.connection_lost(client)

    # Faults.

    @property
    def is_hindered(self) -> bool:
        """Whether the broker is down or paused, or its disk is full or does nothing."""
        return self.broker is None or self._engine.now < self._paused_until or self._disk.is_hindered

    def fail_next_sync(self) -> None:
        """The next sync of a volume fails, upon which the broker stops at once."""
        self._disk.fail_next_sync()

    def fill_disk(self) -> None:
        """Leave no room on the disk."""
        self._disk.fill()

    def free_disk(self) -> None:
        """Make room on the disk again."""
        self._disk.free()

    def stall_disk(self, duration: int) -> None:
        """The disk does nothing for so many microseconds."""
        self._disk.stall(duration)

    def rot(self, chance: Random) -> bool:
        """Damage a synced record of an event log or the PFS; returns False if there is none."""
        return self._disk.rot(chance)

    def harm_tables(self, chance: Random) -> None:
        """The next crash is the death of the process alone, and its tables are gone or older afterwards."""
        self._disk.harm_tables(chance)

    def pause(self, duration: int) -> None:
        """Stop the process for `duration` microseconds; stimuli are held until it goes on."""
        if self.broker is None:
            return
        self._paused_until = max(self._paused_until, self._engine.now + duration)
        life = self.life

        def go_on() -> None:
            while self.life == life and self._held and self._engine.now >= self._paused_until:
                together = [self._held.popleft()]
                while self._held and may_settle_later(together[-1]) and may_settle_later(self._held[0]):
                    together.append(self._held.popleft())
                self._handle(*together)

        self._engine.at(self._paused_until, go_on)

    # Stimuli.

    def link_up(self, peer: str) -> None:
        """A link to a neighbour is there."""
        if self.broker is not None and peer not in self._links:
            self._links.add(peer)
            self._came_up[peer] = self._came_up.get(peer, 0) + 1
            self._give(LinkUp(peer))
            self._tell_access(peer)

    def has_link(self, peer: str) -> bool:
        """Whether there is a link to a neighbour."""
        return peer in self._links

    def link_down(self, peer: str) -> None:
        """A link to a neighbour is gone."""
        if peer in self._links:
            self._links.discard(peer)
            self._give(LinkDown(peer))

    def link_measured(self, peer: str, delay: int | None, bytes_per_second: int | None) -> None:
        """The link to a neighbour was measured: its round trip in microseconds, and bytes a second to it."""
        self._give(LinkMeasured(peer, delay, bytes_per_second))

    def peer_frame(self, peer: str, frame: PeerFrame) -> None:
        """A frame came over a link."""
        if peer in self._links:
            self._give(PeerFrameReceived(peer, frame))

    def client_came(self, client: int, user: str) -> None:
        """A client opened a connection, as a user if there are accounts."""
        assert self.broker is not None
        self._clients.add(client)
        if self.document is not None:
            self._give(ClientCame(client, Principal(user)))

    def has(self, client: int) -> bool:
        """Whether a client's connection is open at this end."""
        return client in self._clients

    def client_frame(self, client: int, frame: ClientFrame) -> None:
        """A frame came over a client's connection."""
        if client in self._clients:
            self._give(ClientFrameReceived(client, frame))

    def client_gone(self, client: int) -> None:
        """A client's connection is gone."""
        if client in self._clients:
            self._forget(client)
            self._give(ClientGone(client))

    def _forget(self, client: int) -> None:
        """Nothing goes to a client any more, and nothing that it has said is read."""
        self._clients.discard(client)
        self._unread.pop(client, None)

    def _give(self, stimulus: Stimulus) -> None:
        if self.broker is None:
            return
        if self._held or self._engine.now < self._paused_until:
            self._held.append(stimulus)
        else:
            self._handle(stimulus)

    def _handle(self, *stimuli: Stimulus) -> None:
        """Have the broker handle one stimulus, or several that it may hear before it settles."""
        assert self.broker is not None
        life, trace, now = self.life, self._world.trace, self._engine.now
        effects: list[Effect] = []
        heard = 0
        for stimulus in stimuli:
            known = self._noted(stimulus)
            if known is None:
                continue
            if trace is not None:
                trace.told(now, self.name, known)
            effects += self.broker.hear(known, now, now + self.skew)
            heard += 1
        if not heard:
            return
        for effect in effects + self.broker.settle():
            if trace is not None:
                trace.did(now, self.name, effect)
            if self.life == life:
                self._carry_out(effect)
        if self.life == life:
            self._schedule_wake()

    def _noted(self, stimulus: Stimulus) -> Stimulus | None:
        """Note what the world has to know of a stimulus; return it as the broker gets it, None if never."""
        assert self.broker is not None
        if isinstance(stimulus, LinkUp):
            self._heard_up[stimulus.peer] = self._heard_up.get(stimulus.peer, 0) + 1
        elif isinstance(stimulus, AccessChanged) and self._world.access is not None:
            assert stimulus.document is not None
            self._goes_by(stimulus.document)
        elif isinstance(stimulus, ClientCame):
            known = self._logged_in(stimulus)
            if known is not None:
                self._logged_in_clients.add(known.client)
            return known
        elif isinstance(stimulus, ClientGone):
            self._logged_in_clients.discard(stimulus.client)
        elif isinstance(stimulus, ClientFrameReceived) and isinstance(stimulus.frame, Publish):
            if self._has_to_wait(stimulus):
                return None
            if stimulus.client in self._logged_in_clients:
                self._world.publishes(self.name, stimulus.client, stimulus.frame)
        elif isinstance(stimulus, ClientFrameReceived) and stimulus.client in self._unread:
            self._unread[stimulus.client].append(stimulus)
            return None
        elif isinstance(stimulus, PeerFrameReceived):
            self._world.checks.heard(self.broker, stimulus.peer, stimulus.frame)
        return stimulus

    def _goes_by(self, document: AccessDocument) -> None:
        assert self._world.access is not None
        self._in_force = document
        self._world.access.goes_by(self.name, document)
        self._world.checks.publishing.begin(self.name)

    def _has_to_wait(self, said: ClientFrameReceived) -> bool:
        """Whether a client publishes more than its quota: it is not read until it may, as in a real node."""
        assert self.broker is not None
        if said.client not in self._unread:
            wait = self.broker.publish_wait(said.client, self._engine.now)
            if not wait:
                return False
            self.broker.counters["quota_waits"] += 1
            self._unread[said.client] = deque()
            self._read_after(wait, said.client)
        self._unread[said.client].append(said)
        return True

    def _read_after(self, wait: int, client: int) -> None:
        life = self.life

        def read() -> None:
            if self.life != life or client not in self._unread:
                return
            assert self.broker is not None
            # A process that stands still reads nothing, and what it holds comes after what is unread.
            left = max(0, self._paused_until - self._engine.now) or int(bool(self._held))
            left = left or self.broker.publish_wait(client, self._engine.now)
            if left:
                self._read_after(left, client)
                return
            for each in self._unread.pop(client):
                self._give(each)

        self._engine.after(wait, read)

    def _logged_in(self, came: ClientCame) -> ClientCame | None:
        """Returns who came, by the document that the broker goes by; None for an unknown user, who leaves."""
        assert self._in_force is not None
        assert came.principal is not None
        principal = self._in_force.principal(came.principal.name)
        if principal is None:
            self._world.fault_counts["struck_off"] += 1
            self._clients.discard(came.client)
            self._world.connection_lost(came.client)
            return None
        return ClientCame(came.client, principal)

    def _schedule_wake(self) -> None:
        assert self.broker is not None
        at = max(self.broker.next_wake(), self._engine.now + 1)
        if self._wake_at is not None and self._engine.now < self._wake_at <= at:
            return
        self._wake_at = at
        life = self.life

        def wake() -> None:
            if self.life == life and self._wake_at == at:
                self._wake_at = None
                self._give(Woken())

        self._engine.at(at, wake)

    # Effects.

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendPeer(peer, frame):
                # A link that has gone down and come up again meanwhile is another connection.
                if peer in self._links and self._heard_up.get(peer) == self._came_up[peer]:
                    for each in spoken(frame, self._world.link_version(self.name, peer)):
                        self._world.network.send(self.name, peer, each)
            case DropAnswers(peer, pubend):
                self._world.network.drop_answers(self.name, peer, pubend)
            case SendClient(client, frame):
                if client in self._clients:
                    self._world.to_client(client, frame)
            case RefuseClient(client, _, _, "access"):
                # Nothing more reaches the client, whatever the broker says before it knows that it is gone.
                if client in self._clients:
                    self._forget(client)
                    self._world.connection_lost(client)
                    life = self.life
                    self._engine.after(1, lambda: self._gone(client, life))
            case RefuseClient(client, reason):
                self._engine.after(1, lambda: self._refuse_client(client, reason))
            case RefusePeer(peer, reason):
                self._engine.after(1, lambda: self._refuse_peer(peer, reason))
            case LoseLog(pubend, upto):
                self._world.checks.let_go(pubend, upto, self._engine.now + self.skew)
                self._disk.put(effect)
            case _:
                self._disk.put(effect)

    def _gone(self, client: int, life: int) -> None:
        if self.life == life:
            self._give(ClientGone(client))

    def _refuse_client(self, client: int, reason: str) -> None:
        self._world.frame_refused(self.name, reason)
        self.client_gone(client)
        self._world.connection_lost(client)

    def _refuse_peer(self, peer: str, reason: str) -> None:
        self._world.frame_refused(self.name, reason)
        self._world.part(self.name, peer)

    def window_bytes(self) -> list[tuple[str, int]]:
        """Returns (pubend, bytes in its window) for each pubend; empty while the broker is down."""
        return [] if self.broker is None else self.broker.window_bytes()

    def has_delivered(self, pubend: str, upto: int) -> bool:
        """Whether the subscribers here that are not catching up, if any, have been given all up to a tick."""
        stream = self.broker.stream(pubend) if self.broker is not None else None
        if stream is None or stream.listener is None:
            return True
        delivered = stream.listener.delivered(pubend)
        return delivered is None or delivered >= upto

    def _note(self, text: str) -> None:
        if self._world.trace is not None:
            self._world.trace.note(self._engine.now, self.name, text)

    # The disk.

    def _disk_did(self, effect: Effect, stimulus: Stimulus | None) -> None:
        """Tell the ground truth which events are durable: those that a sync has covered."""
        if isinstance(effect, AppendEvents):
            self._unsynced.append(effect)
        elif isinstance(stimulus, LogSynced):
            for each in self._unsynced:
                self._world.logged(each.pubend, each.batch)
            self._unsynced.clear()
        elif isinstance(stimulus, LogFull) or isinstance(effect, ResumeLog):
            self._unsynced.clear()
        elif isinstance(stimulus, LogExpired):
            self._world.checks.expire(stimulus.pubend, stimulus.upto)
        elif isinstance(stimulus, LogRead | LogFetched):
            read = stimulus.read if isinstance(stimulus, LogFetched) else stimulus
            if read.damaged:
                self._world.damage_found(read.pubend, read.damaged, rots=self._disk.rots)

    def _disk_failed(self) -> None:
        """A disk failed, so the broker stops at once; the machine is started again later."""
        self._world.crash(self.name)
        self._engine.after(START_AGAIN_US, lambda: self._world.restart(self.name))

    def _logged(self, pubend: str, state: RecoveredPubend) -> tuple[list[EventBatch], list[Range]]:
        """Returns all events of a recovered log, and the ranges that the log reports as damaged."""
        batches: list[EventBatch] = []
        damaged: list[Range] = []
        at = state.lost
        while at < state.last:
            answer = self._disk.read(ReadLog(pubend, at, state.last))
            batches += answer.batches
            damaged += answer.damaged
            at = answer.upto
        return batches, damaged
