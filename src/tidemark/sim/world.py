"""World: a network of machines with publishers and subscribers, and the truth about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tidemark.broker.broker import BrokerConfig, Route
from tidemark.broker.effects import AppendEvents
from tidemark.broker.host import HostPolicy
from tidemark.broker.pubend import PubendPolicy
from tidemark.message.registry import Registry
from tidemark.message.schema import Schema
from tidemark.sim.actors import Publisher, Subscriber, ViolationError
from tidemark.sim.engine import Engine
from tidemark.sim.machine import Machine
from tidemark.sim.network import LinkFaults, Network
from tidemark.ticks import Thresholds
from tidemark.wire.frames import ClientFrame, PeerFrame, Refused

SECOND = 1_000_000
START = 1_000_000 * SECOND


@dataclass(frozen=True, slots=True)
class Plan:
    """What a world is made of: a tree of brokers, where pubends live, and how things are set."""

    #: broker -> its parent in the tree; the root has none
    parents: Mapping[str, str | None]
    #: pubend -> the broker that hosts it
    pubends: Mapping[str, str]
    faults: LinkFaults = field(default_factory=LinkFaults)
    window_bytes_max: int = 1 << 20
    pubend_policy: PubendPolicy = field(default_factory=PubendPolicy)
    host_policy: HostPolicy = field(default_factory=HostPolicy)
    thresholds: Thresholds = field(default_factory=Thresholds)
    topics: tuple[str, ...] = ("t.x", "t.y")


class World:
    """Everything in one thread, from one seed."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.chance = Random(seed)
        self.engine = Engine(START)
        self.schema = Schema.parse("[key: string, kind: string, n: int]")
        self.topics = plan.topics
        self.registry = Registry()
        for topic in self.topics:
            self.registry.declare(topic, self.schema)
        self.network = Network(self.engine, Random(self.chance.random()), self._arrived)
        self.network.faults = plan.faults
        self.neighbours = _neighbours(plan.parents)
        self.machines = {
            name: Machine(self, name, self._routes(name), Random(self.chance.random()))
            for name in plan.parents
        }
        self._links_down: set[frozenset[str]] = set()
        self._clients: dict[int, tuple[str, Callable[[ClientFrame], None], Callable[[], None]]] = {}
        self._next_client = 1
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        #: key -> topic and fields of everything that was ever sent
        self.facts: dict[str, tuple[str, dict[str, object]]] = {}
        #: somebody chose to let history go
        self.gaps_allowed = False
        #: pubend -> tick -> key of every event that was ever durable
        self.truth: dict[str, dict[int, str]] = {name: {} for name in plan.pubends}
        #: machine -> records of its log that are in `truth`
        self._recorded: dict[str, int] = {}
        for machine in self.machines.values():
            machine.start()

    def config_of(self, name: str, incarnation: int, routes: Mapping[str, Route]) -> BrokerConfig:
        """How a broker of this world is set."""
        plan = self.plan
        return BrokerConfig(
            name,
            incarnation,
            routes,
            plan.pubend_policy,
            plan.host_policy,
            plan.thresholds,
            plan.window_bytes_max,
        )

    # Links.

    def started(self, machine: Machine) -> None:
        """A machine is on: its links come up."""
        for peer in self.neighbours[machine.name]:
            self.engine.after(1_000, lambda peer=peer: self._connect(machine.name, peer))  # type: ignore[misc]

    def cut(self, a: str, b: str) -> None:
        """A link goes down."""
        self._links_down.add(frozenset((a, b)))
        self._disconnect(a, b)

    def mend(self, a: str, b: str) -> None:
        """A link comes up again."""
        self._links_down.discard(frozenset((a, b)))
        self._connect(a, b)

    def crash(self, name: str) -> None:
        """A machine goes down, with its links and connections."""
        self.machines[name].crash()
        self.synced(self.machines[name])  # part of what was not synced may have reached the disk after all
        for peer in self.neighbours[name]:
            self._disconnect(name, peer)

    def restart(self, name: str) -> None:
        """A machine comes up again."""
        if self.machines[name].broker is None:
            self.machines[name].start()

    def is_up(self, name: str) -> bool:
        """A machine is running."""
        return self.machines[name].broker is not None

    def _connect(self, a: str, b: str) -> None:
        if frozenset((a, b)) in self._links_down or not (self.is_up(a) and self.is_up(b)):
            return
        self.machines[a].link_up(b)
        self.machines[b].link_up(a)

    def _disconnect(self, a: str, b: str) -> None:
        self.network.cut(a, b)
        self.machines[a].link_down(b)
        self.machines[b].link_down(a)

    def _arrived(self, sender: str, receiver: str, frame: PeerFrame) -> None:
        self.machines[receiver].peer_frame(sender, frame)

    # Clients.

    def connect(self, name: str, receive: Callable[[ClientFrame], None], gone: Callable[[], None]) -> int:
        """Open a connection to a broker."""
        client = self._next_client
        self._next_client += 1
        self._clients[client] = (name, receive, gone)
        self.machines[name].client_came(client)
        return client

    def disconnect(self, client: int) -> None:
        """A client closes its connection; the broker will notice."""
        known = self._clients.pop(client, None)
        if known is not None:
            self.engine.after(500, lambda: self.machines[known[0]].client_gone(client))

    def connection_lost(self, client: int) -> None:
        """The broker's side of a connection is gone; the client will notice."""
        known = self._clients.pop(client, None)
        if known is not None:
            self.engine.after(500, known[2])

    def to_broker(self, client: int, frame: ClientFrame) -> None:
        """A client says something."""

        def arrive() -> None:
            if client in self._clients:
                self.machines[self._clients[client][0]].client_frame(client, frame)

        self.engine.after(200, arrive)

    def to_client(self, client: int, frame: ClientFrame) -> None:
        """A broker says something."""

        def arrive() -> None:
            if client in self._clients:
                self._clients[client][1](frame)

        self.engine.after(200, arrive)

    def refused(self, subscriber: Subscriber, frame: Refused) -> None:
        """A subscriber was refused, which none in this world should be."""
        raise ViolationError(f"{subscriber.name} was refused: {frame.reason}")

    # Truth.

    def synced(self, machine: Machine) -> None:
        """Something is on disk now: remember every event that is."""
        key = self.schema.accessor("key")
        journal = machine.store.log
        for record in journal.records[self._recorded.get(machine.name, 0) : journal.synced]:
            if isinstance(record, AppendEvents):
                for row, tick in enumerate(record.batch.ticks.tolist()):
                    self.truth[record.pubend][tick] = key(record.batch.message(row))
        self._recorded[machine.name] = journal.synced

    def _routes(self, name: str) -> dict[str, Route]:
        routes: dict[str, Route] = {}
        for pubend, host in self.plan.pubends.items():
            upstream = _towards(self.neighbours, name, host)
            downstream = tuple(peer for peer in self.neighbours[name] if peer != upstream)
            routes[pubend] = Route(upstream, downstream)
        return routes


def _neighbours(parents: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {name: set() for name in parents}
    for name, parent in parents.items():
        if parent is not None:
            found[name].add(parent)
            found[parent].add(name)
    return {name: tuple(sorted(peers)) for name, peers in found.items()}


def _towards(neighbours: Mapping[str, tuple[str, ...]], start: str, goal: str) -> str | None:
    """The neighbour of `start` on the way to `goal`; None when it is there."""
    if start == goal:
        return None
    seen = {start}
    front = [(peer, peer) for peer in neighbours[start]]
    while front:
        node, first = front.pop(0)
        if node == goal:
            return first
        seen.add(node)
        front += [(peer, first) for peer in neighbours[node] if peer not in seen]
    raise AssertionError(f"no way from {start} to {goal}")
