"""Machine: a simulated computer that runs one broker, its disk, and its end of every link."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, assert_never

from tidemark.broker.broker import Broker, BrokerConfig, Route
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendPfs,
    ChopPfs,
    ClientFrameReceived,
    ClientGone,
    CloseClient,
    CommitTables,
    DropSubscription,
    Effect,
    LinkDown,
    LinkUp,
    LogSynced,
    LoseLog,
    PeerFrameReceived,
    PfsSynced,
    ReadLog,
    ReadPfs,
    SaveReleased,
    SaveSubscription,
    SendClient,
    SendPeer,
    Stimulus,
    SyncLog,
    SyncPfs,
    TablesCommitted,
    Woken,
)
from tidemark.sim.engine import Action, Engine
from tidemark.sim.store import Journal, Store
from tidemark.wire.frames import ClientFrame, PeerFrame

if TYPE_CHECKING:
    from tidemark.sim.world import World

#: A sync takes this long at the most, in microseconds.
SYNC_US_MAX = 20_000
READ_US_MAX = 5_000


class Machine:
    """One broker's computer. `life` changes with every crash, so that what was under way comes to nothing."""

    def __init__(self, world: World, name: str, routes: dict[str, Route], chance: Random) -> None:
        self._world = world
        self._engine: Engine = world.engine
        self.name = name
        self._routes = routes
        self._chance = chance
        self.store = Store()
        self.life = 0
        self.broker: Broker | None = None
        #: microseconds that this machine's time of day is ahead of the world's
        self.skew = 0
        self._links: set[str] = set()
        self._clients: set[int] = set()
        self._wake_at: int | None = None

    def start(self) -> None:
        """Switch it on: a new life of the broker, from what the disk has."""
        assert self.broker is None
        self.life += 1
        hosted = [name for name, route in self._routes.items() if route.upstream is None]
        recovered = self.store.recover(hosted)
        config: BrokerConfig = self._world.config_of(self.name, self.store.incarnation, self._routes)
        self.broker = Broker(config, self._world.registry, recovered)
        self._world.started(self)
        self._give(Woken())

    def crash(self) -> None:
        """Switch it off, at once."""
        if self.broker is None:
            return
        self.broker = None
        self.life += 1
        self._links.clear()
        clients, self._clients = self._clients, set()
        self.store.crash(self._chance)
        self._wake_at = None
        for client in sorted(clients):
            self._world.connection_lost(client)

    # What reaches it.

    def link_up(self, peer: str) -> None:
        """A link to a neighbour is there."""
        if self.broker is not None and peer not in self._links:
            self._links.add(peer)
            self._give(LinkUp(peer))

    def link_down(self, peer: str) -> None:
        """A link to a neighbour is gone."""
        if peer in self._links:
            self._links.discard(peer)
            self._give(LinkDown(peer))

    def peer_frame(self, peer: str, frame: PeerFrame) -> None:
        """A frame came over a link."""
        if peer in self._links:
            self._give(PeerFrameReceived(peer, frame))

    def client_came(self, client: int) -> None:
        """A client opened a connection."""
        assert self.broker is not None
        self._clients.add(client)

    def client_frame(self, client: int, frame: ClientFrame) -> None:
        """A frame came over a client's connection."""
        if client in self._clients:
            self._give(ClientFrameReceived(client, frame))

    def client_gone(self, client: int) -> None:
        """A client's connection is gone."""
        if client in self._clients:
            self._clients.discard(client)
            self._give(ClientGone(client))

    def _give(self, stimulus: Stimulus) -> None:
        if self.broker is None:
            return
        for effect in self.broker.handle(stimulus, self._engine.now, self._engine.now + self.skew):
            self._carry_out(effect)
        self._schedule_wake()

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

    # What it does.

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendPeer(peer, frame):
                if peer in self._links:
                    self._world.network.send(self.name, peer, frame)
            case SendClient(client, frame):
                if client in self._clients:
                    self._world.to_client(client, frame)
            case CloseClient(client):
                self._clients.discard(client)
                self._world.connection_lost(client)
            case AppendEvents() | AppendLease() | LoseLog():
                self.store.log.append(effect)
            case SaveSubscription() | SaveReleased() | DropSubscription():
                self.store.tables.append(effect)
            case AppendPfs():
                self.store.append_pfs(effect)
            case ChopPfs():
                pass
            case SyncLog(ticket):
                self._sync(self.store.log, LogSynced(ticket))
            case SyncPfs(ticket):
                self._sync(self.store.pfs, PfsSynced(ticket))
            case CommitTables(ticket):
                self._sync(self.store.tables, TablesCommitted(ticket))
            case ReadLog():
                self._later(READ_US_MAX, lambda: self._give(self.store.read_log(effect)))
            case ReadPfs():
                self._later(READ_US_MAX, lambda: self._give(self.store.read_pfs(effect)))
            case _:
                assert_never(effect)

    def _sync(self, journal: Journal, done: Stimulus) -> None:
        reached = len(journal.records)

        def finish() -> None:
            journal.synced = max(journal.synced, reached)
            self._world.synced(self)
            self._give(done)

        self._later(SYNC_US_MAX, finish)

    def _later(self, longest: int, action: Action) -> None:
        life = self.life

        def act() -> None:
            if self.life == life:
                action()

        self._engine.after(self._chance.randint(1, longest), act)
